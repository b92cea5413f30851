//! I/O commands become requests of what is served: some at once, others when their data have come into the heap.

use openftl_bytes::ByteRequest;
use openftl_nvme::command::open_channel::{VectorAction, VectorCommand};
use openftl_nvme::command::pages::PagePart;
use openftl_nvme::command::{PageCommand, ReservationCommand, ValueCommand, ZoneCommand, ZoneReport};
use openftl_nvme::namespace::ALL_NAMESPACES;
use openftl_nvme::{Answer, Half, Io, IoCommand, NamespaceKind, Span, Status};
use openftl_nvme_tcp::sgl::Data;
use openftl_nvme_tcp::target::Slot;
use openftl_pages::SessionId;
use openftl_parts::target::{BlockTarget, Durability, Extent};

use super::{NvmeConnection, Part, Stage, Turn};
use crate::ServedDrive;
use crate::device_request::Lists;
use crate::link::Over;

/// The most bytes of a drive that one request of a longer command is about: one transaction.
const PIECE_BYTES_MAX: u64 = 1 << 20;

impl NvmeConnection {
    /// Starts an I/O command, or has its data come.
    pub(super) fn start<T: ServedDrive>(&mut self, slot: Slot, io: Io, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let export = turn.fabric.export(io.namespace);
        if let IoCommand::OpenChannel(vector) = io.command {
            let command = self.commands[slot.index()].as_ref().expect("it has just begun");
            if let Err(refusal) = Lists::default().read(&vector, &command.heap) {
                return self.refuse(slot, refusal, turn);
            }
        }
        let request = match io.command {
            IoCommand::Write { span, .. } if io.half == Half::Second => {
                return self.collect(slot, span.length as u32, turn);
            }
            IoCommand::Write { .. }
            | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Write, .. })
            | IoCommand::Zone(ZoneCommand::Append { .. } | ZoneCommand::Extend { .. })
            | IoCommand::Page(PageCommand::Write(PagePart { bytes: 1.., .. }))
            | IoCommand::Value(ValueCommand::Store { bytes: 1.., .. }) => {
                let command = self.commands[slot.index()].as_ref().expect("it has just begun");
                let is_there = match command.data {
                    Data::InCapsule(bytes) => self.link.input().len() >= bytes as usize,
                    _ => true,
                };
                if !is_there || !self.admit_write(slot, turn) {
                    return self.park(slot, turn);
                }
                return Ok(());
            }
            IoCommand::Compare(span) => return self.collect(slot, span.length as u32, turn),
            IoCommand::DatasetManagement { ranges, .. } => return self.collect(slot, u32::from(ranges) * 16, turn),
            IoCommand::Copy { sources, .. } => return self.collect(slot, u32::from(sources) * 32, turn),
            IoCommand::FlashAlloc { ranges } => return self.collect(slot, u32::from(ranges) * 16, turn),
            IoCommand::FlashAllocRange { extent } => {
                let command = self.commands[slot.index()].as_mut().expect("it has just begun");
                command.extents = vec![extent];
                return self.start_all(
                    slot,
                    vec![(export, Part::Bytes(ByteRequest::FlashAlloc))],
                    size_of::<Extent>(),
                    turn,
                );
            }
            IoCommand::Reservation(ReservationCommand::Report { bytes }) => {
                return self.tell_reservation(slot, io.namespace, bytes, turn);
            }
            IoCommand::Reservation(command) => return self.collect(slot, command.sends(), turn),
            IoCommand::HandleUpdate { identifiers } => return self.collect(slot, u32::from(identifiers) * 2, turn),
            IoCommand::HandleStatus { bytes } => return self.tell_handle_status(slot, io, bytes, turn),
            IoCommand::Nothing => return self.finish(slot, Answer::from(Status::SUCCESS), turn),
            IoCommand::Zone(ZoneCommand::Report(report)) => return self.tell_zones(slot, io, &report, turn),
            IoCommand::Page(PageCommand::Open) => {
                return self.collect(slot, size_of::<SessionId>() as u32, turn);
            }
            IoCommand::Page(
                PageCommand::Write(_) | PageCommand::Read { .. } | PageCommand::Stat { .. } | PageCommand::List { .. },
            ) => Part::Whole,
            IoCommand::Page(command) => return self.answer_page_command(slot, command, turn),
            IoCommand::OpenChannel(_) | IoCommand::Zone(_) | IoCommand::Value(_) => Part::Whole,
            IoCommand::Flush if io.namespace == ALL_NAMESPACES => {
                let left = (0..turn.served.len()).map(|export| (export, Part::Bytes(ByteRequest::Flush))).collect();
                return self.start_all(slot, left, 0, turn);
            }
            IoCommand::Flush => Part::Bytes(ByteRequest::Flush),
            IoCommand::Read(Span { offset, length }) => Part::Bytes(ByteRequest::Read { offset, length }),
            IoCommand::Zero { span: Span { offset, length }, durability, .. } => {
                Part::Bytes(ByteRequest::Zero { offset, length, durability })
            }
            IoCommand::Verify(span) => {
                let read = |Span { offset, length }| (export, Part::Bytes(ByteRequest::Read { offset, length }));
                return self.start_all(slot, pieces(span).map(read).collect(), 0, turn);
            }
            IoCommand::WriteUncorrectable { span, durability } => {
                let write = |Span { offset, length }| {
                    (export, Part::Bytes(ByteRequest::WriteUncorrectable { offset, length, durability }))
                };
                return self.start_all(slot, pieces(span).map(write).collect(), 0, turn);
            }
        };
        self.commands[slot.index()].as_mut().expect("it has just begun").next = Some((export, request));
        self.next_request(slot, turn)
    }

    /// "Zone Management Receive command".
    fn tell_zones<T: ServedDrive>(
        &mut self,
        slot: Slot,
        io: Io,
        report: &ZoneReport,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let namespace = turn.fabric.namespace(io.namespace);
        let drive = turn.served[turn.fabric.export(io.namespace)].zones_mut();
        let (Some(drive), NamespaceKind::Zoned(shape)) = (drive, namespace.kind) else {
            unreachable!("only zoned namespaces have reports")
        };
        let drive = &*drive;
        let data = namespace.zone_report(&shape, report, drive.board().zones(), |zone| drive.extension(zone));
        self.finish_padded(slot, Answer::from(Status::SUCCESS), &data, report.bytes as usize, turn)
    }

    /// "Reclaim Unit Handle Status".
    fn tell_handle_status<T: ServedDrive>(
        &mut self,
        slot: Slot,
        io: Io,
        bytes: u32,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let namespace = turn.fabric.namespace(io.namespace);
        let drive = turn.served[turn.fabric.export(io.namespace)].target_mut();
        let data = namespace
            .handle_status(bytes, |handle| drive.as_ref().map_or(0, |drive| BlockTarget::handle_room(*drive, handle)));
        self.finish_with(slot, Answer::from(Status::SUCCESS), &data, turn)
    }

    /// "Reclaim Unit Handle Update".
    fn update_handles<T: ServedDrive>(
        &mut self,
        slot: Slot,
        identifiers: u16,
        data: &[u8],
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("its data came");
        let (export, id) = (command.export, command.io.expect("an I/O command").namespace);
        let handles = match turn.fabric.namespace(id).updated_handles(identifiers, data) {
            Ok(handles) => handles,
            Err(refusal) => return self.refuse(slot, refusal, turn),
        };
        let queue = self.queue.as_ref().expect("there is a queue");
        for handle in handles {
            let Some(drive) = turn.served[export].target_mut() else { continue };
            let has_room = drive.handle_room(handle) > 0;
            if drive.renew_handle(turn.now, handle) && has_room {
                turn.fabric.target.handle_left(turn.now, queue, id, handle);
            }
        }
        self.finish(slot, Answer::from(Status::SUCCESS), turn)
    }

    /// Context attributes of a Dataset Management command that deallocates nothing.
    fn expect_uses<T: ServedDrive>(
        &mut self,
        slot: Slot,
        ranges: u16,
        data: &[u8],
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("its data came");
        let (export, id) = (command.export, command.io.expect("an I/O command").namespace);
        let uses = match turn.fabric.namespace(id).expected_uses(ranges, data) {
            Ok(uses) => uses,
            Err(refusal) => return self.refuse(slot, refusal, turn),
        };
        if let Some(drive) = turn.served[export].target_mut() {
            uses.into_iter().for_each(|(extent, expected)| drive.expect_use(extent, expected));
        }
        self.finish(slot, Answer::from(Status::SUCCESS), turn)
    }

    /// The data of a command are in the heap.
    pub(super) fn collected<T: ServedDrive>(
        &mut self,
        slot: Slot,
        data: Vec<u8>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_mut().expect("its data came");
        let Some(io) = command.io else {
            return if self.queue.is_none() {
                self.connect(slot, Some(&data), turn)
            } else {
                self.command(slot, Some(&data), turn)
            };
        };
        if let Some(status) = command.doomed {
            return self.finish(slot, Answer::from(status), turn);
        }
        if io.half != Half::None {
            (command.heap, command.stage) = (data, Stage::Paired);
            return self.run_pair(slot, turn);
        }
        let (export, namespace) = (command.export, turn.fabric.namespace(io.namespace));
        let bytes = |request| (export, Part::Bytes(request));
        let planned = match io.command {
            IoCommand::OpenChannel(_) => {
                command.heap = data;
                return self.start(slot, io, turn);
            }
            IoCommand::HandleUpdate { identifiers } => return self.update_handles(slot, identifiers, &data, turn),
            IoCommand::Page(_) => return self.open_session(slot, &data, turn),
            IoCommand::Reservation(reservation) => return self.reserve(slot, io.namespace, reservation, &data, turn),
            IoCommand::DatasetManagement { ranges, deallocate: false } => {
                return self.expect_uses(slot, ranges, &data, turn);
            }
            IoCommand::FlashAlloc { ranges } => namespace.object(ranges, &data).map(|extents| {
                let bytes_of_extents = extents.capacity() * size_of::<Extent>();
                command.extents = extents;
                (vec![bytes(ByteRequest::FlashAlloc)], bytes_of_extents)
            }),
            IoCommand::Compare(Span { offset, length }) => {
                command.heap = data;
                command.next = Some(bytes(ByteRequest::Read { offset, length }));
                return self.next_request(slot, turn);
            }
            IoCommand::DatasetManagement { ranges, .. } => namespace.deallocated(ranges, &data).map(|spans| {
                let durability = Durability::Volatile;
                let trim = |Span { offset, length }| bytes(ByteRequest::Trim { offset, length, durability });
                (spans.map(trim).collect::<Vec<_>>(), 0)
            }),
            IoCommand::Copy { first, sources, durability, handle } => {
                namespace.copy_plan(first, sources, &data).map(|plan| {
                    let Span { offset, length } = plan.to;
                    let reads = plan.from().map(|Span { offset, length }| bytes(ByteRequest::Read { offset, length }));
                    let mut left: Vec<_> = reads.collect();
                    left.push(bytes(ByteRequest::Write { offset, length, durability, handle }));
                    left.reverse();
                    (left, length as usize)
                })
            }
            _ => unreachable!("only these have data in the heap"),
        };
        match planned {
            Ok((left, bytes)) => self.start_all(slot, left, bytes, turn),
            Err(refusal) => self.refuse(slot, refusal, turn),
        }
    }
}

/// All of `span` in pieces of one transaction, the first one last.
fn pieces(span: Span) -> impl Iterator<Item = Span> {
    let count = span.length.div_ceil(PIECE_BYTES_MAX);
    let piece = move |index| {
        let offset = span.offset + index * PIECE_BYTES_MAX;
        Span { offset, length: PIECE_BYTES_MAX.min(span.end() - offset) }
    };
    (0..count).rev().map(piece)
}
