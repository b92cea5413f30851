//! The zones of a namespace: their shape, and what is known of each.

use std::net::TcpStream;
use std::time::Duration;

use openftl_core::BLOCK_BYTES;
use openftl_nvme::wire::identify::{IdentifyNamespace, cns, csi};
use openftl_nvme::wire::zoned::{REPORT_OF_ALL, ReportHead, ZoneDescriptor, ZonedNamespace, attribute};
use openftl_nvme_media::association::Association;
use openftl_nvme_media::connect::{ConnectError, connect_as};
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_tcp::client::{Client, ClientError};
use openftl_nvme_tcp::fabrics::Identity;
use openftl_nvme_tcp::nvm::ZonePlace;
use openftl_zones::ZoneState;
use zerocopy::FromBytes;

use crate::claim::{self, Claim, Held, can_be_claimed};

/// Who connects.
const HOST_NQN: &str = "nqn.2026-11.org.openftl:segments";

/// What controllers of this project call themselves.
const MODEL: &[u8] = b"OpenFTL ";

/// Entries of the queue by which the drive is claimed, and zones are reported.
const REPORT_ENTRIES: u16 = 2;

/// Zones that are asked for by one report.
const ZONES_PER_REPORT: u64 = 1024;

/// Zones of a drive, at most.
const ZONES_MAX: u64 = 1 << 24;

/// What all zones have in common. Addresses and lengths are in blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub zones: u32,
    /// From the first block of a zone to that of the next.
    pub size: u64,
    /// Blocks of a zone that can be written: those of a segment.
    pub capacity: u32,
    pub active_max: u32,
    /// Blocks of one command, at most.
    pub transfer_max: u32,
    /// The controller is one of this project: its reports say how far a zone is written that is read only.
    pub is_ours: bool,
}

impl Shape {
    /// Blocks of all segments.
    pub fn blocks(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.capacity)
    }

    /// The segment of a block, and which of its blocks it is.
    pub fn place_of(&self, block: u64) -> (u32, u32) {
        let capacity = u64::from(self.capacity);
        ((block / capacity) as u32, (block % capacity) as u32)
    }

    /// The first block of a zone, as its namespace counts.
    pub fn first_of(&self, zone: u32) -> u64 {
        u64::from(zone) * self.size
    }

    /// What a namespace calls a block.
    pub fn address_of(&self, block: u64) -> u64 {
        let (zone, within) = self.place_of(block);
        self.first_of(zone) + u64::from(within)
    }
}

/// A zone, with what is under way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Zone {
    /// Blocks that are written, when everything that is under way has ended.
    pub written: u32,
    /// Blocks that are written now, at least.
    pub settled: u32,
    /// Writes and trims under way.
    pub changes: u32,
    pub is_writable: bool,
    /// Somebody has opened it; it is active although nothing is written to it.
    pub is_opened: bool,
    /// It is of no use any more.
    pub is_offline: bool,
    /// The first block that the drive has not taken, though its medium has not failed: nobody knows what is there.
    pub refused: Option<u32>,
}

impl Zone {
    /// What a report says of zone `number`. `Err`: why that cannot be.
    pub fn of(descriptor: &ZoneDescriptor, number: u32, shape: &Shape) -> Result<Zone, String> {
        let first = descriptor.first.get();
        if first != shape.first_of(number) {
            return Err(format!("has a report of zones with block {first} where zone {number} begins"));
        }
        let state = descriptor.zone_state();
        let state = state.ok_or_else(|| format!("has a zone {number} in state {:X}h", descriptor.state >> 4))?;
        let capacity = descriptor.capacity.get();
        if capacity != u64::from(shape.capacity) {
            return Err(format!("has zones of {} blocks, and zone {number} has {capacity}", shape.capacity));
        }
        if state.is_active() && descriptor.attributes & attribute::ZRWA_VALID != 0 {
            return Err(format!(
                "has a random write area in zone {number}, so it is not written in order: reset it with `openftl nvme zones reset`"
            ));
        }
        let is_offline = state == ZoneState::Offline;
        let ours = descriptor.written_read_only().filter(|_| shape.is_ours);
        let written = if is_offline { 0 } else { ours.or(descriptor.written()).unwrap_or(capacity) as u32 };
        let is_writable = !matches!(state, ZoneState::ReadOnly | ZoneState::Offline);
        let is_opened = state.is_active() && written == 0;
        Ok(Zone { written, settled: written, changes: 0, is_writable, is_opened, is_offline, refused: None })
    }

