//! A drive in a file: one TOML = media + FTL + host interface = one SSD.
//!
//! ```toml
//! description = "…"
//!
//! [media]
//! profile = "cosmos"              # a builtin profile, or a TOML file beside this one
//! capacity = "8GiB"
//! over_provisioning = "10%"
//! store = "file"                  # "ram", "stamps" or "file"
//! path = "disk.oftl"              # with store = "file"
//! timing = "wall-clock"           # "virtual", "wall-clock" or "instant"
//!
//! [ftl]
//! kind = "block"
//! victim = "greedy"               # "greedy" or "cost-benefit"
//! write_through = false
//! checkpoint_interval = "10s"     # at the latest; left out: only the length of the log counts
//! scrub_interval = "7d"           # everything is read once in this time; or "never"
//! wear_spread_max = 32            # resets that chunks of a group may differ by before data move; 0: any number
//!
//! [host]
//! nbd = ["127.0.0.1:10809"]
//! nvme_tcp = ["127.0.0.1:4420"]
//! nqn = "nqn.2026-11.org.example:disk"
//! allow_host = ["nqn.2026-11.org.example:host"]
//! dhchap_key = "hosts.keys"       # a file beside this one
//! tls_key = "hosts.tls"           # another
//! tls = "required"                # "required", or "allowed" for hosts without a key
//! open_channel = ["tiny"]         # profiles of Open-Channel devices in memory, as namespaces 2, 3, …
//! control = "unix:/tmp/openftl.ctl"
//! poll = "50us"                   # looks again for so long before it sleeps: less latency, more of a core
//! ```
//!
//! Every field may be left out, and flags override them. An unknown field is an error.

use crate::failure::Failure;
use clap::ValueEnum;
use openftl_core::Nanos;
use openftl_core::units::{ByteSize, Interval, Share};
use openftl_ftl::VictimPolicy;
use openftl_nvme::Nqn;
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A drive file, as it is written.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct DriveFile {
    /// One sentence for those who read the file.
    #[serde(default)]
    pub description: String,
    /// The flash.
    #[serde(default)]
    pub media: MediaSection,
    /// What is laid over it.
    #[serde(default)]
    pub ftl: FtlSection,
    /// How the outside reaches it.
    #[serde(default)]
    pub host: HostSection,
}

/// The flash: which, how much, where it is kept, how fast it is.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct MediaSection {
    /// A builtin profile, or a TOML file.
    pub profile: Option<String>,
    /// What the host sees.
    pub capacity: Option<ByteSize>,
    /// Flash for data beyond the capacity.
    pub over_provisioning: Option<Share>,
    /// Where the payload is kept.
    pub store: Option<StoreName>,
    /// The file of [`StoreName::File`].
    pub path: Option<PathBuf>,
    /// Which clock.
    pub timing: Option<Timing>,
}

/// What is laid over the flash; as in [`openftl_ftl::Config`].
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct FtlSection {
    /// Which FTL.
    pub kind: Option<FtlKind>,
    /// How garbage collection chooses its victims.
    pub victim: Option<VictimPolicy>,
    /// Acknowledge every write only when it is durable.
    pub write_through: Option<bool>,
    /// Log blocks after which a checkpoint is taken.
    pub checkpoint_log_blocks: Option<u64>,
    /// Time after which a checkpoint is taken.
    #[serde(default, deserialize_with = "span")]
    pub checkpoint_interval: Option<Nanos>,
    /// Groups that may be marked for collection at a time.
    pub marked_groups_max: Option<u32>,
    /// Time in which everything is read once.
    pub scrub_interval: Option<Interval>,
    /// Resets that chunks of a group may differ by before data move; 0 means that wear is not levelled.
    pub wear_spread_max: Option<u32>,
}

