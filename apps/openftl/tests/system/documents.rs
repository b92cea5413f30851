//! The documents: every command block of every page is run, as it stands there, and what the page shows is what is printed.
//!
//! A page has a fresh folder, a network and a `/tmp` of its own; its blocks are run one after the other by one shell.
//!
//! | in a page | what happens |
//! |---|---|
//! | ` ```sh ` | each command has to succeed |
//! | ` ```console ` | each line behind `$ ` is a command, and what follows is what it prints; `…` stands for anything, alone for any lines |
//! | ` ```toml ` that begins with `# NAME.toml` | is that file |
//! | `openftl serve …` without `--run` | goes on beside the next commands, until one that needs the drive for itself: `create`, `serve`, `check`, `inspect` |
//! | a `console` block without a command | the server ends, and prints this |
//! | a shown output that begins with `error:` or `✗` | the command has to fail |
//! | `<!-- figures vary -->` before a block | figures are not compared: clocks of real time, and processes, differ |
//! | `<!-- first: COMMAND -->` | is run before; readers do not see it |
//! | `<!-- not run: REASON -->` | the block is left out |

use crate::drive::openftl;
use crate::environment::{Need, runs_here};
use crate::program::Running;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What ends the greeting of a server.
const IS_SERVED: &str = "Ctrl-C ends it cleanly.";

/// One thing that the shell does for a page.
#[derive(Debug)]
enum Act {
    /// What readers do not see.
    Hidden(String),
    /// A file with this name.
    File(String, String),
    /// A command, and the lines that it prints where the page shows them.
    Run { command: String, shown: Option<Shown> },
    /// The server ends, and prints this.
    Stop(Shown),
}

/// Lines as a page shows them.
#[derive(Debug)]
struct Shown {
    /// Of the page: where they begin, counted from one.
    line: usize,
    lines: Vec<String>,
    figures_vary: bool,
}

impl Shown {
    /// Whether it is what `command` prints where it fails.
    fn is_failure_of(&self, command: &str) -> bool {
        let program = command.split_whitespace().next().unwrap_or_default();
        let begins = |line: &String| {
            [program, "error", "✗"]
                .iter()
                .any(|name| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([':', ' '])))
        };
        self.lines.first().is_some_and(begins)
    }
}

