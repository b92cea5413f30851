//! A profile: one NAND device, as a TOML file describes it.
//!
//! A profile says what a datasheet says: cell kind, planes, pages, durations, endurance, channels. What an Open-Channel
//! host needs to know (WS_MIN, WS_OPT, MW_CUNITS) is never written down, it *follows*:
//!
//! ```text
//! one program operation           one-shot                          shared
//! ──────────────────────────────────────────────────────────────────────────────────────────────
//! writes                          all bits of a word line           one bit of a word line
//! WS_MIN = WS_OPT (blocks)        planes × page_blocks × bits       planes × page_blocks
//! MW_CUNITS (blocks)              0                                 (bits − 1) × pair_distance × WS_MIN
//! ```
//!
//! With shared programming the pages of one word line are programmed `pair_distance` pages apart, and programming the
//! later one puts the earlier one at risk: until then a page of an open chunk cannot be read.

use openftl_core::geometry::Latency;
use openftl_core::units::Share;
use openftl_core::word::plainly;
use openftl_core::{BLOCK_BYTES, Geometry, Nanos};
use serde::{Deserialize, Serialize};

const BUILTINS: [(&str, &str); 7] = [
    ("bluedbm", include_str!("../../profiles/bluedbm.toml")),
    ("cosmos", include_str!("../../profiles/cosmos.toml")),
    ("granby", include_str!("../../profiles/granby.toml")),
    ("qlc", include_str!("../../profiles/qlc.toml")),
    ("tiny", include_str!("../../profiles/tiny.toml")),
    ("westlake", include_str!("../../profiles/westlake.toml")),
    ("znand", include_str!("../../profiles/znand.toml")),
];

/// One NAND device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// One sentence for people.
    pub description: String,
    /// Groups: channels with the parallel units on them.
    pub groups: u32,
    /// Parallel units (dies) in a group.
    pub pus_per_group: u32,
    /// Chunks in a parallel unit at the device's natural size. A drive is scaled by taking more or fewer of them.
    pub chunks_per_pu: u32,
    /// Out-of-band bytes of a block.
    pub oob_bytes: u32,
    /// What a channel carries, in 10⁶ bytes per second.
    pub channel_mb_s: u32,
    /// Chunks open at a time on the device; 0 means no limit.
    #[serde(default)]
    pub open_chunks_max: u32,
    /// Chunks open at a time on one parallel unit; 0 means no limit.
    #[serde(default)]
    pub open_chunks_per_pu_max: u32,
    /// MCCAP bit 0: the device copies blocks itself.
    #[serde(default)]
    pub vector_copy: bool,
    /// MCCAP bit 1: a free chunk may be reset.
    #[serde(default)]
    pub reset_of_free: bool,
    /// WIT: a chunk whose wear index rises above this is notified; 0 means never.
    #[serde(default)]
    pub wear_index_threshold: u8,
    /// The dies.
    pub chip: Chip,
    /// The controller's write cache.
    pub cache: Cache,
    /// What goes wrong, and how often.
    #[serde(default)]
    pub faults: Faults,
}

/// One die.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    /// Bits in a cell.
    pub cell: Cell,
    /// Planes, which work in step.
    pub planes: u32,
    /// 4 KiB blocks in a flash page of one plane.
    pub page_blocks: u32,
    /// 4 KiB blocks in a chunk: an erase block on every plane.
    pub blocks_per_chunk: u32,
    /// How a word line is programmed.
    pub programming: Programming,
    /// With shared programming: pages between the pages of one word line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair_distance: Option<u32>,
    /// Sense times in µs, one for each bit of the cell, lower page first.
    pub read_us: Vec<u32>,
    /// Program times in µs: one for each bit with shared programming, a single one with one-shot programming.
    pub program_us: Vec<u32>,
    /// Erase time in µs.
    pub erase_us: u32,
    /// Erases that a chunk stands. The next one fails and takes the chunk offline.
    pub endurance: u32,
}

/// Bits in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// One; also Z-NAND.
    Slc,
    /// Two.
    Mlc,
    /// Three.
    Tlc,
    /// Four.
    Qlc,
}

