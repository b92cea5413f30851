//! How full a served key-value drive is, and what its hosts have done.

use openftl_core::units::ByteSize;
use openftl_lab::picture::thousands;
use openftl_values::{ValueFtl, ValueTarget};

/// See the module.
#[derive(serde::Serialize)]
pub(super) struct ValuesShown {
    keys: u64,
    key_bytes: u64,
    value_bytes: u64,
    used_bytes: u64,
    capacity_bytes: u64,
    stores: u64,
    retrieves: u64,
    deletes: u64,
    lists: u64,
}

impl ValuesShown {
    pub(super) fn of(drive: &ValueFtl) -> ValuesShown {
        let (known, statistics) = (drive.info(), drive.statistics());
        ValuesShown {
            keys: known.keys,
            key_bytes: known.key_bytes,
            value_bytes: known.value_bytes,
            used_bytes: known.used_bytes,
            capacity_bytes: known.capacity_bytes,
            stores: statistics.stores,
            retrieves: statistics.retrieves,
            deletes: statistics.deletes,
            lists: statistics.lists,
        }
    }

    pub(super) fn line(&self) -> String {
        format!(
            "\nKeys: {}, {} of {} used; {} Stores, {} Retrieves, {} Deletes",
            thousands(self.keys),
            ByteSize(self.used_bytes),
            ByteSize(self.capacity_bytes),
            thousands(self.stores),
            thousands(self.retrieves),
            thousands(self.deletes)
        )
    }
}
