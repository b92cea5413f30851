//! How a drive is doing, in the drive's own numbers, and the two log pages that say it to hosts.

use crate::wire::log::{OcpSmartLog, SmartLog, warning};
use crate::wire::{U32, U64, U128};
use zerocopy::FromZeros;

/// How the drive behind a subsystem is doing. Whoever serves it fills this from the drive's statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// Bytes that hosts read.
    pub host_bytes_read: u64,
    /// Bytes that hosts wrote.
    pub host_bytes_written: u64,
    /// Read commands of hosts.
    pub host_reads: u64,
    /// Write commands of hosts.
    pub host_writes: u64,
    /// Bytes read from the medium, whatever for.
    pub media_bytes_read: u64,
    /// Bytes programmed, whatever for. Over [`Health::host_bytes_written`] it is the write amplification.
    pub media_bytes_written: u64,
    /// Chunks that went bad.
    pub bad_chunks: u64,
    /// How many more chunks may go bad, in percent of those that could at first.
    pub spare_percent: u8,
    /// Below this percentage the host is warned.
    pub spare_threshold_percent: u8,
    /// Erases so far of the endurance, in percent; may pass 100.
    pub wear_percent: u64,
    /// Erases of the most worn chunk.
    pub erases_max: u32,
    /// Erases of the least worn chunk.
    pub erases_min: u32,
    /// Chunks without data, in percent.
    pub free_percent: u8,
    /// Blocks that could not be read.
    pub unrecovered_reads: u64,
    /// Blocks that were read only with much correction.
    pub weak_reads: u64,
    /// Blocks whose checksum said that they were not what was written.
    pub wrong_blocks: u64,
    /// Blocks moved because they were weak.
    pub refreshes: u64,
    /// Requests that did not fall on blocks of 4 KiB.
    pub unaligned_requests: u64,
    /// Times that the drive was opened.
    pub power_cycles: u64,
    /// Times that it was not closed before.
    pub unsafe_shutdowns: u64,
    /// Hours that it was open.
    pub power_on_hours: u64,
    /// Minutes that it had requests under way.
    pub busy_minutes: u64,
    /// Bytes that an unworn medium can take.
    pub endurance_bytes: u64,
    /// Kelvins; an emulated device has the temperature of a room.
    pub temperature: u16,
    /// Whether it takes no more writes.
    pub is_read_only: bool,
}

/// 20 °C.
const ROOM_KELVINS: u16 = 293;

impl Default for Health {
    /// A new drive.
    fn default() -> Health {
        Health {
            host_bytes_read: 0,
            host_bytes_written: 0,
            host_reads: 0,
            host_writes: 0,
            media_bytes_read: 0,
            media_bytes_written: 0,
            bad_chunks: 0,
            spare_percent: 100,
            spare_threshold_percent: 10,
            wear_percent: 0,
            erases_max: 0,
            erases_min: 0,
            free_percent: 100,
            unrecovered_reads: 0,
            weak_reads: 0,
            wrong_blocks: 0,
            refreshes: 0,
            unaligned_requests: 0,
            power_cycles: 0,
            unsafe_shutdowns: 0,
            power_on_hours: 0,
            busy_minutes: 0,
            endurance_bytes: 0,
            temperature: ROOM_KELVINS,
            is_read_only: false,
        }
    }
}

/// The temperatures between which a host wants no warning ([`crate::wire::feature::id::TEMPERATURE_THRESHOLD`]), kelvins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TemperatureRange {
    /// Warn from here on upwards.
    pub over: u16,
    /// Warn from here on downwards.
    pub under: u16,
}

impl Health {
    /// How two drives are doing that are one subsystem: counts together, of conditions the worse.
    #[must_use]
    pub fn with(self, other: Health) -> Health {
        Health {
            host_bytes_read: self.host_bytes_read + other.host_bytes_read,
            host_bytes_written: self.host_bytes_written + other.host_bytes_written,
            host_reads: self.host_reads + other.host_reads,
            host_writes: self.host_writes + other.host_writes,
            media_bytes_read: self.media_bytes_read + other.media_bytes_read,
            media_bytes_written: self.media_bytes_written + other.media_bytes_written,
            bad_chunks: self.bad_chunks + other.bad_chunks,
            spare_percent: self.spare_percent.min(other.spare_percent),
            spare_threshold_percent: self.spare_threshold_percent.max(other.spare_threshold_percent),
            wear_percent: self.wear_percent.max(other.wear_percent),
            erases_max: self.erases_max.max(other.erases_max),
            erases_min: self.erases_min.min(other.erases_min),
            free_percent: self.free_percent.min(other.free_percent),
            unrecovered_reads: self.unrecovered_reads + other.unrecovered_reads,
            weak_reads: self.weak_reads + other.weak_reads,
            wrong_blocks: self.wrong_blocks + other.wrong_blocks,
            refreshes: self.refreshes + other.refreshes,
            unaligned_requests: self.unaligned_requests + other.unaligned_requests,
            power_cycles: self.power_cycles.max(other.power_cycles),
            unsafe_shutdowns: self.unsafe_shutdowns.max(other.unsafe_shutdowns),
            power_on_hours: self.power_on_hours.max(other.power_on_hours),
            busy_minutes: self.busy_minutes.max(other.busy_minutes),
            endurance_bytes: self.endurance_bytes + other.endurance_bytes,
            temperature: self.temperature.max(other.temperature),
            is_read_only: self.is_read_only || other.is_read_only,
        }
    }