/// What a comment says of the block behind it.
#[derive(Default)]
struct Notes {
    figures_vary: bool,
    not_run: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The acts of a page.
fn acts(page: &str) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut notes = Notes::default();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let note = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        match (note, line.strip_prefix("```")) {
            (Some("figures vary"), _) => notes.figures_vary = true,
            (Some(note), _) => match note.split_once(": ") {
                Some(("first", command)) => acts.push(Act::Hidden(command.to_owned())),
                Some(("not run", _)) => notes.not_run = true,
                _ => {}
            },
            (None, Some(language)) => {
                let block: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
                let notes = std::mem::take(&mut notes);
                match language {
                    "sh" | "console" if notes.not_run => {}
                    "sh" => acts.extend(scripted(&block)),
                    "toml" => acts.extend(file(&block)),
                    "console" => acts.extend(shown(&block, number + 1, notes.figures_vary)),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    acts
}

/// A file that says its name.
fn file(block: &[&str]) -> Option<Act> {
    let name = block.first()?.strip_prefix("# ").filter(|name| name.ends_with(".toml") && !name.contains(' '))?;
    Some(Act::File(name.to_owned(), block.join("\n") + "\n"))
}

/// The commands of a script: lines, and those that go on behind a `\`.
fn scripted(block: &[&str]) -> Vec<Act> {
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in block.iter().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        match commands.last_mut().filter(|_| goes_on) {
            Some(command) => write!(command, "\n{line}").expect("a string takes all"),
            None => commands.push((*line).to_owned()),
        }
        goes_on = line.ends_with('\\');
    }
    commands.into_iter().map(|command| Act::Run { command, shown: None }).collect()
}

/// The commands of a terminal, each with what it prints.
fn shown(block: &[&str], first: usize, figures_vary: bool) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut goes_on = false;
    for (offset, line) in block.iter().enumerate() {
        let new = || Shown { line: first + offset + 1, lines: Vec::new(), figures_vary };
        match (acts.last_mut(), line.strip_prefix("$ ")) {
            (Some(Act::Run { command, .. }), None) if goes_on => {
                write!(command, "\n{line}").expect("a string takes all");
            }
            (_, Some(command)) => acts.push(Act::Run { command: command.to_owned(), shown: Some(new()) }),
            (Some(Act::Run { shown: Some(shown), .. } | Act::Stop(shown)), None) => {
                shown.lines.push((*line).to_owned());
                continue;
            }
            _ => acts.push(Act::Stop(Shown { lines: vec![(*line).to_owned()], ..new() })),
        }
        goes_on = line.ends_with('\\');
    }
    acts
}

/// The words behind `openftl`, where a command is that.
fn of_openftl(command: &str) -> Option<Vec<&str>> {
    command.strip_prefix("openftl ").map(|words| words.split_whitespace().collect())
}

fn is_server(command: &str) -> bool {
    of_openftl(command).is_some_and(|words| words[0] == "serve" && !words.contains(&"--run"))
}

/// Whether no drive may be served meanwhile. A server whose flash is another's needs that.
fn is_alone(command: &str) -> bool {
    of_openftl(command).is_some_and(|words| {
        ["create", "serve", "check", "inspect"].contains(&words[0]) && !words.contains(&"--device")
    })
}

/// Functions of the shell that acts are made of.
const FUNCTIONS: &str = r#"
servers=()
serve() {
    (eval "exec $2") > "$results/$1.out" 2> "$results/$1.err" &
    servers+=("$!")
    for _ in {1..2400}; do
        grep -q "Ctrl-C ends it cleanly" "$results/$1.out" && return
        kill -0 $! 2> "$results/dead" || { wait $!; echo $? > "$results/$1.status"; return; }
        sleep 0.05
    done
}
stop() {
    for ((index = ${#servers[@]} - 1; index >= 0; index--)); do
        kill -INT "${servers[index]}" 2> "$results/dead"
        wait "${servers[index]}"
    done
    servers=()
}
run() {
    eval "$2" > "$results/$1.out" 2> "$results/$1.err" < /dev/null
    echo $? > "$results/$1.status"
}
"#;

/// What one shell does.
fn script(acts: &[Act], folder: &Path) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut text = format!(
        "set -u\nmount --make-rprivate / && mount -t tmpfs none /tmp && ip link set lo up || exit\n\
         cd {0}/page\nexport PATH={0}/bin:$PATH:/usr/sbin:/sbin NO_COLOR=1 LC_ALL=C.UTF-8 COLUMNS=120\nresults={0}/results\n{FUNCTIONS}",
        folder.display()
    );
    for (number, act) in acts.iter().enumerate() {
        _ = match act {
            Act::Hidden(command) => writeln!(text, "run {number} {}", quoted(command)),
            Act::File(name, content) => writeln!(text, "printf %s {} > {name}", quoted(content)),
            Act::Run { command, .. } => {
                let stop = if is_alone(command) { "stop; " } else { "" };
                let how = if is_server(command) { "serve" } else { "run" };
                writeln!(text, "{stop}{how} {number} {}", quoted(command))
            }
            Act::Stop(_) => writeln!(text, "stop"),
        };
    }
    text + "stop\n"
}

/// Runs a page, and compares what it shows.
///
/// # Panics
/// If a command does not do what the page says; all of them are named.
fn check(page: &str, needs: &[Need]) {
    if !runs_here(&[needs, &[Need::Mount]].concat()) {
        return;
    }
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let acts = acts(&text);
    // Not below /tmp, which is the page's own.
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let [bin, results, place] = ["bin", "results", "page"].map(|name| folder.path().join(name));
    for folder in [&bin, &results, &place] {
        fs::create_dir(folder).expect("a new folder");
    }
    fs::copy(openftl(), bin.join("openftl")).expect("room for the program");
    for named in ["drives", "profiles"] {
        fs::create_dir(place.join(named)).expect("a new folder");
        for entry in root().join(named).read_dir().expect("a folder of the project") {
            let entry = entry.expect("an entry");
            if entry.path().extension().is_some_and(|extension| extension == "toml") {
                fs::copy(entry.path(), place.join(named).join(entry.file_name())).expect("room for a file");
            }
        }
    }
    let shell = script(&acts, folder.path());
    Running::start("unshare", ["--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", &shell])
        .wait()
        .succeeded();
    let mut wrong = String::new();
    let mut served = None;
    for (number, act) in acts.iter().enumerate() {
        let read = |name: &str| fs::read_to_string(results.join(format!("{number}.{name}"))).unwrap_or_default();
        let status: Option<u32> = read("status").trim().parse().ok();
        let (said, failed) = match act {
            Act::Hidden(command) => (command, status != Some(0)),
            Act::Run { command, shown } => {
                let fails = shown.as_ref().is_some_and(|shown| shown.is_failure_of(command));
                let is_server = is_server(command);
                if is_server {
                    served = Some(number);
                }
                (command, if is_server && !fails { status.is_some() } else { fails != (status != Some(0)) })
            }
            Act::File(name, _) => (name, false),
            Act::Stop(_) => (&String::new(), false),
        };
        let printed = match (act, served) {
            (Act::Stop(_), Some(number)) => {
                let all = fs::read_to_string(results.join(format!("{number}.out"))).unwrap_or_default();
                all.rsplit_once(IS_SERVED).map_or(String::new(), |(_, farewell)| farewell.to_owned())
            }
            (Act::Run { command, shown: Some(shown) }, _) if shown.is_failure_of(command) => read("out") + &read("err"),
            _ => read("out"),
        };
        if failed {
            _ = writeln!(wrong, "$ {said}\nended with {status:?}:\n{}{}", read("out"), read("err"));
        }
        if let Act::Run { shown: Some(shown), .. } | Act::Stop(shown) = act
            && let Err(reason) = compare(shown, &printed)
        {
            _ = writeln!(wrong, "{page}:{}: {reason}\n--- `{said}` printed\n{printed}", shown.line);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Whether what is shown is what was printed. Nothing shown goes with anything.
fn compare(shown: &Shown, printed: &str) -> Result<(), String> {
    let spaced = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let prepared = |line: &str| if shown.figures_vary { without_figures(line) } else { spaced(line) };
    let mut printed = printed.trim_matches('\n').lines().map(prepared);
    if shown.lines.is_empty() {
        return Ok(());
    }
    let mut skips = false;
    for line in &shown.lines {
        if line.trim() == "…" {
            skips = true;
            continue;
        }
        let line = prepared(line);
        loop {
            match printed.next() {
                Some(next) if goes_with(&line, &next) => break,
                Some(_) if skips => {}
                Some(next) => return Err(format!("the page shows\n  {line}\nand this was printed:\n  {next}")),
                None => return Err(format!("the page shows, and this was not printed:\n  {line}")),
            }
        }
        skips = false;
    }
    match printed.find(|line| !line.is_empty()) {
        Some(line) if !skips => Err(format!("the page leaves out:\n  {line}")),
        _ => Ok(()),
    }
}

/// Whether `line` is `pattern`, in which `…` stands for anything.
fn goes_with(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().expect("a split has a part");
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// `line` with # for each figure with its unit, without bars, and with one space where there are several.
fn without_figures(line: &str) -> String {
    const UNITS: [&str; 13] = ["ns", "µs", "ms", "s", "%", "KiB", "MiB", "GiB", "TiB", "MB/s", "kB", "B", "ZiB"];
    let is_bar = |character: char| ('▀'..='▟').contains(&character);
    let words = line.split_whitespace().map(|word| word.trim_matches(is_bar)).filter(|word| !word.is_empty());
    let mut plain: Vec<String> = Vec::new();
    for word in words {
        let is_hexadecimal = word.len() >= 12 && word.chars().all(|character| character.is_ascii_hexdigit());
        let mut shown = String::new();
        for character in word.chars() {
            let is_figure = character.is_ascii_digit() || (character == '.' && shown.ends_with('#'));
            match is_figure || is_hexadecimal {
                true if shown.ends_with('#') => {}
                true => shown.push('#'),
                false => shown.push(character),
            }
        }
        // A thousand is written with a space, and a unit behind one.
        let is_behind_figure = plain.last().is_some_and(|last| last.ends_with('#'));
        let unit = shown.trim_end_matches([',', ';', ')', '.', ':']);
        match plain.last_mut().filter(|_| is_behind_figure && (unit == "#" || UNITS.contains(&unit))) {
            Some(last) => last.push_str(&shown[unit.len()..]),
            None => plain.push(shown),
        }
    }
    plain.join(" ")
}

/// Every page with blocks has its test here.
#[test]
fn no_page_is_forgotten() {
    let here = include_str!("documents.rs");
    let mut folders = vec![root()];
    let mut forgotten = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".md") && !acts(&fs::read_to_string(&path).unwrap()).is_empty() {
                let page = path.strip_prefix(root()).unwrap().display().to_string();
                if !here.contains(&format!("check(\"{page}\"")) {
                    forgotten.push(page);
                }
            }
        }
    }
    assert_eq!(forgotten, Vec::<String>::new());
}

#[test]
fn what_a_page_shows_is_compared_line_by_line() {
    let shown =
        |text: &str, figures_vary| Shown { line: 1, lines: text.lines().map(str::to_owned).collect(), figures_vary };
    let is_same = |page: &str, printed: &str| compare(&shown(page, false), printed).is_ok();
    assert!(is_same("a\nb", "a\nb\n") && is_same("a\n…", "a\nb\nc") && is_same("a\n…\nc", "a\nb\nb\nc"));
    assert!(is_same("a … b", "a 17 b") && is_same("a …", "a b"));
    assert!(!is_same("a", "a\nb") && !is_same("a\nb", "a") && !is_same("a\n…\nc", "a\nb") && !is_same("a … b", "a c"));
    let varies = |page: &str, printed: &str| compare(&shown(page, true), printed).is_ok();
    assert!(varies("reads  65 537  256.01 MiB  ██▏", "reads  9  4 KiB"));
    assert!(varies("opened in 44.2 ms", "opened in 1660.3 µs"));
    assert!(!varies("reads  7", "writes  7") && !varies("in 44.2 ms", "44.2 ms"));
}

#[test]
fn a_page_is_taken_apart() {
    let page = "<!-- first: true -->\n```console\n$ a \\\n  b\nx\n$ c\n```\n```console\nthe end\n```\n```sh\n# no\nd\n```\n\
                <!-- not run: it is long -->\n```sh\ne\n```\n```toml\nf\n```\n```toml\n# g.toml\nh = 1\n```\n";
    let acts: Vec<String> = acts(page)
        .into_iter()
        .map(|act| match act {
            Act::Hidden(command) => format!("first {command}"),
            Act::File(name, content) => format!("file {name} {content:?}"),
            Act::Run { command, shown } => {
                format!("run {command:?} {:?}", shown.map(|shown| (shown.line, shown.lines)))
            }
            Act::Stop(shown) => format!("stop {:?}", shown.lines),
        })
        .collect();
    assert_eq!(
        acts,
        [
            "first true",
            r#"run "a \\\n  b" Some((3, ["x"]))"#,
            r#"run "c" Some((6, []))"#,
            r#"stop ["the end"]"#,
            r#"run "d" None"#,
            r##"file g.toml "# g.toml\nh = 1\n""##
        ]
    );
}

const CLIENTS: [Need; 4] = [Need::Program("nbdinfo"), Need::Program("fio"), Need::Program("nvme"), Need::Program("jq")];

#[test]
fn the_readme_does_what_it_says() {
    check("README.md", &CLIENTS);
}

#[test]
fn the_guide_does_what_it_says() {
    check("docs/GUIDE.md", &[&CLIENTS[..], &[Need::Fuse, Need::Loop]].concat());
}

#[test]
fn the_page_of_power_cuts_does_what_it_says() {
    check("docs/POWER_CUTS.md", &[Need::Program("qemu-io"), Need::Program("fio")]);
}

#[test]
fn a_server_is_logged_as_the_guide_says() {
    check("docs/guide/logging.md", &[Need::Program("nbdinfo"), Need::Program("jq")]);
}

#[test]
fn the_page_of_figures_does_what_it_says() {
    check("docs/FIGURES.md", &[Need::Program("fio")]);
}
