//! What a new drive is to be like.

use crate::error::ValueError;
use crate::ids::NUMBER_BITS_MAX;
use crate::key::KEY_BYTES_MAX;
use crate::manifest::Shape;
use crate::record::RECORD_BYTES;
use crate::run::{ENTRY_BYTES, RUN_PAGE_BYTES};
use openftl_pages::{GRAIN_BYTES, PAGE_BYTES_MAX, PageFtl};
use openftl_parts::open_error::OpenError;

/// Flash for each key unless the number of keys is said: that of a value of 1 KiB.
const BYTES_PER_KEY: u64 = 1 << 10;

/// Numbers for each key, at least, so that of 128 keys less than one shares its number; rounded up to a power of two.
const NUMBERS_PER_KEY: u64 = 128;

/// Changes of the directory in memory, at most, unless they are said.
const CHANGES_MAX: u64 = 4096;
/// The fewest.
const CHANGES_MIN: u64 = 16;

/// What a new drive is to be like. What is not said follows from the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ValueConfig {
    /// Keys that there may be.
    pub keys_max: Option<u64>,
    /// Bytes of a key, at most: 1 to 16.
    pub key_max: Option<u8>,
    /// Bytes of a value, at most.
    pub value_max: Option<u32>,
    /// Stores and Deletes are durable when they are acknowledged.
    pub durable_stores: bool,
    /// Changes of the directory of keys that wait in memory before they go to its order, at most.
    pub changes_max: Option<u32>,
    /// Bits of the number of a key. Keys share numbers when there are few.
    pub number_bits: Option<u32>,
}

fn refused(text: String) -> OpenError {
    OpenError::Tenant { text, is_lost: false }
}

impl ValueConfig {
    /// What a drive over this store is like.
    ///
    /// # Errors
    /// If it cannot be as it is asked for. The text names the field.
    pub(crate) fn shape(&self, store: &PageFtl, drive_id: u64) -> Result<Shape, OpenError> {
        let key_max = self.key_max.unwrap_or(KEY_BYTES_MAX as u8);
        if !(1..=KEY_BYTES_MAX).contains(&usize::from(key_max)) {
            return Err(refused(format!("key_max = {key_max}: a key has 1 to {KEY_BYTES_MAX} bytes")));
        }
        let value_most = PAGE_BYTES_MAX.min(store.page_bytes_max() - RECORD_BYTES as u32);
        let value_max = self.value_max.unwrap_or(value_most);
        if value_max > value_most {
            return Err(refused(format!(
                "value_max = {value_max}: a value has at most {value_most} bytes on this device, a quarter of a chunk and no more than \
                 {PAGE_BYTES_MAX}"
            )));
        }
        let capacity = store.capacity_bytes();
        let keys_most = store.pages_max();
        let keys_max = self.keys_max.unwrap_or((capacity / BYTES_PER_KEY).clamp(1, keys_most));
        if keys_max == 0 || keys_max > keys_most {
            return Err(refused(format!(
                "keys_max = {keys_max}: this device has room for the places of 1 to {keys_most} keys; take a larger device, or fewer keys"
            )));
        }
        let own = (store.batch_max() as u64 / 4).min(keys_max / 4).clamp(CHANGES_MIN, CHANGES_MAX) as u32;
        let changes_max = self.changes_max.unwrap_or(own).max(4);
        let needed = (keys_max * NUMBERS_PER_KEY).next_power_of_two().ilog2();
        let number_bits = self.number_bits.unwrap_or(needed.min(NUMBER_BITS_MAX));
        if number_bits > NUMBER_BITS_MAX {
            return Err(refused(format!("number_bits = {number_bits}: a number has at most {NUMBER_BITS_MAX} bits")));
        }
        let seed = [splitmix(drive_id), splitmix(drive_id.wrapping_add(1))];
        let durable_stores = self.durable_stores;
        let shape = Shape { number_bits, key_max, value_max, durable_stores, keys_max, seed, changes_max };
        let directory = shape.directory_bytes();
        if directory > capacity / 2 {
            return Err(refused(format!(
                "keys_max = {keys_max}, changes_max = {changes_max}: the directory of so many keys may take {directory} bytes, more than half of \
                 the {capacity} that there are; take fewer, or a larger device"
            )));
        }
        let pages = 2 * directory / (run_page_bytes(store) as u64) + 64;
        if u64::from(changes_max) + pages > store.batch_max() as u64 {
            return Err(refused(format!(
                "keys_max = {keys_max}, changes_max = {changes_max}: a batch of this device has {} pages, and the directory may need {}; \
                 take fewer",
                store.batch_max(),
                u64::from(changes_max) + pages
            )));
        }
        Ok(shape)
    }
}

/// Bits that follow from a number and look as if they did not.
fn splitmix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes of a page of the directory, at most.
pub(crate) fn run_page_bytes(store: &PageFtl) -> usize {
    RUN_PAGE_BYTES.min(store.page_bytes_max() as usize)
}

impl Shape {
    /// Bytes on media that the directory may take: its runs, those that are being written beside them, and changes.
    pub(crate) fn directory_bytes(&self) -> u64 {
        let (keys, changes) = (self.keys_max, u64::from(self.changes_max));
        let entries = (5 * keys / 2 + 4 * changes) * ENTRY_BYTES.min(u64::from(self.key_max) + 1);
        entries + entries / 64 + 2 * changes * GRAIN_BYTES as u64 + (16 << 10)
    }

    /// Whether a value can be stored.
    pub(crate) fn expect_value(&self, bytes: u64) -> Result<(), ValueError> {
        match bytes <= u64::from(self.value_max) {
            true => Ok(()),
            false => Err(ValueError::ValueSize { bytes, most: self.value_max }),
        }
    }

    /// Whether a key is none too long.
    pub(crate) fn expect_key(&self, length: u8) -> Result<(), ValueError> {
        match length <= self.key_max {
            true => Ok(()),
            false => Err(ValueError::KeySize { bytes: length.into(), most: self.key_max }),
        }
    }
}