impl Cell {
    /// How many bits a cell keeps.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Cell::Slc => 1,
            Cell::Mlc => 2,
            Cell::Tlc => 3,
            Cell::Qlc => 4,
        }
    }
}

/// How a word line is programmed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Programming {
    /// All its pages at once.
    OneShot,
    /// One page after the other, others in between.
    Shared,
}

/// The controller's write cache. Each parallel unit has its own share, so that no group waits for another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// 4 KiB blocks for each parallel unit; 0 means that a write is acknowledged when it is programmed.
    pub blocks_per_pu: u32,
    /// How fast data gets in and out of it, in 10⁶ bytes per second.
    pub mb_s: u32,
    /// Whether what is in it outlives the power.
    pub power_loss_protection: bool,
}

/// Probabilities, all zero unless said otherwise.
///
/// All but `factory_bad` grow with wear, in a straight line from the value given here for a new chunk to
/// `wear_factor` times as much for one at its endurance.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Share of the chunks that are offline from the beginning.
    pub factory_bad: Share,
    /// That a program operation fails.
    pub program_fail: f64,
    /// That an erase fails, which takes the chunk offline.
    pub erase_fail: f64,
    /// That a block is found lost when it is read.
    pub read_fail: f64,
    /// That a block cannot be read, for the first and last time.
    pub read_retry: f64,
    /// That a block read is good but should be refreshed.
    pub high_ecc: f64,
    /// How many times likelier all of that is at the end of a chunk's life.
    pub wear_factor: f64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            factory_bad: Share::percent(0),
            program_fail: 0.0,
            erase_fail: 0.0,
            read_fail: 0.0,
            read_retry: 0.0,
            high_ecc: 0.0,
            wear_factor: 1.0,
        }
    }
}

