//! Admission gives a command the place and the frames of its next request. A command that gets none waits in line.

use openftl_bytes::{ByteRequest, RequestId};
use openftl_core::BLOCK_BYTES;
use openftl_nvme::command::open_channel::{VectorAction, VectorCommand};
use openftl_nvme::command::pages::PagePart;
use openftl_nvme::command::{PageCommand, ValueCommand, ZoneCommand};
use openftl_nvme::{Answer, IoCommand, Span, Status};
use openftl_nvme_tcp::sgl::Data;
use openftl_nvme_tcp::target::Slot;

use super::{Command, NvmeConnection, Part, Stage, Turn};
use crate::ServedDrive;
use crate::accounts::Claim;
use crate::device_request::{Lists, device_request};
use crate::link::{DIRECT_BYTES_MIN, Over};
use crate::page_request::page_ask;
use crate::ticket::{Ticket, What};
use crate::value_request::value_ask;
use crate::zone_request::zone_request;

impl NvmeConnection {
    /// Gives a command the place and the frames of its next request. Or it waits for them: behind those of this connection
    /// that came before, and for frames behind those of others.
    pub(super) fn admit<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        part: Part,
        turn: &mut Turn<'_, '_, T>,
    ) -> Option<RequestId> {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let payload = payload_bytes(part, &command.io.expect("an I/O command").command);
        let served = &mut turn.served[export];
        let is_first = self.waiting.front().is_none_or(|front| *front == slot);
        let bytes_max = turn.config.bytes_max.min(served.share_bytes);
        let has_its_share =
            self.requests > 0 && (self.requests >= turn.config.requests_max || self.bytes + payload > bytes_max);
        // A host that is slow to send data is asked for no more of them before it has sent those.
        let asks_for_more = match (&command.stage, command.data) {
            (Stage::Parked { is_whole, .. }, Data::OnRequest(_)) => !is_whole,
            (Stage::Running, Data::OnRequest(_)) => is_write(part, command),
            _ => false,
        };
        // A host that does not take what is sent to it gets nothing more to hold, and nobody waits behind it.
        if has_its_share || self.link.is_stuck() || (self.aside > 0 && asks_for_more) {
            served.stop_waiting(turn.slot);
        } else if is_first {
            let ticket = Ticket { slot: turn.slot, generation: turn.generation, what: What::Nvme(slot) };
            let claim = Claim { requests: self.requests, bytes: self.bytes, payload };
            let admitted = match part {
                Part::Bytes(request) if served.is_drive() => served.admit(ticket, claim, request),
                part if served.is_zoned() => served.admit_zoned(ticket, claim, zone_request(command, part)),
                part if served.is_values() => {
                    served.admit_value(ticket, claim, |drive| value_ask(command, part, drive))
                }
                part if served.is_store() => {
                    let owner = self.queue.as_ref().expect("there is a queue").controller();
                    served.admit_page(ticket, claim, page_ask(owner, command, part))
                }
                part => served.admit_command(ticket, claim, device_request(command, part, &mut Lists::default())),
            };
            if let Some(id) = admitted {
                command.held = if payload > 0 { served.length(id) } else { 0 };
                self.requests += 1;
                self.bytes += command.held;
                return Some(id);
            }
        }
        if self.waiting.front() != Some(&slot) {
            self.waiting.push_back(slot);
        }
        None
    }

    /// Gives a write its frames, if there are any, and has its data come.
    pub(super) fn admit_write<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> bool {
        let command = self.commands[slot.index()].as_ref().expect("it is under way");
        let export = command.export;
        let part = match command.io.expect("an I/O command").command {
            IoCommand::Write { span: Span { offset, length }, durability, handle }
                if turn.served[export].is_drive() =>
            {
                Part::Bytes(ByteRequest::Write { offset, length, durability, handle })
            }
            _ => Part::Whole,
        };
        let Some(id) = self.admit(slot, export, part, turn) else { return false };
        let served = &mut turn.served[export];
        if served.is_written_in_order() {
            self.line.push_back(slot);
        }
        let mut command = self.commands[slot.index()].take().expect("it is under way");
        self.came_back(&command);
        command.is_aside = false;
        let kept = command.heap.capacity();
        let mut is_whole = false;
        if let Stage::Parked { data, is_whole: whole, .. } = std::mem::replace(&mut command.stage, Stage::Filling(id)) {
            let wanted = data.len().min(served.length(id) as usize);
            served.fill(id, 0, &data[..wanted]);
            turn.counters.bytes_copied.add(wanted as u64);
            (is_whole, command.filled) = (whole, wanted as u32);
        }
        self.filling += 1;
        let command = self.commands[slot.index()].insert(command);
        if is_whole {
            self.filled(slot, id, turn);
        } else if let Data::OnRequest(_) = command.data {
            let length = served.length(id);
            self.is_long_expected =
                length >= DIRECT_BYTES_MIN && !served.is_device() && !turn.config.copies_long_writes;
            self.session.request(slot, length as u32, &mut self.link.output.small);
            self.link.output.seal();
        }
        self.book(slot, kept, turn);
        true
    }

    /// All the data of a write are in its frames.
    pub(super) fn filled<T: ServedDrive>(&mut self, slot: Slot, id: RequestId, turn: &mut Turn<'_, '_, T>) {
        self.filling -= 1;
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let served = &mut turn.served[command.export];
        if served.is_written_in_order() {
            command.stage = Stage::Ready(id);
            self.advance_line(turn);
        } else {
            command.stage = Stage::Running;
            served.start(turn.now, id);
        }
    }

    /// Keeps the data of the capsule of a write that waits for frames.
    pub(super) fn park<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("it is under way");
        let bytes = if let Data::InCapsule(bytes) = command.data { bytes as usize } else { 0 };
        if !self.book(slot, bytes + command.heap.capacity(), turn) {
            self.leave_line(slot, turn);
            return self.finish(slot, Answer::from(Status::NAMESPACE_NOT_READY), turn);
        }
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let is_in_line = self.waiting.back() == Some(&slot);
        command.stage = Stage::Parked { data: Vec::with_capacity(bytes), is_whole: false, is_in_line };
        Ok(())
    }

    /// A command waits no more. If others of this connection do, they line up again, perhaps for another drive.
    pub(super) fn leave_line<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) {
        self.waiting.retain(|other| *other != slot);
        turn.served.iter_mut().for_each(|served| served.stop_waiting(turn.slot));
    }

    /// Tries those again that wait for frames, in order.
    pub(super) fn admit_waiting<T: ServedDrive>(&mut self, turn: &mut Turn<'_, '_, T>) {
        while let Some(slot) = self.waiting.front().copied() {
            let command = self.commands[slot.index()].as_ref().expect("it waits");
            let is_made = match command.stage {
                Stage::Parked { .. } => self.admit_write(slot, turn),
                _ => self.make_request(slot, turn),
            };
            if !is_made {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

/// Whether a request is the write that a host sends data for.
fn is_write(part: Part, command: &Command) -> bool {
    match (part, command.io.expect("an I/O command").command) {
        (Part::Bytes(ByteRequest::Write { .. }), IoCommand::Write { .. }) => true,
        (Part::Whole, io) => matches!(
            io,
            IoCommand::Write { .. }
                | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Write, .. })
                | IoCommand::Zone(ZoneCommand::Append { .. } | ZoneCommand::Extend { .. })
                | IoCommand::Page(PageCommand::Write(PagePart { bytes: 1.., .. }))
                | IoCommand::Value(ValueCommand::Store { bytes: 1.., .. })
        ),
        _ => false,
    }
}

/// Bytes of frames that a request holds, more or less.
fn payload_bytes(part: Part, command: &IoCommand) -> u64 {
    match (part, command) {
        (
            Part::Bytes(
                ByteRequest::Read { length, .. }
                | ByteRequest::Write { length, .. }
                | ByteRequest::Exchange { length, .. }
                | ByteRequest::WriteUncorrectable { length, .. },
            ),
            _,
        ) => length,
        (Part::Whole, IoCommand::Write { span, .. } | IoCommand::Zone(ZoneCommand::Append { span, .. })) => span.length,
        (Part::Whole, IoCommand::Zone(ZoneCommand::Extend { bytes, .. })) => u64::from(*bytes),
        (
            Part::Whole,
            IoCommand::Page(
                PageCommand::Write(PagePart { bytes, .. })
                | PageCommand::Read { bytes, .. }
                | PageCommand::List { bytes, .. },
            ),
        ) => u64::from(*bytes),
        (
            Part::Whole,
            IoCommand::Value(
                ValueCommand::Store { bytes, .. }
                | ValueCommand::Retrieve { bytes, .. }
                | ValueCommand::List { bytes, .. },
            ),
        ) => u64::from(*bytes),
        (Part::Whole, IoCommand::OpenChannel(vector)) => match vector.action {
            VectorAction::Read | VectorAction::Write => u64::from(vector.blocks) * BLOCK_BYTES as u64,
            VectorAction::Reset | VectorAction::Copy => 0,
        },
        _ => 0,
    }
}