    /// The drive does not have what was to be written from this block on.
    pub fn refuse(&mut self, within: u32) {
        self.refused = Some(self.refused.map_or(within, |other| other.min(within)));
    }

    /// Whether it counts against the limit of active zones.
    pub fn is_active(&self, shape: &Shape) -> bool {
        self.is_writable && self.written < shape.capacity && (self.written > 0 || self.is_opened)
    }
}

/// A namespace that was found.
pub(crate) struct Found {
    pub association: Association,
    pub claim: Option<Held>,
    pub shape: Shape,
    pub zones: Vec<Zone>,
}

/// Connects to the namespace at `uri`, claims it, and asks what its zones are: in this order, so that nobody changes them later.
pub(crate) fn find(uri: &DriveUri, claim: Claim, answer_max: Duration) -> Result<Found, ConnectError> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(|error| ConnectError::Random(error.to_string()))?;
    let (host_id, key) = random.split_at(16);
    let identity = Identity {
        host_id: host_id.try_into().expect("16 bytes"),
        host_nqn: HOST_NQN.to_owned(),
        subsystem_nqn: uri.subsystem.as_str().to_owned(),
    };
    let mut association = connect_as(uri, &identity, answer_max)?;
    let no_zones =
        "is not zoned, so nobody says how far its segments are written: serve the drive with `interface = \"zones\"`";
    let other_kind = |why: &str| ConnectError::other_kind(uri, why);
    let known = association.admin.identify(cns::NAMESPACE, uri.namespace);
    let known = answer(known)?.and_then(|data| IdentifyNamespace::read_from_bytes(&data).ok());
    let known = known.filter(|known| known.size.get() > 0).ok_or_else(|| other_kind("is not there"))?;
    let zoned = association.admin.identify_of_set(cns::COMMAND_SET_NAMESPACE, uri.namespace, csi::ZONED);
    let zoned = answer(zoned)?.and_then(|data| ZonedNamespace::read_from_bytes(&data).ok());
    let zoned = zoned.ok_or_else(|| other_kind(no_zones))?;
    let index = usize::from(known.format & 0xf | (known.format >> 5 & 0b11) << 4);
    let (format, size) = (known.lba_formats[index], zoned.formats[index].size.get());
    if 1_u64.checked_shl(format.block_bytes_log2.into()) != Some(BLOCK_BYTES as u64) || format.metadata_bytes.get() > 0
    {
        return Err(other_kind("has not blocks of 4 KiB without metadata"));
    }
    let zones = known.size.get().checked_div(size).filter(|zones| (1..=ZONES_MAX).contains(zones));
    let zones = zones.ok_or_else(|| {
        let blocks = known.size.get();
        ConnectError::other_kind(uri, format_args!("has {blocks} blocks in zones of {size}, which cannot be"))
    })?;
    let transfer_max = match association.controller.transfer_pages_max_log2 {
        0 => u64::MAX,
        log2 => 1_u64.checked_shl(log2.into()).unwrap_or(u64::MAX),
    };
    let mut shape = Shape {
        zones: zones as u32,
        size,
        capacity: 0,
        active_max: zoned.active_max.get().saturating_add(1),
        transfer_max: transfer_max.min(openftl_parts::words::TRANSACTION_BLOCKS_MAX as u64) as u32,
        is_ours: association.controller.model.starts_with(MODEL),
    };
    let mut queue = association.io_queue(REPORT_ENTRIES)?;
    // Zero would stand for all registrants.
    let key = u64::from_le_bytes(key.try_into().expect("8 bytes")).max(1);
    let claim = if can_be_claimed(&association.controller, &known) { claim } else { Claim::None };
    let claim = claim::claim(&mut queue, uri, claim, key)?;
    let found = report(queue, uri, &mut shape)?;
    Ok(Found { association, claim, shape, zones: found })
}

