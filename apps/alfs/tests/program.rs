//! The program itself: what it takes, and from whom.

use std::process::Command;

/// Status, output and errors.
fn called(words: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_openftl-alfs"))
        .args(words)
        .env_remove("OPENFTL_VERSION")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn it_has_its_own_command_and_no_other() {
    let (status, _, error) = called(&["alfs", "stat", "nowhere.oftl"], &[]);
    assert!(status == Some(2) && error.contains("nowhere.oftl"), "{status:?}: {error}");
    let (status, _, error) = called(&["profiles"], &[]);
    assert!(status == Some(2) && error.contains("fix: call openftl"), "{status:?}: {error}");
}

#[test]
fn another_version_of_openftl_is_told_so() {
    let (status, _, error) = called(&["alfs", "stat", "nowhere.oftl"], &[("OPENFTL_VERSION", "0.0.1 (old)")]);
    assert!(status == Some(2) && error.contains("0.0.1 (old)"), "{status:?}: {error}");
}
