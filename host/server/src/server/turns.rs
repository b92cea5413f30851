//! A turn of the server takes requests from the connections, polls the drives, lets the operator act, and sends replies. Connections for which there is
//! nothing to do sleep: a turn does not look at them.

use std::os::fd::AsFd;

use openftl_core::{Clock, Time};
use openftl_nbd::protocol::{ExportInfo, Reserved};

use super::bounds::LATE_PEERS_EVERY;
use super::events::Woken;
use super::{Server, Slot};
use crate::connection::Connection;
use crate::end::{End, ServeError};
use crate::link::{Movers, Over};
use crate::nvme::Turn;
use crate::operator::{Drives, Operator};
use crate::parting::Parting;
use crate::reactors::{Made, Party};
use crate::served::Served;
use crate::served_drive::ServedDrive;
use crate::stop::Stop;
use crate::ticket::{Ticket, What};
use crate::transfer::Load;

/// Events of one wait.
const EVENTS_MAX: usize = 128;

/// Steps of authentications and of handshakes in one turn: each may compute for some milliseconds, and the others are to be served between
/// them.
const AUTHENTICATION_STEPS_PER_TURN_MAX: u32 = 1;

/// What is done for a connection that may have received something.
#[derive(Clone, Copy)]
enum Step {
    Receive,
    /// Takes the requests in it.
    Take,
}

impl Step {
    /// This one, and those after it.
    fn on(self) -> &'static [Step] {
        match self {
            Step::Receive => &[Step::Receive, Step::Take],
            Step::Take => &[Step::Take, Step::Receive, Step::Take],
        }
    }
}

