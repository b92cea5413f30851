//! The commands of a zoned namespace (ZNS, "I/O Commands for the Zoned Namespace Command Set"), and the reports of its zones.
//!
//! | checked here | left to the drive |
//! |---|---|
//! | fields, ranges of the namespace, lengths | state, place, end, resources: [`openftl_zones::Board`] |
//!
//! A namespace has random write areas (ZRWA) and descriptor extensions only if it was created with them: what asks for what is not there is an
//! invalid field. What would change blocks behind the write pointers (Dataset Management, Write Zeroes, Write Uncorrectable, Copy) is no
//! command of it.

use super::io::{FORCE_UNIT_ACCESS, IoCommand, blocks, check_protection, covered, transferred};
use super::{Refusal, Transfer};
use crate::namespace::{Namespace, NamespaceKind, Span, TRANSFER_BYTES_MAX, ZonedShape};
use crate::wire::entry::SubmissionEntry;
use crate::wire::opcode::io as opcodes;
use crate::wire::status::Status;
use crate::wire::zoned::{
    ALLOCATE_ZRWA, EXTENDED_REPORT, FILTER_ALL, PARTIAL_REPORT, REPORT_ZONES, ReportHead, SELECT_ALL,
    SEQUENTIAL_WRITE_REQUIRED, ZoneDescriptor, action, attribute, state,
};
use openftl_core::BLOCK_BYTES;
use openftl_parts::target::Durability;
use openftl_parts::words::Handle;
use openftl_zones::{Action, Zone, ZoneError, ZoneState};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// A command that only zoned namespaces have. Addresses are in blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneCommand {
    /// "Zone Append command": written wherever the write pointer is, which the completion says.
    Append {
        /// The first byte of the zone, and how many bytes.
        span: Span,
        /// FUA, or the write cache is off.
        durability: Durability,
    },
    /// "Zone Management Send command" to one zone.
    Act {
        /// The first block of the zone.
        first: u64,
        /// What is to become of it.
        action: Action,
    },
    /// The same to all zones in a state for it (Select All).
    ActOnAll {
        /// What is to become of them.
        action: Action,
    },
    /// "Open Zone" with a random write area (ZRWAA).
    OpenWithWindow {
        /// The first block of the zone.
        first: u64,
    },
    /// "Flush Explicit ZRWA Range".
    Commit {
        /// The last block that is committed.
        last: u64,
    },
    /// "Set Zone Descriptor Extension" of an empty zone. Select All is not for it.
    Extend {
        /// The first block of the zone.
        first: u64,
        /// Bytes of the extension, all of which the command brings.
        bytes: u32,
    },
    /// "Zone Management Receive command": [`Namespace::zone_report`] makes the data.
    Report(ZoneReport),
}

/// What a report of zones is to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneReport {
    /// The first zone.
    pub first: u32,
    /// Zones in this state; `None`: in any.
    pub state: Option<ZoneState>,
    /// The number of zones is that of the descriptors that fit.
    pub is_partial: bool,
    /// The extension of each zone is behind its descriptor.
    pub is_extended: bool,
    /// Bytes that the host wants.
    pub bytes: u32,
}

impl ZoneCommand {
    /// Its data.
    pub(super) fn transfer(&self) -> Transfer {
        match self {
            ZoneCommand::Append { span, .. } => Transfer::ToController(span.length as u32),
            ZoneCommand::Act { .. }
            | ZoneCommand::ActOnAll { .. }
            | ZoneCommand::OpenWithWindow { .. }
            | ZoneCommand::Commit { .. } => Transfer::None,
            ZoneCommand::Extend { bytes, .. } => Transfer::ToController(*bytes),
            ZoneCommand::Report(report) => Transfer::ToHost(report.bytes),
        }
    }
}

