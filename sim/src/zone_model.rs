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

/// One life of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    pub(crate) number: u32,
    /// Blocks that the drive has taken, and those of them that were durable at the end of a flush.
    pub(crate) written: u32,
    durable: u32,
    /// Whether it has an extension, and whether that was durable at the end of a flush.
    extension: bool,
    extension_durable: bool,
}

impl Life {
    fn begin(number: u32) -> Life {
        Life { number, written: 0, durable: 0, extension: false, extension_durable: false }
    }

    /// Whether nothing of it has to be found.
    fn may_be_lost(&self) -> bool {
        self.durable == 0 && !self.extension_durable
    }
}

/// The lives of a zone that may be found, the last one as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lives(Vec<Life>);

impl Lives {
    fn now(&self) -> Life {
        *self.0.last().expect("a zone has a life")
    }

    fn now_mut(&mut self) -> &mut Life {
        self.0.last_mut().expect("a zone has a life")
    }
}

/// What a host may find in each zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneModel(Vec<Lives>);

/// What a host found in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundZone {
    /// The life of its blocks; 0 if there are none.
    pub life: u32,
    /// How many blocks.
    pub written: u32,
    /// The life of its extension, if it has one.
    pub extension: Option<u32>,
}

/// Of each zone its life, how many blocks it has, and whether it has an extension.
pub(crate) type Snapshot = Vec<(u32, u32, bool)>;

impl ZoneModel {
    pub(crate) fn new(zones: u32) -> ZoneModel {
        ZoneModel(vec![Lives(vec![Life::begin(0)]); zones as usize])
    }

    /// How much of each zone is there now: what a flush that begins makes durable.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.0.iter().map(|lives| (lives.now().number, lives.now().written, lives.now().extension)).collect()
    }

    /// A flush has ended that began when `snapshot` was taken.
    pub(crate) fn flushed(&mut self, snapshot: &Snapshot) {
        for (lives, (number, written, extension)) in self.0.iter_mut().zip(snapshot) {
            lives.0.retain(|life| life.number >= *number);
            if let Some(life) = lives.0.iter_mut().find(|life| life.number == *number) {
                life.durable = life.durable.max(*written);
                life.extension_durable |= extension;
            }
        }
    }

    /// The life of a zone as it is now.
    pub(crate) fn now(&self, zone: u32) -> Life {
        self.0[zone as usize].now()
    }

    /// A zone has `blocks` more blocks than before, or fewer.
    pub(crate) fn write(&mut self, zone: u32, blocks: i64) {
        let life = self.0[zone as usize].now_mut();
        life.written = u32::try_from(i64::from(life.written) + blocks).expect("a zone has some blocks");
    }

    /// A zone has an extension from now on.
    pub(crate) fn extend(&mut self, zone: u32) {
        self.0[zone as usize].now_mut().extension = true;
    }

    /// A zone begins another life, if it has got anything in this one.
    pub(crate) fn reset(&mut self, zone: u32) {
        let life = self.now(zone);
        if life.written > 0 || life.extension {
            self.0[zone as usize].0.push(Life::begin(life.number + 1));
        }
    }

    /// Whether a host may find this after a power cut.
    ///
    /// # Errors
    /// What it may not.
    pub fn verdict(&self, found: &[FoundZone]) -> Result<(), String> {
        for (zone, (lives, found)) in self.0.iter().zip(found).enumerate() {
            let FoundZone { life: number, written, extension } = *found;
            let first = lives.0[0];
            let of = |number: u32| lives.0.iter().find(|life| life.number == number);
            let may_be = match (written, extension) {
                (0, None) => lives.0.len() > 1 || first.may_be_lost(),
                (0, Some(number)) => {
                    of(number).is_some_and(|life| life.extension && (number != first.number || life.durable == 0))
                }
                (_, extension) => of(number).is_some_and(|life| {
                    let least = if number == first.number { life.durable } else { 0 };
                    extension == life.extension.then_some(number) && (least..=life.written).contains(&written)
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
        for (lives, FoundZone { life, written, extension }) in self.0.iter_mut().zip(found) {
            // No number is used twice, whatever was lost.
            let number = if *written > 0 { *life } else { extension.unwrap_or(lives.now().number + 1) };
            let has_extension = extension.is_some();
            lives.0 = vec![Life {
                number,
                written: *written,
                durable: *written,
                extension: has_extension,
                extension_durable: has_extension,
            }];
        }
    }
}
