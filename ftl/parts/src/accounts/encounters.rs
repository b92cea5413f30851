//! How often the host meets garbage collection: whether it was at work in the group that a command of the host went to,
//! when the command was handed to the device.
//!
//! What is counted are commands and not requests, because they are what waits for a die: reads of the host, and programs
//! of what it wrote. A read of several groups has met collection if it was at work in one of them.

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

/// Where collection is wanted and where it works: what commands of the host may meet.
pub struct Meetings {
    groups: Vec<Group>,
    /// Groups that are marked.
    marked: u32,
    /// A bit for each of them, because every turn goes through them.
    marks: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
struct Group {
    is_marked: bool,
    /// Commands of collection that the device has.
    commands: u32,
}

impl Meetings {
    /// No group is marked.
    pub fn new(groups: u32) -> Meetings {
        let marks = vec![0; groups.div_ceil(u64::BITS) as usize];
        Meetings { groups: vec![Group::default(); groups as usize], marked: 0, marks }
    }

    /// Groups that are marked.
    #[inline]
    pub fn marked(&self) -> u32 {
        self.marked
    }

    /// Whether `group` is marked.
    #[inline]
    pub fn is_marked(&self, group: u32) -> bool {
        self.groups[group as usize].is_marked
    }

    /// The first marked group from `group` on.
    #[inline]
    pub fn next_marked(&self, group: u32) -> Option<u32> {
        let mut word = group / u64::BITS;
        let mut marks = self.marks.get(word as usize)? & (u64::MAX << (group % u64::BITS));
        while marks == 0 {
            word += 1;
            marks = *self.marks.get(word as usize)?;
        }
        Some(word * u64::BITS + marks.trailing_zeros())
    }

    /// Marks `group`.
    pub fn mark(&mut self, group: u32) {
        self.groups[group as usize].is_marked = true;
        self.marked += 1;
        self.marks[(group / u64::BITS) as usize] |= 1 << (group % u64::BITS);
    }

    /// Takes the mark off `group`.
    pub fn unmark(&mut self, group: u32) {
        self.groups[group as usize].is_marked = false;
        self.marked -= 1;
        self.marks[(group / u64::BITS) as usize] &= !(1 << (group % u64::BITS));
    }

    /// The device has taken a command that reads, programs or resets for collection.
    pub fn cleaning_began(&mut self, group: u32) {
        self.groups[group as usize].commands += 1;
    }

    /// That has ended.
    pub fn cleaning_ended(&mut self, group: u32) {
        self.groups[group as usize].commands -= 1;
    }

    /// The device has taken a command of the host to these groups.
    #[inline]
    pub fn count(&self, groups: impl Iterator<Item = u32>, encounters: &mut Encounters) {
        let (mut marked, mut met) = (false, false);
        for group in groups {
            let Group { is_marked, commands } = self.groups[group as usize];
            (marked, met) = (marked | is_marked, met | (commands > 0));
        }
        encounters.commands += 1;
        encounters.collecting += u64::from(self.marked > 0);
        encounters.marked += u64::from(marked);
        encounters.met += u64::from(met);
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
    #[test]
    fn marked_groups_are_found_one_after_the_other() {
        let mut meetings = Meetings::new(130);
        let all = |meetings: &Meetings| {
            let first = meetings.next_marked(0);
            std::iter::successors(first, |group| meetings.next_marked(group + 1)).collect::<Vec<_>>()
        };
        assert_eq!(all(&meetings), []);
        [129, 0, 63, 64, 7].into_iter().for_each(|group| meetings.mark(group));
        assert_eq!(all(&meetings), [0, 7, 63, 64, 129]);
        meetings.unmark(64);
        meetings.unmark(129);
        assert_eq!(all(&meetings), [0, 7, 63]);
    }

    #[test]
    fn a_command_meets_collection_in_any_of_its_groups_and_only_while_the_device_works_for_it() {
        let (mut meetings, mut encounters) = (Meetings::new(3), Encounters::default());
        meetings.count([0, 1].into_iter(), &mut encounters);
        meetings.mark(1);
        meetings.count([0].into_iter(), &mut encounters);
        meetings.count([0, 1].into_iter(), &mut encounters);
        meetings.cleaning_began(1);
        meetings.count([1, 2].into_iter(), &mut encounters);
        meetings.cleaning_ended(1);
        meetings.unmark(1);
        meetings.count([1].into_iter(), &mut encounters);
        assert_eq!(encounters, Encounters { commands: 5, collecting: 3, marked: 2, met: 1 });
    }
}
