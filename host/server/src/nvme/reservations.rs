//! Commands about reservations are answered by the target, which knows the hosts. A preemption that aborts ends when what the preempted
//! hosts have under way has ended: what has not been started never happens.

use openftl_nvme::command::{Access, ReservationCommand};
use openftl_nvme::{Answer, HostId, Status};
use openftl_nvme_tcp::sgl::Data;
use openftl_nvme_tcp::target::Slot;

use super::{Command, NvmeConnection, Stage, Turn};
use crate::ServedDrive;
use crate::fabric::Fence;
use crate::link::Over;

impl NvmeConnection {
    /// "Reservation Report command".
    pub(super) fn tell_reservation<T: ServedDrive>(
        &mut self,
        slot: Slot,
        namespace: u32,
        bytes: u32,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let queue = self.queue.as_ref().expect("there is a queue");
        let data = turn.fabric.target.reservation_report(queue, namespace);
        self.finish_padded(slot, Answer::from(Status::SUCCESS), &data, bytes as usize, turn)
    }

    /// Registers, acquires or releases; the keys have come.
    pub(super) fn reserve<T: ServedDrive>(
        &mut self,
        slot: Slot,
        namespace: u32,
        command: ReservationCommand,
        data: &[u8],
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let queue = self.queue.as_ref().expect("there is a queue");
        let hosts = match turn.fabric.target.reserve(queue, namespace, command, data) {
            Ok(hosts) => hosts,
            Err(refusal) => return self.refuse(slot, refusal, turn),
        };
        // Hosts may have something to be told.
        turn.fabric.is_restless = true;
        if hosts.is_empty() {
            return self.finish(slot, Answer::from(Status::SUCCESS), turn);
        }
        self.commands[slot.index()].as_mut().expect("it is under way").stage = Stage::Fencing;
        let (connection, generation) = (turn.slot, turn.generation);
        turn.fabric.fences.push(Fence { connection, generation, command: slot, namespace, hosts });
        Ok(())
    }

    /// Nothing that preempted hosts had under way is left: the command that has preempted them ends.
    pub fn fenced<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        match self.commands.get(slot.index()).and_then(Option::as_ref) {
            Some(Command { stage: Stage::Fencing, .. }) => self.finish(slot, Answer::from(Status::SUCCESS), turn),
            _ => Ok(()),
        }
    }

    /// Who has connected, where this is an I/O queue.
    pub fn host_of_queue(&self) -> Option<HostId> {
        self.queue.as_ref().filter(|queue| !queue.is_admin()).map(|_| self.host)
    }

    /// Requests of commands that drives are at work on.
    pub fn at_work(&self) -> usize {
        (0..self.commands.len()).filter(|index| self.is_at_work(*index)).count()
    }

    fn is_at_work(&self, index: usize) -> bool {
        let is_running = |command: &Command| command.io.is_some() && matches!(command.stage, Stage::Running);
        self.commands[index].as_ref().is_some_and(is_running) && !self.waiting.iter().any(|slot| slot.index() == index)
    }

    /// Ends the commands on a namespace that no drive is at work on. Returns whether there are others.
    pub fn abort_preempted<T: ServedDrive>(
        &mut self,
        namespace: u32,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<bool, Over> {
        let status = Status::ABORTED_PREEMPTED;
        let mut is_at_work = false;
        for index in 0..self.commands.len() {
            let at_work = self.is_at_work(index);
            let Some(command) = self.commands[index].as_mut() else { continue };
            let is_meant =
                command.io.is_some_and(|io| io.namespace == namespace && io.command.access() != Access::None);
            if !is_meant {
                continue;
            }
            let (slot, partner) = (self.session.slot_at(index), command.partner);
            // The first half of a pair ends with the second, whose request is that of both.
            if partner.is_some_and(|partner| self.is_at_work(partner.index())) {
                is_at_work = true;
                continue;
            }
            let command = self.commands[index].as_mut().expect("it is under way");
            if at_work {
                is_at_work = true;
                // It ends with the request that is under way.
                if command.next.take().is_some() {
                    command.left.clear();
                    command.doomed = Some(status);
                }
                continue;
            }
            let is_data_owed = match &command.stage {
                // It ends when its data have come.
                Stage::Collecting(_) => {
                    command.doomed = Some(status);
                    continue;
                }
                Stage::Filling(_) => true,
                Stage::Parked { is_whole, .. } => {
                    !is_whole && (command.is_aside || matches!(command.data, Data::InCapsule(_)))
                }
                Stage::Passing(_) => continue,
                _ => false,
            };
            self.take_back(slot, turn);
            if let Some(partner) = partner.filter(|partner| !self.is_collecting(*partner)) {
                self.take_back(partner, turn);
            }
            if is_data_owed {
                self.commands[index].as_mut().expect("it is under way").stage = Stage::Passing(status);
            } else {
                self.finish(slot, Answer::from(status), turn)?;
            }
        }
        Ok(is_at_work)
    }

    fn is_collecting(&self, slot: Slot) -> bool {
        matches!(self.commands[slot.index()], Some(Command { stage: Stage::Collecting(_), .. }))
    }

    /// A command that was not started gives back its request, and its place in line.
    fn take_back<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let stage = std::mem::replace(&mut command.stage, Stage::Running);
        if let (Stage::Parked { data, .. }, true) = (&stage, std::mem::take(&mut command.is_aside)) {
            self.aside -= 1;
            self.aside_bytes -= data.capacity();
        }
        if let Stage::Filling(id) | Stage::Ready(id) = stage {
            turn.served[command.export].abandon(id);
            self.requests -= 1;
            self.bytes -= std::mem::take(&mut command.held);
        }
        if let Stage::Filling(_) = stage {
            self.filling -= 1;
            (self.is_straight, self.is_long_expected) = (false, false);
        }
        self.line.retain(|other| *other != slot);
        self.advance_line(turn);
        self.leave_line(slot, turn);
    }
}
