//! Zoned drives for Linux hosts: one whose namespace is zones alone, and a device with a block namespace beside them.

use super::{HOST_NQN, NQN, PORT};
use crate::drive::run_openftl;
use crate::mounted::text;
use crate::network::{CABLES, Network};
use crate::server::Server;
use tempfile::TempDir;

/// How many zones may be open, and open or closed.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub open: u64,
    pub active: u64,
}

/// The zones of a drive.
pub(super) struct Shape {
    /// Chunks of a mebibyte that a zone has. It has addresses for the next power of two.
    pub width: u64,
    pub zones: u64,
    pub limits: Limits,
}

/// A drive with zones, in a folder of its own.
pub(super) struct Zoned {
    folder: TempDir,
    has_blocks: bool,
}

impl Zoned {
    /// A new drive whose only namespace, 1, is zoned. Its device is as those of [`Zoned::beside_blocks`].
    pub fn alone(Shape { width, zones, limits: Limits { open, active } }: &Shape) -> Zoned {
        let zoned = Zoned::with(
            false,
            &format!(
                r#"
                description = "zones"
                [media]
                profile = "volatile.toml"
                capacity = "{}MiB"
                store = "file"
                path = "zones.oftl"
                timing = "instant"
                [ftl]
                kind = "zones"
                zone_width = {width}
                max_open_zones = {open}
                max_active_zones = {active}
                "#,
                zones * width
            ),
        );
        run_openftl(["create", &zoned.file(), "--drive", &zoned.path("zones.toml")]).succeeded();
        zoned
    }

    /// A new device with a block namespace, 1, and a zoned one, 2, whose zones can have a random write area of 16 blocks. The first has room for the tables of an f2fs, and for no
    /// file: those are in zones. The device's cache forgets what it has acknowledged when the power goes, and leaves flash
    /// pages torn.
    pub fn beside_blocks(Shape { width, zones, limits: Limits { open, active } }: &Shape) -> Zoned {
        Zoned::with(
            true,
            &format!(
                r#"
                [media]
                profile = "volatile.toml"
                store = "file"
                path = "zones.oftl"
                timing = "instant"
                [[namespace]]
                name = "blocks"
                kind = "block"
                groups = "7"
                capacity = "20MiB"
                [[namespace]]
                name = "zones"
                kind = "zoned"
                groups = "0-6"
                capacity = "{}MiB"
                ftl = {{ zone_width = {width}, max_open_zones = {open}, max_active_zones = {active}, zrwa = "64KiB" }}
                "#,
                zones * width
            ),
        )
    }

    fn with(has_blocks: bool, description: &str) -> Zoned {
        let zoned = Zoned { folder: tempfile::tempdir().expect("a temporary folder"), has_blocks };
        let profile = run_openftl(["profiles", "cosmos", "--toml"]).succeeded().stdout;
        let (protected, volatile) = ("power_loss_protection = true", "power_loss_protection = false");
        assert!(profile.contains(protected), "the profile has a protected cache: {profile}");
        zoned.write("volatile.toml", profile.replace(protected, volatile).as_bytes());
        zoned.write("zones.toml", description.as_bytes());
        zoned
    }

    fn path(&self, name: &str) -> String {
        text(&self.folder.path().join(name)).to_owned()
    }

    /// Makes the file `name` beside the drive, which a guest can read; returns its path.
    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("room for a file");
        path
    }

    /// Serves all namespaces to the guest of `network`.
    pub fn serve(&self, network: &Network) -> Server {
        let (description, address) = (self.path("zones.toml"), format!("{}:{PORT}", CABLES[0].server));
        let words = ["serve", "--drive", &description, "--nqn", NQN, "--nvme-tcp", &address];
        let words = [&words[..], &["--allow-remote", "--allow-host", HOST_NQN]].concat();
        if self.has_blocks {
            Server::start_in(network, &words, &self.folder.path().join("socket"))
        } else {
            Server::start_for_nvme_in(network, &words)
        }
    }

    /// Its file.
    pub fn file(&self) -> String {
        self.path("zones.oftl")
    }

    /// Verifies all namespaces with `openftl check`.
    pub fn check(&self) {
        run_openftl(["check", &self.file()]).succeeded();
    }
}
