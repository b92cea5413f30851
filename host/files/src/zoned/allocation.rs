//! Which zone takes what comes next of a file. No drive is asked here.
//!
//! Zones that are being written are *open*. Each is of a lifetime, and a file that is being written has one of its own as long as there are
//! some left:
//!
//! 1. the one that it has;
//! 2. an open one of its lifetime that no file has;
//! 3. an empty one, if one more may be open;
//! 4. an open one that no file has, of the nearest lifetime;
//! 5. the one of its lifetime, or of the nearest, that fewest files have.
//!
//! Some empty zones are kept for used blocks that move ([cleaning](super::cleaning)). One that cleaning has opened is kept like them as long
//! as no other is empty, so that what comes next can move as well, whatever became of this.

use super::catalog::CATALOG_ZONES;
use super::record::ZoneExtent;
use openftl_tables::TableLifetime;
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

/// Empty zones that only cleaning takes.
pub const KEPT_ZONES: usize = 1;

/// A zone is worth emptying if one part in so many of it comes free.
pub const LEAST_SHARE: u32 = 64;

/// How long what is written is expected to live, as places go: the lower, the shorter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PlaceLifetime(pub u8);

impl PlaceLifetime {
    /// What a log file is of that nothing is said of: it lives as long as the database.
    pub const OF_LOGS: PlaceLifetime = PlaceLifetime(5);
    /// What cleaning moves has outlived what it came with.
    pub const OF_MOVED: PlaceLifetime = PlaceLifetime(6);

    /// What the user of a table says.
    #[must_use]
    pub fn of(lifetime: TableLifetime) -> PlaceLifetime {
        PlaceLifetime(match lifetime {
            TableLifetime::Short => 0,
            TableLifetime::Medium => 1,
            TableLifetime::Unknown => 2,
            TableLifetime::Long => 3,
            TableLifetime::Extreme => 4,
        })
    }
}

/// A zone that is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OpenZone {
    zone: u32,
    /// Which opening of a zone this is, of all since the drive was opened.
    opening: u64,
    lifetime: PlaceLifetime,
    /// Blocks that it can still take.
    room: u32,
    /// Files that have it.
    files: u32,
    /// Cleaning has it, and no file while too few are empty.
    is_cleanings: bool,
}

/// A zone that a file has, by its opening: when it has become full, and was reset and opened again, it is another's.
pub type Lease = Option<u64>;

/// All zones but those of the catalog.
pub struct Allocation {
    capacity: u32,
    open_max: usize,
    open: Vec<OpenZone>,
    /// Zones opened so far.
    openings: u64,
    empty: VecDeque<u32>,
    /// Blocks that files use, by zone.
    used: Vec<u32>,
    /// Zones that take nothing, and never will.
    lost: BTreeSet<u32>,
    /// Zones with blocks that could not be read when they were to move.
    unreadable: BTreeSet<u32>,
    /// Dead zones that are being reset.
    resetting: BTreeSet<u32>,
}

impl Allocation {
    /// `zones` zones of `capacity` blocks, of which `open_max` may be open; all are of nobody until they are [found](Allocation::find).
    #[must_use]
    pub fn new(zones: u32, capacity: u32, open_max: usize) -> Allocation {
        assert!(open_max > 0, "a zone has to be open to be written");
        let used = vec![0; zones as usize];
        Allocation {
            capacity,
            open_max,
            open: Vec::new(),
            openings: 0,
            empty: VecDeque::new(),
            used,
            lost: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            resetting: BTreeSet::new(),
        }
    }

    /// A zone that has `room` blocks left: all of them if it is empty, `None` if it can never be written again.
    pub fn find(&mut self, zone: u32, room: Option<u32>) {
        match room {
            None => _ = self.lost.insert(zone),
            Some(room) if room == self.capacity => self.empty.push_back(zone),
            Some(0) => {}
            Some(room) => _ = self.open_zone(zone, PlaceLifetime::OF_LOGS, room),
        }
    }

    /// All were found. If too few are empty, open ones with room as of those that are missing are cleaning's: it was cut off.
    pub fn keep(&mut self) {
        let missing = KEPT_ZONES.saturating_sub(self.empty.len()) as u64 * u64::from(self.capacity);
        self.open.sort_by_key(|open| Reverse(open.room));
        let mut kept = 0;
        for open in &mut self.open {
            open.is_cleanings = kept < missing;
            kept += u64::from(open.room);
        }
    }

    fn open_zone(&mut self, zone: u32, lifetime: PlaceLifetime, room: u32) -> usize {
        self.openings += 1;
        self.open.push(OpenZone { zone, opening: self.openings, lifetime, room, files: 0, is_cleanings: false });
        self.open.len() - 1
    }

