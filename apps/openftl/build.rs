//! Tells the program which commit it was built from and of which day that is, where it is known.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // HEAD names a branch, and the log of HEAD grows with each commit.
    for name in ["HEAD", "logs/HEAD"] {
        // What is named and not there would have the program built again each time.
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", name]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=OPENFTL_COMMIT={commit}");
    let date = git(&["show", "--no-patch", "--format=%cs", "HEAD"]).unwrap_or_else(|| "undated".to_owned());
    println!("cargo::rustc-env=OPENFTL_DATE={date}");
}

/// What git says, if it is there and this is one of its folders.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
