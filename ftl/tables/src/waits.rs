//! How long units of tables waited until the device had taken them, and whether other tables were ahead of them.

use openftl_core::{Nanos, PuId, Time};
use openftl_parts::flash::units::UnitId;
use rustc_hash::FxHashMap;

/// What units of tables waited for since the drive was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct TableWaits {
    /// Units that the device has taken.
    pub units: u64,
    /// Of these, units that found another table's units under way to their parallel unit.
    pub units_behind_others: u64,
    /// Time from the submission of each until it was taken, added up.
    pub waited: Nanos,
    /// The same of those that were behind others.
    pub waited_behind_others: Nanos,
}

/// A unit on its way.
struct UnderWay {
    slot: u32,
    pu: PuId,
    since: Time,
    is_behind_others: bool,
}

/// The units that are on their way, and what came of those before them.
#[derive(Default)]
pub(crate) struct Waits {
    under_way: FxHashMap<u32, UnderWay>,
    pub(crate) total: TableWaits,
}

impl Waits {
    /// A unit of the table in `slot` is submitted.
    pub(crate) fn begin(&mut self, id: UnitId, slot: u32, pu: PuId, now: Time) {
        let is_behind_others = self.under_way.values().any(|other| other.pu == pu && other.slot != slot);
        self.under_way.insert(id.0, UnderWay { slot, pu, since: now, is_behind_others });
    }

    /// The device has taken it, or has failed to.
    pub(crate) fn end(&mut self, id: UnitId, now: Time) {
        let Some(unit) = self.under_way.remove(&id.0) else { return };
        let waited = now.since(unit.since);
        self.total.units += 1;
        self.total.waited += waited;
        if unit.is_behind_others {
            self.total.units_behind_others += 1;
            self.total.waited_behind_others += waited;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_table_on_the_same_parallel_unit_is_waited_for() {
        let mut waits = Waits::default();
        for (id, slot, pu) in [(0, 7, 1), (1, 7, 1), (2, 8, 2), (3, 8, 1)] {
            waits.begin(UnitId(id), slot, PuId(pu), Time(10));
        }
        for (id, at) in [(0, 11), (1, 12), (2, 13), (3, 14)] {
            waits.end(UnitId(id), Time(at));
        }
        waits.begin(UnitId(0), 9, PuId(1), Time(20));
        waits.end(UnitId(0), Time(25));
        let expected = TableWaits {
            units: 5,
            units_behind_others: 1,
            waited: Nanos(1 + 2 + 3 + 4 + 5),
            waited_behind_others: Nanos(4),
        };
        assert_eq!(waits.total, expected, "the last one found nobody there any more");
    }
}
