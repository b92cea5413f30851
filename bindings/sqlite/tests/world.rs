//! What the tests have in common: stores, and programs that use them.

use openftl_core::units::ByteSize;
use openftl_drive::description::DriveDescription;
use openftl_drive::new_file::Existing;
use openftl_drive::page_drive::PageDrive;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Debian's shell.
pub const SQLITE: &str = "/usr/bin/sqlite3";
/// The Python whose module can load libraries.
pub const PYTHON: &str = "/usr/bin/python3";

/// The library under test, which Cargo has built beside the tests.
pub fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("the test has a file");
    let deps = tests.parent().expect("it is in a folder");
    let found = [deps, deps.parent().expect("so is that")].map(|folder| folder.join("libopenftl_sqlite.so"));
    found.into_iter().find(|file| file.is_file()).expect("cargo builds the library with its tests")
}

/// Whether a program is there that can load libraries; if not, says that the calling test is left out.
#[must_use]
pub fn runs_here(program: &str) -> bool {
    let mut command = Command::new(program);
    match program {
        PYTHON => command.args(["-c", "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)"]),
        _ => command.arg("--version"),
    };
    if command.output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    let thread = std::thread::current();
    let line = format!("{}: {program} is missing, or cannot load libraries\n", thread.name().unwrap_or("a test"));
    eprint!("left out: {line}");
    if let Some(file) = std::env::var_os("OPENFTL_LEFT_OUT") {
        let opened = std::fs::File::options().append(true).create(true).open(&file);
        opened.and_then(|mut file| file.write_all(line.as_bytes())).expect("OPENFTL_LEFT_OUT names a file to write to");
    }
    false
}

/// A store of pages in a folder of its own.
pub struct Drive {
    folder: tempfile::TempDir,
    pub capacity: ByteSize,
}

impl Drive {
    /// Makes a store for so many bytes of pages.
    pub fn new(capacity: &str) -> Drive {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = format!(
            "[media]\nprofile = \"cosmos\"\ncapacity = \"{capacity}\"\nover_provisioning = \"28%\"\nstore = \"file\"\n\
             path = \"eleos.oftl\"\ntiming = \"instant\"\n[ftl]\nkind = \"pages\"\n"
        );
        std::fs::write(folder.path().join("eleos.toml"), text).expect("a file can be written");
        let mut drive = Drive { folder, capacity: ByteSize(0) };
        let file = DriveDescription::read(&drive.description()).expect("a sound description");
        let pages = PageDrive::of(&file).expect("a sound description");
        drive.capacity = pages.make(&drive.disk(), Existing::Keep, Some(7)).expect("a store can be made");
        drive
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn disk(&self) -> PathBuf {
        self.folder.path().join("eleos.oftl")
    }

    pub fn description(&self) -> PathBuf {
        self.folder.path().join("eleos.toml")
    }

    /// The URI of a database in the store.
    pub fn uri(&self, name: &str) -> String {
        format!("file:{name}?vfs=openftl&store={}", self.disk().display())
    }

    /// Starts `sqlite3`, which reads commands from its input.
    pub fn start(&self) -> Child {
        let mut command = Command::new(SQLITE);
        command.args(["-batch", "-bail"]).current_dir(self.folder());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("sqlite3 runs")
    }

    /// The commands that load the library and open a database.
    pub fn opening(&self, name: &str, more: &str) -> String {
        format!(".log stderr\n.load {}\n.open '{}{more}'\n", library().display(), self.uri(name))
    }

    /// Runs commands on a database of the store. Returns what they print.
    pub fn output(&self, name: &str, more: &str, commands: &str) -> Output {
        let mut child = self.start();
        let text = self.opening(name, more) + commands + "\n";
        let mut input = child.stdin.take().expect("it has an input");
        // A shell that ends early does not read all of it.
        let writer = std::thread::spawn(move || _ = input.write_all(text.as_bytes()));
        let output = child.wait_with_output().expect("sqlite3 ends");
        writer.join().expect("the writer ends");
        output
    }

    /// The same; all of them succeed.
    pub fn sql(&self, name: &str, commands: &str) -> String {
        self.sql_with(name, "", commands)
    }

    /// The same, with more parameters in the URI.
    pub fn sql_with(&self, name: &str, more: &str, commands: &str) -> String {
        let output = self.output(name, more, commands);
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && !errors.contains("bug"), "{commands}\n{text}\n{errors}");
        text.trim_end().to_owned()
    }
}

/// A figure in the answer of `PRAGMA openftl_statistics`.
pub fn figure(text: &str, name: &str) -> u64 {
    let (_, rest) = text.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {text}"));
    rest.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Runs a script of Python, in which LIBRARY is the library and URI that of a database. Returns what it prints.
pub fn python(drive: &Drive, script: &str) -> String {
    let text = format!("LIBRARY = {:?}\nURI = {:?}\n{script}", library().display().to_string(), drive.uri("data.db"));
    let output = Command::new(PYTHON).args(["-c", &text]).current_dir(drive.folder()).output().expect("Python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}
