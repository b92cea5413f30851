//! The completion of a command tells the host how the command ended, behind the data that the host reads.

use openftl_bytes::RequestId;
use openftl_core::BLOCK_BYTES;
use openftl_nvme::command::open_channel::{VectorAction, VectorCommand};
use openftl_nvme::command::pages::PagePart;
use openftl_nvme::command::{PageCommand, Refusal, ValueCommand, ZoneCommand};
use openftl_nvme::{Answer, CompletionEntry, Io, IoCommand, Status, SubmissionEntry};
use openftl_nvme_tcp::sgl::Data;
use openftl_nvme_tcp::target::{Ending, Slot};
use openftl_zones::Action;
use tracing::trace;
use zerocopy::IntoBytes;

use super::{Last, NvmeConnection, Turn};
use crate::link::Over;
use crate::parting::Parting;
use crate::transfer::ZEROES;
use crate::{Counters, ServedDrive};

impl NvmeConnection {
    /// Ends a command that was taken with an error, which the error log keeps.
    pub(super) fn refuse<T: ServedDrive>(
        &mut self,
        slot: Slot,
        refusal: Refusal,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let entry = self.commands[slot.index()].as_ref().expect("it is under way").entry;
        let queue = self.queue.as_ref().expect("there is a queue");
        let answer = turn.fabric.target.failed(queue, SubmissionEntry::of(&entry), refusal);
        self.finish(slot, answer, turn)
    }

    /// Puts the data of a read in line, straight from their frames, and its completion.
    pub(super) fn send_read<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        id: RequestId,
        answer: Answer,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].take().expect("it is under way");
        self.unbook(&command, turn.fabric);
        let served = &turn.served[export];
        let length = served.length(id);
        trace!(target: "nvme", connection = self.link.number, io = ?command.io, status = %answer.status, "command ended");
        count(turn.counters, command.io.as_ref(), answer.status, length);
        let queue = self.queue.as_mut().expect("there is a queue");
        let completion = queue.complete(command.id(), answer);
        let is_plain = answer == Answer::from(Status::SUCCESS);
        let ending = if is_plain && self.session.may_omit_response() { Ending::LastAndSuccess } else { Ending::Last };
        let output = &mut self.link.output;
        let digest = self.session.send_data(slot, length as u32, ending, &mut output.small);
        output.push_read(export, id, length);
        if let Some(mut digest) = digest {
            let mut from = 0;
            while from < length {
                let slice = served.slice(id, from);
                digest.update(slice);
                from += slice.len() as u64;
            }
            output.small.extend_from_slice(&digest.bytes());
        }
        if ending == Ending::Last {
            self.session.complete(slot, completion_bytes(&completion), &mut output.small);
        }
        output.seal();
        Ok(())
    }

    pub(super) fn finish<T: ServedDrive>(
        &mut self,
        slot: Slot,
        answer: Answer,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        self.finish_with(slot, answer, &[], turn)
    }

    /// Ends a command, with data for the host where it has some.
    pub(super) fn finish_with<T: ServedDrive>(
        &mut self,
        slot: Slot,
        answer: Answer,
        data: &[u8],
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        self.finish_padded(slot, answer, data, data.len(), turn)
    }

    /// The same, with zeroes behind the data, `bytes` in all.
    pub(super) fn finish_padded<T: ServedDrive>(
        &mut self,
        slot: Slot,
        answer: Answer,
        data: &[u8],
        bytes: usize,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].take().expect("it is under way");
        self.unbook(&command, turn.fabric);
        if self.last == Last::First(slot) {
            self.last = Last::FailedFirst;
        }
        if self.session.is_terminated() {
            return Ok(());
        }
        let Some(queue) = &mut self.queue else {
            // Before Connect: nothing but Connect is served.
            let completion = CompletionEntry {
                command_id: command.entry().command_id,
                status: (answer.status.field() << 1).into(),
                ..CompletionEntry::default()
            };
            self.send_completion(slot, &completion);
            self.link.close_because(Parting::Connect(answer.status));
            return Ok(());
        };
        trace!(target: "nvme", connection = self.link.number, io = ?command.io, status = %answer.status, "command ended");
        count(turn.counters, command.io.as_ref(), answer.status, 0);
        let completion = queue.complete(command.id(), answer);
        let output = &mut self.link.output;
        if let Data::ToHost(most) = command.data
            && answer.status.is_success()
            && bytes > 0
        {
            let bytes = bytes.min(most as usize);
            let data = &data[..data.len().min(bytes)];
            let digest = self.session.send_data(slot, bytes as u32, Ending::Last, &mut output.small);
            output.small.extend_from_slice(data);
            let zeroes = bytes - data.len();
            if zeroes > 0 {
                output.push_zeroes(zeroes as u64);
            }
            if let Some(mut digest) = digest {
                digest.update(data);
                (0..zeroes)
                    .step_by(ZEROES.len())
                    .for_each(|at| digest.update(&ZEROES[..ZEROES.len().min(zeroes - at)]));
                output.small.extend_from_slice(&digest.bytes());
            }
        }
        self.session.complete(slot, completion_bytes(&completion), &mut output.small);
        output.seal();
        match command.partner {
            Some(partner) => self.abort_half(partner, Status::FAILED_FUSED, turn),
            None => Ok(()),
        }
    }

    pub(super) fn send_completion(&mut self, slot: Slot, completion: &CompletionEntry) {
        self.commands[slot.index()] = None;
        self.session.complete(slot, completion_bytes(completion), &mut self.link.output.small);
        self.link.output.seal();
    }
}

