//! The requests of a command go to what is served one after the other. The end of each starts the next, or ends the command.

use openftl_bytes::device::DeviceFinished;
use openftl_bytes::zones::ZoneFinished;
use openftl_bytes::{ByteRequest, Finished, RequestId};
use openftl_nvme::command::PageCommand;
use openftl_nvme::command::open_channel::{VectorAction, VectorCommand, answer_of};
use openftl_nvme::command::zoned::refusal_of;
use openftl_nvme::{Answer, Half, IoCommand, Status};
use openftl_nvme_tcp::target::Slot;
use openftl_zones::ZoneError;

use super::{NvmeConnection, Part, Stage, Turn};
use crate::ServedDrive;
use crate::ended::Ended;
use crate::link::Over;
use crate::served::Served;
use crate::ticket::Ticket;

impl NvmeConnection {
    /// Starts a command that asks for several things, the first one last, and keeps `bytes` in the heap meanwhile.
    pub(super) fn start_all<T: ServedDrive>(
        &mut self,
        slot: Slot,
        left: Vec<(usize, Part)>,
        bytes: usize,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        if !self.book(slot, bytes + left.capacity() * size_of::<(usize, Part)>(), turn) {
            return self.finish(slot, Answer::from(Status::NAMESPACE_NOT_READY), turn);
        }
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        command.stage = Stage::Running;
        command.left = left;
        command.next = command.left.pop();
        self.next_request(slot, turn)
    }

