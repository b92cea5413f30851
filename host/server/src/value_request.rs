//! Requests of key-value drives: what a command asks of the drive, and how it ends.

use openftl_bytes::objects::{Begun, ObjectAsk, ObjectFinished, ObjectRequests, Sent};
use openftl_core::{Frame, Frames, Time};
use openftl_nvme::IoCommand;
use openftl_nvme::command::values::refusal_of;
use openftl_nvme::command::{Refusal, ValueCommand};
use openftl_values::{Facts, Value, ValueDone, ValueError, ValueFtl, ValueRequest, ValueTarget};

use crate::nvme::{Command, Part};
use crate::ticket::Ticket;

/// How a request of a key-value drive ends.
pub(crate) type ValueOutcome = Result<Facts, ValueError>;

/// The requests under way on one drive.
pub(crate) type ValueRequests = ObjectRequests<Ticket, ValueAsk>;

/// One that has ended.
pub(crate) type ValueFinished = ObjectFinished<Ticket, ValueOutcome>;

/// What a host asks of a key-value drive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueAsk {
    Command(ValueCommand),
    Flush,
}

/// What `part` of `command` asks of a drive. The buffer of a Retrieve has frames for the longest value, and for no more.
pub(crate) fn value_ask(command: &Command, part: Part, drive: &ValueFtl) -> ValueAsk {
    match (part, command.io.expect("an I/O command").command) {
        (Part::Whole, IoCommand::Value(ValueCommand::Retrieve { key, bytes })) => {
            ValueAsk::Command(ValueCommand::Retrieve { key, bytes: bytes.min(drive.info().value_max) })
        }
        (Part::Whole, IoCommand::Value(command)) => ValueAsk::Command(command),
        (Part::Bytes(openftl_bytes::ByteRequest::Flush), _) => ValueAsk::Flush,
        (_, other) => unreachable!("{other:?} is no request of a key-value drive"),
    }
}

/// How a command ends: what its completion says, or why it is refused.
pub(crate) fn answer_of(command: &ValueCommand, outcome: ValueOutcome) -> Result<u64, Refusal> {
    match (command, outcome) {
        (ValueCommand::Delete { needs_key: false, .. }, Err(ValueError::NoKey)) => Ok(0),
        (_, Err(error)) => Err(refusal_of(error)),
        (ValueCommand::Retrieve { .. }, Ok(facts)) => Ok(facts.bytes.into()),
        (_, Ok(_)) => Ok(0),
    }
}

impl ObjectAsk for ValueAsk {
    type Drive = ValueFtl;
    type Context = ();
    type Outcome = ValueOutcome;

    fn bytes_sent(&self) -> u32 {
        if let ValueAsk::Command(ValueCommand::Store { bytes, .. }) = self { *bytes } else { 0 }
    }

    fn bytes_wanted(&self) -> u32 {
        match self {
            ValueAsk::Command(ValueCommand::Retrieve { bytes, .. } | ValueCommand::List { bytes, .. }) => *bytes,
            _ => 0,
        }
    }

    /// The drive has requests for one key take their turns.
    fn is_ordered(&self) -> bool {
        false
    }

    fn begin(
        &mut self,
        now: Time,
        tag: u64,
        drive: &mut ValueFtl,
        (): &mut (),
        sent: Sent<'_>,
        room: &[Frame],
    ) -> Begun<ValueOutcome> {
        let (request, begun) = match *self {
            ValueAsk::Command(ValueCommand::Store { key, bytes, condition, durability }) => {
                let value = Value::Frames { frames: sent.frames(), bytes };
                (ValueRequest::Store { key, value, condition, durability }, Begun::Kept)
            }
            ValueAsk::Command(ValueCommand::Retrieve { key, .. }) => {
                (ValueRequest::Retrieve { key, frames: room }, Begun::Taken)
            }
            ValueAsk::Command(ValueCommand::List { from, bytes }) => {
                (ValueRequest::List { from, bytes, frames: room }, Begun::Taken)
            }
            ValueAsk::Command(ValueCommand::Delete { key, durability, .. }) => {
                (ValueRequest::Delete { key, durability }, Begun::Taken)
            }
            ValueAsk::Command(ValueCommand::Exist { key }) => (ValueRequest::Exist { key }, Begun::Taken),
            ValueAsk::Flush => (ValueRequest::Flush, Begun::Taken),
        };
        match drive.submit(now, tag, request) {
            Ok(()) => begun,
            Err(ValueError::Busy) => Begun::Waits,
            Err(error) => Begun::Ended(Err(error)),
        }
    }

    fn give_up(&mut self, _: Time, _: &mut ValueFtl, (): &mut ()) -> ValueOutcome {
        Err(ValueError::Busy)
    }

    fn waits_for_host(&self, _: &ValueFtl) -> bool {
        false
    }

    fn staging<'p>(drive: &'p ValueFtl, _: &'p Frames) -> &'p Frames {
        drive.staging()
    }

    fn staging_mut<'p>(drive: &'p mut ValueFtl, _: &'p mut Frames) -> &'p mut Frames {
        drive.staging_mut()
    }

    fn is_at_rest(drive: &ValueFtl) -> bool {
        drive.store().is_at_rest()
    }

    fn frames_kept(drive: &ValueFtl) -> usize {
        drive.store().frames_to_put()
    }

    fn outcome_of(done: &ValueDone) -> (u64, ValueOutcome) {
        (done.tag, done.result)
    }

    fn end(&mut self, outcome: &ValueOutcome, (): &mut ()) -> u32 {
        match (self, outcome) {
            (ValueAsk::Command(ValueCommand::Retrieve { bytes, .. }), Ok(facts)) => facts.bytes.min(*bytes),
            (ValueAsk::Command(ValueCommand::List { .. }), Ok(facts)) => facts.bytes,
            _ => 0,
        }
    }
}
