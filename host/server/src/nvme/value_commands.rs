//! How commands of key-value drives end.

use openftl_nvme::command::ValueCommand;
use openftl_nvme::{Answer, IoCommand};
use openftl_nvme_tcp::target::Slot;

use super::{NvmeConnection, Turn};
use crate::ServedDrive;
use crate::link::Over;
use crate::value_request::{ValueFinished, answer_of};

impl NvmeConnection {
    /// A request of a key-value drive has ended.
    pub(super) fn value_request_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: ValueFinished,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let ValueFinished { id, outcome, .. } = finished;
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let answer = match command.io.expect("an I/O command").command {
            IoCommand::Value(command) => answer_of(&command, outcome).map(|result| (Some(command), result)),
            // A flush.
            _ => outcome.map(|_| (None, 0)).map_err(openftl_nvme::command::values::refusal_of),
        };
        let served = &mut turn.served[export];
        if let (Ok((Some(ValueCommand::Retrieve { bytes: 1.., .. } | ValueCommand::List { .. }), result)), 1.., false) =
            (&answer, served.length(id), self.session.is_terminated())
        {
            // What is sent may be less than what there was room for.
            self.bytes -= command.held - served.length(id);
            return self.send_read(slot, export, id, Answer::of(*result), turn);
        }
        served.release(id);
        self.requests -= 1;
        self.bytes -= command.held;
        match answer {
            Ok((Some(_), result)) => self.finish(slot, Answer::of(result), turn),
            Ok((None, _)) => self.next_request(slot, turn),
            Err(refusal) => self.refuse(slot, refusal, turn),
        }
    }
}