    /// Where a file of this lifetime goes on, which has `lease`: the zone, and the blocks that it takes. The lease is the file's from now
    /// on. `None` if nothing is left; cleaning may take what is kept.
    pub fn place(&mut self, lifetime: PlaceLifetime, lease: &mut Lease, is_cleaning: bool) -> Option<(u32, u32)> {
        if let Some(open) = lease.and_then(|opening| self.open.iter().find(|open| open.opening == opening)) {
            return Some((open.zone, open.room));
        }
        *lease = None;
        let at = self.choose(lifetime, is_cleaning)?;
        let open = &mut self.open[at];
        if open.files == 0 {
            // From now on it takes what is like this file.
            open.lifetime = lifetime;
        }
        open.is_cleanings &= is_cleaning;
        open.files += 1;
        *lease = Some(open.opening);
        Some((open.zone, open.room))
    }

    /// Where in [`Allocation::open`] a file without a zone finds one.
    fn choose(&mut self, lifetime: PlaceLifetime, is_cleaning: bool) -> Option<usize> {
        let idle = |is_wanted: &dyn Fn(&OpenZone) -> bool| {
            self.open
                .iter()
                .position(|open| open.files == 0 && (is_cleaning || self.is_for_files(open)) && is_wanted(open))
        };
        let own = idle(&|open| is_cleaning && open.is_cleanings);
        if let Some(at) = own.or_else(|| idle(&|open| open.lifetime == lifetime)) {
            return Some(at);
        }
        if self.can_open(is_cleaning) {
            let zone = self.empty.pop_front().expect("one is empty");
            let at = self.open_zone(zone, lifetime, self.capacity);
            self.open[at].is_cleanings = is_cleaning;
            return Some(at);
        }
        let distance = |open: &OpenZone| open.lifetime.0.abs_diff(lifetime.0);
        let all = self.open.iter().enumerate().filter(|(_, open)| is_cleaning || self.is_for_files(open));
        all.min_by_key(|(_, open)| (open.files > 0, distance(open), open.files)).map(|(at, _)| at)
    }

    /// Whether an empty zone may be opened. One that is being reset may be active as long as it is.
    fn can_open(&self, is_cleaning: bool) -> bool {
        let kept = if is_cleaning { 0 } else { KEPT_ZONES };
        self.open.len() + self.resetting.len() < self.open_max && self.empty.len() > kept
    }

    fn is_for_files(&self, open: &OpenZone) -> bool {
        !open.is_cleanings || self.empty.len() >= KEPT_ZONES
    }

