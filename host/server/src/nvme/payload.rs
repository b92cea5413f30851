//! The payload of a command comes from the socket into frames or into the heap. If its host is slow while others wait for
//! frames, the payload goes on in memory of the connection.

use openftl_bytes::RequestId;
use openftl_core::Time;
use openftl_nvme::{Answer, Status};
use openftl_nvme_tcp::target::Slot;

use super::{NvmeConnection, Stage, Turn};
use crate::link::{DIRECT_BYTES_MIN, Movers, Over};
use crate::parting::Parting;
use crate::served::Served;
use crate::transfer::{Moved, Room};
use crate::{Counters, ServedDrive};

impl NvmeConnection {
    /// From when on others do not wait for the frames that the host's data or replies lie in.
    pub fn slow_at(&self) -> Option<Time> {
        let giving = self.link.giving.slow_at().filter(|_| self.filling > 0);
        let taking = self.link.taking.slow_at().filter(|_| self.link.output.holds_frames());
        [giving, taking].into_iter().flatten().min()
    }

    /// Moves data out of frames, if the host is slow. Returns whether frames came back. The commands of a device, and the writes of a zoned drive, keep the
    /// order in which they came, so their data stay where they are, and the host has to go.
    pub fn move_aside<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        counters: &Counters,
    ) -> Result<bool, Over> {
        let (requests, bytes) = (&mut self.requests, &mut self.bytes);
        let gave_back = self.link.move_replies_aside(now, served, counters, |length| {
            *requests -= 1;
            *bytes -= length;
        });
        if self.filling == 0 || self.link.is_receiving() || self.link.giving.slow_at().is_none_or(|at| now < at) {
            return Ok(gave_back);
        }
        for command in self.commands.iter_mut().flatten() {
            let Stage::Filling(id) = command.stage else { continue };
            let served = &mut served[command.export];
            if served.is_written_in_order() {
                return Err(Over::Expelled(Parting::SlowDeviceHost));
            }
            let filled = command.filled as usize;
            let mut data = Vec::with_capacity(filled);
            while data.len() < filled {
                let slice = served.slice(id, data.len() as u64);
                data.extend_from_slice(&slice[..slice.len().min(filled - data.len())]);
            }
            counters.bytes_copied.add(filled as u64);
            counters.bytes_moved_aside.add(filled as u64);
            served.abandon(id);
            self.requests -= 1;
            self.bytes -= std::mem::take(&mut command.held);
            self.aside += 1;
            self.aside_bytes += data.capacity();
            // What was booked for its lists stays booked; the memory of its data is on the server's account of slow payload.
            command.is_aside = true;
            command.stage = Stage::Parked { data, is_whole: false, is_in_line: false };
        }
        self.filling = 0;
        (self.is_straight, self.is_long_expected) = (false, false);
        Ok(true)
    }

    /// Where there are reactors, receives what goes straight from the socket to its frames, or has one of them do so.
    pub(super) fn receive_straight<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        movers: &mut Movers<'_>,
    ) -> Result<(), Over> {
        let Some((slot, offset, bytes)) = self.straight else { return Ok(()) };
        let command = self.commands[slot.index()].as_ref().expect("its data come");
        let Stage::Filling(id) = command.stage else { return Ok(()) };
        let served = &mut served[command.export];
        let (from, left) = (u64::from(offset), u64::from(bytes));
        if self.link.is_for_reactor(bytes as usize, movers) {
            self.link.have_received_into(now, served, (id, from, left), movers);
            return Ok(());
        }
        self.straight = None;
        let came = self.link.receive_into(now, served, id, from, left)?;
        self.came_straight(slot, id, offset, came, served);
        self.is_straight = came < left;
        Ok(())
    }

    /// A reactor has filled these with such data.
    pub fn payload_came<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        mut rooms: Vec<Room>,
        moved: Moved,
    ) {
        let (slot, offset, bytes) = self.straight.take().expect("they were lent for some");
        let command = self.commands[slot.index()].as_ref().expect("its data come");
        if let Stage::Filling(id) = command.stage {
            let served = &mut served[command.export];
            served.take_back(id, offset.into(), &mut rooms);
            self.came_straight(slot, id, offset, moved.bytes as u64, served);
            self.is_straight = moved.bytes < bytes as usize;
        } else {
            // Meanwhile the command was given up: they are passed over.
            let mut left = moved.bytes;
            for room in &rooms {
                let count = left.min(room.part.len());
                self.session.took(room.first(count));
                left -= count;
            }
        }
        self.link.take_rooms(now, rooms, moved);
    }

    /// So many bytes of a command's data have come straight to their frames.
    fn came_straight<T: ServedDrive>(
        &mut self,
        slot: Slot,
        id: RequestId,
        offset: u32,
        came: u64,
        served: &Served<'_, T>,
    ) {
        let command = self.commands[slot.index()].as_mut().expect("its data come");
        command.filled = offset + came as u32;
        let (mut from, end) = (u64::from(offset), u64::from(offset) + came);
        while from < end {
            let slice = served.slice(id, from);
            let part = &slice[..slice.len().min((end - from) as usize)];
            self.session.took(part);
            from += part.len() as u64;
        }
    }

    /// Memory that the host keeps by being slow.
    pub fn kept_bytes(&self) -> usize {
        self.aside_bytes + self.link.output.memory()
    }

    /// Takes the next bytes of a command's data. False if there are none yet.
    pub(super) fn take_payload<T: ServedDrive>(
        &mut self,
        slot: Slot,
        offset: u32,
        bytes: u32,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<bool, Over> {
        let command = self.commands[slot.index()].as_mut().expect("its data come");
        let export = command.export;
        self.is_straight = false;
        if let Stage::Filling(id) = command.stage {
            let served = &mut turn.served[export];
            if u64::from(offset) >= served.length(id) {
                return Ok(self.pass_over(bytes));
            }
            let is_long = u64::from(bytes) >= DIRECT_BYTES_MIN && !turn.config.copies_long_writes;
            let is_direct = is_long && self.link.input().is_empty() && !served.is_device();
            if is_direct {
                self.is_straight = true;
                if turn.config.reactors > 1 {
                    // Who receives them is seen when the connection receives again.
                    self.straight = Some((slot, offset, bytes));
                    return Ok(false);
                }
                if !self.link.may_receive() {
                    return Ok(false);
                }
                let came = self.link.receive_into(turn.now, served, id, offset.into(), bytes.into())?;
                self.is_straight = came < u64::from(bytes);
                self.came_straight(slot, id, offset, came, &turn.served[export]);
                return Ok(came > 0);
            }
            let room = served.slice_mut(id, offset.into());
            let count = room.len().min(bytes as usize).min(self.link.input().len());
            room[..count].copy_from_slice(&self.link.input()[..count]);
            turn.counters.bytes_copied.add(count as u64);
            self.session.took(&self.link.input()[..count]);
            self.link.consume(count);
            command.filled = offset + count as u32;
            return Ok(count > 0);
        }
        let is_aside = command.is_aside;
        let (Stage::Collecting(data) | Stage::Parked { data, .. }) = &mut command.stage else {
            return Ok(self.pass_over(bytes));
        };
        let count = (bytes as usize).min(self.link.input().len());
        let before = data.capacity();
        data.extend_from_slice(&self.link.input()[..count]);
        if is_aside {
            self.aside_bytes += data.capacity() - before;
        }
        turn.counters.bytes_copied.add(count as u64);
        self.session.took(&self.link.input()[..count]);
        self.link.consume(count);
        Ok(count > 0)
    }

    /// A capsule may hold more data than its command has use for. False if none of them are there.
    fn pass_over(&mut self, bytes: u32) -> bool {
        let count = (bytes as usize).min(self.link.input().len());
        self.session.took(&self.link.input()[..count]);
        self.link.consume(count);
        count > 0
    }

    pub(super) fn payload_complete<T: ServedDrive>(
        &mut self,
        slot: Slot,
        intact: bool,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_mut().expect("its data came");
        match &mut command.stage {
            Stage::Filling(id) => {
                let id = *id;
                if intact {
                    self.filled(slot, id, turn);
                    return Ok(());
                }
                turn.served[command.export].abandon(id);
                self.filling -= 1;
                self.requests -= 1;
                self.bytes -= command.held;
                self.line.retain(|other| *other != slot);
                self.advance_line(turn);
                self.finish(slot, Answer::from(Status::TRANSIENT_TRANSPORT_ERROR), turn)
            }
            Stage::Parked { is_whole, is_in_line, .. } if intact => {
                *is_whole = true;
                if !std::mem::replace(is_in_line, true) {
                    // What came slowly goes first: those behind it wait for it.
                    if command.is_aside {
                        self.waiting.push_front(slot);
                    } else {
                        self.waiting.push_back(slot);
                    }
                    self.admit_waiting(turn);
                }
                Ok(())
            }
            Stage::Parked { .. } | Stage::Collecting(_) if !intact => {
                self.leave_line(slot, turn);
                self.finish(slot, Answer::from(Status::TRANSIENT_TRANSPORT_ERROR), turn)
            }
            Stage::Passing(status) => {
                let status = *status;
                self.finish(slot, Answer::from(status), turn)
            }
            Stage::Collecting(data) => {
                let data = std::mem::take(data);
                self.collected(slot, data, turn)
            }
            // They were in the capsule of a command that has no use for them.
            Stage::Parked { .. }
            | Stage::Paired
            | Stage::Ready(_)
            | Stage::Running
            | Stage::Held
            | Stage::Fencing
            | Stage::Computing(_) => Ok(()),
        }
    }
}
