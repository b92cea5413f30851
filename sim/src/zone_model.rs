//! What a host may find in the zones of a drive: knows nothing of the FTL.
//!
//! A zone has lives, one after the other: a reset ends one. Each block says the zone, the life and its place in it. So what is found after a
//! power cut tells of itself: of each zone one life, of which the first blocks are there, and none beyond.
//!
//! ```text
//!   lives of a zone since the last flush     [ life 4: 30 blocks, 20 of them durable ][ life 5: 12 ][ life 6: 3 ]
//!   may be found                               20 to 30 blocks of life 4,  up to 12 of life 5,  up to 3 of life 6
//! ```
//!
//! A life may begin with a descriptor extension, which says the life as well. Where a block of that life is found, the extension is, too; and
//! where none is, it may be there alone.
//!
//! A block of a window says its version, too. Before the write pointer it is the last one; in the window any from that of the last flush on.

use std::collections::{BTreeMap, BTreeSet};

/// The version of a block that was written in order.
pub(crate) const IN_ORDER: u32 = 1;

/// The version of a block that cannot be read.
pub(crate) const LOST: u32 = u32::MAX;

/// A block that was written through a window; version 0: not at all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Cell {
    now: u32,
    durable: u32,
}

/// One life of a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    pub(crate) number: u32,
    /// Blocks that the drive has taken, and those of them that were durable at the end of a flush.
    pub(crate) written: u32,
    durable: u32,
    /// Whether it has an extension, and whether that was durable at the end of a flush.
    extension: bool,
    extension_durable: bool,
    /// Blocks that were not written in order.
    cells: BTreeMap<u32, Cell>,
}

impl Life {
    fn begin(number: u32) -> Life {
        let cells = BTreeMap::new();
        Life { number, written: 0, durable: 0, extension: false, extension_durable: false, cells }
    }

    /// Whether nothing of it has to be found.
    fn may_be_lost(&self) -> bool {
        !self.has_durable_blocks() && !self.extension_durable
    }

    fn has_durable_blocks(&self) -> bool {
        self.durable > 0 || self.cells.values().any(|cell| cell.durable > 0)
    }

    /// The version of a block that the host reads.
    pub(crate) fn version(&self, block: u32) -> u32 {
        let in_order = if block < self.written { IN_ORDER } else { 0 };
        self.cells.get(&block).map_or(in_order, |cell| cell.now)
    }

    /// The block behind the last one that was written.
    pub(crate) fn end(&self) -> u32 {
        let in_window = self.cells.iter().rev().find(|(_, cell)| cell.now > 0).map_or(0, |(block, _)| block + 1);
        in_window.max(self.written)
    }

    /// Whether a host may find these versions of it, and its blocks up to a write pointer.
    fn may_be_found(
        &self,
        written: u32,
        versions: &[(u32, u32)],
        is_first: bool,
        is_hurt: impl Fn(u32) -> bool,
    ) -> bool {
        let least = if is_first { self.durable } else { 0 };
        let found = |block: u32| versions.iter().find(|(other, _)| *other == block).map(|(_, version)| *version);
        let in_order = |block: u32| if block < written { IN_ORDER } else { 0 };
        let is_right = |block: u32, version: u32| {
            let cell = self.cells.get(&block).copied().unwrap_or_default();
            let durable = if is_first { cell.durable } else { 0 };
            match block < written {
                _ if version == LOST => is_hurt(block),
                true => version == self.version(block),
                false => version == 0 && durable == 0 || version > 0 && (durable..=cell.now).contains(&version),
            }
        };
        (least..=self.written).contains(&written)
            && versions.iter().all(|(block, version)| is_right(*block, *version))
            && self.cells.keys().all(|block| is_right(*block, found(*block).unwrap_or_else(|| in_order(*block))))
    }
}

/// The lives of a zone that may be found, the last one as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lives(Vec<Life>);

impl Lives {
    fn now(&self) -> &Life {
        self.0.last().expect("a zone has a life")
    }

    fn now_mut(&mut self) -> &mut Life {
        self.0.last_mut().expect("a zone has a life")
    }
}

/// What a host may find in each zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneModel {
    zones: Vec<Lives>,
    /// Blocks that were lost on media, by zone, life and place: they may be errors.
    hurt: BTreeSet<(u32, u32, u32)>,
}

/// What a host found in a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundZone {
    /// The life of its blocks, if one of them says it.
    pub life: Option<u32>,
    /// How many blocks.
    pub written: u32,
    /// The life of its extension, if it has one.
    pub extension: Option<u32>,
    /// Versions of blocks, but of those before the write pointer that were written in order, and of those behind it that are zeroes.
    pub versions: Vec<(u32, u32)>,
}

/// A zone when a flush begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    number: u32,
    pub(crate) written: u32,
    extension: bool,
    pub(crate) versions: Vec<(u32, u32)>,
}

/// All zones when a flush begins.
pub(crate) type Snapshot = Vec<Seen>;

impl ZoneModel {
    pub(crate) fn new(zones: u32) -> ZoneModel {
        ZoneModel { zones: vec![Lives(vec![Life::begin(0)]); zones as usize], hurt: BTreeSet::new() }
    }

    /// A block of a zone is lost on media.
    pub(crate) fn hurt(&mut self, zone: u32, block: u32) {
        self.hurt.insert((zone, self.now(zone).number, block));
    }

    /// Whether a block of a zone may be an error.
    pub(crate) fn may_be_lost(&self, zone: u32, block: u32) -> bool {
        self.hurt.contains(&(zone, self.now(zone).number, block))
    }

