//! A drive under comparison, as one writes it on the command line or in a sweep's file.
//!
//! ```text
//!   cosmos                              a profile
//!   cosmos:flash-alloc                  … with a placement
//!   drives/cosmos-block.toml:streams    a drive description with another placement than it says
//!   cosmos:fdp,binding=by-object:4,victim=cost-benefit,over-provisioning=7%,name=objects
//! ```
//!
//! What the host tells the drive (the binding) follows from the placement, unless it is said: nothing where the drive
//! would not heed it, handles by object for streams and by kind for Flexible Data Placement, and objects for FlashAlloc.

use crate::cli::{Collection, DriveFlags};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::small_file;
use crate::zones_made::ZonesMade;
use clap::ValueEnum;
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_drive::description::is_file_name;
use openftl_lab::Binding;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::memory::MapBudget;
use openftl_parts::placement_name::{HANDLES_MAX, OBJECTS_MAX};
use openftl_parts::{PlacementName, RelocateBy, VictimPolicy};
use std::path::Path;
use std::str::FromStr;

const OPTIONS: &str = "name=, binding=, victim=, collection=, relocate-by=, collect-when-idle=, over-provisioning=, map-memory=, \
                       map-cache=, handles= or objects-max=";

/// A drive as it is written: nothing is read yet.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ContenderSpec {
    /// The text itself.
    pub text: String,
    /// What it is called in reports, if not by its text.
    pub name: Option<String>,
    /// A profile's name, or the file of a profile or drive.
    pub source: String,
    /// Another placement than the drive description's.
    pub placement: Option<PlacementName>,
    /// What the host tells it.
    pub binding: Option<Binding>,
    /// How garbage collection chooses its victims.
    pub victim: Option<VictimPolicy>,
    /// Where garbage collection works at a time.
    pub collection: Option<Collection>,
    /// How garbage collection moves blocks.
    pub relocate_by: Option<RelocateBy>,
    /// Silence of the host after which room is made ahead.
    pub collect_when_idle: Option<Nanos>,
    /// Flash for data beyond the capacity.
    pub over_provisioning: Option<Share>,
    /// The budget of a map that is kept on media.
    pub map_memory: Option<MapBudget>,
    /// Which pages of it stay in memory.
    pub map_cache: Option<CachePolicy>,
    /// Handles that writes may carry.
    pub handles: Option<u8>,
    /// Objects that may be written at a time.
    pub objects_max: Option<u16>,
}

/// A drive that can be made.
#[derive(Clone, Debug)]
pub struct Contender {
    /// What it is called.
    pub name: String,
    /// What it is made of.
    pub settings: Settings,
    /// What the host tells it.
    pub binding: Binding,
    /// Bytes that the host sees, and of a segment or zone of them.
    pub capacity: ByteSize,
    pub segment: Option<ByteSize>,
    /// The zones or segments that it has.
    pub zones: Option<ZonesMade>,
}

impl FromStr for ContenderSpec {
    type Err = Failure;

    fn from_str(text: &str) -> Result<ContenderSpec, Failure> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let (source, placement) = match first.rsplit_once(':') {
            None => (first, None),
            Some((source, word)) => (source, Some(parsed("placement", word)?)),
        };
        if source.is_empty() {
            return Err(Failure::bad_input("no profile and no drive description is named")
                .fix("write one and, if you like, a placement, as cosmos:streams or drives/cosmos-block.toml"));
        }
        let mut spec =
            ContenderSpec { text: text.to_owned(), source: source.to_owned(), placement, ..ContenderSpec::default() };
        for option in parts {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            spec.set(name, value)?;
        }
        Ok(spec)
    }
}

impl ContenderSpec {
    /// Sets one option, named as on the command line.
    pub fn set(&mut self, option: &str, value: &str) -> Result<(), Failure> {
        match option {
            "name" if !value.is_empty() => self.name = Some(value.to_owned()),
            "placement" => self.placement = Some(parsed("placement", value)?),
            "binding" => self.binding = Some(parsed("binding", value)?),
            "victim" => self.victim = Some(parsed("victim", value)?),
            "over-provisioning" => self.over_provisioning = Some(parsed("over-provisioning", value)?),
            "collection" => {
                self.collection = Some(Collection::from_str(value, false).map_err(|_| {
                    Failure::bad_input(format_args!("collection={value}: there is no such scope"))
                        .fix("write marked or device-wide")
                })?);
            }
            "relocate-by" => self.relocate_by = Some(parsed(option, value)?),
            "collect-when-idle" => self.collect_when_idle = Some(parsed(option, value)?),
            "map-memory" => self.map_memory = Some(parsed(option, value)?),
            "map-cache" => self.map_cache = Some(parsed(option, value)?),
            "handles" => self.handles = Some(count(option, value, u32::from(HANDLES_MAX))? as u8),
            "objects-max" => self.objects_max = Some(count(option, value, u32::from(OBJECTS_MAX))? as u16),
            _ => {
                return Err(Failure::bad_input(format_args!("there is no option `{option}={value}`"))
                    .fix(format_args!("write {OPTIONS}")));
            }
        }
        Ok(())
    }