/// States in the order of the filters of a report, from 01h on.
const FILTERS: [ZoneState; 7] = [
    ZoneState::Empty,
    ZoneState::ImplicitlyOpen,
    ZoneState::ExplicitlyOpen,
    ZoneState::Closed,
    ZoneState::Full,
    ZoneState::ReadOnly,
    ZoneState::Offline,
];

/// What the 64 bytes say to a zoned namespace.
#[inline]
pub(super) fn parse_zoned(
    entry: &SubmissionEntry,
    namespace: &Namespace,
    shape: &ZonedShape,
    durability: impl Fn(bool) -> Durability,
) -> Result<IoCommand, Refusal> {
    let durability = || durability(entry.dword(12) & FORCE_UNIT_ACCESS != 0);
    Ok(match entry.opcode {
        opcodes::FLUSH => IoCommand::Flush,
        opcodes::READ => IoCommand::Read(transferred(entry, namespace)?),
        opcodes::WRITE => {
            let (span, durability) = (transferred(entry, namespace)?, durability());
            IoCommand::Write { span, durability, handle: Handle::NONE }
        }
        opcodes::COMPARE => IoCommand::Compare(transferred(entry, namespace)?),
        opcodes::VERIFY => IoCommand::Verify(covered(entry, namespace)?),
        opcodes::ZONE_APPEND => {
            // PIREMAP: no namespace has protection information.
            if entry.dword(12) & 1 << 25 != 0 {
                return Err(Status::INVALID_FIELD.at(51).bit(1));
            }
            check_protection(entry)?;
            // Of the zone alone: where the data end follows from its write pointer.
            let first = entry.dword_pair(10);
            expect_zone(first, namespace, shape)?;
            let length = blocks(entry) * BLOCK_BYTES as u64;
            if length > u64::from(TRANSFER_BYTES_MAX) {
                return Err(Status::INVALID_FIELD.at(48));
            }
            let span = Span { offset: first * BLOCK_BYTES as u64, length };
            IoCommand::Zone(ZoneCommand::Append { span, durability: durability() })
        }
        opcodes::ZONE_SEND => IoCommand::Zone(parse_send(entry, namespace, shape)?),
        opcodes::ZONE_RECEIVE => IoCommand::Zone(ZoneCommand::Report(parse_receive(entry, namespace, shape)?)),
        _ => return Err(Status::INVALID_OPCODE.at(0)),
    })
}

/// Whether `first` is the first block of a zone.
fn expect_zone(first: u64, namespace: &Namespace, shape: &ZonedShape) -> Result<(), Refusal> {
    namespace.span(first, 1, 40)?;
    if first.is_multiple_of(shape.size) { Ok(()) } else { Err(Status::INVALID_FIELD.at(40)) }
}

fn parse_send(entry: &SubmissionEntry, namespace: &Namespace, shape: &ZonedShape) -> Result<ZoneCommand, Refusal> {
    let dword = entry.dword(13);
    let (has_windows, is_for_all) = (shape.window_blocks > 0, dword & SELECT_ALL != 0);
    if dword & ALLOCATE_ZRWA != 0 {
        if !has_windows || dword as u8 != action::OPEN || is_for_all {
            return Err(Status::INVALID_FIELD.at(53).bit(1));
        }
        let first = entry.dword_pair(10);
        expect_zone(first, namespace, shape)?;
        return Ok(ZoneCommand::OpenWithWindow { first });
    }
    if dword as u8 == action::FLUSH_ZRWA && has_windows {
        let last = entry.dword_pair(10);
        namespace.span(last, 1, 40)?;
        return if is_for_all { Err(Status::INVALID_FIELD.at(53).bit(0)) } else { Ok(ZoneCommand::Commit { last }) };
    }
    if dword as u8 == action::SET_EXTENSION {
        return parse_extension(entry, namespace, shape);
    }
    let action = match dword as u8 {
        action::CLOSE => Action::Close,
        action::FINISH => Action::Finish,
        action::OPEN => Action::Open,
        action::RESET => Action::Reset,
        action::OFFLINE => Action::Offline,
        _ => return Err(Status::INVALID_FIELD.at(52)),
    };
    if is_for_all {
        return Ok(ZoneCommand::ActOnAll { action });
    }
    let first = entry.dword_pair(10);
    expect_zone(first, namespace, shape)?;
    Ok(ZoneCommand::Act { first, action })
}