    /// Whether [a place](Allocation::place) is left for a file that has none.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.can_open(false) || self.open.iter().any(|open| self.is_for_files(open))
    }

    /// Blocks were written there, and a file uses them.
    pub fn wrote(&mut self, zone: u32, blocks: u32) {
        self.used[zone as usize] += blocks;
        let at = self.open.iter().position(|open| open.zone == zone).expect("what is written is open");
        self.open[at].room -= blocks;
        if self.open[at].room == 0 {
            self.open.swap_remove(at);
        }
    }

    /// A file is not written any more, or goes on elsewhere.
    pub fn leave(&mut self, lease: &mut Lease) {
        if let Some(open) = lease.take().and_then(|opening| self.open.iter_mut().find(|open| open.opening == opening)) {
            open.files -= 1;
        }
    }

    /// A zone takes nothing more until it is reset.
    pub fn close(&mut self, zone: u32) {
        self.open.retain(|open| open.zone != zone);
    }

    /// A zone takes nothing more, ever: its medium has failed.
    pub fn lose(&mut self, zone: u32) {
        self.close(zone);
        self.lost.insert(zone);
    }

    /// A block of a zone could not be read: it is no victim until something of it is given back.
    pub fn could_not_read(&mut self, zone: u32) {
        self.unreadable.insert(zone);
    }

    /// A file that was found uses these blocks.
    pub fn adopt(&mut self, extent: ZoneExtent) {
        self.used[extent.zone as usize] += extent.blocks;
    }

    /// No file uses these blocks any more.
    pub fn free(&mut self, extent: ZoneExtent) {
        let used = &mut self.used[extent.zone as usize];
        *used = used.checked_sub(extent.blocks).expect("what is given back was used");
        self.unreadable.remove(&extent.zone);
    }

    /// A zone without a used block that is not empty, and that no file is being written to. It is of nobody until
    /// it [was reset](Allocation::was_reset).
    pub fn take_dead(&mut self) -> Option<u32> {
        let is_dead = |zone: &u32| {
            self.used[*zone as usize] == 0
                && !self.empty.contains(zone)
                && !self.lost.contains(zone)
                && !self.resetting.contains(zone)
                && self.open.iter().all(|open| open.zone != *zone || (open.files == 0 && open.room < self.capacity))
        };
        let dead = (CATALOG_ZONES..self.used.len() as u32).find(is_dead)?;
        self.open.retain(|open| open.zone != dead);
        self.resetting.insert(dead);
        Some(dead)
    }

    /// Whether a dead zone is being reset now.
    #[must_use]
    pub fn is_resetting(&self) -> bool {
        !self.resetting.is_empty()
    }

    /// A dead zone was reset, or could not be (`false`).
    pub fn was_reset(&mut self, zone: u32, is_empty: bool) {
        self.resetting.remove(&zone);
        if is_empty {
            self.empty.push_back(zone);
        } else {
            self.lost.insert(zone);
        }
    }

    /// The zones that are worth emptying, fewest used blocks first: none that is being written, none that cannot be reset or read, and none of
    /// which less than a [share](LEAST_SHARE) would come free.
    #[must_use]
    pub fn victims(&self) -> Vec<u32> {
        let all = CATALOG_ZONES..self.used.len() as u32;
        let most = self.capacity - (self.capacity / LEAST_SHARE).max(1);
        let mut victims: Vec<u32> = all
            .filter(|zone| (1..=most).contains(&self.used[*zone as usize]))
            .filter(|zone| self.open.iter().all(|open| open.zone != *zone))
            .filter(|zone| !self.lost.contains(zone) && !self.unreadable.contains(zone))
            .collect();
        victims.sort_by_key(|zone| self.used[*zone as usize]);
        victims
    }

    /// Blocks of a zone that files use.
    #[must_use]
    pub fn used(&self, zone: u32) -> u32 {
        self.used[zone as usize]
    }

    /// Blocks that cleaning can write.
    #[must_use]
    pub fn room_for_cleaning(&self) -> u64 {
        let open: u64 = self.open.iter().map(|open| u64::from(open.room)).sum();
        open + self.empty.len() as u64 * u64::from(self.capacity)
    }

    /// Blocks that files can still take, with those that cleaning can make free, and that they could if there were none.
    #[must_use]
    pub fn space(&self) -> (u64, u64) {
        let zones = self.used.len() - CATALOG_ZONES as usize - self.lost.len();
        let all = zones.saturating_sub(KEPT_ZONES) as u64 * u64::from(self.capacity);
        let used: u64 = self.used[CATALOG_ZONES as usize..].iter().map(|used| u64::from(*used)).sum();
        (all.saturating_sub(used), all)
    }

    /// Zones that are empty, and that are open.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.empty.len(), self.open.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: PlaceLifetime = PlaceLifetime(0);
    const LONG: PlaceLifetime = PlaceLifetime(3);

    /// `zones` zones of 10 blocks for files, all of them empty.
    fn empty(zones: u32, open_max: usize) -> Allocation {
        let mut zoned = Allocation::new(zones + 2, 10, open_max);
        (2..zones + 2).for_each(|zone| zoned.find(zone, Some(10)));
        zoned
    }

    #[test]
    fn files_have_zones_of_their_own_while_some_are_left_and_then_share_those_of_like_lifetimes() {
        let mut zoned = empty(8, 3);
        let mut leases = [None; 5];
        assert_eq!(zoned.place(SHORT, &mut leases[0], false), Some((2, 10)));
        assert_eq!(zoned.place(SHORT, &mut leases[1], false), Some((3, 10)), "another has the first");
        assert_eq!(zoned.place(LONG, &mut leases[2], false), Some((4, 10)));
        assert_eq!(zoned.place(LONG, &mut leases[3], false), Some((4, 10)), "no more may be open");
        zoned.leave(&mut leases[1]);
        assert_eq!(zoned.place(SHORT, &mut leases[4], false), Some((3, 10)), "that of a file that has ended");
        zoned.wrote(3, 10);
        assert_eq!(zoned.place(SHORT, &mut leases[4], false), Some((5, 10)), "the other is full");
    }

    #[test]
    fn what_is_kept_for_cleaning_no_file_takes() {
        let mut zoned = empty(2, 4);
        let (mut one, mut other, mut moved) = (None, None, None);
        assert_eq!(zoned.place(SHORT, &mut one, false), Some((2, 10)));
        zoned.wrote(2, 10);
        assert_eq!(zoned.place(SHORT, &mut other, false), None);
        assert_eq!(zoned.place(PlaceLifetime::OF_MOVED, &mut moved, true), Some((3, 10)));
    }

    #[test]
    fn a_zone_without_used_blocks_is_dead_once_and_empty_after_its_reset() {
        let mut zoned = empty(2, 2);
        let mut lease = None;
        zoned.place(SHORT, &mut lease, false);
        zoned.wrote(2, 4);
        assert_eq!((zoned.take_dead(), zoned.space()), (None, (6, 10)));
        zoned.free(ZoneExtent { zone: 2, first: 0, blocks: 4 });
        assert_eq!(zoned.take_dead(), None, "a file is still written to it");
        zoned.leave(&mut lease);
        assert_eq!((zoned.take_dead(), zoned.take_dead()), (Some(2), None));
        zoned.was_reset(2, true);
        assert_eq!((zoned.counts(), zoned.space()), ((2, 0), (10, 10)));
    }

    #[test]
    fn victims_are_those_with_fewest_used_blocks_and_none_that_is_open() {
        let mut zoned = empty(4, 1);
        for (zone, left) in [(2, 5), (3, 2), (4, 10)] {
            let mut lease = None;
            assert_eq!(zoned.place(SHORT, &mut lease, true), Some((zone, 10)));
            zoned.wrote(zone, 10);
            zoned.free(ZoneExtent { zone, first: 0, blocks: 10 - left });
        }
        assert_eq!(zoned.victims(), [3, 2], "zone 4 is used as a whole");
        zoned.could_not_read(3);
        assert_eq!(zoned.victims(), [2]);
        zoned.free(ZoneExtent { zone: 3, first: 8, blocks: 1 });
        zoned.lose(2);
        assert_eq!(
            zoned.victims(),
            [3],
            "that of zone 3 may have been what could not be read, and zone 2 cannot be reset"
        );
    }

    #[test]
    fn a_lease_of_a_zone_that_was_reset_meanwhile_is_no_lease_of_its_next_opening() {
        let mut zoned = empty(1, 1);
        let (mut stale, mut new) = (None, None);
        zoned.place(SHORT, &mut stale, true);
        zoned.wrote(2, 10);
        zoned.free(ZoneExtent { zone: 2, first: 0, blocks: 10 });
        assert_eq!(zoned.take_dead(), Some(2));
        zoned.was_reset(2, true);
        assert_eq!(zoned.place(LONG, &mut new, true), Some((2, 10)));
        zoned.leave(&mut stale);
        assert_eq!(zoned.open[0].files, 1);
        zoned.leave(&mut new);
        assert_eq!(zoned.open[0].files, 0);
    }

    #[test]
    fn what_cleaning_has_opened_no_file_takes_until_another_zone_is_empty() {
        let mut zoned = empty(2, 4);
        let (mut file, mut moved, mut other) = (None, None, None);
        assert_eq!(zoned.place(SHORT, &mut file, false), Some((2, 10)));
        zoned.wrote(2, 10);
        assert_eq!(zoned.place(PlaceLifetime::OF_MOVED, &mut moved, true), Some((3, 10)));
        zoned.wrote(3, 4);
        zoned.leave(&mut moved);
        assert_eq!((zoned.place(SHORT, &mut other, false), zoned.has_room()), (None, false), "it is not over");
        assert_eq!(zoned.place(PlaceLifetime::OF_MOVED, &mut moved, true), Some((3, 6)), "it goes on there");
        zoned.leave(&mut moved);
        zoned.free(ZoneExtent { zone: 2, first: 0, blocks: 10 });
        assert_eq!(zoned.take_dead(), Some(2));
        zoned.was_reset(2, true);
        assert!(zoned.has_room());
        assert_eq!(zoned.place(SHORT, &mut other, false), Some((3, 6)));
        assert_eq!(zoned.place(PlaceLifetime::OF_MOVED, &mut moved, true), Some((2, 10)), "the other is the file's");
    }

    #[test]
    fn with_nothing_empty_when_the_drive_is_opened_a_zone_of_room_is_cleanings() {
        let found = |rooms: &[u32]| {
            let mut zoned = Allocation::new(rooms.len() as u32 + 2, 10, 4);
            (2..).zip(rooms).for_each(|(zone, room)| zoned.find(zone, Some(*room)));
            zoned.keep();
            zoned
        };
        let mut zoned = found(&[0, 6, 7]);
        assert_eq!((zoned.place(SHORT, &mut None, false), zoned.has_room()), (None, false));
        assert_eq!(zoned.place(PlaceLifetime::OF_MOVED, &mut None, true), Some((4, 7)));
        assert_eq!(found(&[1, 6, 7]).place(SHORT, &mut None, false), Some((2, 1)), "the others have room enough");
        assert!(found(&[10, 6]).has_room(), "one is empty");
    }

    #[test]
    fn no_zone_is_opened_while_one_that_may_be_active_is_being_reset() {
        let mut zoned = empty(3, 1);
        let mut lease = None;
        zoned.place(SHORT, &mut lease, false);
        zoned.wrote(2, 4);
        zoned.leave(&mut lease);
        zoned.free(ZoneExtent { zone: 2, first: 0, blocks: 4 });
        assert_eq!(zoned.take_dead(), Some(2));
        assert_eq!((zoned.place(SHORT, &mut lease, false), zoned.is_resetting()), (None, true));
        zoned.was_reset(2, true);
        assert_eq!((zoned.place(SHORT, &mut lease, false), zoned.is_resetting()), (Some((3, 10)), false));
    }
}
