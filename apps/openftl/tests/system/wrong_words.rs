//! Command lines that are wrong, and what each is answered: field, value, fix, and exit code 2. All answers stand in
//! `wrong_words.txt`, to be read by people; `UPDATE_EXPECT=1 cargo test` writes it anew.

use crate::drive::openftl;
use crate::environment::{COMMANDS, Need, runs_here};
use expect_test::expect_file;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What lies in the folder in which they are given.
fn prepare(folder: &Path) {
    let file = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    file("text.txt", "not a drive\n");
    file("lots.toml", "[media]\nprofile = \"cosmos\"\ncapacity = \"lots\"\n");
    file("typo.toml", "[media]\nprofil = \"cosmos\"\n");
    file("broken.toml", "[media\n");
    file("nand.toml", "name = \"x\"\n");
    file("empty.toml", "");
    file(
        "crowded.toml",
        "[media]\nprofile = \"cosmos\"\ncapacity = \"64MiB\"\nstore = \"ram\"\n\n[host]\nreactors = 65\n",
    );
    file("typed.toml", "[media]\nprofile = 5\n");
    file("typed-nand.toml", "name = \"x\"\ndescription = \"y\"\ngroups = \"eight\"\n");
    std::fs::create_dir(folder.join("dir")).unwrap();
    assert!(answered(folder, "create disk.oftl --profile tiny --capacity 1MiB").status.success());
}

fn answered(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(openftl());
    command.args(line.split_whitespace()).current_dir(folder).stdin(Stdio::null());
    // Nothing of the machine is in the answers.
    command.env_remove("CARGO").env("NO_COLOR", "1").env("COLUMNS", "100").output().expect("openftl starts")
}

#[test]
fn every_wrong_command_line_is_answered_with_field_value_and_fix() {
    if !runs_here(&COMMANDS.map(Need::Command)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let mut answers = String::new();
    for line in include_str!("wrong_words.list").lines() {
        let ended = answered(folder.path(), line);
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "openftl {line}: {told}");
        assert!(!folder.path().join("new.oftl").exists(), "openftl {line} made something");
        let says_how = ["fix: ", "--help", "write ", "is no ", "Usage: "].iter().any(|words| told.contains(words));
        assert!(says_how && (told.starts_with("error: ") || told.contains("Usage: ")), "openftl {line}: {told}");
        let told = told.replace(&folder.path().display().to_string(), "/folder");
        _ = writeln!(answers, "$ openftl {line}\n{}\n", told.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"));
    }
    expect_file!["wrong_words.txt"].assert_eq(&answers);
}