    /// Whether any block of a drive may be an error.
    pub(crate) fn is_hurt(&self) -> bool {
        !self.hurt.is_empty()
    }

    /// How much of each zone is there now: what a flush that begins makes durable.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let seen = |lives: &Lives| {
            let Life { number, written, extension, ref cells, .. } = *lives.now();
            Seen {
                number,
                written,
                extension,
                versions: cells.iter().map(|(block, cell)| (*block, cell.now)).collect(),
            }
        };
        self.zones.iter().map(seen).collect()
    }

    /// A flush has ended that began when `snapshot` was taken.
    pub(crate) fn flushed(&mut self, snapshot: &Snapshot) {
        for (lives, Seen { number, written, extension, versions }) in self.zones.iter_mut().zip(snapshot) {
            lives.0.retain(|life| life.number >= *number);
            if let Some(life) = lives.0.iter_mut().find(|life| life.number == *number) {
                life.durable = life.durable.max(*written);
                life.extension_durable |= extension;
                for (block, version) in versions {
                    let durable = &mut life.cells.get_mut(block).expect("no block is forgotten").durable;
                    *durable = (*durable).max(*version);
                }
            }
        }
    }

    /// The life of a zone as it is now.
    pub(crate) fn now(&self, zone: u32) -> &Life {
        self.zones[zone as usize].now()
    }

    /// A zone has `blocks` more blocks than before, or fewer.
    pub(crate) fn write(&mut self, zone: u32, blocks: i64) {
        let life = self.zones[zone as usize].now_mut();
        life.written = u32::try_from(i64::from(life.written) + blocks).expect("a zone has some blocks");
    }

    /// Blocks of a window are of this version from now on.
    pub(crate) fn write_window(&mut self, zone: u32, at: u32, blocks: u32, version: u32) {
        let life = self.zones[zone as usize].now_mut();
        (at..at + blocks).for_each(|block| life.cells.entry(block).or_default().now = version);
    }

    /// The write pointer moves over so many blocks of a window.
    pub(crate) fn commit(&mut self, zone: u32, blocks: u32) {
        let life = self.zones[zone as usize].now_mut();
        for block in life.written..life.written + blocks {
            life.cells.entry(block).or_default();
        }
        life.written += blocks;
    }

    /// A zone has an extension from now on.
    pub(crate) fn extend(&mut self, zone: u32) {
        self.zones[zone as usize].now_mut().extension = true;
    }

    /// A zone begins another life, if it has got anything in this one.
    pub(crate) fn reset(&mut self, zone: u32) {
        let life = self.now(zone);
        if life.end() > 0 || life.extension {
            let next = Life::begin(life.number + 1);
            self.zones[zone as usize].0.push(next);
        }
    }

    /// Whether a host may find this after a power cut.
    ///
    /// # Errors
    /// What it may not.
    pub fn verdict(&self, found: &[FoundZone]) -> Result<(), String> {
        for (zone, (lives, found)) in self.zones.iter().zip(found).enumerate() {
            let FoundZone { life: number, written, extension, ref versions } = *found;
            let first = &lives.0[0];
            let of = |number: u32| lives.0.iter().find(|life| life.number == number);
            let has_blocks = written > 0 || !versions.is_empty();
            let may_be = match (has_blocks, extension) {
                (false, None) => lives.0.len() > 1 || first.may_be_lost(),
                (false, Some(number)) => of(number)
                    .is_some_and(|life| life.extension && (number != first.number || !life.has_durable_blocks())),
                // Where nothing was written before what is committed no block says the life.
                (true, extension) => lives.0.iter().any(|life| {
                    number.is_none_or(|number| number == life.number)
                        && extension == life.extension.then_some(life.number)
                        && life.may_be_found(written, versions, life.number == first.number, |block| {
                            self.hurt.contains(&(zone as u32, life.number, block))
                        })
                }),
            };
            if !may_be {
                return Err(format!("zone {zone} is {found:?}, and its lives are {:?}", lives.0));
            }
        }
        Ok(())
    }

    /// The host has found this, and goes on with it.
    pub(crate) fn adopt(&mut self, found: &[FoundZone]) {
        for ((zone, lives), FoundZone { life, written, extension, versions }) in (0..).zip(&mut self.zones).zip(found) {
            // Of blocks that are lost, whose they were.
            let of_lost = || {
                let (block, _) = versions.iter().find(|(_, version)| *version == LOST)?;
                let numbers = lives.0.iter().map(|life| life.number);
                numbers.rev().find(|number| self.hurt.contains(&(zone, *number, *block)))
            };
            // No number is used twice, whatever was lost.
            let number = life.or(*extension).or_else(of_lost).unwrap_or(lives.now().number + 1);
            let cell = |version: u32| Cell { now: version, durable: version };
            // What cannot be read is what it was.
            let before = lives.0.iter().find(|life| life.number == number).map(|life| life.cells.clone());
            let cell_of = |(block, version): &(u32, u32)| match *version {
                LOST => before.as_ref().and_then(|cells| cells.get(block)).map(|found| (*block, cell(found.now))),
                version => Some((*block, cell(version))),
            };
            let has_extension = extension.is_some();
            lives.0 = vec![Life {
                number,
                written: *written,
                durable: *written,
                extension: has_extension,
                extension_durable: has_extension,
                cells: versions.iter().filter_map(cell_of).collect(),
            }];
        }
    }
}
