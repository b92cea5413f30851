//! What a zoned namespace says of its zones, whatever state they are in.

use super::line;
use crate::failure::Failure;
use crate::nvme::association::Association;
use crate::nvme::channel::Channel;
use openftl_core::units::ByteSize;
use openftl_lab::picture::thousands;
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::zoned::{REPORT_OF_ALL, ReportHead, ZoneDescriptor, ZonedController, ZonedNamespace};
use openftl_nvme_tcp::ClientError;
use openftl_nvme_tcp::client::Client;
use openftl_nvme_tcp::nvm::ZonePlace;
use serde::Serialize;
use zerocopy::FromBytes;

/// Bytes in a unit of ZDES.
const EXTENSION_UNIT_BYTES: u64 = 64;

/// A limit of zones, 0-based; all ones: there is none.
pub(in crate::nvme) fn limit(field: u32) -> Option<u64> {
    (field != u32::MAX).then_some(u64::from(field) + 1)
}

/// The most bytes of one append (ZASL); `None`: MDTS is the limit.
pub(in crate::nvme) fn append_bytes_max(association: &mut Association) -> Result<Option<u64>, Failure> {
    match association.admin.identify_of_set(cns::COMMAND_SET_CONTROLLER, 0, csi::ZONED) {
        Err(ClientError::Refused { .. }) => Ok(None),
        data => {
            let data = data.map_err(|error| association.failure(error))?;
            let data = ZonedController::read_from_bytes(&data).expect("a data structure has 4096 bytes");
            Ok(association.bytes_max(data.append_pages_max_log2))
        }
    }
}

/// What all zones of a namespace have in common.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonedFacts {
    zones: u64,
    /// From the first block of a zone to that of the next (ZSZE).
    zone_size_blocks: u64,
    /// Blocks of a zone that can be written (ZCAP): of the first one, where they differ.
    zone_capacity_blocks: u64,
    /// Whether zones of one namespace may have other capacities than the first (ZOC, bit 0).
    capacity_varies: bool,
    /// Zones that can be open (MOR), and open or closed (MAR), at a time; null: no limit.
    max_open: Option<u64>,
    max_active: Option<u64>,
    /// Of one append (ZASL); null: no limit but that of every command.
    append_bytes_max: Option<u64>,
    /// Of the descriptor extension of a zone (ZDES); 0: there is none.
    extension_bytes: u64,
    /// Blocks of the random write area that a zone can be opened with (ZRWASZ); 0: there is none.
    zrwa_blocks: u64,
    /// Blocks that are committed together (ZRWAFG), and zones that can have one at a time (NUMZRWA).
    zrwa_flush_blocks: u64,
    zrwa_zones_max: u64,
}

impl ZonedFacts {
    /// Of a namespace of so many blocks, which has format `format` of its controller. `queue` is made where it is needed.
    pub fn ask(
        association: &mut Association,
        queue: &mut Option<Client<Channel>>,
        namespace: u32,
        format: usize,
        blocks: u64,
    ) -> Result<ZonedFacts, Failure> {
        let data = association.admin.identify_of_set(cns::COMMAND_SET_NAMESPACE, namespace, csi::ZONED);
        let data = data.map_err(|error| association.failure(error))?;
        let data = ZonedNamespace::read_from_bytes(&data).expect("a data structure has 4096 bytes");
        let append_bytes_max = append_bytes_max(association)?;
        // The capacity is in descriptors alone.
        let queue = match queue {
            Some(queue) => queue,
            None => queue.insert(association.io_queue(1)?),
        };
        let bytes = size_of::<ReportHead>() + size_of::<ZoneDescriptor>();
        let report = queue.zone_report(ZonePlace { namespace, first: 0 }, REPORT_OF_ALL, vec![0; bytes]);
        let report = report.map_err(|error| association.failure(error))?;
        Ok(ZonedFacts::of(&data, format, blocks, &report, append_bytes_max))
    }

    fn of(
        data: &ZonedNamespace,
        format: usize,
        blocks: u64,
        report: &[u8],
        append_bytes_max: Option<u64>,
    ) -> ZonedFacts {
        let format = data.formats[format];
        let has_zrwa = data.optional.get() & ZonedNamespace::ZRWA_SUPPORTED != 0;
        let [flush_blocks, zrwa_blocks] = data.zrwa_blocks.map(|blocks| u64::from(blocks.get()));
        let (zrwa_blocks, zrwa_flush_blocks) = if has_zrwa { (zrwa_blocks, flush_blocks) } else { (0, 0) };
        let zone_size_blocks = format.size.get();
        ZonedFacts {
            zones: blocks.checked_div(zone_size_blocks).unwrap_or(0),
            zone_size_blocks,
            zone_capacity_blocks: ZoneDescriptor::listed(report).first().map_or(0, |zone| zone.capacity.get()),
            capacity_varies: data.operation.get() & 1 != 0,
            max_open: limit(data.open_max.get()),
            max_active: limit(data.active_max.get()),
            append_bytes_max,
            extension_bytes: u64::from(format.extension_units) * EXTENSION_UNIT_BYTES,
            zrwa_blocks,
            zrwa_flush_blocks,
            zrwa_zones_max: if has_zrwa { u64::from(data.zrwa_max.get()) + 1 } else { 0 },
        }
    }

