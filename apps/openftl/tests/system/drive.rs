//! A drive in a file of its own temporary folder, which goes with it.

use crate::program::{Ended, run};
use crate::server::Server;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The `openftl` under test.
pub fn openftl() -> String {
    std::env::var("OPENFTL_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_openftl").to_owned())
}

/// Runs `openftl` to its end.
pub fn run_openftl<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Ended {
    run(&openftl(), arguments)
}

/// A stored drive.
pub struct Drive {
    folder: TempDir,
    file: PathBuf,
}

/// What the host sees of a drive from [`Drive::create`].
pub const CAPACITY_BYTES: u64 = 512 << 20;

impl Drive {
    /// A new drive of [`CAPACITY_BYTES`], of the profile `cosmos`.
    pub fn create() -> Drive {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("disk.oftl");
        Drive::create_at(folder, file)
    }

    /// A new drive whose file lies in another folder, which the caller looks after.
    pub fn create_in(place: &Path) -> Drive {
        Drive::create_at(tempfile::tempdir().expect("a temporary folder"), place.join("disk.oftl"))
    }

    fn create_at(folder: TempDir, file: PathBuf) -> Drive {
        let drive = Drive { folder, file };
        run_openftl(["create", drive.file(), "--profile", "cosmos", "--capacity", "512MiB"]).succeeded();
        drive
    }

    /// The drive's file.
    pub fn file(&self) -> &str {
        self.file.to_str().expect("a path of plain letters")
    }

    /// A path beside the drive, for what a test writes.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Serves it on instant media.
    pub fn serve(&self) -> Server {
        self.serve_with(&["--timing", "instant"])
    }

    /// Serves it with more flags.
    pub fn serve_with(&self, flags: &[&str]) -> Server {
        Server::start(&[&["serve", self.file()], flags].concat(), &self.beside("socket"))
    }

    /// Tries to serve it and expects that this fails.
    pub fn refuses_to_serve(&self, flags: &[&str]) -> Ended {
        let endpoint = format!("unix:{}", self.beside("refused").display());
        let fixed = ["serve", self.file(), "--nbd", &endpoint, "--timing", "instant"];
        run_openftl([&fixed, flags].concat()).failed()
    }

    /// Verifies every block, map, chunk table and media with `openftl check`.
    pub fn check(&self) {
        run_openftl(["check", self.file()]).succeeded();
    }
}