fn parse_extension(entry: &SubmissionEntry, namespace: &Namespace, shape: &ZonedShape) -> Result<ZoneCommand, Refusal> {
    if shape.extension_bytes == 0 {
        return Err(Status::INVALID_FIELD.at(52));
    }
    if entry.dword(13) & SELECT_ALL != 0 {
        return Err(Status::INVALID_FIELD.at(53).bit(0));
    }
    let first = entry.dword_pair(10);
    expect_zone(first, namespace, shape)?;
    Ok(ZoneCommand::Extend { first, bytes: shape.extension_bytes })
}

fn parse_receive(entry: &SubmissionEntry, namespace: &Namespace, shape: &ZonedShape) -> Result<ZoneReport, Refusal> {
    let (first, bytes, dword) = (entry.dword_pair(10), (u64::from(entry.dword(12)) + 1) * 4, entry.dword(13));
    namespace.span(first, 1, 40)?;
    if bytes > u64::from(TRANSFER_BYTES_MAX) || bytes < size_of::<ReportHead>() as u64 {
        return Err(Status::INVALID_FIELD.at(48));
    }
    let is_extended = match dword as u8 {
        REPORT_ZONES => false,
        EXTENDED_REPORT if shape.extension_bytes > 0 => true,
        _ => return Err(Status::INVALID_FIELD.at(52)),
    };
    let state = match (dword >> 8) as u8 {
        FILTER_ALL => None,
        filter => Some(*FILTERS.get(usize::from(filter) - 1).ok_or(Status::INVALID_FIELD.at(53))?),
    };
    Ok(ZoneReport {
        first: (first / shape.size) as u32,
        state,
        is_partial: dword & PARTIAL_REPORT != 0,
        is_extended,
        bytes: bytes as u32,
    })
}

/// Dword 13 of a Zone Management Send command: what a host says for `action`.
#[must_use]
pub fn send_dword(action: Action, is_for_all: bool) -> u32 {
    let code = match action {
        Action::Close => action::CLOSE,
        Action::Finish => action::FINISH,
        Action::Open => action::OPEN,
        Action::Reset => action::RESET,
        Action::Offline => action::OFFLINE,
    };
    u32::from(code) | if is_for_all { SELECT_ALL } else { 0 }
}

/// Dword 13 of a Zone Management Send command that opens an empty zone with a random write area.
pub const OPEN_WITH_WINDOW: u32 = action::OPEN as u32 | ALLOCATE_ZRWA;

/// Dword 13 of a Zone Management Send command that commits blocks of a random write area.
pub const COMMIT: u32 = action::FLUSH_ZRWA as u32;

/// The code of a state on the wire.
fn code_of(state: ZoneState) -> u8 {
    match state {
        ZoneState::Empty => state::EMPTY,
        ZoneState::ImplicitlyOpen => state::IMPLICITLY_OPEN,
        ZoneState::ExplicitlyOpen => state::EXPLICITLY_OPEN,
        ZoneState::Closed => state::CLOSED,
        ZoneState::Full => state::FULL,
        ZoneState::ReadOnly => state::READ_ONLY,
        ZoneState::Offline => state::OFFLINE,
    }
}

/// What a zone says beside its state.
fn attributes_of(zone: Zone) -> u8 {
    let finish = if zone.is_finish_recommended() { attribute::FINISH_RECOMMENDED } else { 0 };
    let reset = if zone.is_reset_recommended() { attribute::RESET_RECOMMENDED } else { 0 };
    let extension = if zone.has_extension { attribute::EXTENSION_VALID } else { 0 };
    let window = if zone.has_window { attribute::ZRWA_VALID } else { 0 };
    finish | reset | extension | window
}