    /// What is wrong, as [`warning`] bits.
    #[must_use]
    pub fn warnings(&self, comfortable: TemperatureRange) -> u8 {
        let too_warm_or_cold = self.temperature >= comfortable.over || self.temperature <= comfortable.under;
        [
            (self.spare_percent < self.spare_threshold_percent, warning::SPARE),
            (too_warm_or_cold, warning::TEMPERATURE),
            (self.wear_percent >= 100, warning::RELIABILITY),
            (self.is_read_only, warning::READ_ONLY),
        ]
        .into_iter()
        .fold(0, |bits, (holds, bit)| if holds { bits | bit } else { bits })
    }

    /// The page that every NVMe drive has.
    #[must_use]
    pub fn smart_log(&self, comfortable: TemperatureRange, error_entries: u64) -> SmartLog {
        let mut log = SmartLog::new_zeroed();
        log.critical_warning = self.warnings(comfortable);
        log.temperature = self.temperature.into();
        log.available_spare = self.spare_percent;
        log.available_spare_threshold = self.spare_threshold_percent;
        log.percentage_used = self.wear_percent.min(255) as u8;
        log.data_units_read = data_units(self.host_bytes_read);
        log.data_units_written = data_units(self.host_bytes_written);
        log.host_read_commands = wide(self.host_reads);
        log.host_write_commands = wide(self.host_writes);
        log.busy_minutes = wide(self.busy_minutes);
        log.power_cycles = wide(self.power_cycles);
        log.power_on_hours = wide(self.power_on_hours);
        log.unsafe_shutdowns = wide(self.unsafe_shutdowns);
        log.media_errors = wide(self.unrecovered_reads.saturating_add(self.wrong_blocks));
        log.error_entries = wide(error_entries);
        log
    }

    /// The page that drives for data centres have beside it; `blocks_in_use` over all namespaces.
    #[must_use]
    pub fn ocp_smart_log(&self, blocks_in_use: u64) -> OcpSmartLog {
        let mut log = OcpSmartLog::new_zeroed();
        log.media_bytes_written = wide(self.media_bytes_written);
        log.media_bytes_read = wide(self.media_bytes_read);
        log.bad_user_blocks = low_bytes(self.bad_chunks);
        log.bad_user_blocks_normalized = u16::from(self.spare_percent).into();
        log.bad_system_blocks_normalized = 100.into();
        log.uncorrectable_reads = U64::new(self.unrecovered_reads);
        log.soft_ecc_errors = U64::new(self.weak_reads);
        log.end_to_end_errors[0] = U32::new(u32::try_from(self.wrong_blocks).unwrap_or(u32::MAX));
        log.refreshes = low_bytes(self.refreshes);
        log.erases_max = self.erases_max.into();
        log.erases_min = self.erases_min.into();
        log.specification_major = 2;
        log.incomplete_shutdowns = U32::new(u32::try_from(self.unsafe_shutdowns).unwrap_or(u32::MAX));
        log.free_blocks_percent = self.free_percent;
        log.capacitor_health = 0xffff.into();
        log.unaligned_io = self.unaligned_requests.into();
        log.total_utilization = blocks_in_use.into();
        log.endurance_estimate = wide(self.endurance_bytes);
        log.version = OcpSmartLog::VERSION.into();
        log.guid = OcpSmartLog::GUID;
        log
    }
}

fn wide(value: u64) -> U128 {
    U128::new(u128::from(value))
}

/// Thousands of 512 bytes, rounded up.
fn data_units(bytes: u64) -> U128 {
    wide(bytes.div_ceil(512_000))
}

/// The `N` low bytes of a count that does not pass them.
fn low_bytes<const N: usize>(value: u64) -> [u8; N] {
    let value = value.min((1 << (8 * N)) - 1);
    std::array::from_fn(|index| value.to_le_bytes()[index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::log::warning;

    const COMFORTABLE: TemperatureRange = TemperatureRange { over: 343, under: 0 };

    #[test]
    fn a_new_drive_has_nothing_to_warn_of() {
        let log = Health::default().smart_log(COMFORTABLE, 0);
        assert_eq!((log.critical_warning, log.available_spare, log.percentage_used), (0, 100, 0));
    }

    #[test]
    fn each_ill_has_its_warning() {
        let check = |health: Health, bit| assert_eq!(health.warnings(COMFORTABLE), bit);
        check(Health { spare_percent: 9, ..Health::default() }, warning::SPARE);
        check(Health { temperature: 343, ..Health::default() }, warning::TEMPERATURE);
        check(Health { temperature: 0, ..Health::default() }, warning::TEMPERATURE);
        check(Health { wear_percent: 100, ..Health::default() }, warning::RELIABILITY);
        check(Health { is_read_only: true, ..Health::default() }, warning::READ_ONLY);
    }

    #[test]
    fn write_amplification_can_be_worked_out_from_the_two_pages() {
        let health = Health { host_bytes_written: 512_001, media_bytes_written: 1_536_000, ..Health::default() };
        assert_eq!(health.smart_log(COMFORTABLE, 0).data_units_written.get(), 2, "rounded up");
        assert_eq!(health.ocp_smart_log(0).media_bytes_written.get(), 1_536_000);
    }

    #[test]
    fn counts_beyond_a_field_stay_at_its_end() {
        let health = Health {
            wear_percent: 1000,
            bad_chunks: u64::MAX,
            refreshes: 0x0102_0304_0506_0708,
            wrong_blocks: u64::MAX,
            ..Health::default()
        };
        assert_eq!(health.smart_log(COMFORTABLE, 0).percentage_used, 255);
        let log = health.ocp_smart_log(0);
        assert_eq!(log.bad_user_blocks, [0xff; 6]);
        assert_eq!(log.refreshes, [0xff; 7]);
        assert_eq!(log.end_to_end_errors[0].get(), u32::MAX);
    }
}