    /// Makes the next request of a command to its drive, or ends it.
    pub(super) fn next_request<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("it is under way");
        if command.next.is_none() {
            let status = command.doomed.unwrap_or(Status::SUCCESS);
            return self.finish(slot, Answer::from(status), turn);
        }
        self.make_request(slot, turn);
        Ok(())
    }

    /// Makes the next request of a command to its drive. False if it has to wait.
    pub(super) fn make_request<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> bool {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        command.stage = Stage::Running;
        let (export, part) = command.next.expect("there is one");
        let Some(id) = self.admit(slot, export, part, turn) else { return false };
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let served = &mut turn.served[export];
        command.export = export;
        command.next = command.left.pop();
        let is_copy = matches!(command.io.expect("an I/O command").command, IoCommand::Copy { .. });
        if let (Part::Bytes(ByteRequest::Write { .. }), true) = (part, is_copy) {
            let heap = std::mem::take(&mut command.heap);
            served.fill(id, 0, &heap);
            turn.counters.bytes_copied.add(heap.len() as u64);
        }
        if let Part::Bytes(ByteRequest::FlashAlloc) = part {
            served.set_extents(id, &command.extents);
        }
        let is_in_order = matches!(
            command.io.expect("an I/O command").command,
            IoCommand::Zone(_) | IoCommand::Page(PageCommand::Write(_))
        );
        if served.is_device() || is_in_order {
            command.stage = Stage::Ready(id);
            self.line.push_back(slot);
            self.advance_line(turn);
        } else {
            served.start(turn.now, id);
        }
        true
    }

    /// Starts the commands of devices that have all they need, up to the first that has not.
    pub(super) fn advance_line<T: ServedDrive>(&mut self, turn: &mut Turn<'_, '_, T>) {
        while let Some(slot) = self.line.front() {
            let command = self.commands[slot.index()].as_mut().expect("it is in line");
            let Stage::Ready(id) = command.stage else { return };
            command.stage = Stage::Running;
            turn.served[command.export].start(turn.now, id);
            self.line.pop_front();
        }
    }

    /// A request of a drive or a command of a device has ended.
    pub fn ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        ended: Ended,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        match ended {
            Ended::Request(finished) => self.request_ended(slot, export, finished, turn),
            Ended::Command(finished) => self.command_ended(slot, export, finished, turn),
            Ended::Zone(finished) => self.zone_request_ended(slot, export, finished, turn),
            Ended::Page(finished) => self.page_request_ended(slot, export, finished, turn),
            Ended::Value(finished) => self.value_request_ended(slot, export, finished, turn),
        }
    }

    fn zone_request_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: ZoneFinished<Ticket>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let ZoneFinished { id, result, address, .. } = finished;
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let io = command.io.expect("an I/O command");
        // A flush of all namespaces names none.
        let refusal = |error: ZoneError| match turn.fabric.find_namespace(io.namespace) {
            Some(namespace) => namespace.zone_failure(&error),
            None => refusal_of(&error),
        };
        let mut result = result.map_err(refusal);
        let served = &mut turn.served[export];
        match io.command {
            IoCommand::Read(_) if result.is_ok() && !self.session.is_terminated() => {
                return self.send_read(slot, export, id, Answer::from(Status::SUCCESS), turn);
            }
            IoCommand::Compare(_) if result.is_ok() && !is_there(served, id, &command.heap) => {
                result = Err(Status::COMPARE_FAILURE.into());
            }
            _ => {}
        }
        served.release(id);
        self.requests -= 1;
        self.bytes -= command.held;
        match (result, address) {
            (Ok(()), Some(address)) => self.finish(slot, Answer::of(address), turn),
            (Ok(()), None) => self.next_request(slot, turn),
            (Err(refusal), _) => self.refuse(slot, refusal, turn),
        }
    }

    fn command_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: DeviceFinished<Ticket>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        use openftl_media::Status::{InvalidField, LbaOutOfRange, Success};
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let answer = answer_of(&finished.completion);
        let status = finished.completion.status;
        turn.fabric.is_restless |= status != Success;
        let is_read = matches!(
            command.io.expect("an I/O command").command,
            IoCommand::Read(_) | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Read, .. })
        );
        // Whatever became of some of the blocks, the host learns it from the bitmap; the others it gets.
        if is_read && !matches!(status, InvalidField | LbaOutOfRange) && !self.session.is_terminated() {
            return self.send_read(slot, export, finished.id, answer, turn);
        }
        turn.served[export].release(finished.id);
        self.requests -= 1;
        self.bytes -= command.held;
        if status == Success { self.next_request(slot, turn) } else { self.finish(slot, answer, turn) }
    }

    fn request_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: Finished<Ticket>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let id = finished.id;
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let io = command.io.expect("an I/O command");
        if io.half == Half::Second {
            return self.pair_ended(slot, export, finished, turn);
        }
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let served = &mut turn.served[export];
        let mut result = finished.result.map_err(|error| match turn.fabric.find_namespace(io.namespace) {
            Some(namespace) => namespace.failure(error, served.offset(id)),
            None => Status::from(error).into(),
        });
        match io.command {
            IoCommand::Read(_) if result.is_ok() && !self.session.is_terminated() => {
                return self.send_read(slot, export, id, Answer::from(Status::SUCCESS), turn);
            }
            IoCommand::Compare(_) if result.is_ok() && !is_there(served, id, &command.heap) => {
                result = Err(Status::COMPARE_FAILURE.into());
            }
            IoCommand::Copy { .. } if result.is_ok() && command.next.is_some() => {
                // A source was read; the destination is written last.
                let (mut from, length) = (0, served.length(id));
                while from < length {
                    let slice = served.slice(id, from);
                    command.heap.extend_from_slice(slice);
                    turn.counters.bytes_copied.add(slice.len() as u64);
                    from += slice.len() as u64;
                }
            }
            _ => {}
        }
        served.release(id);
        self.requests -= 1;
        self.bytes -= command.held;
        match result {
            Ok(()) => self.next_request(slot, turn),
            Err(refusal) => self.refuse(slot, refusal, turn),
        }
    }
}

/// Whether what was read begins with `bytes`, as many as the request has.
pub(super) fn is_there<T: ServedDrive>(served: &Served<'_, T>, id: RequestId, bytes: &[u8]) -> bool {
    let (mut from, length) = (0, served.length(id));
    while from < length {
        let there = served.slice(id, from);
        if bytes.get(from as usize..from as usize + there.len()) != Some(there) {
            return false;
        }
        from += there.len() as u64;
    }
    true
}
