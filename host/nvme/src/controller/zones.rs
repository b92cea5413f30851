//! Zones that have changed by themselves, until the host reads which ("Changed Zone List").

use crate::wire::zoned::{CHANGED_ZONES_MAX, ChangedZones};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::FromZeros;

/// The zones of each namespace, by their first blocks: one more than the list has room for, at most.
#[derive(Default, Debug)]
pub(super) struct ZonesChanged(BTreeMap<u32, BTreeSet<u64>>);

impl ZonesChanged {
    /// The zone that begins at `first` has changed.
    pub fn add(&mut self, namespace: u32, first: u64) {
        let zones = self.0.entry(namespace).or_default();
        if zones.len() <= CHANGED_ZONES_MAX {
            zones.insert(first);
        }
    }

    /// The host has read those of a namespace.
    pub fn read(&mut self, namespace: u32) {
        self.0.remove(&namespace);
    }

    /// The log page of a namespace.
    pub fn page(&self, namespace: u32) -> ChangedZones {
        let mut page = ChangedZones::new_zeroed();
        let Some(zones) = self.0.get(&namespace) else { return page };
        if zones.len() > CHANGED_ZONES_MAX {
            page.count = ChangedZones::OVERFLOW.into();
            return page;
        }
        page.count = (zones.len() as u16).into();
        page.zones.iter_mut().zip(zones).for_each(|(entry, first)| *entry = (*first).into());
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_listed_once_until_they_are_read_and_none_where_there_are_too_many() {
        let mut changed = ZonesChanged::default();
        for first in [32, 16, 32] {
            changed.add(1, first);
        }
        let page = changed.page(1);
        assert_eq!((page.count.get(), page.zones[0].get(), page.zones[1].get()), (2, 16, 32));
        assert_eq!(changed.page(2).count.get(), 0);
        (0..1000).for_each(|zone| changed.add(2, zone * 16));
        let page = changed.page(2);
        assert_eq!((page.count.get(), page.zones[0].get()), (ChangedZones::OVERFLOW, 0));
        changed.read(2);
        assert_eq!((changed.page(2).count.get(), changed.page(1).count.get()), (0, 2));
    }
}
