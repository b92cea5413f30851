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
//! durability = "machine"          # with store = "file", what flushes survive: "machine" (a crash of it, too) or "process"
//! timing = "wall-clock"           # "virtual", "wall-clock" or "instant"
//!
//! [ftl]
//! kind = "block"
//! victim = "greedy"               # "greedy", "cost-benefit", "fifo", "windowed:25%" or "d-choices:10"
//! collection = "marked"           # "marked": few groups at a time; "device-wide": all that are short of room
//! relocate_by = "read-and-write"  # how collection moves blocks: or "device-copy", by the device's vector copy
//! collect_when_idle = "100ms"     # makes room ahead when the host has been silent for so long; left out: never
//! placement = "hot-cold"          # "none", "hot-cold", "learned", "streams", "streams-kept", "fdp", "fdp-persistent" or
//!                                 # "flash-alloc": what shares chunks because it is expected to end together
//! handles = 8                     # that writes may carry, with streams and fdp
//! objects_max = 64                # that may be written at a time, with flash-alloc
//! map_memory = "10%"              # keeps the map on media, and in memory so much of it; or bytes, "64MiB"; left out: all of it
//! map_cache = "clock"             # what of it stays in memory: "clock", "lru", "2q" or "seed-hotness"
//! map_pin = ["0..128MiB"]         # bytes of the drive whose map pages leave memory last; "learned": what is overwritten in order
//! map_block = "4KiB"              # how much of the map is loaded at a time, up to "64KiB"
//! write_through = false
//! checkpoint_interval = "10s"     # at the latest; left out: only the length of the log counts
//! scrub_interval = "7d"           # everything is read once in this time; or "never"
//! wear_spread_max = 32            # resets that chunks of a group may differ by before data move; 0: any number
//!
//!                                 # with kind = "zones", for NVMe hosts or for RocksDB: media.capacity is what zones can hold, and of
//!                                 # the above only the checkpoints are for them
//! zone_width = 4                  # parallel units of a zone; left out: those of a group
//! max_open_zones = 14             # that are open at a time
//! max_active_zones = 14           # that are open or closed at a time
//! zone_descriptor_extension = 0   # bytes that a host can attach to each zone, a multiple of 64
//! zrwa = false                    # whether hosts can open zones with a random write area; or how long that is, "64KiB"
//!
//!                                 # with kind = "tables", for RocksDB: media.capacity is what its tables can hold
//! log_area = "512MiB"             # for its write-ahead logs and other small files
//! table_placement = "by-load"     # "horizontal", "vertical" or "by-load"
//!
//!                                 # with kind = "pages": media.capacity is what pages can hold, with their headers of 32 bytes
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
//! files = "unix:/run/lsm.sock"    # with kind = "tables": where other processes use its files; or "127.0.0.1:10810"
//! poll = "50us"                   # looks again for so long before it sleeps: less latency, more of a core; or "auto"
//! reactors = 1                    # threads that move the bytes of sockets; the first one does all else
//! ```
//!
//! Every field may be left out, and flags override them. An unknown field is an error.
//!
//! With `[[namespace]]` tables the device is divided, and each of them has some of its parallel units:
//!
//! ```toml
//! [[namespace]]
//! name = "database"
//! kind = "block"                  # an FTL of its own; hosts see blocks
//! groups = "0-3"                  # left out: all of them
//! parallel_units = "0-7"          # of each of these groups; left out: all of them
//! capacity = "2GiB"
//! over_provisioning = "20%"       # left out: that of [media]
//! ftl = { write_through = true }  # what differs from [ftl]
//!
//! [[namespace]]
//! name = "log"
//! kind = "zoned"                  # zones that NVMe hosts write in order
//! groups = "4"
//! ftl = { zone_width = 2 }        # see kind = "zones" above
//!
//! [[namespace]]
//! name = "flash"
//! kind = "open-channel"           # the flash itself; hosts bring their own FTL
//! groups = "5-7"
//! capacity = "4GiB"               # flash that it has at least; left out: what the others ask for, or the profile has
//! ```
//!
//! Parallel units that no namespace has are left alone.

