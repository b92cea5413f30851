//! The ways in which a drive can place what it writes, and what each of them asks for.

use crate::lifetimes::AGES;
use crate::words::Handle;
use openftl_core::UnknownWord;
use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// Handles that a drive has if nobody says otherwise.
pub const HANDLES_DEFAULT: u8 = 8;

/// Objects that a drive keeps apart at a time if nobody says otherwise.
pub const OBJECTS_DEFAULT: u16 = 64;

/// The most handles.
pub const HANDLES_MAX: u8 = 128;

/// The most objects that are being written at a time.
pub const OBJECTS_MAX: u16 = 4096;

/// How a drive places what it writes.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Debug,
    serde::Serialize,
    serde::Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownWord, parse_err_fn = unknown)]
pub enum PlacementName {
    /// In the order of time, whoever writes: the host, or garbage collection.
    None,
    /// What collection moves has chunks of its own.
    #[default]
    HotCold,
    /// By lifetimes that the drive infers: [`crate::lifetimes`].
    Learned,
    /// A class for each handle; collection mixes them (NVMe streams as drives have them).
    Streams,
    /// A class for each handle, also in collection.
    StreamsKept,
    /// Flexible Data Placement with initially isolated handles: as streams.
    Fdp,
    /// Flexible Data Placement with persistently isolated handles: as streams that are kept apart.
    FdpPersistent,
    /// A class for each object that the host announces.
    FlashAlloc,
}

impl PlacementName {
    /// All of them. Superblocks name them by their place here: a new one goes to the end.
    pub const ALL: &[PlacementName] = <PlacementName as VariantArray>::VARIANTS;

    /// The number for it in a superblock: its place in [`PlacementName::ALL`].
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The placement with this number, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<PlacementName> {
        PlacementName::ALL.get(usize::from(code)).copied()
    }

    /// The word for it in a drive's file.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// The handle of writes that have none, or one that the drive does not have; [`Handle::NONE`]: they are ordinary.
    #[must_use]
    pub fn default_handle(self) -> Handle {
        match self {
            PlacementName::Fdp | PlacementName::FdpPersistent => Handle(1),
            _ => Handle::NONE,
        }
    }

    /// Whether handles mean something.
    #[must_use]
    pub fn heeds_handles(self) -> bool {
        use PlacementName::{Fdp, FdpPersistent, Streams, StreamsKept};
        matches!(self, Streams | StreamsKept | Fdp | FdpPersistent)
    }

    /// Where garbage collection puts what it moves.
    #[must_use]
    pub fn relocation(self) -> Relocation {
        match self {
            PlacementName::None => Relocation::WithHost,
            PlacementName::HotCold | PlacementName::Streams | PlacementName::Fdp => Relocation::Together,
            PlacementName::StreamsKept | PlacementName::FdpPersistent => Relocation::ByHandle,
            PlacementName::FlashAlloc => Relocation::ByType,
            PlacementName::Learned => Relocation::ByAge,
        }
    }

    /// Classes of writes on a drive with so many handles and objects.
    #[must_use]
    pub fn classes(self, handles: u8, objects_max: u16) -> usize {
        1 + match self {
            PlacementName::None | PlacementName::HotCold => 0,
            PlacementName::Learned => 1,
            PlacementName::FlashAlloc => usize::from(objects_max),
            _ => usize::from(handles),
        }
    }

    /// Places in each group where relocated blocks are kept apart from the others.
    #[must_use]
    pub fn destinations(self, handles: u8) -> usize {
        match self.relocation() {
            Relocation::WithHost | Relocation::Together => 0,
            Relocation::ByHandle => usize::from(handles),
            Relocation::ByType => 1,
            Relocation::ByAge => AGES,
        }
    }
}

fn unknown(text: &str) -> UnknownWord {
    UnknownWord::new(text, "placement", <PlacementName as VariantNames>::VARIANTS)
}

/// Where garbage collection puts what it moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relocation {
    /// Into the open chunks of the host, where those of the group have room.
    WithHost,
    /// Into chunks of its own.
    Together,
    /// Into chunks of its own for each handle.
    ByHandle,
    /// Blocks of objects apart from all others.
    ByType,
    /// Apart by how long each block has lived.
    ByAge,
}