/// How the outside reaches the drive.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct HostSection {
    /// Addresses to listen on: `host:port`, or `unix:path`.
    #[serde(default)]
    pub nbd: Vec<String>,
    /// Addresses where NVMe hosts connect: `address:port`.
    #[serde(default)]
    pub nvme_tcp: Vec<SocketAddr>,
    /// The subsystem that they connect to.
    #[serde(default, deserialize_with = "nqn")]
    pub nqn: Option<Nqn>,
    /// NVMe hosts that may connect.
    #[serde(default, deserialize_with = "nqns")]
    pub allow_host: Vec<Nqn>,
    /// Secrets of NVMe hosts.
    pub dhchap_key: Option<PathBuf>,
    /// Keys of NVMe hosts that use TLS.
    pub tls_key: Option<PathBuf>,
    /// Whether all of them have to.
    pub tls: Option<Tls>,
    /// Profiles of Open-Channel devices that are served beside the drive.
    #[serde(default)]
    pub open_channel: Vec<String>,
    /// Where `openftl ctl` reaches the drive.
    pub control: Option<String>,
    /// How long to look for what comes next before going to sleep.
    #[serde(default, deserialize_with = "span")]
    pub poll: Option<Nanos>,
}

/// Which NVMe hosts have to use TLS.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// All.
    Required,
    /// Those that have a key.
    Allowed,
}

/// Which clock, and whether the media take their time.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
    /// Simulated time: as fast as the CPU goes, and repeatable.
    Virtual,
    /// Your time: requests end when those of the NAND would.
    WallClock,
    /// The NAND takes no time at all.
    Instant,
}

/// Where the payload is kept.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum StoreName {
    /// In memory, every byte.
    Ram,
    /// In memory, eight bytes a block.
    Stamps,
    /// In a file.
    File,
}

/// Which FTL.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum FtlKind {
    /// 4 KiB blocks, transactions up to 1 MiB.
    Block,
}

impl DriveFile {
    /// Reads `path`. Files that it names are looked for beside it.
    ///
    /// # Errors
    /// If it cannot be read, or not be understood.
    pub fn read(path: &Path) -> Result<DriveFile, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::bad_input(format_args!("--drive {}: {error}", path.display()))
                .fix("name a drive file, such as those in the `drives` folder")
        })?;
        let mut file = DriveFile::parse(&text).map_err(|reason| {
            Failure::bad_input(format_args!("{}: {reason}", path.display()))
                .fix("correct the line; the `drives` folder has files that work")
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        if let Some(disk) = &mut file.media.path {
            *disk = folder.join(&*disk);
        }
        if let Some(profile) = &mut file.media.profile
            && is_file_name(profile)
        {
            *profile = folder.join(&*profile).to_string_lossy().into_owned();
        }
        for keys in [&mut file.host.dhchap_key, &mut file.host.tls_key].into_iter().flatten() {
            *keys = folder.join(&*keys);
        }
        for profile in file.host.open_channel.iter_mut().filter(|profile| is_file_name(profile)) {
            *profile = folder.join(&*profile).to_string_lossy().into_owned();
        }
        Ok(file)
    }

    /// Understands the text of a drive file.
    ///
    /// # Errors
    /// The reason, which names line and field.
    pub fn parse(text: &str) -> Result<DriveFile, String> {
        let file: DriveFile = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        match (file.media.store, &file.media.path) {
            (Some(StoreName::File), None) => Err("media.path is missing: media.store = \"file\" needs it".to_owned()),
            (store, Some(path)) if store != Some(StoreName::File) => {
                Err(format!("media.path = {path:?} is of no use without media.store = \"file\""))
            }
            _ => Ok(file),
        }
    }
}

/// A span as people write it. In reports spans are numbers, so this is not how they are read everywhere.
fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

fn nqn<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nqn>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

fn nqns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Nqn>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

