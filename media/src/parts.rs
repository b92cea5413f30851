//! What the parts of a device are called, and what they are for. A device in a file keeps it in its header.
//!
//! ```text
//!   name       kind           groups   parallel units of each
//!   database   block          0-3      0-7                       a block FTL, whose blocks hosts see
//!   scratch    block          4-5      0-7
//!   log        zoned          6-7      4-7                       an FTL for zones, which hosts write in order
//!   flash      open-channel   6-7      0-3                       hosts see chunks, and bring their own FTL
//! ```

use crate::partition::{Partition, PartitionError, check};
use openftl_core::Geometry;
use std::fmt;

/// The most parts of a device.
pub const PARTS_MAX: usize = 64;

/// The longest name of a part, in bytes.
pub const PART_NAME_BYTES_MAX: usize = 32;

/// What people call a part.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PartName(String);

/// A text that is no name of a part.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is no name of a namespace: it has 1 to {PART_NAME_BYTES_MAX} letters, digits, `-` or `_`, and not digits alone"
)]
pub struct PartNameError(String);

impl PartName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for PartName {
    type Err = PartNameError;

    fn from_str(text: &str) -> Result<PartName, PartNameError> {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_name = (1..=PART_NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(is_fit)
            // Numbers are ids.
            && !text.bytes().all(|byte| byte.is_ascii_digit())
            // And dashes begin flags.
            && !text.starts_with('-');
        if is_name { Ok(PartName(text.to_owned())) } else { Err(PartNameError(text.to_owned())) }
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a part is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum PartKind {
    /// A block FTL.
    Block = 1,
    /// Hosts that bring their own FTL.
    OpenChannel = 2,
    /// An FTL for zones.
    Zoned = 3,
}

impl PartKind {
    /// Every kind, in the order in which hosts see the parts of a device.
    pub const ALL: [PartKind; 3] = [PartKind::Block, PartKind::Zoned, PartKind::OpenChannel];
}

impl fmt::Display for PartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PartKind::Block => "block",
            PartKind::OpenChannel => "open-channel",
            PartKind::Zoned => "zoned",
        })
    }
}

/// One part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartLabel {
    /// What people call it; no two parts of a device have the same name.
    pub name: PartName,
    /// What it is for.
    pub kind: PartKind,
    /// Its parallel units.
    pub partition: Partition,
    /// What hosts recognise it by, after every restart.
    pub id: u64,
}

/// Parts that no device can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartsError {
    /// Too many.
    #[error("{0} parts: a device has at most {PARTS_MAX}")]
    TooMany(usize),
    /// Two of one name.
    #[error("two parts are called {0}: rename one")]
    NameTaken(PartName),
    /// They are not beside each other on the device.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

/// Whether a device of this shape can have these parts.
///
/// # Errors
/// The first thing that speaks against it.
pub fn check_parts(geometry: &Geometry, parts: &[PartLabel]) -> Result<(), PartsError> {
    if parts.is_empty() {
        return Ok(());
    }
    if parts.len() > PARTS_MAX {
        return Err(PartsError::TooMany(parts.len()));
    }
    for (index, part) in parts.iter().enumerate() {
        if parts[..index].iter().any(|other| other.name == part.name) {
            return Err(PartsError::NameTaken(part.name.clone()));
        }
    }
    let partitions: Vec<Partition> = parts.iter().map(|part| part.partition.clone()).collect();
    check(geometry, &partitions)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_from_ids_flags_and_other_texts() {
        for name in ["database", "a", "0a", "wal-2", "A_b"] {
            assert_eq!(name.parse::<PartName>().map(|name| name.to_string()).as_deref(), Ok(name));
        }
        for text in ["", "2", "12", "-x", "a b", "a/b", "ä", &"a".repeat(33)] {
            let error = text.parse::<PartName>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn parts_that_no_device_has_say_why() {
        let part = |name: &str, groups| PartLabel {
            name: name.parse().unwrap(),
            kind: PartKind::Block,
            partition: Partition { groups, pus: 0..2 },
            id: 1,
        };
        let check = |parts: &[PartLabel]| check_parts(&Geometry::tiny(), parts).map_err(|error| error.to_string());
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[part("a", 0..1), part("b", 1..2)]), Ok(()));
        let refused = |parts: &[PartLabel], expected: &str| assert_eq!(check(parts).unwrap_err(), expected);
        refused(&[part("a", 0..1), part("a", 1..2)], "two parts are called a: rename one");
        refused(
            &[part("a", 0..1), part("b", 0..2)],
            "parts 0 and 1 both have group 0, parallel unit 0: give it to one of them",
        );
        refused(&vec![part("a", 0..1); 65], "65 parts: a device has at most 64");
    }
}