/// A profile that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML, or a field that is missing, unknown or of the wrong kind.
    #[error("line {line}: {message}")]
    Text {
        /// Counted from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// A field that no device can have.
    #[error("{field} = {value}: {reason}")]
    Field {
        /// The field, as written in the TOML.
        field: String,
        /// What it was.
        value: String,
        /// Why that is impossible, and what would do.
        reason: String,
    },
    /// No builtin profile of that name.
    #[error("there is no profile `{name}`; the builtin ones are {}", Profile::names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// The line and reason for broken TOML; the field, its value and the reason for an impossible device.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let profile: Profile = toml::from_str(text).map_err(|error| ProfileError::Text {
            line: error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
            message: plainly(error.message()),
        })?;
        profile.validate()?;
        Ok(profile)
    }

    /// The builtin profile called `name`.
    ///
    /// # Errors
    /// The names there are, if it is none of them.
    pub fn builtin(name: &str) -> Result<Profile, ProfileError> {
        match BUILTINS.iter().find(|(builtin, _)| *builtin == name) {
            Some((_, text)) => Profile::parse(text),
            None => Err(ProfileError::Unknown { name: name.to_owned() }),
        }
    }

    /// All builtin profiles, by name.
    pub fn builtins() -> impl Iterator<Item = Profile> {
        BUILTINS.iter().map(|(name, text)| match Profile::parse(text) {
            Ok(profile) => profile,
            Err(error) => panic!("builtin profile {name}: {error}"),
        })
    }

    /// The names of the builtin profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTINS.iter().map(|(name, _)| *name)
    }

    /// The TOML text of the builtin profile called `name`, comments and all.
    #[must_use]
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        BUILTINS.iter().find(|(builtin, _)| *builtin == name).map(|(_, text)| *text)
    }

    /// Chunks to add to what a plan asks for, as a share of it: for those that are bad from the beginning, and half as many for
    /// those that go bad.
    #[must_use]
    pub fn spare(&self) -> Share {
        let bad = self.faults.factory_bad.millionths;
        Share { millionths: bad + bad / 2 }
    }

    /// The profile as TOML, which [`Profile::parse`] reads back to the same profile.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a profile has nothing that TOML cannot say")
    }

    /// Blocks that one program operation writes.
    #[must_use]
    pub fn program_blocks(&self) -> u32 {
        match self.chip.programming {
            Programming::OneShot => self.sense_blocks() * self.chip.cell.bits(),
            Programming::Shared => self.sense_blocks(),
        }
    }

    /// Blocks that one sense brings into the page registers: a page on every plane.
    #[must_use]
    pub fn sense_blocks(&self) -> u32 {
        self.chip.planes * self.chip.page_blocks
    }

    /// The bit of the cell, lower first, that a page (counted over all planes) is kept in.
    #[must_use]
    pub fn page_bit(&self, page: u32) -> u32 {
        page / self.pair_distance() % self.chip.cell.bits()
    }

    /// Pages from one page of a word line to the next: 1 with one-shot programming.
    #[must_use]
    pub fn pair_distance(&self) -> u32 {
        self.chip.pair_distance.unwrap_or(1)
    }

    /// The geometry of a device with `chunks_per_pu` chunks on each parallel unit.
    ///
    /// # Errors
    /// The field that makes it impossible.
    pub fn geometry(&self, chunks_per_pu: u32) -> Result<Geometry, ProfileError> {
        let chip = &self.chip;
        let ws_min = self.program_blocks();
        let mw_cunits = match chip.programming {
            Programming::OneShot => 0,
            Programming::Shared => (chip.cell.bits() - 1) * self.pair_distance() * ws_min,
        };
        let latency = |micros: &[u32]| {
            let sum: u64 = micros.iter().map(|us| u64::from(*us)).sum();
            let max = u64::from(micros.iter().copied().max().unwrap_or(0));
            Latency { typical: Nanos(sum * 1000 / micros.len().max(1) as u64), max: Nanos::from_micros(max) }
        };
        let geometry = Geometry {
            groups: self.groups,
            pus_per_group: self.pus_per_group,
            chunks_per_pu,
            blocks_per_chunk: chip.blocks_per_chunk,
            oob_bytes: self.oob_bytes,
            ws_min,
            ws_opt: ws_min,
            mw_cunits,
            open_chunks_max: self.open_chunks_max,
            open_chunks_per_pu_max: self.open_chunks_per_pu_max,
            vector_copy: self.vector_copy,
            reset_of_free: self.reset_of_free,
            wear_index_threshold: self.wear_index_threshold,
            // Without protection a torn program also takes the pages that share its word lines, long completed or not: to a
            // host that is the same as a cache of MW_CUNITS that forgets.
            volatile_cache: (self.cache.blocks_per_pu > 0 || mw_cunits > 0) && !self.cache.power_loss_protection,
            read: latency(&chip.read_us),
            write: latency(&chip.program_us),
            reset: latency(&[chip.erase_us]),
        };
        geometry.validate().map_err(|error| match error.field {
            // These are not in the TOML: name the fields that they follow from.
            "ws_min" | "ws_opt" => field(
                "chip.page_blocks",
                chip.page_blocks,
                format!(
                    "times planes (times the bits of the cell, one-shot) makes WS_MIN = {}, which {}",
                    error.value, error.reason
                ),
            ),
            "mw_cunits" => field(
                "chip.pair_distance",
                self.pair_distance(),
                format!("makes MW_CUNITS = {}, which {}", error.value, error.reason),
            ),
            "blocks_per_chunk" => field("chip.blocks_per_chunk", error.value, error.reason),
            name => field(name, error.value, error.reason),
        })?;
        Ok(geometry)
    }

    /// Whether a device can be built so.
    ///
    /// # Errors
    /// The first field that is impossible, with its value and the reason.
    pub fn validate(&self) -> Result<(), ProfileError> {
        let chip = &self.chip;
        for (name, value, max) in [
            ("groups", self.groups, 65_535),
            ("pus_per_group", self.pus_per_group, 65_535),
            ("chunks_per_pu", self.chunks_per_pu, u32::MAX),
            ("channel_mb_s", self.channel_mb_s, 1_000_000),
            ("chip.planes", chip.planes, 16),
            ("chip.page_blocks", chip.page_blocks, 16),
            ("chip.endurance", chip.endurance, u32::MAX - 1),
            ("cache.mb_s", self.cache.mb_s, 1_000_000),
        ] {
            if value == 0 || value > max {
                return Err(field(name, value, format!("must be between 1 and {max}")));
            }
        }
        let bits = chip.cell.bits();
        match (chip.programming, chip.pair_distance) {
            (Programming::OneShot, Some(distance)) => {
                let reason =
                    "one-shot programming writes all pages of a word line at once: leave pair_distance out".into();
                return Err(field("chip.pair_distance", distance, reason));
            }
            (Programming::Shared, None) => {
                let reason = "shared programming needs chip.pair_distance, the pages between paired pages".into();
                return Err(field("chip.programming", "\"shared\"", reason));
            }
            (Programming::Shared, Some(distance)) if distance == 0 || distance > 1024 => {
                return Err(field("chip.pair_distance", distance, "must be between 1 and 1024".into()));
            }
            (Programming::Shared, Some(_)) if bits == 1 => {
                let reason = "a word line of single-level cells has one page: write \"one-shot\"".into();
                return Err(field("chip.programming", "\"shared\"", reason));
            }
            _ => {}
        }
        let programs = if chip.programming == Programming::Shared { bits } else { 1 };
        for (name, durations, count) in
            [("chip.read_us", &chip.read_us, bits), ("chip.program_us", &chip.program_us, programs)]
        {
            if durations.len() != count as usize {
                let reason = format!("must have {count} durations for this cell and programming, lower page first");
                return Err(field(name, format!("{durations:?}"), reason));
            }
            if durations.iter().any(|us| *us > 1_000_000) {
                return Err(field(name, format!("{durations:?}"), "must be at most 1000000 µs".into()));
            }
        }
        if chip.erase_us > 10_000_000 {
            return Err(field("chip.erase_us", chip.erase_us, "must be at most 10000000 µs".into()));
        }
        let word_lines = self.sense_blocks() * bits * self.pair_distance();
        if chip.blocks_per_chunk == 0 || !chip.blocks_per_chunk.is_multiple_of(word_lines) {
            let reason = format!("must be a multiple of planes × page_blocks × bits × pair_distance = {word_lines}");
            return Err(field("chip.blocks_per_chunk", chip.blocks_per_chunk, reason));
        }
        if self.cache.blocks_per_pu != 0 && self.cache.blocks_per_pu < self.program_blocks() {
            let reason =
                format!("must be 0 (no cache) or hold one program operation, {} blocks", self.program_blocks());
            return Err(field("cache.blocks_per_pu", self.cache.blocks_per_pu, reason));
        }
        let faults = &self.faults;
        if faults.factory_bad.millionths >= 1_000_000 {
            return Err(field("faults.factory_bad", faults.factory_bad, "must be below 100%".into()));
        }
        for (name, probability) in [
            ("faults.program_fail", faults.program_fail),
            ("faults.erase_fail", faults.erase_fail),
            ("faults.read_fail", faults.read_fail),
            ("faults.read_retry", faults.read_retry),
            ("faults.high_ecc", faults.high_ecc),
        ] {
            if !(0.0..=1.0).contains(&probability) {
                return Err(field(name, probability, "must be a probability between 0 and 1".into()));
            }
        }
        if !(1.0..=1e12).contains(&faults.wear_factor) {
            return Err(field("faults.wear_factor", faults.wear_factor, "must be at least 1".into()));
        }
        self.geometry(self.chunks_per_pu).map(|_| ())
    }

    /// Time that `bytes` take at `mb_s`, rounded up to a nanosecond.
    pub(crate) fn transfer(bytes: u64, mb_s: u32) -> Nanos {
        Nanos((bytes * 1000).div_ceil(u64::from(mb_s)))
    }

    /// Bytes of a block on a channel.
    pub(crate) fn block_bytes_on_channel(&self) -> u64 {
        BLOCK_BYTES as u64 + u64::from(self.oob_bytes)
    }
}

