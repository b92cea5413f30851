//! Programs in C on the library, as anybody compiles them.

use openftl_drive::description::DriveDescription;
use openftl_drive::new_file::Existing;
use openftl_drive::page_drive::PageDrive;
use openftl_drive::value_drive::ValueDrive;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder with the library under test, which Cargo has built before the tests.
fn library_folder() -> PathBuf {
    let tests = std::env::current_exe().expect("the test has a file");
    let deps = tests.parent().expect("it is in a folder");
    let folders = [deps.parent().expect("so is that"), deps];
    let found = folders.into_iter().find(|folder| folder.join("libopenftl.so").is_file());
    found.expect("cargo builds the library with its tests").to_owned()
}

/// Compiles a program; `None`, and says so, where there is no C compiler.
fn compile(name: &str, to: &Path) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (program, library) = (to.join(name), library_folder());
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    command.arg(here.join("tests").join(format!("{name}.c"))).arg("-I").arg(here.join("include"));
    command.arg("-L").arg(&library).args(["-lopenftl", "-lpthread"]).arg(format!("-Wl,-rpath,{}", library.display()));
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            left_out(&format!("{name}: no C compiler (cc)"));
            None
        }
        output => {
            let output = output.expect("cc runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
    }
}

fn left_out(line: &str) {
    eprintln!("left out: {line}");
    if let Some(file) = std::env::var_os("OPENFTL_LEFT_OUT") {
        let opened = std::fs::File::options().append(true).create(true).open(&file);
        let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes()));
        written.expect("OPENFTL_LEFT_OUT names a file to write to");
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_program_in_c_does_with_pages_what_the_header_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(program) = compile("pages", folder.path()) else { return };
    let (description, disk) = (folder.path().join("eleos.toml"), folder.path().join("eleos.oftl"));
    let text = "[media]\nprofile = \"tiny\"\ncapacity = \"4MiB\"\nover_provisioning = \"28%\"\nstore = \"file\"\n\
         path = \"eleos.oftl\"\ntiming = \"instant\"\n[ftl]\nkind = \"pages\"\n";
    std::fs::write(&description, text).expect("a file can be written");
    let drive = PageDrive::of(&DriveDescription::read(&description).expect("a sound description"));
    drive.expect("a sound description").make(&disk, Existing::Keep, Some(7)).expect("a store can be made");
    let uri = |file: &Path| format!("openftl://{}", file.display());
    let run = |uri: String, more: &[&str]| {
        let mut command = Command::new(&program);
        let output = command.arg(uri).args(more).current_dir(folder.path()).output().expect("the program runs");
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    assert_eq!(run(uri(&description), &[]), "first process ok\n");
    assert_eq!(run(uri(&disk), &["second"]), "second process ok\n");
}

#[test]
fn a_program_in_c_uses_a_key_value_drive() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("kv.oftl");
    let description = "[media]\nprofile = \"cosmos\"\ncapacity = \"64MiB\"\n[ftl]\nkind = \"values\"\n";
    let drive = ValueDrive::of(&DriveDescription::parse(description).expect("it is sound")).expect("it is sound");
    drive.make(&disk, Existing::Keep, Some(1)).expect("it can be made");
    let Some(program) = compile("kv", folder.path()) else { return };
    let run = Command::new(program).arg(&disk).output().expect("it was compiled");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && run.stdout == b"sound\n", "{said}");
}