/// The answer to a question about a namespace; `None`: the controller refuses to say it.
fn answer(answer: Result<Vec<u8>, ClientError>) -> Result<Option<Vec<u8>>, ConnectError> {
    match answer {
        Ok(data) => Ok(Some(data)),
        Err(ClientError::Refused { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What all zones are, and how long: on a queue that ends with it.
fn report(mut queue: Client<TcpStream>, uri: &DriveUri, shape: &mut Shape) -> Result<Vec<Zone>, ConnectError> {
    let mut zones = Vec::new();
    while zones.len() < shape.zones as usize {
        let number = zones.len() as u32;
        let place = ZonePlace { namespace: uri.namespace, first: shape.first_of(number) };
        let data = queue.zone_report(place, REPORT_OF_ALL, vec![0; report_bytes(shape, number) as usize])?;
        zones.extend(zones_of(&data, number, shape).map_err(|why| ConnectError::other_kind(uri, why))?);
    }
    queue.disconnect()?;
    Ok(zones)
}

/// Bytes of a report of zones from this one on.
pub(crate) fn report_bytes(shape: &Shape, number: u32) -> u32 {
    let room = u64::from(shape.transfer_max) * BLOCK_BYTES as u64 / size_of::<ZoneDescriptor>() as u64 - 1;
    let zones = u64::from(shape.zones - number).min(room).min(ZONES_PER_REPORT);
    (size_of::<ReportHead>() + zones as usize * size_of::<ZoneDescriptor>()) as u32
}

/// The zones of a report, from this one on: at least one. The first report of all says how long they are.
pub(crate) fn zones_of(report: &[u8], number: u32, shape: &mut Shape) -> Result<Vec<Zone>, String> {
    let listed = ZoneDescriptor::listed(report);
    let told = ReportHead::ref_from_prefix(report).map_or(0, |(head, _)| head.zones.get());
    let listed = &listed[..listed.len().min(told.min(u64::from(shape.zones - number)) as usize)];
    let Some(first) = listed.first() else {
        return Err(format!("has a report of zones that ends before zone {number}"));
    };
    if shape.capacity == 0 {
        let capacity = first.capacity.get();
        if capacity == 0 || capacity > shape.size || capacity > u64::from(u32::MAX) {
            return Err(format!("has zones of {capacity} blocks, {} apart, which cannot be", shape.size));
        }
        shape.capacity = capacity as u32;
    }
    listed.iter().zip(number..).map(|(descriptor, number)| Zone::of(descriptor, number, shape)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_nvme::ZonedShape;

    #[test]
    fn a_zone_that_is_read_only_is_written_as_far_as_a_drive_of_this_project_says() {
        let zoned = ZonedShape {
            zones: 4,
            size: 64,
            capacity: 48,
            max_open: 2,
            max_active: 3,
            extension_bytes: 0,
            window_blocks: 0,
        };
        let zone = openftl_zones::Zone { state: ZoneState::ReadOnly, written: 7, ..openftl_zones::Zone::default() };
        let shape = Shape { zones: 4, size: 64, capacity: 48, active_max: 3, transfer_max: 256, is_ours: true };
        let of = |descriptor: &ZoneDescriptor, shape: &Shape| {
            let zone = Zone::of(descriptor, 2, shape).unwrap();
            assert!(!zone.is_writable);
            (zone.written, zone.settled)
        };
        let descriptor = ZoneDescriptor::of(&zoned, 2, zone);
        assert_eq!(of(&descriptor, &shape), (7, 7), "what is behind it never came to the drive");
        let others = Shape { is_ours: false, ..shape };
        assert_eq!(of(&descriptor, &others), (48, 48), "elsewhere the field has no meaning");
        let silent = ZoneDescriptor { write_pointer: ZoneDescriptor::NO_WRITE_POINTER.into(), ..descriptor };
        assert_eq!(of(&silent, &shape), (48, 48));
    }
}
