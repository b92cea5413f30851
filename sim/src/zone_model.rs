//! What a host may find in the zones of a drive: knows nothing of the FTL.
//!
//! A zone has lives, one after the other: a reset ends one. Each block says the zone, the life and its place in it. So what is found after a
//! power cut tells of itself: of each zone one life, of which the first blocks are there, and none beyond.
//!
//! ```text
//!   lives of a zone since the last flush     [ life 4: 30 blocks, 20 of them durable ][ life 5: 12 ][ life 6: 3 ]
//!   may be found                               20 to 30 blocks of life 4,  up to 12 of life 5,  up to 3 of life 6
//! ```

/// One life of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    pub(crate) number: u32,
    /// Blocks that the drive has taken, and those of them that were durable at the end of a flush.
    pub(crate) written: u32,
    durable: u32,
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

/// What a host found in a zone: of which life, and how many blocks.
pub type FoundZone = (u32, u32);

impl ZoneModel {
    pub(crate) fn new(zones: u32) -> ZoneModel {
        ZoneModel(vec![Lives(vec![Life { number: 0, written: 0, durable: 0 }]); zones as usize])
    }

    /// How much of each zone is there now: what a flush that begins makes durable.
    pub(crate) fn snapshot(&self) -> Vec<(u32, u32)> {
        self.0.iter().map(|lives| (lives.now().number, lives.now().written)).collect()
    }

    /// A flush has ended that began when `snapshot` was taken.
    pub(crate) fn flushed(&mut self, snapshot: &[(u32, u32)]) {
        for (lives, (number, written)) in self.0.iter_mut().zip(snapshot) {
            lives.0.retain(|life| life.number >= *number);
            if let Some(life) = lives.0.iter_mut().find(|life| life.number == *number) {
                life.durable = life.durable.max(*written);
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

    /// A zone begins another life, if it has written anything in this one.
    pub(crate) fn reset(&mut self, zone: u32) {
        let life = self.now(zone);
        if life.written > 0 {
            self.0[zone as usize].0.push(Life { number: life.number + 1, written: 0, durable: 0 });
        }
    }

    /// Whether a host may find this after a power cut.
    ///
    /// # Errors
    /// What it may not.
    pub fn verdict(&self, found: &[FoundZone]) -> Result<(), String> {
        for (zone, (lives, (number, written))) in self.0.iter().zip(found).enumerate() {
            let is_first = lives.0[0].number == *number;
            let may_be = match lives.0.iter().find(|life| life.number == *number) {
                _ if *written == 0 => lives.0.len() > 1 || lives.0[0].durable == 0,
                Some(life) if is_first => (life.durable..=life.written).contains(written),
                Some(life) => *written <= life.written,
                None => false,
            };
            if !may_be {
                return Err(format!(
                    "zone {zone} has {written} blocks of life {number}, and its lives are {:?}",
                    lives.0
                ));
            }
        }
        Ok(())
    }

    /// The host has found this, and goes on with it.
    pub(crate) fn adopt(&mut self, found: &[FoundZone]) {
        for (lives, (number, written)) in self.0.iter_mut().zip(found) {
            // No number is used twice, whatever was lost.
            let number = if *written > 0 { *number } else { lives.now().number + 1 };
            lives.0 = vec![Life { number, written: *written, durable: *written }];
        }
    }
}
