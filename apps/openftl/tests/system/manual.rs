//! Completions in real shells, and the manual as programs render it.

use crate::drive::{openftl, run_openftl};
use crate::environment::{Need, runs_here};
use crate::program::run;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What bash offers for a command line: the words of its last argument.
fn completed(line: &str) -> BTreeSet<String> {
    // As a terminal has it: `openftl` is the command, and what is behind the last space is completed.
    let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
    let script = format!(
        "PATH={folder}:$PATH; source <(openftl completions bash) || exit\n\
         COMP_WORDS=({words}) COMP_CWORD={last} COMP_LINE='{line}' COMP_POINT={point}\n\
         complete -p openftl >&2 || exit\n\
         function_of=$(complete -p openftl | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n\
         $function_of openftl '{word}' '{before}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        folder = Path::new(&openftl()).parent().expect("the program is in a folder").display(),
        words = words.join(" "),
        last = words.len() - 1,
        point = line.len(),
        word = line.rsplit(' ').next().expect("a line has a word"),
        before = line.rsplit(' ').nth(1).unwrap_or_default(),
    );
    let ended = run("bash", ["--norc", "-c", &script]).succeeded();
    ended.stdout.lines().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn bash_completes_commands_flags_and_names() {
    if !runs_here(&[Need::Program("bash")]) {
        return;
    }
    assert_eq!(completed("openftl ser"), set(&["serve"]));
    assert_eq!(completed("openftl nvme dis"), set(&["discover"]));
    assert_eq!(completed("openftl serve --pro"), set(&["--profile"]));
    assert_eq!(completed("openftl create disk.oftl --pro"), set(&["--profile"]));
    assert_eq!(completed("openftl create disk.oftl --profile gr"), set(&["granby"]));
    assert_eq!(completed("openftl bench --workload log"), set(&["log-structured-fs"]));
    assert_eq!(completed("openftl bench --placement flash"), set(&["flash-alloc"]));
    assert_eq!(completed("openftl serve --timing wall"), set(&["wall-clock"]));
    assert_eq!(completed("openftl reproduce ox-light"), set(&["ox-lightlsm"]));
    assert_eq!(completed("openftl ctl disk.oftl power-"), set(&["power-cut", "power-cycle", "power-on"]));
    assert_eq!(completed("openftl completions z"), set(&["zsh"]));
}

#[test]
fn zsh_and_fish_take_their_scripts() {
    for shell in ["zsh", "fish"] {
        if !runs_here(&[Need::Program(shell)]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("_openftl");
        std::fs::write(&file, run_openftl(["completions", shell]).succeeded().stdout).unwrap();
        let file = file.display();
        if shell == "fish" {
            let offered = run("fish", ["--no-config", "-c", &format!("source {file}; complete -C 'openftl ser'")]);
            assert!(offered.succeeded().stdout.starts_with("serve\t"));
            let offered =
                run("fish", ["--no-config", "-c", &format!("source {file}; complete -C 'openftl serve --pro'")]);
            assert!(offered.succeeded().stdout.starts_with("--profile\t"));
        } else {
            let script = format!("autoload -U compinit && compinit -u -D && source {file} && print $_comps[openftl]");
            assert_eq!(run("zsh", ["-f", "-c", &script]).succeeded().stdout.trim(), "_openftl");
        }
    }
}

/// The pages, in a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    run_openftl(["man", folder.to_str().unwrap()]).succeeded().printing(&["pages in"]);
    let mut pages: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    assert!(pages.len() > 30, "{pages:?}");
    pages
}

#[test]
fn every_page_of_the_manual_is_rendered_without_a_warning() {
    if !runs_here(&[Need::Program("man"), Need::Program("groff")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for page in pages(folder.path()) {
        let page = page.to_str().unwrap();
        let ended = run("groff", ["-ww", "-man", "-Tutf8", "-K", "utf8", "-P-cbou", page]).succeeded();
        assert!(ended.stderr.is_empty() && ended.stdout.contains("SYNOPSIS"), "{ended}");
        let ended = run("env", ["LC_ALL=C.UTF-8", "MANROFFOPT=-ww", "man", "-l", page]).succeeded();
        assert!(ended.stderr.is_empty() && ended.stdout.contains("SYNOPSIS"), "{ended}");
    }
}

#[test]
fn mandoc_finds_nothing_to_warn_of_in_the_manual() {
    if !runs_here(&[Need::Program("mandoc")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for page in pages(folder.path()) {
        let ended = run("mandoc", ["-T", "lint", "-W", "warning", page.to_str().unwrap()]);
        assert!(ended.stdout.is_empty() && ended.stderr.is_empty(), "{ended}");
    }
}

/// The flags that stand in front of an explanation, or in a text.
fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
}

#[test]
fn every_flag_of_a_commands_help_is_on_its_page_with_its_examples() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for page in pages(folder.path()) {
        let name = page.file_stem().unwrap().to_str().unwrap().to_owned();
        let text =
            std::fs::read_to_string(&page).unwrap().replace("\\-", "-").replace("\\fB", " ").replace("\\fR", " ");
        // Commands have dashes in their names, so that the page's own synopsis says which it is of.
        let synopsis = text.lines().skip_while(|line| *line != ".SH SYNOPSIS").nth(1).expect("a synopsis");
        let command: Vec<&str> =
            synopsis.split_whitespace().take_while(|word| !word.starts_with(['[', '<', '-', '\\'])).collect();
        assert_eq!(command.join("-"), name);
        let help = run_openftl(command[1..].iter().copied().chain(["--help"])).succeeded().stdout;
        let missing: Vec<String> = flags(&help).difference(&flags(&text)).cloned().collect();
        assert_eq!(missing, Vec::<String>::new(), "{name}");
        seen += flags(&help).len();
    }
    assert!(seen > 200, "{seen} flags");
}
