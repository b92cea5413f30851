//! How often the host meets garbage collection: whether it was at work in the group that a command of the host went to,
//! when the command was handed to the device.
//!
//! What is counted are commands and not requests, because they are what waits for a die: reads of the host, and programs
//! of what it wrote. A read of several groups has met collection if it was at work in one of them.

use crate::block::{BlockFtl, Errand};
use crate::words::Purpose;

/// Commands of the host, and those that met garbage collection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Encounters {
    /// Reads of the host, and programs of what it wrote.
    pub commands: u64,
    /// Of these, commands while any group was marked for collection.
    pub collecting: u64,
    /// Of these, commands to a group that was marked.
    pub marked: u64,
    /// Of all, commands to a group in which a read, a program or a reset of collection was under way.
    pub met: u64,
}

impl Encounters {
    /// The share of the commands that went to a marked group. 0 if there was none.
    #[must_use]
    pub fn marked_share(&self) -> f64 {
        self.marked as f64 / self.commands.max(1) as f64
    }

    /// Of the commands while any group was marked, the share that went to one that was. 0 if there was none.
    #[must_use]
    pub fn share_while_collecting(&self) -> f64 {
        self.marked as f64 / self.collecting.max(1) as f64
    }

    /// The share of the commands that went to a group in which collection had commands under way. 0 if there was none.
    #[must_use]
    pub fn met_share(&self) -> f64 {
        self.met as f64 / self.commands.max(1) as f64
    }
}

impl BlockFtl {
    /// The group in which `errand` is a command of collection.
    fn collected_by(&self, errand: Errand) -> Option<u32> {
        match errand {
            Errand::Unit(unit) => {
                let unit = self.units.unit(unit);
                (unit.purpose == Purpose::Relocation).then(|| self.group_of(unit.chunk))
            }
            Errand::CollectionRead(index) => {
                let (places, _) = self.collection.command(index);
                Some(self.group_of(self.format.chunk_of(places[0])))
            }
            Errand::Reset(chunk) => Some(self.group_of(chunk)),
            Errand::HostRead(_) | Errand::ScrubRead | Errand::TableRead | Errand::Flush => None,
        }
    }

    /// The device has taken `errand`.
    #[inline]
    pub(crate) fn note_submitted(&mut self, errand: Errand) {
        let (marked, met) = match errand {
            Errand::HostRead(index) => {
                let (places, _) = self.reads.command(index);
                places.iter().fold((false, false), |(marked, met), place| {
                    let group = self.group_of(self.format.chunk_of(*place));
                    (marked | self.collection.is_marked(group), met | self.collection.is_at_work(group))
                })
            }
            Errand::Unit(unit) if self.units.unit(unit).purpose == Purpose::Data => {
                let group = self.group_of(self.units.unit(unit).chunk);
                (self.collection.is_marked(group), self.collection.is_at_work(group))
            }
            _ => {
                if let Some(group) = self.collected_by(errand) {
                    self.collection.command_began(group);
                }
                return;
            }
        };
        let collecting = self.collection.is_working();
        let encounters = &mut self.statistics.encounters;
        encounters.commands += 1;
        encounters.collecting += u64::from(collecting);
        encounters.marked += u64::from(marked);
        encounters.met += u64::from(met);
    }

    /// The device has completed `errand`.
    #[inline]
    pub(crate) fn note_completed(&mut self, errand: Errand) {
        if let Some(group) = self.collected_by(errand) {
            self.collection.command_ended(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_commands_and_of_none_nothing() {
        let encounters = Encounters { commands: 16, collecting: 4, marked: 1, met: 2 };
        assert_eq!((encounters.marked_share(), encounters.met_share()), (1.0 / 16.0, 1.0 / 8.0));
        assert_eq!(encounters.share_while_collecting(), 1.0 / 4.0);
        assert_eq!(Encounters::default().marked_share(), 0.0);
    }
}
