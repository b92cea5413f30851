//! NVMe controllers need more of the server than answers to commands: keys for authentications, flushes before shutdowns, and
//! an end of the connections whose controller is gone. Their hosts hear of what happens.

use openftl_core::Time;
use openftl_nvme::Queue;
use openftl_nvme::controller::Effect;

use super::{Server, Slot};
use crate::connection::Connection;
use crate::key_worker::JobTicket;
use crate::nvme::Turn;
use crate::parting::Parting;
use crate::served::Served;
use crate::served_drive::ServedDrive;

impl Server {
    /// Goes on with an authentication whose key or secret has been computed, and has the next one computed.
    pub(super) fn take_keys<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        let Some(authority) = self.fabric.as_mut().and_then(|fabric| fabric.authority.as_mut()) else { return };
        let slots = &self.slots;
        let waits = |ticket: JobTicket| {
            let slot = &slots[ticket.slot as usize];
            slot.generation == ticket.generation && slot.connection.is_some()
        };
        let Some((ticket, computed)) = authority.worker.turn(waits) else { return };
        let Slot { generation, connection: Some(Connection::Nvme(connection)), .. } =
            &mut self.slots[ticket.slot as usize]
        else {
            return;
        };
        if *generation != ticket.generation {
            return;
        }
        let fabric = self.fabric.as_mut().expect("it has an authority");
        let (config, counters) = (&self.config, &*self.counters);
        let mut turn = Turn { now, slot: ticket.slot, generation: *generation, served, fabric, config, counters };
        if let Err(over) = connection.computed(ticket.command, computed, &mut turn) {
            self.end(ticket.slot as usize, over, served);
        }
        self.wake(ticket.slot as usize);
    }

    /// Does what NVMe controllers ask for beside their answers, and closes the connections of those that are gone.
    pub(super) fn look_after_controllers<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        let Some(fabric) = &mut self.fabric else { return };
        fabric.target.expire(now, &mut fabric.expired);
        fabric.flush_for_shutdowns(now, served);
        if fabric.effects.is_empty() && fabric.expired.is_empty() && !fabric.is_disturbed {
            return;
        }
        fabric.is_disturbed = false;
        fabric.expired.clear();
        for (name, effect) in std::mem::take(&mut fabric.effects) {
            // It left, or began anew: its sessions are no longer its own.
            served.iter_mut().for_each(|served| served.close_sessions(now, |other| other != name));
            if effect == Effect::Shutdown {
                fabric.begin_shutdown(name, served.len());
            }
        }
        fabric.flush_for_shutdowns(now, served);
        for served in served.iter_mut() {
            served.close_sessions(now, |name| fabric.has_controller(name));
        }
        for slot in 0..self.slots.len() {
            let Some(Connection::Nvme(connection)) = &self.slots[slot].connection else { continue };
            let fabric = self.fabric.as_ref().expect("it is there");
            // One that is closing already may still send what it owes.
            let is_lost = connection.queue.as_ref().is_some_and(|queue| !fabric.target.is_alive(queue));
            if is_lost && !connection.link.closing {
                self.close(slot, Parting::NoController, served);
            }
        }
    }

    /// Ends the requests that NVMe hosts have made to hear of what happens, where something has.
    pub(super) fn tell_hosts<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        let Some(fabric) = &mut self.fabric else { return };
        fabric.look(now, served);
        for slot in 0..self.slots.len() {
            let Slot { generation, connection: Some(Connection::Nvme(connection)), .. } = &mut self.slots[slot] else {
                continue;
            };
            let Some(name) = connection.queue.as_ref().filter(|queue| queue.is_admin()).map(Queue::controller) else {
                continue;
            };
            let fabric = self.fabric.as_mut().expect("it is there");
            let (config, counters) = (&self.config, &*self.counters);
            let mut turn = Turn { now, slot: slot as u32, generation: *generation, served, fabric, config, counters };
            match connection.take_events(name, &mut turn) {
                Ok(()) if connection.link.output.is_empty() => {}
                Ok(()) => self.wake(slot),
                Err(over) => self.end(slot, over, served),
            }
        }
    }
}