impl ZoneDescriptor {
    /// Zone `number` of a drive of this shape.
    #[must_use]
    pub fn of(shape: &ZonedShape, number: u32, zone: Zone) -> ZoneDescriptor {
        let first = u64::from(number) * shape.size;
        let write_pointer = match zone.state {
            ZoneState::Full | ZoneState::Offline => ZoneDescriptor::NO_WRITE_POINTER,
            // Of one that is read only the specification has hosts ignore the field. Ours need it: what is behind it was never durable.
            _ => first + u64::from(zone.written),
        };
        ZoneDescriptor {
            kind: SEQUENTIAL_WRITE_REQUIRED,
            state: code_of(zone.state) << 4,
            attributes: attributes_of(zone),
            capacity: u64::from(shape.capacity).into(),
            first: first.into(),
            write_pointer: write_pointer.into(),
            ..ZoneDescriptor::new_zeroed()
        }
    }

    /// The state that it says.
    #[must_use]
    pub fn zone_state(&self) -> Option<ZoneState> {
        ZoneState::ALL.into_iter().find(|state| code_of(*state) == self.state >> 4)
    }

    /// Blocks that are written. A full zone counts as written to its end; of one that is read only or offline nobody says it, but for the controllers of
    /// this project: [`ZoneDescriptor::written_read_only`].
    #[must_use]
    pub fn written(&self) -> Option<u64> {
        match self.zone_state()? {
            ZoneState::Full => Some(self.capacity.get()),
            ZoneState::ReadOnly | ZoneState::Offline => None,
            _ => Some(self.write_pointer.get().saturating_sub(self.first.get()).min(self.capacity.get())),
        }
    }

    /// Blocks that are written of a zone that is read only, as a controller of this project says it, in a field that has no meaning elsewhere.
    #[must_use]
    pub fn written_read_only(&self) -> Option<u64> {
        let written = self.write_pointer.get().checked_sub(self.first.get())?;
        (self.zone_state()? == ZoneState::ReadOnly && written <= self.capacity.get()).then_some(written)
    }

    /// The descriptors of a report, as a host reads it.
    #[must_use]
    pub fn listed(report: &[u8]) -> &[ZoneDescriptor] {
        let descriptors = report.get(size_of::<ReportHead>()..).unwrap_or(&[]);
        let (whole, _) = descriptors.as_chunks::<{ size_of::<ZoneDescriptor>() }>();
        <[ZoneDescriptor]>::ref_from_bytes(whole.as_flattened()).expect("a descriptor may lie anywhere")
    }
}

impl Namespace {
    /// The data of a report, without the zeroes behind the last descriptor. `zones` are all of the drive, and `extension` is that of one of
    /// them.
    #[must_use]
    pub fn zone_report<'a>(
        &self,
        shape: &ZonedShape,
        report: &ZoneReport,
        zones: &[Zone],
        extension: impl Fn(u32) -> &'a [u8],
    ) -> Vec<u8> {
        let is_wanted = |zone: &Zone| report.state.is_none_or(|state| zone.state == state);
        let numbered = zones.iter().enumerate().skip(report.first as usize);
        let extension_bytes = if report.is_extended { shape.extension_bytes as usize } else { 0 };
        let room = (report.bytes as usize - size_of::<ReportHead>()) / (size_of::<ZoneDescriptor>() + extension_bytes);
        let mut data = ReportHead::new_zeroed().as_bytes().to_vec();
        let mut count = 0_usize;
        for (number, zone) in numbered.filter(|(_, zone)| is_wanted(zone)) {
            if count < room {
                data.extend_from_slice(ZoneDescriptor::of(shape, number as u32, *zone).as_bytes());
                if report.is_extended {
                    data.extend_from_slice(extension(number as u32));
                }
            } else if report.is_partial {
                break;
            }
            count += 1;
        }
        data[..8].copy_from_slice(&(count as u64).to_le_bytes());
        data
    }

    /// How a command ends that the drive does not carry out. The error log names the block at fault; of a write in the wrong place, the
    /// write pointer.
    #[must_use]
    pub fn zone_failure(&self, error: &ZoneError) -> Refusal {
        let block = match (error, self.kind) {
            (ZoneError::InvalidWrite { zone, expected, .. }, NamespaceKind::Zoned(shape)) => {
                Some(u64::from(*zone) * shape.size + u64::from(*expected))
            }
            (ZoneError::Io(error), _) => error.block(),
            _ => None,
        };
        Refusal { block, ..refusal_of(error) }
    }
}