    /// The drive, with files read and what was left out filled in. Its size is that of `capacity` if that is given.
    pub fn gather(&self, capacity: Option<ByteSize>, capacity_default: ByteSize) -> Result<Contender, Failure> {
        self.gathered(capacity, capacity_default).map_err(|failure| failure.about(format_args!("drive {}", self.text)))
    }

    fn gathered(&self, capacity: Option<ByteSize>, capacity_default: ByteSize) -> Result<Contender, Failure> {
        let mut flags = DriveFlags {
            capacity,
            over_provisioning: self.over_provisioning,
            victim: self.victim,
            collection: self.collection,
            relocate_by: self.relocate_by,
            collect_when_idle: self.collect_when_idle,
            placement: self.placement,
            map_memory: self.map_memory,
            map_cache: self.map_cache,
            ..DriveFlags::default()
        };
        match is_drive_description(&self.source) {
            true => flags.drive = Some(self.source.clone().into()),
            false => flags.profile = Some(self.source.clone()),
        }
        let mut settings = Settings::gather_any(&flags, capacity_default)?.expect_one_drive("compare")?;
        let drive = &mut settings.drive;
        drive.handles = match (self.handles, self.binding) {
            (Some(handles), _) => handles,
            (None, Some(Binding::ByKind { handles } | Binding::ByObject { handles })) => handles.min(HANDLES_MAX),
            (None, _) => drive.handles,
        };
        drive.objects_max = self.objects_max.unwrap_or(drive.objects_max);
        let binding = self.binding.unwrap_or(binding_for(drive.placement, drive.handles));
        check_binding(drive.placement, drive.handles, binding)?;
        let name = self.name.clone().unwrap_or_else(|| self.text.clone());
        let (blocks, segment_blocks) = settings.host_space()?;
        let bytes = |blocks: u64| ByteSize(blocks * BLOCK_BYTES as u64);
        let zones = settings.zones_made()?;
        Ok(Contender { name, settings, binding, capacity: bytes(blocks), segment: segment_blocks.map(bytes), zones })
    }
}

/// A file that has no table of media, FTL or host is that of a profile.
fn is_drive_description(source: &str) -> bool {
    is_file_name(source)
        && small_file::read_text(Path::new(source)).map_or(true, |text| {
            let begins = |line: &str| ["[media]", "[ftl]", "[host]", "[[namespace]]"].contains(&line.trim());
            text.lines().any(begins)
        })
}

fn parsed<T: FromStr>(option: &str, value: &str) -> Result<T, Failure>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|error| match option {
        "placement" | "victim" | "map-cache" => {
            Failure::bad_input(format_args!("{option}={value}: {error}")).fix("write one of them")
        }
        _ => Failure::bad_input_with_fix(format_args!("{option}={value}: {error}")),
    })
}

fn count(option: &str, value: &str, most: u32) -> Result<u32, Failure> {
    match value.parse::<u32>() {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(Failure::bad_input(format_args!("{option}={value} is no such number"))
            .fix(format_args!("write a number from 1 to {most}"))),
    }
}

/// What a host tells a drive with this placement, if it tells it all that the drive heeds.
pub fn binding_for(placement: PlacementName, handles: u8) -> Binding {
    match placement {
        PlacementName::None | PlacementName::HotCold | PlacementName::Learned => Binding::None,
        PlacementName::Streams | PlacementName::StreamsKept => Binding::ByObject { handles },
        PlacementName::Fdp | PlacementName::FdpPersistent => Binding::ByKind { handles },
        PlacementName::FlashAlloc => Binding::Allocate,
    }
}