impl Server {
    pub(super) fn turns<T: ServedDrive, C: Clock, O: Operator<T>>(
        &mut self,
        operator: &mut O,
        infos: &mut [ExportInfo],
        read_only: &[bool],
        served: &mut [Served<'_, T>],
        clock: &mut C,
        stop: &Stop,
    ) -> Result<End, ServeError> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut stopping: Option<Time> = None;
        let mut late_peers_at = Time::ZERO;
        let mut first = 0;
        // The first turn must not wait: drives may have work from before.
        let mut again = true;
        loop {
            let Woken { late, called } =
                self.wait(&mut events, again, stopping, operator.next_due(), served, clock, stop)?;
            let now = clock.now();
            self.counters.turns.add(1);
            self.reactors.begin_turn();
            let mut freed = self.take_made(served);
            for (export, info) in infos.iter_mut().enumerate() {
                info.read_only = read_only[export] || served[export].is_read_only();
                info.reserved = self.fabric.as_ref().map_or(Reserved::Nothing, |fabric| fabric.reserved(export));
            }

            if stop.is_requested() && stopping.is_none() {
                stopping = Some(now + self.config.stop_max);
                self.listeners.clear();
                self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut()).for_each(Connection::stop);
                (0..self.slots.len()).for_each(|slot| self.wake(slot));
            }
            // NVMe hosts connect to a target, wherever there is something behind it.
            self.accept(now, !infos.is_empty(), !served.is_empty() && self.fabric.is_some());
            self.make_room_for_handshakes(served);
            if let Some(fabric) = &mut self.fabric {
                fabric.authentication_steps_left = AUTHENTICATION_STEPS_PER_TURN_MAX;
            }

            self.take_keys(now, served);
            // Whoever waits for frames goes first, in order; then everybody, each turn beginning with another.
            for export in 0..served.len() {
                for line in 0..served[export].first_waiters().len() {
                    while let Some(front) = served[export].first_waiters()[line] {
                        self.serve(now, front as usize, infos, served);
                        if served[export].first_waiters()[line] == Some(front) {
                            break;
                        }
                    }
                }
            }
            first = if first + 1 < self.awake.len() { first + 1 } else { 0 };
            for at in (first..self.awake.len()).chain(0..first) {
                self.serve(now, self.awake[at] as usize, infos, served);
            }

            freed |= self.poll_drives(clock, served);
            for (export, state) in self.standstills.drain(..) {
                operator.came_to_standstill(export, &state);
            }
            self.look_after_controllers(now, served);
            self.advance_fences(now, served);
            let mut drives = Drives { served, fabric: self.fabric.as_mut() };
            if operator.turn(clock.now(), called, &mut drives).is_break() {
                return Ok(self.interrupted());
            }
            if called || self.fabric.as_ref().is_some_and(|fabric| fabric.is_restless) {
                self.tell_hosts(now, served);
            }
            for at in 0..self.awake.len() {
                freed |= self.send(now, self.awake[at] as usize, served);
            }
            freed |= self.take_frames_from_slow_peers(now, served);
            freed |= self.bound_what_is_kept(served);
            if now >= late_peers_at || late.is_some_and(|late| now >= late) {
                late_peers_at = now + LATE_PEERS_EVERY;
                self.expel_late_peers(now, served);
                self.tell_hosts(now, served);
            }
            if let Some(deadline) = stopping {
                for slot in 0..self.slots.len() {
                    if self.slots[slot].connection.as_ref().is_some_and(|connection| {
                        now >= deadline || (connection.is_idle() && !connection.link().is_readable())
                    }) {
                        self.close(slot, Parting::Stop, served);
                    }
                }
                if self.slots.iter().all(|slot| slot.connection.is_none()) {
                    return Ok(End::Stopped);
                }
            }
            again = self.can_go_on(freed, served);
            self.let_sleep();
        }
    }

    fn interrupted(&self) -> End {
        End::Interrupted {
            connections: self.counters.connections.get(),
            requests: self.connections().map(|connection| connection.requests_under_way() as u64).sum(),
        }
    }

    /// Receives from one connection and takes its requests.
    fn serve<T: ServedDrive>(&mut self, now: Time, slot: usize, infos: &[ExportInfo], served: &mut [Served<'_, T>]) {
        let Slot { generation, connection: Some(connection), .. } = &mut self.slots[slot] else { return };
        let (number, generation) = (slot as u32, *generation);
        let party = Party { slot: number, generation };
        let mut result = Ok(());
        // What a reactor has brought is looked at before there is more of it.
        let first = if connection.link_mut().has_come() { Step::Take } else { Step::Receive };
        for step in first.on().iter().copied() {
            // What it has received may not be here.
            if connection.link().is_receiving() || result.is_err() {
                break;
            }
            let (config, counters) = (&self.config, &*self.counters);
            let movers = &mut Movers { buffers: &mut self.buffers, reactors: &mut self.reactors, party };
            result = match (&mut *connection, step) {
                (Connection::Nbd(connection), Step::Receive) => connection.receive(now, served, movers, config),
                (Connection::Nbd(connection), Step::Take) => {
                    let ticket = Ticket { slot: number, generation, what: What::Stop };
                    connection.take_requests(now, ticket, infos, served, config, counters)
                }
                (Connection::Nvme(connection), step) => {
                    let fabric = self.fabric.as_mut().expect("NVMe hosts connect to a target");
                    match step {
                        Step::Receive => connection.receive(now, served, movers, fabric, counters),
                        Step::Take => {
                            let mut turn = Turn { now, slot: number, generation, served, fabric, config, counters };
                            connection.take_commands(&mut turn)
                        }
                    }
                }
            };
        }
        connection.link_mut().give_back(&mut self.buffers);
        match result {
            Ok(()) if connection.is_over() => self.end(slot, Over::Finished, served),
            Ok(()) => {}
            Err(over) => self.end(slot, over, served),
        }
    }

    /// Sends one connection's replies. Returns whether others may go on.
    fn send<T: ServedDrive>(&mut self, now: Time, slot: usize, served: &mut [Served<'_, T>]) -> bool {
        let Slot { generation, connection: Some(connection), .. } = &mut self.slots[slot] else { return false };
        let party = Party { slot: slot as u32, generation: *generation };
        let mut movers = Movers { buffers: &mut self.buffers, reactors: &mut self.reactors, party };
        let sent = connection.send(now, served, &mut movers);
        self.after_sending(slot, sent, served)
    }

    /// Returns whether others may go on after a connection has sent what it could.
    fn after_sending<T: ServedDrive>(
        &mut self,
        slot: usize,
        sent: Result<bool, Over>,
        served: &mut [Served<'_, T>],
    ) -> bool {
        let is_over = self.slots[slot].connection.as_ref().is_some_and(Connection::is_over);
        match sent {
            Ok(freed) => {
                if is_over {
                    self.end(slot, Over::Finished, served);
                }
                freed
            }
            Err(over) => {
                self.end(slot, over, served);
                true
            }
        }
    }

    /// Gives connections back what reactors have moved for them. Returns whether others may go on.
    fn take_made<T: ServedDrive>(&mut self, served: &mut [Served<'_, T>]) -> bool {
        let mut any = false;
        while let Some(Made { party: Party { slot, generation }, socket, transfer, moved, .. }) =
            self.reactors.next_made()
        {
            self.counters.bytes_by_reactors.add(moved.map_or(0, |moved| moved.bytes as u64));
            let slot = slot as usize;
            let tenant = self.slots.get_mut(slot).filter(|slot| slot.generation == generation);
            let Some(connection) = tenant.and_then(|slot| slot.connection.as_mut()) else {
                transfer.end(socket.as_fd(), &mut self.buffers);
                continue;
            };
            let now = transfer.began;
            connection.link_mut().take_back(transfer.secured);
            let moved = match (transfer.load, moved) {
                (Load::Received { buffer, start, room }, Ok(moved)) => {
                    connection.link_mut().take_input(now, buffer, start..room.start, moved);
                    Ok(false)
                }
                (Load::Filled(rooms), Ok(moved)) => {
                    connection.payload_came(now, served, rooms, moved);
                    Ok(false)
                }
                (Load::Sent(parcel), Ok(moved)) => connection.sent(now, served, parcel, moved),
                (_, Err(over)) => Err(over),
            };
            any |= self.after_sending(slot, moved, served);
            self.wake(slot);
        }
        any
    }

    /// Whether the next turn has something to do without waiting.
    fn can_go_on<T: ServedDrive>(&self, freed: bool, served: &[Served<'_, T>]) -> bool {
        served.iter().any(Served::has_finished)
            // Events are edges: whoever still waits in a backlog after a full turn of accepts is not announced again.
            || self.listeners.iter().any(|listener| listener.ready)
            || self.fabric.as_ref().is_some_and(|fabric| fabric.is_disturbed)
            || self
                .awake()
                .any(|connection| connection.can_go_on() || (freed && connection.is_held_back(&self.config)))
    }
}
