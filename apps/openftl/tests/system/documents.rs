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
//! | a shown output with a line that begins with `error:` or `✗`, or that begins with the program's name | the command has to fail |
//! | `<!-- figures vary -->` before a block | figures are not compared: clocks of real time, and processes, differ |
//! | `<!-- first: COMMAND -->` | is run before; readers do not see it |
//! | `<!-- of RocksDB -->` before a block | is run by a test of its own, which needs a RocksDB with the plugin |
//! | `<!-- not run: REASON -->` | the block is left out |
//! | `<!-- without root -->`, anywhere | the user `nobody` runs the page |
//!
//! Every page of the project is in [`PAGES`], with a test of its own, or in [`PROSE`]. That links and the book's table of
//! contents lead somewhere is a test of `xtask/src/book.rs`.

use crate::drive::openftl;
use crate::environment::{COMMANDS, Need, beside, rocksdb, runs_here, sqlite_library};
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
        let begins = |line: &String, name| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([':', ' ']));
        self.lines.first().is_some_and(|line| begins(line, program))
            || self.lines.iter().any(|line| begins(line, "error") || begins(line, "✗"))
    }
}

/// What a comment says of the block behind it.
#[derive(Default)]
struct Notes {
    figures_vary: bool,
    of_rocksdb: bool,
    not_run: bool,
}

/// Which blocks of a page are run together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Those that need a RocksDB with the plugin.
    RocksDb,
    /// All others.
    Rest,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The acts of a part of a page.
