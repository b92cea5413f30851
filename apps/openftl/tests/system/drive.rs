//! A drive in a file of its own temporary folder, which goes with it.

use crate::network::Network;
use crate::program::{Ended, run};
use crate::server::Server;
use serde_json::Value;
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

const PROTECTED: &str = "power_loss_protection = true";
const UNPROTECTED: &str = "power_loss_protection = false";

/// What the host sees of a drive from [`Drive::create`].
pub const CAPACITY_BYTES: u64 = 512 << 20;

impl Drive {
    /// A new drive of [`CAPACITY_BYTES`], of the profile `cosmos`.
    pub fn create() -> Drive {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("disk.oftl");
        Drive::create_at(folder, file)
    }

    /// A new drive like the others, but on a device whose cache forgets what it has acknowledged when the power goes, and
    /// leaves flash pages torn.
    pub fn create_volatile() -> Drive {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let toml = run_openftl(["profiles", "cosmos", "--toml"]).succeeded().stdout;
        assert!(toml.contains(PROTECTED), "the profile has a protected cache: {toml}");
        let profile = folder.path().join("volatile.toml");
        std::fs::write(&profile, toml.replace(PROTECTED, UNPROTECTED)).expect("room for a profile");
        let drive = Drive { file: folder.path().join("disk.oftl"), folder };
        let profile = profile.to_str().expect("a path of plain letters");
        run_openftl(["create", drive.file(), "--profile", profile, "--capacity", "512MiB"]).succeeded();
        drive
    }

    /// A new drive of 128 MiB, which is soon written several times.
    pub fn create_small() -> Drive {
        Drive::create_like(&["--capacity", "128MiB"])
    }

    /// A new drive of 64 MiB that has so much memory for its map.
    pub fn create_with_map_memory(budget: &str) -> Drive {
        Drive::create_like(&["--capacity", "64MiB", "--map-memory", budget])
    }

    fn create_like(flags: &[&str]) -> Drive {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let drive = Drive { file: folder.path().join("disk.oftl"), folder };
        run_openftl(["create", drive.file()].into_iter().chain(flags.iter().copied())).succeeded();
        drive
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

    /// Serves it in a network of its own, with these flags.
    pub fn serve_in(&self, network: &Network, flags: &[&str]) -> Server {
        Server::start_in(network, &[&["serve", self.file()], flags].concat(), &self.beside("socket"))
    }

    /// Operates it while it is served: `openftl ctl` with `words`, to its end.
    pub fn ctl(&self, words: &[&str]) -> Ended {
        run_openftl([&["ctl", self.file()], words].concat())
    }

    /// Operates it, and expects an answer.
    pub fn ask(&self, words: &[&str]) -> Value {
        let ended = self.ctl(&[words, &["--json"]].concat()).succeeded();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
    }

    /// What `openftl inspect` finds in its file.
    pub fn inspect(&self) -> Value {
        let ended = run_openftl(["inspect", self.file(), "--json"]).succeeded();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
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