fn field(name: &str, value: impl ToString, reason: String) -> ProfileError {
    ProfileError::Field { field: name.to_owned(), value: value.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_profile_parses_and_survives_a_round_trip_through_toml() {
        for profile in Profile::builtins() {
            assert_eq!(Profile::parse(&profile.to_toml()).as_ref(), Ok(&profile));
            assert_eq!(Profile::builtin(&profile.name).as_ref(), Ok(&profile), "the file is named after the profile");
        }
    }

    #[test]
    fn write_units_follow_from_the_chip() {
        let check = |name, ws_min, mw_cunits| {
            let profile = Profile::builtin(name).unwrap();
            let geometry = profile.geometry(profile.chunks_per_pu).unwrap();
            assert_eq!((geometry.ws_min, geometry.ws_opt, geometry.mw_cunits), (ws_min, ws_min, mw_cunits), "{name}");
        };
        check("bluedbm", 1, 0);
        check("granby", 24, 0);
        check("qlc", 64, 0);
        check("cosmos", 4, 16);
        check("westlake", 16, 64);
        check("znand", 4, 0);
        check("tiny", 4, 8);
    }

    #[test]
    fn granby_has_the_published_shape() {
        let profile = Profile::builtin("granby").unwrap();
        let geometry = profile.geometry(profile.chunks_per_pu).unwrap();
        assert_eq!((geometry.groups, geometry.pus_per_group, geometry.chunks_per_pu), (8, 4, 1474));
        assert_eq!(u64::from(geometry.blocks_per_chunk) * 4096, 24 << 20);
    }

    #[test]
    fn a_profile_error_names_field_value_and_reason() {
        let good = Profile::builtin("tiny").unwrap();
        let check = |change: &dyn Fn(&mut Profile), expected: &str| {
            let mut profile = good.clone();
            change(&mut profile);
            let message = Profile::parse(&profile.to_toml()).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}\nshould start with\n{expected}");
        };
        check(&|p| p.groups = 0, "groups = 0: must be between 1 and 65535");
        check(&|p| p.chip.planes = 0, "chip.planes = 0: must be");
        check(&|p| p.chip.planes = 16, "chip.blocks_per_chunk = ");
        check(&|p| p.chip.read_us = vec![1], "chip.read_us = [1]: must have 2 durations");
        check(&|p| p.chip.program_us = vec![1, 2, 3], "chip.program_us = [1, 2, 3]: must have 2 durations");
        check(&|p| p.chip.pair_distance = None, "chip.programming = \"shared\": shared programming needs");
        check(&|p| p.chip.programming = Programming::OneShot, "chip.pair_distance = 2: one-shot programming");
        check(&|p| p.chip.blocks_per_chunk += 4, "chip.blocks_per_chunk = ");
        check(&|p| p.cache.blocks_per_pu = 1, "cache.blocks_per_pu = 1: must be 0");
        check(&|p| p.faults.read_fail = 1.5, "faults.read_fail = 1.5: must be a probability");
        check(&|p| p.faults.read_retry = -0.1, "faults.read_retry = -0.1: must be a probability");
        check(&|p| p.oob_bytes = 8, "oob_bytes = 8: must be between 16 and 4096");
        check(&|p| p.chunks_per_pu = u32::MAX, "chunks_per_pu = ");
    }

    #[test]
    fn broken_toml_names_the_line() {
        let text = Profile::builtin("tiny").unwrap().to_toml().replace("groups", "gruops");
        let error = Profile::parse(&text).unwrap_err();
        let line = 1 + text.lines().position(|line| line.starts_with("gruops")).unwrap();
        assert!(
            matches!(&error, ProfileError::Text { line: found, message } if *found == line && message.contains("gruops")),
            "{error}"
        );
        assert!(matches!(Profile::parse("name = \n"), Err(ProfileError::Text { line: 1, .. })));
    }

    #[test]
    fn an_unknown_name_lists_the_builtin_ones() {
        let message = Profile::builtin("grandby").unwrap_err().to_string();
        assert!(message.contains("`grandby`") && message.contains("cosmos, granby"), "{message}");
    }
}
