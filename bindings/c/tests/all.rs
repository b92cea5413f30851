//! Programs in C on drives: each is compiled, linked with the library, and run.

use openftl_drive::description::DriveDescription;
use openftl_drive::new_file::Existing;
use openftl_drive::value_drive::ValueDrive;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that has the library.
fn libraries() -> PathBuf {
    // This program is in its `deps`.
    let program = std::env::current_exe().expect("a test knows its program");
    let deps = program.parent().expect("it is in a folder").to_owned();
    assert!(deps.join("libopenftl.a").exists(), "cargo builds the library before its tests");
    deps
}

/// Compiles a program of this folder.
fn compile(name: &str, folder: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(name);
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(here.join("tests").join(format!("{name}.c")))
        .arg("-I")
        .arg(here.join("include"))
        .arg(libraries().join("libopenftl.a"))
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .expect("a C compiler, cc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

#[test]
fn a_program_in_c_uses_a_key_value_drive() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("kv.oftl");
    let description = "[media]\nprofile = \"cosmos\"\ncapacity = \"64MiB\"\n[ftl]\nkind = \"values\"\n";
    let drive = ValueDrive::of(&DriveDescription::parse(description).expect("it is sound")).expect("it is sound");
    drive.make(&disk, Existing::Keep, Some(1)).expect("it can be made");
    let run = Command::new(compile("kv", folder.path())).arg(&disk).output().expect("it was compiled");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && run.stdout == b"sound\n", "{said}");
}