/// How a command ends that the drive does not carry out.
#[must_use]
pub fn refusal_of(error: &ZoneError) -> Refusal {
    match error {
        ZoneError::Boundary { .. } => Status::ZONE_BOUNDARY.into(),
        ZoneError::Full { .. } => Status::ZONE_FULL.into(),
        ZoneError::ReadOnly { .. } => Status::ZONE_READ_ONLY.into(),
        ZoneError::Offline { .. } => Status::ZONE_OFFLINE.into(),
        ZoneError::InvalidWrite { .. } => Status::ZONE_INVALID_WRITE.into(),
        ZoneError::TooManyActive { .. } => Status::TOO_MANY_ACTIVE_ZONES.into(),
        ZoneError::TooManyOpen { .. } => Status::TOO_MANY_OPEN_ZONES.into(),
        ZoneError::InvalidTransition { .. } | ZoneError::NotEmpty { .. } => Status::ZONE_INVALID_TRANSITION.into(),
        ZoneError::WindowOfWritten { .. } | ZoneError::NoWindow { .. } | ZoneError::AppendToWindow { .. } => {
            Status::INVALID_ZONE_OPERATION.into()
        }
        ZoneError::TooManyWindows { .. } => Status::ZRWA_UNAVAILABLE.into(),
        ZoneError::OutsideWindow { .. } => Status::INVALID_FIELD.at(40),
        ZoneError::NoWindows => Status::INVALID_FIELD.at(53).bit(1),
        ZoneError::NoExtension => Status::INVALID_FIELD.at(52),
        ZoneError::NotAZone { .. } => Status::INVALID_FIELD.at(40),
        ZoneError::OutOfRange { .. } => Status::LBA_OUT_OF_RANGE.at(40),
        ZoneError::Length { .. } => Status::INVALID_FIELD.at(48),
        ZoneError::DriveReadOnly(_) => Status::WRITE_TO_READ_ONLY.into(),
        ZoneError::Io(error) => Status::from(*error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: ZonedShape = ZonedShape {
        zones: 5,
        size: 16,
        capacity: 12,
        max_open: 2,
        max_active: 3,
        extension_bytes: 128,
        window_blocks: 0,
    };

    fn namespace() -> Namespace {
        Namespace { id: 1, uuid: [1; 16], kind: NamespaceKind::Zoned(SHAPE) }
    }

    fn zones() -> Vec<Zone> {
        let states = [
            (ZoneState::Full, 12),
            (ZoneState::Closed, 3),
            (ZoneState::Empty, 0),
            (ZoneState::Closed, 5),
            (ZoneState::ReadOnly, 7),
        ];
        states.into_iter().map(|(state, written)| Zone { state, written, ..Zone::default() }).collect()
    }

    #[track_caller]
    fn check(report: ZoneReport, count: u64, listed: &[(u64, ZoneState, u64)]) {
        let data = namespace().zone_report(&SHAPE, &report, &zones(), |_| unreachable!("the report is not extended"));
        let (head, _) = ReportHead::ref_from_prefix(&data).unwrap();
        assert_eq!(head.zones.get(), count);
        let said: Vec<_> = ZoneDescriptor::listed(&data)
            .iter()
            .map(|zone| (zone.first.get(), zone.zone_state().unwrap(), zone.write_pointer.get()))
            .collect();
        assert_eq!(said, listed);
    }

    #[test]
    fn a_report_counts_what_matches_and_lists_what_fits() {
        let all = ZoneReport { first: 0, state: None, is_partial: false, is_extended: false, bytes: 64 * 6 };
        let no = ZoneDescriptor::NO_WRITE_POINTER;
        let (full, closed) = ((0, ZoneState::Full, no), (16, ZoneState::Closed, 19));
        let (empty, second, lost) =
            ((32, ZoneState::Empty, 32), (48, ZoneState::Closed, 53), (64, ZoneState::ReadOnly, 71));
        check(all, 5, &[full, closed, empty, second, lost]);
        check(ZoneReport { bytes: 64 * 3 + 60, ..all }, 5, &[full, closed]);
        check(ZoneReport { bytes: 64 * 3, is_partial: true, ..all }, 2, &[full, closed]);
        check(ZoneReport { bytes: 64, ..all }, 5, &[]);
        check(ZoneReport { first: 2, state: Some(ZoneState::Closed), ..all }, 1, &[second]);
        check(ZoneReport { state: Some(ZoneState::Offline), ..all }, 0, &[]);
    }

    #[test]
    fn an_extended_report_has_the_extension_of_each_zone_behind_its_descriptor() {
        let mut zones = zones();
        zones[3].has_extension = true;
        let extensions: Vec<Vec<u8>> = (0..5).map(|zone| vec![if zone == 3 { 9 } else { 0 }; 128]).collect();
        let make = |report: ZoneReport| {
            let data = namespace().zone_report(&SHAPE, &report, &zones, |zone| &extensions[zone as usize]);
            assert!(data.len() <= report.bytes as usize);
            let (head, rest) = ReportHead::ref_from_prefix(&data).unwrap();
            let listed = rest.chunks_exact(64 + 128).map(|entry| {
                let descriptor = ZoneDescriptor::ref_from_bytes(&entry[..64]).unwrap();
                assert!(entry[64..].iter().all(|byte| *byte == entry[64]));
                (descriptor.first.get(), descriptor.attributes, entry[64])
            });
            (head.zones.get(), listed.collect::<Vec<_>>())
        };
        let (bytes, state) = (64 + 3 * 192, Some(ZoneState::Closed));
        let report = ZoneReport { first: 1, state: None, is_partial: false, is_extended: true, bytes };
        assert_eq!(make(report), (4, vec![(16, 0, 0), (32, 0, 0), (48, 0x80, 9)]));
        let partial = ZoneReport { bytes: bytes - 1, is_partial: true, ..report };
        assert_eq!(make(partial), (2, vec![(16, 0, 0), (32, 0, 0)]));
        assert_eq!(make(ZoneReport { state, ..report }), (2, vec![(16, 0, 0), (48, 0x80, 9)]));
    }

    #[test]
    fn a_descriptor_says_what_the_drive_recommends() {
        let attributes = |state| {
            let zone = Zone { state, is_weak: true, ..Zone::default() };
            ZoneDescriptor::of(&SHAPE, 0, zone).attributes
        };
        assert_eq!(attributes(ZoneState::Full), 0b100);
        assert_eq!([ZoneState::Closed, ZoneState::ImplicitlyOpen].map(attributes), [0b010; 2]);
        assert_eq!([ZoneState::Empty, ZoneState::ReadOnly, ZoneState::Offline].map(attributes), [0; 3]);
    }

    #[test]
    fn a_write_in_the_wrong_place_is_told_the_write_pointer() {
        let refused = namespace().zone_failure(&ZoneError::InvalidWrite { zone: 2, at: 5, expected: 3 });
        assert_eq!((refused.status, refused.block), (Status::ZONE_INVALID_WRITE, Some(35)));
    }
}