use crate::failure::Failure;
pub use crate::ftl_section::{FtlKind, FtlSection, Interface, RandomWriteArea};
use crate::small_file::{self, SmallFileError};
use openftl_core::units::{ByteSize, Poll, Share};
use openftl_core::word::plainly;
use openftl_media::parts::PARTS_MAX;
use openftl_media::{Durability, PartKind, PartName, Profile, ProfileError};
use openftl_nvme::Nqn;
use openftl_nvme_auth::DhGroup;
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A drive description, as it is written.
#[derive(Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct DriveDescription {
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
    /// What the device is divided into; none if it is one drive.
    #[serde(default, rename = "namespace")]
    pub namespaces: Vec<NamespaceSection>,
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
    /// What flushes of a drive in a file survive.
    pub durability: Option<Durability>,
    /// Which clock.
    pub timing: Option<Timing>,
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
    /// Diffie-Hellman groups in which they may show that they know them, best first.
    #[serde(default, deserialize_with = "dh_groups")]
    pub dhchap_groups: Vec<DhGroup>,
    /// Keys of NVMe hosts that use TLS.
    pub tls_key: Option<PathBuf>,
    /// Whether all of them have to.
    pub tls: Option<Tls>,
    /// Profiles of Open-Channel devices that are served beside the drive.
    #[serde(default)]
    pub open_channel: Vec<String>,
    /// Where `openftl ctl` reaches the drive.
    pub control: Option<String>,
    /// Of a table drive: where other processes use its files: `unix:path`, or `127.0.0.1:port`.
    pub files: Option<String>,
    /// How long to look for what comes next before going to sleep.
    pub poll: Option<Poll>,
    /// Threads that move the bytes of sockets.
    pub reactors: Option<usize>,
}

/// Which NVMe hosts have to use TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// All.
    Required,
    /// Those that have a key.
    Allowed,
}

/// Some parallel units of the device, and what they are for.
#[derive(Deserialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSection {
    /// What people call it.
    #[serde(deserialize_with = "part_name")]
    pub name: PartName,
    /// What hosts see.
    pub kind: PartKind,
    /// Its groups; all of them if left out.
    pub groups: Option<Numbers>,
    /// Its parallel units of each of these groups; all of them if left out.
    pub parallel_units: Option<Numbers>,
    /// What hosts see of a block namespace; what zones hold at least; flash that an Open-Channel one has at least.
    pub capacity: Option<ByteSize>,
    /// Flash for data beyond the capacity.
    pub over_provisioning: Option<Share>,
    /// What differs from the FTL of all.
    pub ftl: Option<FtlSection>,
}

/// Numbers that follow each other, written like `0-3`, or one alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbers(pub Range<u32>);

impl std::str::FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Numbers, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u32>().ok();
        match (number(first), number(last).and_then(|last| last.checked_add(1))) {
            (Some(first), Some(end)) if first < end => Ok(Numbers(first..end)),
            _ => Err(format!("`{text}` names none; write the first and the last, like 0-3, or one alone, like 2")),
        }
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Numbers, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which clock, and whether the media take their time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
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

impl DriveDescription {
    /// Reads `path`, which was given as `--drive`. Files that it names are looked for beside it.
    ///
    /// # Errors
    /// If it cannot be read, or not be understood.
    pub fn read(path: &Path) -> Result<DriveDescription, Failure> {
        DriveDescription::read_as("--drive ", path)
    }

    /// The same for a path that was given alone, as an argument or to a library.
    ///
    /// # Errors
    /// See [`DriveDescription::read`].
    pub fn read_alone(path: &Path) -> Result<DriveDescription, Failure> {
        DriveDescription::read_as("", path)
    }