/// Whether a profile is named by its file and not by its name.
pub fn is_file_name(profile: &str) -> bool {
    profile.contains('/') || profile.ends_with(".toml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&DriveFile::parse(text).unwrap_err());
    }

    #[test]
    fn the_drives_that_come_along_are_understood() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives");
        let mut drives = 0;
        for entry in folder.read_dir().unwrap() {
            DriveFile::read(&entry.unwrap().path()).unwrap_or_else(|error| panic!("{error}"));
            drives += 1;
        }
        assert!(drives >= 3, "{drives} drives");
    }

    #[test]
    fn nvme_hosts_are_let_in_as_the_file_says() {
        let text = "[host]\nnvme_tcp = [\"127.0.0.1:4420\"]\nnqn = \"nqn.2026-11.org.example:disk\"\n\
                    allow_host = [\"nqn.2026-11.org.example:host\"]\nopen_channel = [\"tiny\"]\n";
        let host = DriveFile::parse(text).unwrap().host;
        assert_eq!(host.nvme_tcp, ["127.0.0.1:4420".parse().unwrap()]);
        assert_eq!(host.nqn, Some("nqn.2026-11.org.example:disk".parse().unwrap()));
        assert_eq!((host.allow_host.len(), host.open_channel), (1, vec!["tiny".to_owned()]));
        for (wrong, field) in [("nqn = \"disk\"", "nqn"), ("nvme_tcp = [\"somewhere\"]", "nvme_tcp")] {
            let error = DriveFile::parse(&format!("[host]\n{wrong}\n")).unwrap_err();
            assert!(error.contains("line 2") && error.contains(field), "{error}");
        }
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        check(
            "[media]\nprofil = \"cosmos\"\n",
            expect![[r#"
                TOML parse error at line 2, column 1
                  |
                2 | profil = "cosmos"
                  | ^^^^^^
                unknown field `profil`, expected one of `profile`, `capacity`, `over_provisioning`, `store`, `path`, `timing`"#]],
        );
    }

    #[test]
    fn a_wrong_value_is_shown_with_what_would_do() {
        check(
            "[media]\ncapacity = \"8Gibi\"\n",
            expect![[r#"
            TOML parse error at line 2, column 12
              |
            2 | capacity = "8Gibi"
              |            ^^^^^^^
            `8Gibi` is no size; write it like 8GiB, 512MiB, 16GB or 4096"#]],
        );
        check(
            "[media]\ntiming = \"soon\"\n",
            expect![[r#"
            TOML parse error at line 2, column 10
              |
            2 | timing = "soon"
              |          ^^^^^^
            unknown variant `soon`, expected one of `virtual`, `wall-clock`, `instant`"#]],
        );
        check(
            "[ftl]\ncheckpoint_interval = \"10\"\n",
            expect![[r#"
            TOML parse error at line 2, column 23
              |
            2 | checkpoint_interval = "10"
              |                       ^^^^
            `10` is no span of time; write it like 10s, 500ms or 2min"#]],
        );
        check(
            "[ftl]\nkind = \"zns\"\n",
            expect![[r#"
            TOML parse error at line 2, column 8
              |
            2 | kind = "zns"
              |        ^^^^^
            unknown variant `zns`, expected `block`"#]],
        );
        check(
            "[media\n",
            expect![[r#"
            TOML parse error at line 1, column 7
              |
            1 | [media
              |       ^
            unclosed table, expected `]`"#]],
        );
    }

    #[test]
    fn store_and_path_belong_together() {
        check("[media]\nstore = \"file\"\n", expect![[r#"media.path is missing: media.store = "file" needs it"#]]);
        check(
            "[media]\nstore = \"ram\"\npath = \"disk.oftl\"\n",
            expect![[r#"media.path = "disk.oftl" is of no use without media.store = "file""#]],
        );
    }

    #[test]
    fn files_are_looked_for_beside_the_drive_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, "[media]\nprofile = \"chips/mine.toml\"\nstore = \"file\"\npath = \"disk.oftl\"\n")
            .unwrap();
        let file = DriveFile::read(&path).unwrap();
        assert_eq!(file.media.path.unwrap(), folder.path().join("disk.oftl"));
        assert_eq!(file.media.profile.unwrap(), folder.path().join("chips/mine.toml").to_str().unwrap());
    }
}
