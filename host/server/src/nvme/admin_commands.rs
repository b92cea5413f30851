//! Admin commands, and commands of fabrics after Connect, get their answers from the controller of the host. Some of them are
//! held until something happens.

use openftl_nvme::controller::Effect;
use openftl_nvme::{Outcome, SubmissionEntry};
use openftl_nvme_tcp::target::Slot;

use super::{Command, NvmeConnection, Stage, Turn};
use crate::ServedDrive;
use crate::link::Over;
use crate::parting::Parting;

impl NvmeConnection {
    /// Serves a command of the admin queue, or of fabrics.
    pub(super) fn command<T: ServedDrive>(
        &mut self,
        slot: Slot,
        data: Option<&[u8]>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let entry = self.commands[slot.index()].as_ref().expect("it has begun").entry;
        let mut answer = std::mem::take(&mut turn.fabric.answer);
        let queue = self.queue.as_ref().expect("there is a queue");
        let name = queue.controller();
        let outcome = turn.fabric.command(turn.now, queue, SubmissionEntry::of(&entry), data, turn.served, &mut answer);
        let result = match outcome {
            Outcome::Needs(bytes) => self.collect(slot, bytes, turn),
            Outcome::Held => {
                self.commands[slot.index()].as_mut().expect("it has begun").stage = Stage::Held;
                Ok(())
            }
            Outcome::Done(done) => self.finish_with(slot, done, &answer, turn),
            Outcome::DonePadded(done, bytes) => self.finish_padded(slot, done, &answer, bytes as usize, turn),
            Outcome::DoneAnd(done, effect) => {
                if effect == Effect::CloseQueue {
                    self.link.close_because(Parting::Disconnect);
                } else {
                    turn.fabric.effects.push((name, effect));
                }
                self.finish_with(slot, done, &answer, turn)
            }
            Outcome::Authentication(message) => self.authenticate(slot, message, data, turn),
        };
        turn.fabric.answer = answer;
        if let Some(queue) = self.queue.as_ref().filter(|queue| queue.is_admin()) {
            let name = queue.controller();
            self.take_events(name, turn)?;
        }
        result
    }

    /// Ends held commands for which something has happened.
    pub fn take_events<T: ServedDrive>(
        &mut self,
        name: openftl_nvme::queue::ControllerName,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        while let Some((id, answer)) = turn.fabric.target.take_event(name) {
            let held = |command: &Option<Command>| {
                command.as_ref().is_some_and(|command| command.id() == id && matches!(command.stage, Stage::Held))
            };
            let Some(index) = self.commands.iter().position(held) else { continue };
            let slot = self.session.slot_at(index);
            self.finish(slot, answer, turn)?;
        }
        Ok(())
    }
}
