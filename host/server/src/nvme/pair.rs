//! The two halves of a fused pair, Compare and Write, find each other, become one exchange, and end together.

use openftl_bytes::{ByteRequest, Finished, RequestId};
use openftl_nvme::{Answer, Half, IoCommand, Span, Status};
use openftl_nvme_tcp::target::Slot;

use super::requests::is_there;
use super::{Last, NvmeConnection, Part, Stage, Turn};
use crate::ServedDrive;
use crate::link::Over;
use crate::ticket::Ticket;

impl NvmeConnection {
    /// Finds the other half of a fused pair. Returns the status of a half that cannot have one.
    pub(super) fn take_place_in_pair<T: ServedDrive>(
        &mut self,
        slot: Slot,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<Option<Status>, Over> {
        let command = self.commands[slot.index()].as_ref().expect("it has just begun");
        let is_io = self.queue.as_ref().is_some_and(|queue| !queue.is_admin()) && !command.entry().is_fabrics();
        let half = if is_io { Half::of(command.entry()).unwrap_or_default() } else { Half::None };
        if half == Half::None && self.last == Last::Whole {
            return Ok(None);
        }
        let last = if half == Half::First { Last::First(slot) } else { Last::Whole };
        match (std::mem::replace(&mut self.last, last), half) {
            (Last::First(first), Half::Second) => {
                for (one, other) in [(first, slot), (slot, first)] {
                    self.commands[one.index()].as_mut().expect("both are under way").partner = Some(other);
                }
            }
            (Last::First(first), _) => self.abort_half(first, Status::MISSING_FUSED, turn)?,
            (Last::FailedFirst, Half::Second) => return Ok(Some(Status::FAILED_FUSED)),
            (Last::Whole, Half::Second) => return Ok(Some(Status::MISSING_FUSED)),
            (Last::Whole | Last::FailedFirst, _) => {}
        }
        Ok(None)
    }

    /// Ends half of a fused pair, at once or when the data that it was asked for have come.
    pub(super) fn abort_half<T: ServedDrive>(
        &mut self,
        slot: Slot,
        status: Status,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let Some(command) = self.commands[slot.index()].as_mut() else { return Ok(()) };
        command.partner = None;
        if let Stage::Collecting(_) = command.stage {
            command.doomed = Some(status);
            return Ok(());
        }
        self.finish(slot, Answer::from(status), turn)
    }

    /// Carries out a fused pair, when both halves have their data.
    pub(super) fn run_pair<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("its data came");
        let Some(partner) = command.partner else { return Ok(()) };
        let other = self.commands[partner.index()].as_ref().expect("a partner is under way");
        if !matches!(other.stage, Stage::Paired) {
            return Ok(());
        }
        let is_first = command.io.is_some_and(|io| io.half == Half::First);
        let (first, second) = if is_first { (slot, partner) } else { (partner, slot) };
        let io = |slot: Slot| self.commands[slot.index()].as_ref().and_then(|command| command.io);
        let (Some(of_first), Some(of_second)) = (io(first), io(second)) else { unreachable!("both were parsed") };
        let IoCommand::Write { span, durability, handle } = of_second.command else { unreachable!("it was checked") };
        if of_first.command != IoCommand::Compare(span) || of_first.namespace != of_second.namespace {
            return self.refuse(first, Status::INVALID_FIELD.at(40), turn);
        }
        let Span { offset, length } = span;
        let exchange = Part::Bytes(ByteRequest::Exchange { offset, length, durability, handle });
        let command = self.commands[second.index()].as_mut().expect("looked");
        command.next = Some((command.export, exchange));
        self.next_request(second, turn)
    }

    /// The blocks of a fused pair were read: they are compared, and written if they are as the host thinks. Returns whether
    /// they are being written.
    fn exchange<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        id: RequestId,
        turn: &mut Turn<'_, '_, T>,
    ) -> bool {
        let served = &mut turn.served[export];
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let new = std::mem::take(&mut command.heap);
        let first = command.partner.expect("it is a pair");
        let expected = &self.commands[first.index()].as_ref().expect("it waits").heap;
        if !is_there(served, id, expected) {
            return false;
        }
        // A capsule may hold more.
        let new = &new[..new.len().min(served.length(id) as usize)];
        served.fill(id, 0, new);
        turn.counters.bytes_copied.add(new.len() as u64);
        served.write(turn.now, id);
        true
    }

    /// The exchange of a fused pair, which is the second half's, was read or written.
    pub(super) fn pair_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: Finished<Ticket>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let Finished { id, result, .. } = finished;
        let command = self.commands[slot.index()].as_ref().expect("it is under way");
        let io = command.io.expect("an I/O command");
        let (first, held, is_written) = (command.partner.expect("it is a pair"), command.held, command.heap.is_empty());
        let is_shown = turn.served[export].is_shown(id);
        if is_shown && self.exchange(slot, export, id, turn) {
            return Ok(());
        }
        let served = &mut turn.served[export];
        let failure = result.err().map(|error| match turn.fabric.find_namespace(io.namespace) {
            Some(namespace) => namespace.failure(error, served.offset(id)),
            None => Status::from(error).into(),
        });
        served.release(id);
        self.requests -= 1;
        self.bytes -= held;
        match failure {
            // What fails the first half ends the second with it.
            None if is_shown => return self.refuse(first, Status::COMPARE_FAILURE.into(), turn),
            Some(refusal) if !is_written => return self.refuse(first, refusal, turn),
            _ => {}
        }
        for half in [first, slot] {
            self.commands[half.index()].as_mut().expect("both are under way").partner = None;
        }
        self.finish(first, Answer::from(Status::SUCCESS), turn)?;
        match failure {
            None => self.finish(slot, Answer::from(Status::SUCCESS), turn),
            Some(refusal) => self.refuse(slot, refusal, turn),
        }
    }
}