fn acts(page: &str, part: Part) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut notes = Notes::default();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let note = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        match (note, line.strip_prefix("```")) {
            (Some("figures vary"), _) => notes.figures_vary = true,
            (Some("of RocksDB"), _) => notes.of_rocksdb = true,
            (Some(note), _) => match note.split_once(": ") {
                Some(("first", command)) if part == Part::Rest => acts.push(Act::Hidden(command.to_owned())),
                Some(("not run", _)) => notes.not_run = true,
                _ => {}
            },
            (None, Some(language)) => {
                let block: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
                let notes = std::mem::take(&mut notes);
                match language {
                    _ if notes.of_rocksdb != (part == Part::RocksDb) => {}
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

/// What root does before a page: `$1` is the folder of the page, `$2` its user, `$3` its script. Where only root may open
/// /dev/fuse, a device file with the rights that Debian's udev gives it takes its place.
const PREPARATION: &str = r#"
set -u
mount --make-rprivate / && mount -t tmpfs none /tmp && ip link set lo up || exit
[ "$2" = root ] && exec bash -c "$3"
if [ -c /dev/fuse ] && [ "$(stat -c %a /dev/fuse)" != 666 ]; then
    mknod -m 666 /tmp/fuse c 10 229 && mount --bind /tmp/fuse /dev/fuse && rm /tmp/fuse || exit
fi
chown -R nobody "$1" && exec setpriv --reuid=nobody --regid=nogroup --clear-groups bash -c "$3"
"#;

/// The comment of a page that the user `nobody` runs.
const WITHOUT_ROOT: &str = "<!-- without root -->";

/// What the shell of a page does, with the folders of more programs.
fn script(acts: &[Act], folder: &Path, programs: &[PathBuf]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let programs: String = programs.iter().map(|folder| format!("{}:", folder.display())).collect();
    let mut text = format!(
        "set -u\ncd {0}/page\n\
         export PATH={0}/bin:{programs}$PATH:/usr/sbin:/sbin NO_COLOR=1 LC_ALL=C.UTF-8 COLUMNS=120\nresults={0}/results\n{FUNCTIONS}",
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
    check_part(page, Part::Rest, needs);
}

/// Runs the blocks of RocksDB, in a folder where `cargo xtask rocksdb --debian` seems to have built the plugin that is there.
///
/// # Panics
/// As [`check`] does.
fn check_rocksdb(page: &str) {
    check_part(page, Part::RocksDb, &[Need::RocksDb]);
}

fn check_part(page: &str, part: Part, needs: &[Need]) {
    if !runs_here(&[needs, &[Need::Mount]].concat()) {
        return;
    }
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let acts = acts(&text, part);
    assert!(!acts.is_empty(), "{page} has no blocks of {part:?}");
    // Not below /tmp, which is the page's own.
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let [bin, results, place] = ["bin", "results", "page"].map(|name| folder.path().join(name));
    for folder in [&bin, &results, &place] {
        fs::create_dir(folder).expect("a new folder");
    }
    fs::copy(openftl(), bin.join("openftl")).expect("room for the program");
    for command in COMMANDS {
        let program = beside(&openftl(), command);
        if program.is_file() {
            fs::copy(&program, bin.join(program.file_name().expect("a file"))).expect("room for the program");
        }
    }
    for named in ["drives", "profiles"] {
        fs::create_dir(place.join(named)).expect("a new folder");
        for entry in root().join(named).read_dir().expect("a folder of the project") {
            let entry = entry.expect("an entry");
            if entry.path().extension().is_some_and(|extension| extension == "toml") {
                fs::copy(entry.path(), place.join(named).join(entry.file_name())).expect("room for a file");
            }
        }
    }
    if needs.iter().any(|need| matches!(need, Need::Sqlite)) {
        let release = place.join("target/release");
        fs::create_dir_all(&release).expect("a new folder");
        let library = sqlite_library().expect("the page needs it");
        fs::copy(&library, release.join("libopenftl_sqlite.so")).expect("room for the library");
    }
    let mut programs = Vec::new();
    if let (Part::RocksDb, Some(built)) = (part, rocksdb()) {
        let target = place.join("target/rocksdb-debian");
        fs::create_dir_all(target.join("tools")).expect("a new folder");
        // A RocksDB that is not Debian's has its programs beside the plugin.
        for name in ["libopenftl_rocksdb.so", "librocksdb.so.11", "db_bench", "replay", "tools/ldb", "tools/sst_dump"] {
            if built.join(name).is_file() {
                fs::copy(built.join(name), target.join(name)).expect("room for a file");
            }
        }
        programs = vec![target.join("tools"), target];
    }
    let shell = script(&acts, folder.path(), &programs);
    let user = if text.lines().any(|line| line == WITHOUT_ROOT) { "nobody" } else { "root" };
    let place = folder.path().to_str().expect("a path of ASCII");
    let unshare = ["--net", "--mount", "--pid", "--fork", "--kill-child"];
    let bash = ["bash", "-c", PREPARATION, "bash", place, user, &shell];
    Running::start("unshare", unshare.into_iter().chain(bash)).wait().succeeded();
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

/// Every Markdown file of the project, by its path from the root.
fn all_pages() -> Vec<String> {
    let mut folders = vec![root()];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".md") {
                pages.push(path.strip_prefix(root()).unwrap().display().to_string());
            }
        }
    }
    pages
}

#[test]
fn every_page_is_run_or_has_nothing_to_run() {
    let mut found = all_pages();
    let mut known = [PAGES, PROSE].concat();
    known.sort_unstable();
    found.sort_unstable();
    assert_eq!(known, found, "PAGES and PROSE are the pages of the project");
    for page in found {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let has = |part| !acts(&text, part).is_empty();
        assert_eq!(
            has(Part::Rest),
            PAGES.contains(&page.as_str()),
            "{page} is in PAGES if it has commands, or else in PROSE"
        );
        assert_eq!(has(Part::RocksDb), ROCKSDB_PAGES.contains(&page.as_str()), "{page} and ROCKSDB_PAGES");
    }
}

/// A block that [`acts`] does not know would never be run.
#[test]
fn every_command_block_begins_at_the_margin_with_a_known_language() {
    for page in all_pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for (line, text) in text.lines().enumerate().map(|(number, line)| (number + 1, line)) {
            let Some(language) = text.trim_start().strip_prefix("```") else { continue };
            assert!(LANGUAGES.contains(&language), "{page}:{line}: `{language}` is none of {LANGUAGES:?}");
            assert!(text.starts_with('`'), "{page}:{line}: a block that does not begin at the margin is not run");
        }
    }
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
                <!-- not run: it is long -->\n```sh\ne\n```\n<!-- of RocksDB -->\n```sh\ni\n```\n```toml\nf\n```\n```toml\n# g.toml\nh = 1\n```\n";
    let rest: Vec<String> = acts(page, Part::Rest)
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
        rest,
        [
            "first true",
            r#"run "a \\\n  b" Some((3, ["x"]))"#,
            r#"run "c" Some((6, []))"#,
            r#"stop ["the end"]"#,
            r#"run "d" None"#,
            r##"file g.toml "# g.toml\nh = 1\n""##
        ]
    );
    let of_rocksdb = acts(page, Part::RocksDb);
    assert!(matches!(&of_rocksdb[..], [Act::Run { command, shown: None }] if command == "i"), "{of_rocksdb:?}");
}

/// The languages of blocks. The first three are acts, a block without one is a drawing.
const LANGUAGES: [&str; 9] = ["sh", "console", "toml", "text", "rust", "cpp", "sql", "python", ""];

/// A test for each page with commands, and [`PAGES`], their names.
macro_rules! pages {
    ($($test:ident: $page:literal needs $needs:expr;)*) => {
        $(
            #[test]
            fn $test() {
                check($page, &$needs);
            }
        )*
        /// Pages with commands.
        const PAGES: &[&str] = &[$($page),*];
    };
}

