//! A host that preempts others and aborts their commands waits until nothing of them is under way any more: neither on their
//! connections nor at the drives, where what a connection had started goes on without it.

use openftl_core::Time;
use openftl_nvme::HostId;

use super::Server;
use crate::connection::Connection;
use crate::fabric::Fence;
use crate::nvme::{NvmeConnection, Turn};
use crate::served::Served;
use crate::served_drive::ServedDrive;

/// What a connection that is gone has left at the drives.
pub(super) struct Left {
    slot: u32,
    generation: u32,
    host: HostId,
    requests: usize,
}

impl Server {
    /// A connection is closing: what the drives are at work on for it ends without it.
    pub(super) fn leave_requests(&mut self, slot: usize, connection: &NvmeConnection) {
        let (Some(host), requests @ 1..) = (connection.host_of_queue(), connection.at_work()) else { return };
        self.left.push(Left { slot: slot as u32, generation: self.slots[slot].generation, host, requests });
    }

    /// A request has ended whose connection is gone.
    pub(super) fn left_one_ended(&mut self, slot: u32, generation: u32) {
        let is_its = |left: &Left| (left.slot, left.generation) == (slot, generation);
        if let Some(index) = self.left.iter().position(is_its) {
            self.left[index].requests -= 1;
            if self.left[index].requests == 0 {
                self.left.swap_remove(index);
            }
        }
    }

    /// Aborts what preempted hosts have under way, and ends the commands that wait for it.
    pub(super) fn advance_fences<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        let Some(fabric) = &mut self.fabric else { return };
        if fabric.fences.is_empty() {
            return;
        }
        for fence in std::mem::take(&mut fabric.fences) {
            let mut is_waiting = self.left.iter().any(|left| fence.hosts.contains(&left.host));
            for slot in 0..self.slots.len() {
                let is_meant = match &self.slots[slot].connection {
                    Some(Connection::Nvme(connection)) => {
                        connection.host_of_queue().is_some_and(|host| fence.hosts.contains(&host))
                    }
                    _ => false,
                };
                if is_meant {
                    let namespace = fence.namespace;
                    is_waiting |= self
                        .with_host(now, slot, served, |connection, turn| connection.abort_preempted(namespace, turn));
                }
            }
            let Fence { connection, generation, command, .. } = fence;
            if is_waiting {
                self.fabric.as_mut().expect("it is there").fences.push(fence);
            } else if self.slots[connection as usize].generation == generation {
                self.with_host(now, connection as usize, served, |connection, turn| {
                    connection.fenced(command, turn).map(|()| false)
                });
            }
        }
    }

    /// Has an NVMe connection do something outside its turn; false if it is over.
    fn with_host<T: ServedDrive>(
        &mut self,
        now: Time,
        slot: usize,
        served: &mut [Served<'_, T>],
        act: impl FnOnce(&mut NvmeConnection, &mut Turn<'_, '_, T>) -> Result<bool, crate::link::Over>,
    ) -> bool {
        let generation = self.slots[slot].generation;
        let Some(Connection::Nvme(connection)) = &mut self.slots[slot].connection else { return false };
        let fabric = self.fabric.as_mut().expect("NVMe hosts connect to a target");
        let (config, counters) = (&self.config, &*self.counters);
        let mut turn = Turn { now, slot: slot as u32, generation, served, fabric, config, counters };
        match act(connection, &mut turn) {
            Ok(found) => {
                self.wake(slot);
                found
            }
            Err(over) => {
                self.end(slot, over, served);
                false
            }
        }
    }
}