fn completion_bytes(completion: &CompletionEntry) -> &[u8; 16] {
    completion.as_bytes().try_into().expect("a completion has 16 bytes")
}

/// Counts a command of an I/O queue that is answered; a read brought `bytes`.
fn count(counters: &Counters, io: Option<&Io>, status: Status, bytes: u64) {
    let Some(Io { command, .. }) = io else { return };
    let (counter, moved) = match command {
        IoCommand::Read(_) | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Read, .. }) => {
            (&counters.reads, Some((&counters.bytes_read, bytes)))
        }
        IoCommand::Page(PageCommand::Read { .. }) => (&counters.reads, Some((&counters.bytes_read, bytes))),
        IoCommand::Page(PageCommand::Write(PagePart { bytes, .. })) => {
            (&counters.writes, Some((&counters.bytes_written, u64::from(*bytes))))
        }
        IoCommand::Value(ValueCommand::Retrieve { .. }) => (&counters.reads, Some((&counters.bytes_read, bytes))),
        IoCommand::Value(ValueCommand::Store { bytes, .. }) => {
            (&counters.writes, Some((&counters.bytes_written, u64::from(*bytes))))
        }
        IoCommand::Value(ValueCommand::Delete { .. }) => (&counters.trims, None),
        IoCommand::Compare(_) | IoCommand::Verify(_) => (&counters.reads, None),
        IoCommand::Write { span, .. } | IoCommand::Zone(ZoneCommand::Append { span, .. }) => {
            (&counters.writes, Some((&counters.bytes_written, span.length)))
        }
        IoCommand::OpenChannel(VectorCommand { action: VectorAction::Write, blocks, .. }) => {
            (&counters.writes, Some((&counters.bytes_written, u64::from(*blocks) * BLOCK_BYTES as u64)))
        }
        IoCommand::WriteUncorrectable { .. }
        | IoCommand::Copy { .. }
        | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Copy, .. }) => (&counters.writes, None),
        IoCommand::Zero { .. } | IoCommand::DatasetManagement { .. } => (&counters.trims, None),
        IoCommand::OpenChannel(VectorCommand { action: VectorAction::Reset, .. })
        | IoCommand::Zone(
            ZoneCommand::Act { action: Action::Reset, .. } | ZoneCommand::ActOnAll { action: Action::Reset },
        ) => (&counters.trims, None),
        IoCommand::Flush => (&counters.flushes, None),
        IoCommand::HandleStatus { .. }
        | IoCommand::HandleUpdate { .. }
        | IoCommand::FlashAlloc { .. }
        | IoCommand::FlashAllocRange { .. }
        | IoCommand::Zone(_)
        | IoCommand::Page(_)
        | IoCommand::Value(_)
        | IoCommand::Reservation(_)
        | IoCommand::Nothing => {
            if !status.is_success() {
                counters.errors.add(1);
            }
            return;
        }
    };
    counter.add(1);
    match moved {
        _ if !status.is_success() => counters.errors.add(1),
        Some((counter, bytes)) => counter.add(bytes),
        None => {}
    }
}