const NBDINFO: Need = Need::Program("nbdinfo");
const FIO: Need = Need::Program("fio");
const JQ: Need = Need::Program("jq");
const QEMU_IO: Need = Need::Program("qemu-io");
const NBDFUSE: Need = Need::Program("nbdfuse");
const FUSERMOUNT: Need = Need::Program("fusermount3");
const MKFS: Need = Need::Program("mkfs.ext4");
const FUSE2FS: Need = Need::Program("fuse2fs");
const REDIS_CLI: Need = Need::Program("redis-cli");

pages! {
    the_readme_does_what_it_says: "README.md" needs [FIO];
    the_tour_does_what_it_says: "docs/tour.md" needs [FIO];
    openftl_is_installed_as_the_guide_says: "docs/guide/install.md" needs [];
    a_drive_is_made_as_the_guide_says: "docs/guide/drive.md" needs [];
    a_drive_is_served_as_the_guide_says: "docs/guide/serve.md" needs [NBDINFO];
    files_without_root_are_kept_as_the_guide_says: "docs/guide/file-system.md" needs
        [Need::Fuse, NBDFUSE, FUSERMOUNT, MKFS, FUSE2FS];
    a_drive_is_a_disk_of_linux_as_the_guide_says: "docs/guide/disk.md" needs
        [Need::Fuse, Need::Loop, NBDFUSE, FUSERMOUNT, MKFS];
    nvme_hosts_without_root_do_what_the_guide_says: "docs/guide/nvme.md" needs [];
    hosts_are_let_in_as_the_guide_says: "docs/guide/access.md" needs [Need::Tls];
    a_served_drive_is_operated_as_the_guide_says: "docs/guide/operate.md" needs [];
    drives_are_checked_as_the_guide_says: "docs/guide/check.md" needs [];
    drives_are_measured_as_the_guide_says: "docs/guide/bench.md" needs [];
    drives_are_compared_as_the_guide_says: "docs/guide/compare.md" needs [JQ];
    traces_are_replayed_as_the_guide_says: "docs/guide/traces.md" needs [FIO];
    lifetimes_are_told_as_the_guide_says: "docs/guide/lifetimes.md" needs [];
    devices_are_divided_as_the_guide_says: "docs/guide/tenants.md" needs [];
    flash_is_served_as_the_guide_says: "docs/guide/open-channel.md" needs [];
    zones_are_served_as_the_guide_says: "docs/guide/zones.md" needs [];
    segments_are_served_as_the_guide_says: "docs/guide/segments.md" needs [];
    a_file_system_is_mounted_as_the_guide_says: "docs/guide/alfs.md" needs
        [Need::Fuse, FUSERMOUNT, Need::Command("alfs"), Need::Command("files")];
    pages_are_kept_as_the_guide_says: "docs/guide/pages.md" needs [];
    values_are_kept_as_the_guide_says: "docs/guide/values.md" needs [REDIS_CLI];
    sqlite_keeps_databases_as_the_guide_says: "docs/guide/sqlite.md" needs [Need::Sqlite];
    table_drives_do_what_the_guide_says: "docs/guide/tables.md" needs [Need::Command("files")];
    errors_are_those_of_the_guide: "docs/guide/errors.md" needs [];
    a_server_is_logged_as_the_guide_says: "docs/guide/logging.md" needs [NBDINFO, JQ];
    power_cuts_do_what_their_page_says: "docs/POWER_CUTS.md" needs [QEMU_IO, FIO];
    figures_are_measured_as_their_page_says: "docs/FIGURES.md" needs [FIO];
}

/// Pages with blocks of RocksDB.
const ROCKSDB_PAGES: [&str; 2] = ["README.md", "bindings/rocksdb/README.md"];

#[test]
fn the_readme_puts_rocksdb_on_a_drive() {
    check_rocksdb(ROCKSDB_PAGES[0]);
}

#[test]
fn the_page_of_the_rocksdb_plugin_does_what_it_says() {
    check_rocksdb(ROCKSDB_PAGES[1]);
}

/// Pages without commands, or with none that can be run here: then each block says why.
const PROSE: &[&str] = &[
    "ARCHITECTURE.md",
    "bindings/rocksdb/README.md",
    "bindings/sqlite/README.md",
    "docs/EXPERIMENTS.md",
    "docs/FORMAT.md",
    "docs/GLOSSARY.md",
    "docs/GUIDE.md",
    "docs/INTEROP.md",
    "docs/RECOVERY.md",
    "docs/SIMULATION.md",
    "docs/STYLE.md",
    "docs/SUMMARY.md",
    "docs/WORKLOADS.md",
    "docs/architecture.md",
    "docs/guide/explore.md",
    "docs/guide/reproduce.md",
    "docs/write-an-ftl.md",
];
