//! The heap keeps data of commands that have no frames. Each command books its room there, and what a connection books has a
//! bound.

use openftl_nvme::{Answer, Status};
use openftl_nvme_tcp::sgl::Data;
use openftl_nvme_tcp::target::Slot;

use super::{Command, NvmeConnection, Stage, Turn};
use crate::ServedDrive;
use crate::fabric::Fabric;
use crate::link::Over;

/// Data of commands that a connection keeps in the heap: those of admin commands and range lists, what is compared and
/// copied, and writes that wait for frames.
const HEAP_BYTES_MAX: usize = 4 << 20;

impl NvmeConnection {
    /// Books room in the heap for a command, instead of what was booked for it. False if there is not so much.
    pub(super) fn book<T: ServedDrive>(&mut self, slot: Slot, bytes: usize, turn: &mut Turn<'_, '_, T>) -> bool {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let before = command.booked;
        let (mine, all) = (self.heap_bytes - before + bytes, turn.fabric.heap_bytes - before + bytes);
        if bytes > before && (mine > HEAP_BYTES_MAX || all > turn.config.heap_bytes_max) {
            return false;
        }
        (command.booked, self.heap_bytes, turn.fabric.heap_bytes) = (bytes, mine, all);
        true
    }

    /// A command that is gone needs nothing in the heap.
    pub(super) fn unbook(&mut self, command: &Command, fabric: &mut Fabric) {
        self.heap_bytes -= command.booked;
        fabric.heap_bytes -= command.booked;
        self.came_back(command);
    }

    /// The data of a command are not aside any more: they are in frames again, or gone.
    pub(super) fn came_back(&mut self, command: &Command) {
        if let Stage::Parked { data, .. } = &command.stage
            && command.is_aside
        {
            self.aside -= 1;
            self.aside_bytes -= data.capacity();
        }
    }

    /// Bytes in the heap that are booked for its commands.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Has the data of a command come into the heap.
    pub(super) fn collect<T: ServedDrive>(
        &mut self,
        slot: Slot,
        bytes: u32,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("it has begun");
        match command.data {
            // All of them come, asked for or not: Linux sends a whole page with a few ranges.
            Data::InCapsule(most) if most >= bytes => self.gather(slot, most, turn),
            Data::OnRequest(most) if most >= bytes => {
                self.gather(slot, bytes, turn)?;
                if self.commands[slot.index()].is_some() {
                    self.session.request(slot, bytes, &mut self.link.output.small);
                    self.link.output.seal();
                }
                Ok(())
            }
            _ => self.finish(slot, Answer::from(Status::DATA_SGL_LENGTH_INVALID), turn),
        }
    }

    /// Makes room in the heap for data that come, or ends the command.
    pub(super) fn gather<T: ServedDrive>(
        &mut self,
        slot: Slot,
        bytes: u32,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        if !self.book(slot, bytes as usize, turn) {
            return self.finish(slot, Answer::from(Status::NAMESPACE_NOT_READY), turn);
        }
        let command = self.commands[slot.index()].as_mut().expect("it has begun");
        command.stage = Stage::Collecting(Vec::with_capacity(bytes as usize));
        Ok(())
    }
}