/// Refuses handles that the drive has not: they would count as none, and the comparison would say something else than it
/// seems to.
fn check_binding(placement: PlacementName, handles: u8, binding: Binding) -> Result<(), Failure> {
    match binding {
        Binding::ByKind { handles: told } | Binding::ByObject { handles: told }
            if placement.heeds_handles() && told > handles =>
        {
            Err(Failure::bad_input(format_args!("binding={binding} tells {told} handles, and the drive has {handles}"))
                .fix(format_args!("tell at most {HANDLES_MAX}, and leave handles= away or make it as large")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const CAPACITY: ByteSize = ByteSize(64 << 20);

    fn contender(text: &str) -> Result<Contender, Failure> {
        text.parse::<ContenderSpec>()?.gather(None, CAPACITY)
    }

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&contender(text).unwrap_err().to_string());
    }

    #[test]
    fn what_a_drive_is_told_follows_from_its_placement() {
        for (placement, told) in [
            ("none", "none"),
            ("hot-cold", "none"),
            ("learned", "none"),
            ("streams", "by-object:8"),
            ("streams-kept", "by-object:8"),
            ("fdp", "by-kind:8"),
            ("fdp-persistent", "by-kind:8"),
            ("flash-alloc", "allocate"),
        ] {
            let contender = contender(&format!("cosmos:{placement}")).unwrap();
            assert_eq!(
                (contender.settings.drive.placement.word(), contender.binding.to_string()),
                (placement, told.to_owned())
            );
        }
        let four = contender("cosmos:fdp,binding=by-object:4").unwrap();
        assert_eq!((four.settings.drive.handles, four.binding), (4, Binding::ByObject { handles: 4 }));
        assert_eq!(contender("cosmos:fdp,handles=3").unwrap().binding, Binding::ByKind { handles: 3 });
    }

    #[test]
    fn a_drive_description_and_a_profile_file_are_told_apart_and_options_override_both() {
        let folder = tempfile::tempdir().unwrap();
        let drive = folder.path().join("drive.toml");
        std::fs::write(&drive, "[media]\nprofile = \"znand\"\ncapacity = \"32MiB\"\n").unwrap();
        let text = format!("{}:learned,victim=cost-benefit,over-provisioning=20%,name=mine", drive.display());
        let contender = contender(&text).unwrap();
        assert_eq!((contender.name.as_str(), contender.capacity), ("mine", ByteSize(32 << 20)));
        let Settings { profile, drive, .. } = contender.settings;
        assert_eq!(
            (profile.name.as_str(), drive.victim, drive.over_provisioning),
            ("znand", VictimPolicy::CostBenefit, Share::percent(20))
        );
        let own = folder.path().join("own.toml");
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/tiny.toml"), &own).unwrap();
        assert_eq!(super::tests::contender(own.to_str().unwrap()).unwrap().settings.profile.name, "tiny");
    }

    #[test]
    fn what_cannot_be_is_refused_with_field_value_and_fix() {
        check(
            "cosmo:streams",
            expect![[r#"
            error: drive cosmo:streams: profile cosmo: there is no profile `cosmo`; the builtin ones are bluedbm, cosmos, granby, qlc, tiny, westlake, znand
              fix: choose one of them, or name a TOML file like ./mine.toml"#]],
        );
        check(
            "cosmos:stream",
            expect![[r#"
                error: placement=stream: "stream" is no placement: choose none, hot-cold, learned, streams, streams-kept, fdp, fdp-persistent or flash-alloc
                  fix: write one of them"#]],
        );
        check(
            "none.toml",
            expect![[r#"
                error: drive none.toml: --drive none.toml: No such file or directory (os error 2)
                  fix: name a drive description (TOML), such as those in the `drives` folder"#]],
        );
        check(
            ":streams",
            expect![[r#"
            error: no profile and no drive description is named
              fix: write one and, if you like, a placement, as cosmos:streams or drives/cosmos-block.toml"#]],
        );
        check(
            "cosmos,bindings=none",
            expect![[r#"
                error: there is no option `bindings=none`
                  fix: write name=, binding=, victim=, collection=, relocate-by=, collect-when-idle=, over-provisioning=, map-memory=, map-cache=, handles= or objects-max="#]],
        );
        check(
            "cosmos:fdp,binding=by-kinds",
            expect![[r#"
                error: binding=by-kinds: `by-kinds` is no binding
                  fix: write none, by-kind, by-kind:8, by-object, by-object:8 or allocate"#]],
        );
        check(
            "cosmos:fdp,handles=2,binding=by-kind:8",
            expect![[r#"
            error: drive cosmos:fdp,handles=2,binding=by-kind:8: binding=by-kind:8 tells 8 handles, and the drive has 2
              fix: tell at most 128, and leave handles= away or make it as large"#]],
        );
        check(
            "cosmos,handles=0",
            expect![[r#"
            error: handles=0 is no such number
              fix: write a number from 1 to 128"#]],
        );
        check(
            "cosmos,collection=all",
            expect![[r#"
            error: collection=all: there is no such scope
              fix: write marked or device-wide"#]],
        );
        check(
            "cosmos,over-provisioning=ten",
            expect![[r#"
                error: over-provisioning=ten: `ten` is no share
                  fix: write it like 10%, 7.5% or 0.1"#]],
        );
        check(
            "cosmos,victim=oldest",
            expect![[r#"
            error: victim=oldest: "oldest" is no victim policy: choose greedy, cost-benefit, minimum-declining-cost, fifo, windowed:25% (a share from 0.0001% to 100%), or d-choices:10 (1 to 1000)
              fix: write one of them"#]],
        );
    }
}
