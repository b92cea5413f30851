//! The bounds on peers limit handshakes, frames, memory and time. A peer beyond them loses its frames or its connection.

use openftl_core::{Nanos, Time};
use tracing::info;

use super::{Server, Slot};
use crate::connection::Connection;
use crate::link::Over;
use crate::parting::Parting;
use crate::served::Served;
use crate::served_drive::ServedDrive;

/// How often late peers are looked for while the server is busy.
pub(super) const LATE_PEERS_EVERY: Nanos = Nanos::from_millis(100);

impl Server {
    /// Of too many handshakes the oldest end: who is in earnest is through quickly, and comes again.
    pub(super) fn make_room_for_handshakes<T: ServedDrive>(&mut self, served: &mut [Served<'_, T>]) {
        if !std::mem::take(&mut self.is_crowded) {
            return;
        }
        let shaking =
            |slot: &Slot| slot.connection.as_ref().filter(|connection| connection.is_shaking_hands()).is_some();
        let mut count = self.slots.iter().filter(|slot| shaking(slot)).count();
        while count > self.config.handshakes_max {
            let candidates = (0..self.slots.len()).filter(|slot| shaking(&self.slots[*slot]));
            let accepted = |slot: &usize| self.slots[*slot].connection.as_ref().map(|open| open.link().accepted);
            let oldest = candidates.min_by_key(accepted).expect("there are too many of them");
            self.end(oldest, Over::Expelled(Parting::Crowd), served);
            count -= 1;
        }
    }

    /// While somebody waits for frames, those that the payload of slow peers lies in come back: it goes on in memory of their
    /// connections. Returns whether there were any.
    pub(super) fn take_frames_from_slow_peers<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
    ) -> bool {
        if !is_short(served) {
            return false;
        }
        let mut any = false;
        for at in 0..self.awake.len() {
            let slot = self.awake[at] as usize;
            let Some(connection) = &mut self.slots[slot].connection else { continue };
            match connection.move_aside(now, served, &self.counters) {
                Ok(gave_back) => {
                    any |= gave_back;
                    if gave_back {
                        let (link, protocol) = (connection.link(), connection.protocol());
                        info!(target: "connection", connection = link.number, peer = %link.peer, %protocol, "slow peer lost its frames to others");
                    }
                }
                Err(over) => {
                    self.end(slot, over, served);
                    any = true;
                }
            }
        }
        any
    }

    /// Closes the connections that keep the most memory, while all together keep too much. Returns whether there were any.
    pub(super) fn bound_what_is_kept<T: ServedDrive>(&mut self, served: &mut [Served<'_, T>]) -> bool {
        let mut kept: usize = self.awake().map(Connection::kept_bytes).sum();
        let mut any = false;
        while kept > self.config.kept_bytes_max {
            let of = |slot: &usize| self.slots[*slot].connection.as_ref().map_or(0, Connection::kept_bytes);
            let fattest = (0..self.slots.len()).max_by_key(of).expect("somebody keeps it");
            kept -= of(&fattest);
            self.counters.connections_too_slow.add(1);
            self.end(fattest, Over::Expelled(Parting::KeptTooMuch), served);
            any = true;
        }
        self.counters.bytes_kept.set(kept as u64);
        self.counters.bytes_kept_max.set(self.counters.bytes_kept_max.get().max(kept as u64));
        let admitted = served.iter().map(Served::len).sum::<usize>() as u64;
        self.counters.requests_admitted.set(admitted);
        self.counters.requests_admitted_max.set(self.counters.requests_admitted_max.get().max(admitted));
        any
    }

    pub(super) fn expel_late_peers<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        for slot in 0..self.slots.len() {
            debug_assert!(
                self.slots[slot].is_awake
                    || self.slots[slot].connection.as_ref().is_none_or(|connection| connection.may_sleep(&self.config)),
                "something came for a connection that sleeps, and nobody woke it"
            );
            let deadline =
                self.slots[slot].connection.as_ref().and_then(|connection| connection.deadline(&self.config));
            if deadline.is_some_and(|deadline| now >= deadline) {
                let is_shaking = self.slots[slot].connection.as_ref().is_some_and(Connection::is_shaking_hands);
                let parting = if is_shaking { Parting::LateHandshake } else { Parting::Stalled };
                self.end(slot, Over::Expelled(parting), served);
            } else if let Some(connection) = &mut self.slots[slot].connection
                && now >= connection.link().moved + LATE_PEERS_EVERY
            {
                connection.link_mut().set_aside(&mut self.buffers);
            }
        }
    }
}

/// Whether somebody waits for frames or a place.
pub(super) fn is_short<T: ServedDrive>(served: &[Served<'_, T>]) -> bool {
    served.iter().any(Served::has_waiters)
}
