//! The groups of a log as a repair finds them: which follow each other, and which were never durable.
//!
//! ```text
//!   5 6 7        2²⁰+7 2²⁰+8         2²¹+11              stretches: a repair that is cut off has gone on so far behind the others
//!        follows             does not follow: a repair has written groups between, and they are gone
//! ```

use crate::layout::Anchor;
use crate::seen_log::{FoundGroup, GROUPS_SKIPPED, Last, SeenLog};
use openftl_core::AddressFormat;
use std::collections::BTreeMap;

/// Groups between which no number was skipped.
pub(crate) type Stretch = BTreeMap<u64, FoundGroup>;

/// Whether repairs, one begun anew after the other, have skipped so many numbers, and nothing has written a group between. Each goes on so far behind
/// the last group that was there, or was there before the one that the anchor names ([`first_group`]).
pub(crate) fn is_skipped(numbers: u64) -> bool {
    let repairs = numbers.div_ceil(GROUPS_SKIPPED);
    repairs > 0 && numbers == repairs * GROUPS_SKIPPED - (repairs - 1)
}

/// The first group that a repair writes.
pub(crate) fn first_group(last_group: u64, anchor: Anchor) -> u64 {
    last_group.max(anchor.group.saturating_sub(1)) + GROUPS_SKIPPED
}

/// Stretches in their order, and of each whether it follows the one before it: no group is missing between.
///
/// Versions of groups grow: what a power cut has left behind one that it has torn is not among them once the log has gone on.
pub(crate) fn stretches(groups: BTreeMap<u64, FoundGroup>) -> Vec<(bool, Stretch)> {
    let mut stretches: Vec<(bool, Stretch)> = Vec::new();
    let (mut before, mut last_version) = (None, 0);
    for (number, group) in groups {
        let skipped = number - before.unwrap_or(number);
        before = Some(number);
        if group.version < last_version {
            continue;
        }
        last_version = group.version;
        if stretches.is_empty() || skipped >= GROUPS_SKIPPED {
            stretches.push((stretches.is_empty() || is_skipped(skipped), Stretch::new()));
        }
        stretches.last_mut().expect("there is one").1.insert(number, group);
    }
    stretches
}

/// Drops groups that a power cut has left behind one that it has torn. All before `durable` were on media for good. Gives whether something may be
/// missing behind the last group that is left.
pub(crate) fn drop_what_was_never_durable(
    format: AddressFormat,
    groups: &mut Stretch,
    seen: &SeenLog,
    durable: u64,
) -> bool {
    let Some(mut at) = groups.first_key_value().map(|(number, _)| *number) else { return false };
    loop {
        while groups.contains_key(&(at + 1)) {
            at += 1;
        }
        let last = Last::of(format, &groups[&at]);
        let is_named = (at + 2..at + GROUPS_SKIPPED).contains(&durable);
        let is_shown = seen.shows(at + 1, last).is_some();
        let is_lost = is_named || is_shown;
        match groups.range(at + 1..).next() {
            Some((next, _)) if is_shown || (is_named && *next <= durable) => at = *next,
            _ => {
                groups.split_off(&(at + 1));
                let is_unread = last.end.is_some_and(|end| seen.unreadable_from(end) > 0);
                return is_lost || is_unread || seen.has_unknown_chunk();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;
    use openftl_core::Geometry;

    fn group(number: u64) -> (u64, FoundGroup) {
        let format = Geometry::tiny().format();
        let place = Place::new(format, format.chunk_id(format.pu_id(0, 0), 1), 0, 100);
        (number, FoundGroup { number, version: 10 * number, sequence: 10 * number, place, records: Vec::new() })
    }

    /// The anchor counts the group before that one, which is lost: so it followed groups that were all there, and was told to a host.
    #[test]
    fn a_group_right_behind_those_that_the_anchor_counts_is_not_dropped_with_a_lost_one() {
        let format = Geometry::tiny().format();
        let seen = SeenLog::new(&Geometry::tiny());
        let left = |durable| {
            let mut groups: Stretch = [2, 3, 5, 7].map(group).into();
            // Nothing is missing behind the last one that is left.
            assert!(!drop_what_was_never_durable(format, &mut groups, &seen, durable));
            groups.into_keys().collect::<Vec<_>>()
        };
        assert_eq!((left(4), left(5), left(6), left(7)), (vec![2, 3], vec![2, 3, 5], vec![2, 3, 5], vec![2, 3, 5, 7]));
    }
}