    /// For people.
    pub fn write(&self, text: &mut String, block_bytes: u64) {
        let size = |blocks: u64| ByteSize(blocks.saturating_mul(block_bytes));
        let ZonedFacts { zones, zone_size_blocks, zone_capacity_blocks, .. } = *self;
        let each = format!("{} ({} blocks)", size(zone_capacity_blocks), thousands(zone_capacity_blocks));
        let varies = if self.capacity_varies { " or other" } else { "" };
        let apart = format!("{} blocks from one to the next", thousands(zone_size_blocks));
        line(text, "zones", format_args!("{} of {each}{varies}, {apart}", thousands(zones)));
        let most = |limit: Option<u64>| limit.map_or("any number".to_owned(), thousands);
        let (open, active) = (most(self.max_open), most(self.max_active));
        line(text, "at a time", format_args!("{open} open (MOR), {active} open or closed (MAR)"));
        let append =
            self.append_bytes_max.map_or("as long as any command".to_owned(), |bytes| ByteSize(bytes).to_string());
        line(text, "an append", format_args!("{append} (ZASL)"));
        let extension = match self.extension_bytes {
            0 => "none".to_owned(),
            bytes => format!("{bytes} bytes of each zone"),
        };
        line(text, "extension", format_args!("{extension} (ZDES)"));
        if self.zrwa_blocks > 0 {
            let (area, zones) = (thousands(self.zrwa_blocks), thousands(self.zrwa_zones_max));
            let together = thousands(self.zrwa_flush_blocks);
            line(
                text,
                "random writes",
                format_args!("{area} blocks of {zones} zones (ZRWASZ, NUMZRWA), committed by {together} (ZRWAFG)"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use zerocopy::{FromZeros, IntoBytes};

    fn facts(change: impl Fn(&mut ZonedNamespace)) -> ZonedFacts {
        let mut data = ZonedNamespace::new_zeroed();
        data.formats[2].size = 8192.into();
        (data.open_max, data.active_max) = (11.into(), 13.into());
        change(&mut data);
        let mut zone = ZoneDescriptor::new_zeroed();
        zone.capacity = 6144.into();
        let report = [ReportHead::new_zeroed().as_bytes(), zone.as_bytes()].concat();
        ZonedFacts::of(&data, 2, 5 * 8192, &report, Some(131_072))
    }

    #[test]
    fn the_page_has_size_capacity_and_every_limit() {
        let mut text = String::new();
        let with_all = facts(|data| {
            data.formats[2].extension_units = 2;
            (data.optional, data.zrwa_max, data.zrwa_blocks) = (2.into(), 11.into(), [4.into(), 256.into()]);
        });
        with_all.write(&mut text, 4096);
        expect![[r#"
            namespace
              zones            5 of 24 MiB (6 144 blocks), 8 192 blocks from one to the next
              at a time        12 open (MOR), 14 open or closed (MAR)
              an append        128 KiB (ZASL)
              extension        128 bytes of each zone (ZDES)
              random writes    256 blocks of 12 zones (ZRWASZ, NUMZRWA), committed by 4 (ZRWAFG)
        "#]]
        .assert_eq(&format!("namespace\n{text}"));
    }

    #[test]
    fn limits_that_are_not_there_are_no_numbers() {
        let unlimited = facts(|data| {
            (data.open_max, data.active_max) = (u32::MAX.into(), u32::MAX.into());
            data.operation = 1.into();
        });
        let mut text = String::new();
        ZonedFacts { append_bytes_max: None, ..unlimited }.write(&mut text, 4096);
        expect![[r#"
            namespace
              zones            5 of 24 MiB (6 144 blocks) or other, 8 192 blocks from one to the next
              at a time        any number open (MOR), any number open or closed (MAR)
              an append        as long as any command (ZASL)
              extension        none (ZDES)
        "#]]
        .assert_eq(&format!("namespace\n{text}"));
        let none = facts(|data| data.formats[2].size = 0.into());
        assert_eq!((none.zones, none.extension_bytes), (0, 0), "whatever a controller makes up");
    }
}