    fn read_as(flag: &str, path: &Path) -> Result<DriveDescription, Failure> {
        let text = small_file::read_text(path).map_err(|error| {
            let failure = Failure::bad_input(format_args!("{flag}{}: {error}", path.display()));
            match error {
                SmallFileError::Drive => failure
                    .fix("`openftl serve`, `check`, `inspect` and `files` take a drive by its name, without --drive"),
                _ => failure.fix("name a drive description (TOML), such as those in the `drives` folder"),
            }
        })?;
        let mut file = DriveDescription::parse(&text).map_err(|reason| {
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

    /// Understands the text of a drive description.
    ///
    /// # Errors
    /// The reason, which names line and field.
    pub fn parse(text: &str) -> Result<DriveDescription, String> {
        let file: DriveDescription = toml::from_str(text).map_err(|error| {
            let told = error.to_string();
            let (told, message) = (told.trim_end(), error.message());
            told.strip_suffix(message).map_or_else(|| told.to_owned(), |place| format!("{place}{}", plainly(message)))
        })?;
        file.check_namespaces()?;
        let kind = file.ftl.kind.unwrap_or(FtlKind::Block);
        if file.namespaces.is_empty() {
            file.ftl.expect_of_kind(kind).map_err(|reason| format!("ftl.{reason}"))?;
        }
        if let (Some(share), FtlKind::Zones | FtlKind::Segments) = (file.media.over_provisioning, kind) {
            let noun = if kind == FtlKind::Zones { "zones" } else { "segments" };
            return Err(format!(
                "media.over_provisioning = \"{share}\" is of no use to {noun}, which are never collected; leave it away"
            ));
        }
        let in_memory = file.media.store.filter(|store| *store != StoreName::File);
        if let (Some(_), Some(durability)) = (in_memory, file.media.durability) {
            let durability = durability.word();
            return Err(format!(
                "media.durability = \"{durability}\" is of no use to a drive in memory, which survives nothing: leave it away, or \
                 write media.store = \"file\""
            ));
        }
        match (file.media.store, &file.media.path) {
            (Some(StoreName::File), None) => Err("media.path is missing: media.store = \"file\" needs it".to_owned()),
            (store, Some(path)) if store != Some(StoreName::File) => {
                Err(format!("media.path = {path:?} is of no use without media.store = \"file\""))
            }
            _ => Ok(file),
        }
    }

    /// Whether the namespaces say what they have to, and nothing that is of no use. Where they lie is checked when the device
    /// is known.
    fn check_namespaces(&self) -> Result<(), String> {
        let namespaces = &self.namespaces;
        if namespaces.len() > PARTS_MAX {
            return Err(format!(
                "{} [[namespace]] tables: a device is divided into at most {PARTS_MAX}",
                namespaces.len()
            ));
        }
        if let (Some(capacity), false) = (self.media.capacity, namespaces.is_empty()) {
            return Err(format!(
                "media.capacity = \"{capacity}\" is of no use where the device is divided: each [[namespace]] has its own"
            ));
        }
        let one_drive = self.ftl.kind.filter(|kind| *kind != FtlKind::Block);
        if let (Some(kind), false) = (one_drive, namespaces.is_empty()) {
            let (kind, fix) = match kind {
                FtlKind::Zones => ("zones", "write kind = \"zoned\" in the [[namespace]] that is to have zones"),
                FtlKind::Segments => ("segments", "segments have a whole device: leave the [[namespace]] tables away"),
                FtlKind::Pages => ("pages", "a store of pages has a whole device: leave the [[namespace]] tables away"),
                FtlKind::Values => {
                    ("values", "a key-value drive has a whole device: leave the [[namespace]] tables away")
                }
                _ => ("tables", "a table drive has a whole device: leave the [[namespace]] tables away"),
            };
            return Err(format!("ftl.kind = \"{kind}\": each [[namespace]] has its own kind; {fix}"));
        }
        for (index, namespace) in namespaces.iter().enumerate() {
            let name = &namespace.name;
            if namespaces[..index].iter().any(|other| other.name == *name) {
                return Err(format!("two namespaces are called {name}; rename one"));
            }
            let of_no_use = |field: &str| format!("namespace {name}: {field} is of no use to an open-channel one");
            match namespace.kind {
                PartKind::Block if namespace.capacity.is_none() => {
                    return Err(format!(
                        "namespace {name}: capacity is missing; say what hosts see, like capacity = \"2GiB\""
                    ));
                }
                PartKind::Zoned if namespace.over_provisioning.is_some() => {
                    return Err(format!("namespace {name}: over_provisioning is of no use to zones; leave it away"));
                }
                PartKind::OpenChannel if namespace.over_provisioning.is_some() => {
                    return Err(of_no_use("over_provisioning"));
                }
                PartKind::OpenChannel if namespace.ftl.is_some() => return Err(of_no_use("ftl")),
                PartKind::Block | PartKind::OpenChannel | PartKind::Zoned => {}
            }
            if let Some(ftl) = &namespace.ftl {
                let is_zoned = namespace.kind == PartKind::Zoned;
                let checked = ftl.expect_of_kind(if is_zoned { FtlKind::Zones } else { FtlKind::Block });
                checked.map_err(|reason| format!("namespace {name}: ftl.{reason}"))?;
            }
        }
        Ok(())
    }
}

fn part_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PartName, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn nqn<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nqn>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

fn nqns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Nqn>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

fn dh_groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<DhGroup>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

/// Whether a profile is named by its file and not by its name.
pub fn is_file_name(profile: &str) -> bool {
    profile.contains('/') || profile.ends_with(".toml")
}

/// The profile with this name, or in this file.
///
/// # Errors
/// If there is none, or what is there is none.
pub fn find_profile(profile: &str) -> Result<Profile, Failure> {
    if !is_file_name(profile) {
        return Profile::builtin(profile).map_err(|error| profile_failure(profile, &error));
    }
    let path = Path::new(profile);
    let text = small_file::read_text(path).map_err(|error| {
        Failure::bad_input(format_args!("profile {profile}: {error}"))
            .fix("name a TOML file, or one of those that `openftl profiles` lists")
    })?;
    Profile::parse(&text).map_err(|error| profile_failure(profile, &error))
}

/// What is wrong with a profile, and what would be right.
pub fn profile_failure(profile: &str, error: &ProfileError) -> Failure {
    let failure = Failure::bad_input(format_args!("profile {profile}: {error}"));
    match error {
        ProfileError::Unknown { .. } => failure.fix("choose one of them, or name a TOML file like ./mine.toml"),
        _ => failure.fix("correct the profile; `openftl profiles cosmos --toml` prints one that works"),
    }
}

/// For a drive that is made without one: another each time.
pub fn another_seed() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    // Two drives made in the same nanosecond are made by two processes.
    nanos ^ u64::from(std::process::id()).rotate_left(48)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&DriveDescription::parse(text).unwrap_err());
    }

    #[test]
    fn the_drives_that_come_along_are_understood() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../drives");
        let mut drives = 0;
        for entry in folder.read_dir().unwrap() {
            DriveDescription::read(&entry.unwrap().path()).unwrap_or_else(|error| panic!("{error}"));
            drives += 1;
        }
        assert!(drives >= 3, "{drives} drives");
    }

    #[test]
    fn nvme_hosts_are_let_in_as_the_file_says() {
        let text = "[host]\nnvme_tcp = [\"127.0.0.1:4420\"]\nnqn = \"nqn.2026-11.org.example:disk\"\n\
                    allow_host = [\"nqn.2026-11.org.example:host\"]\nopen_channel = [\"tiny\"]\n";
        let host = DriveDescription::parse(text).unwrap().host;
        assert_eq!(host.nvme_tcp, ["127.0.0.1:4420".parse().unwrap()]);
        assert_eq!(host.nqn, Some("nqn.2026-11.org.example:disk".parse().unwrap()));
        assert_eq!((host.allow_host.len(), host.open_channel), (1, vec!["tiny".to_owned()]));
        for (wrong, field) in [("nqn = \"disk\"", "nqn"), ("nvme_tcp = [\"somewhere\"]", "nvme_tcp")] {
            let error = DriveDescription::parse(&format!("[host]\n{wrong}\n")).unwrap_err();
            assert!(error.contains("line 2") && error.contains(field), "{error}");
        }
    }

    #[test]
    fn a_divided_device_has_namespaces_with_parallel_units() {
        let text = "[[namespace]]\nname = \"db\"\nkind = \"block\"\ngroups = \"0-3\"\ncapacity = \"1GiB\"\n\
                    ftl = { write_through = true }\n\
                    [[namespace]]\nname = \"flash\"\nkind = \"open-channel\"\ngroups = \"4\"\nparallel_units = \"0-1\"\n";
        let [db, flash] = DriveDescription::parse(text).unwrap().namespaces.try_into().unwrap();
        assert_eq!((db.groups, db.parallel_units, db.capacity), (Some(Numbers(0..4)), None, Some(ByteSize(1 << 30))));
        assert_eq!(db.ftl.unwrap().write_through, Some(true));
        assert_eq!((flash.kind, flash.groups), (PartKind::OpenChannel, Some(Numbers(4..5))));
    }

    #[test]
    fn namespaces_that_cannot_be_are_named_with_the_field() {
        let table = |lines: &str| format!("[[namespace]]\n{lines}\n");
        let block = "name = \"db\"\nkind = \"block\"\ncapacity = \"1GiB\"";
        let refused = |text: &str, words: &[&str]| {
            let error = DriveDescription::parse(text).unwrap_err();
            words.iter().for_each(|word| assert!(error.contains(word), "`{word}` is not in: {error}"));
        };
        refused(
            &table("name = \"db\"\nkind = \"block\""),
            &["namespace db: capacity is missing", "capacity = \"2GiB\""],
        );
        refused(&[table(block), table(block)].concat(), &["two namespaces are called db"]);
        refused(
            &format!("[media]\ncapacity = \"8GiB\"\n{}", table(block)),
            &["media.capacity = \"8 GiB\"", "[[namespace]]"],
        );
        refused(&table(&format!("{block}\ngroups = \"3-1\"")), &["line 5", "`3-1`", "0-3"]);
        refused(&table(&format!("{block}\ngroups = \"0-4294967295\"")), &["`0-4294967295`"]);
        refused(&table("name = \"db\"\nkind = \"zns\""), &["`zns`", "`block`, `open-channel`, `zoned`"]);
        refused(&table("name = \"2\"\nkind = \"block\""), &["line 2", "`2` is no name of a namespace"]);
        refused(&table("kind = \"block\""), &["missing field `name`"]);
        let bare = "name = \"flash\"\nkind = \"open-channel\"";
        refused(&table(&format!("{bare}\nover_provisioning = \"7%\"")), &["namespace flash", "over_provisioning"]);
        refused(&table(&format!("{bare}\nftl = {{ victim = \"greedy\" }}")), &["namespace flash", "ftl"]);
        let many: String = (0..65).map(|id| table(&format!("name = \"n{id}\"\nkind = \"open-channel\""))).collect();
        refused(&many, &["65 [[namespace]] tables", "at most 64"]);
    }

    #[test]
    fn zones_have_fields_of_their_own_and_no_others() {
        let zones = |lines: &str| DriveDescription::parse(&format!("[ftl]\nkind = \"zones\"\n{lines}\n"));
        let ftl = zones("zone_width = 4\nzone_descriptor_extension = 64\nmax_open_zones = 6\nmax_active_zones = 8\ncheckpoint_interval = \"10s\"")
            .unwrap()
            .ftl;
        assert_eq!((ftl.zone_width, ftl.max_open_zones, ftl.max_active_zones), (Some(4), Some(6), Some(8)));
        assert_eq!(ftl.zone_descriptor_extension, Some(64));
        let refused = |error: String, words: &[&str]| {
            words.iter().for_each(|word| assert!(error.contains(word), "`{word}` is not in: {error}"));
        };
        refused(zones("victim = \"greedy\"").unwrap_err(), &["ftl.victim", "of no use to zones"]);
        for (text, area) in [
            ("true", RandomWriteArea::Has(true)),
            ("false", RandomWriteArea::Has(false)),
            ("\"64KiB\"", RandomWriteArea::Bytes(ByteSize(65_536))),
        ] {
            assert_eq!(zones(&format!("zrwa = {text}")).unwrap().ftl.zrwa, Some(area));
        }
        refused(zones("zrwa = 64").unwrap_err(), &["true, false, or a size like"]);
        refused(
            zones("\n[media]\nover_provisioning = \"7%\"").unwrap_err(),
            &["media.over_provisioning = \"7%\"", "of no use to zones"],
        );
        let block = DriveDescription::parse("[ftl]\nzone_width = 4\n");
        refused(block.unwrap_err(), &["ftl.zone_width", "kind = \"zones\""]);
        let namespace = "[[namespace]]\nname = \"log\"\nkind = \"zoned\"\n";
        let log = DriveDescription::parse(&format!("{namespace}ftl = {{ zone_width = 2 }}\n")).unwrap();
        assert_eq!(log.namespaces[0].kind, PartKind::Zoned);
        let text = format!("{namespace}ftl = {{ placement = \"none\" }}\n");
        refused(DriveDescription::parse(&text).unwrap_err(), &["namespace log: ftl.placement"]);
        refused(
            DriveDescription::parse(&format!("{namespace}over_provisioning = \"7%\"\n")).unwrap_err(),
            &["namespace log: over_provisioning"],
        );
        refused(zones(namespace).unwrap_err(), &["ftl.kind = \"zones\"", "kind = \"zoned\""]);
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
                unknown field `profil`, expected one of `profile`, `capacity`, `over_provisioning`, `store`, `path`, `durability`, `timing`"#]],
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
            unknown variant `zns`, expected one of `block`, `tables`, `zones`, `segments`, `pages`, `values`"#]],
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
    fn durability_is_that_of_a_file() {
        let media =
            |lines: &str| DriveDescription::parse(&format!("[media]\n{lines}\n")).map(|file| file.media.durability);
        assert_eq!(media("durability = \"process\""), Ok(Some(Durability::Process)));
        assert_eq!(
            media("store = \"file\"\npath = \"disk.oftl\"\ndurability = \"machine\""),
            Ok(Some(Durability::Machine))
        );
        for store in ["ram", "stamps"] {
            check(
                &format!("[media]\nstore = \"{store}\"\ndurability = \"machine\"\n"),
                expect![[
                    r#"media.durability = "machine" is of no use to a drive in memory, which survives nothing: leave it away, or write media.store = "file""#
                ]],
            );
        }
        check(
            "[media]\ndurability = \"always\"\n",
            expect![[r#"
                TOML parse error at line 2, column 14
                  |
                2 | durability = "always"
                  |              ^^^^^^^^
                unknown variant `always`, expected `machine` or `process`"#]],
        );
    }

    #[test]
    fn files_are_looked_for_beside_the_drive_description() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, "[media]\nprofile = \"chips/mine.toml\"\nstore = \"file\"\npath = \"disk.oftl\"\n")
            .unwrap();
        let file = DriveDescription::read(&path).unwrap();
        assert_eq!(file.media.path.unwrap(), folder.path().join("disk.oftl"));
        assert_eq!(file.media.profile.unwrap(), folder.path().join("chips/mine.toml").to_str().unwrap());
    }
}
