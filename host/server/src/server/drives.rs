//! Drives end requests for the server, which answers the connections that asked. The last flush of a drive makes its contents
//! durable.

use openftl_core::{Clock, Time};

use super::Server;
use crate::connection::Connection;
use crate::end::ServeError;
use crate::ended::Ended;
use crate::nvme::Turn;
use crate::page_request::PageError;
use crate::served::Served;
use crate::served_drive::ServedDrive;
use crate::ticket::{Ticket, What};

/// Polls of a drive in one turn while it says that it has more to do at once.
const POLLS_PER_TURN_MAX: usize = 4;

impl Server {
    /// Lets the drives work and puts replies in line. Returns whether anything finished or frames came back.
    pub(super) fn poll_drives<T: ServedDrive, C: Clock>(
        &mut self,
        clock: &mut C,
        served: &mut [Served<'_, T>],
    ) -> bool {
        let mut any = false;
        let mut ended = std::mem::take(&mut self.ended);
        for index in 0..served.len() {
            let available = served[index].available();
            for _ in 0..POLLS_PER_TURN_MAX {
                let now = clock.now();
                served[index].poll(now, &mut ended);
                any |= !ended.is_empty();
                for ended in ended.drain(..) {
                    self.answer(now, ended, index, served);
                }
                let drive = &served[index];
                if drive.next_due().is_none_or(|due| due > now) && !drive.has_finished() {
                    break;
                }
            }
            if let Some(state) = served[index].watch(clock.now()) {
                self.counters.standstills.add(1);
                self.standstills.push((index, state));
                any = true;
            }
            // A drive gives back the frames of writes when it pleases.
            any |= served[index].available() > available;
        }
        self.ended = ended;
        any
    }

    /// Hands what a drive has done to whoever asked for it, if that one is still there.
    fn answer<T: ServedDrive>(&mut self, now: Time, ended: Ended, index: usize, served: &mut [Served<'_, T>]) {
        let Ticket { slot, generation, what } = ended.ticket();
        if let (What::Shutdown(name), Some(fabric)) = (what, &mut self.fabric) {
            fabric.flushed(name, ended.is_success());
        }
        let tenant = self.slots.get_mut(slot as usize).filter(|slot| slot.generation == generation);
        match (tenant.and_then(|slot| slot.connection.as_mut()), what, ended) {
            (Some(Connection::Nbd(connection)), _, Ended::Request(finished)) => {
                connection.answer(finished, served, &self.counters);
            }
            (Some(Connection::Nvme(connection)), What::Nvme(command), ended) => {
                let fabric = self.fabric.as_mut().expect("NVMe hosts connect to a target");
                let (config, counters) = (&self.config, &*self.counters);
                let mut turn = Turn { now, slot, generation, served, fabric, config, counters };
                if let Err(over) = connection.ended(command, index, ended, &mut turn) {
                    self.end(slot as usize, over, served);
                }
            }
            (None, What::Nvme(_), ended) => {
                self.left_one_ended(slot, generation);
                served[index].release(ended.id());
            }
            _ => served[index].release(ended.id()),
        }
    }
}

/// Ends what the connections left behind and makes the drive's contents durable.
pub(super) fn drain_and_flush<T: ServedDrive, C: Clock>(
    name: &str,
    served: &mut Served<'_, T>,
    clock: &mut C,
) -> Result<(), ServeError> {
    let mut flush = None;
    let mut ended = Vec::new();
    loop {
        let now = clock.now();
        served.poll(now, &mut ended);
        for ended in ended.drain(..) {
            served.release(ended.id());
            if Some(ended.id()) != flush {
                continue;
            }
            let result = match ended {
                Ended::Request(finished) => finished.result.map_err(|error| error.to_string()),
                Ended::Command(finished) => match finished.completion.status {
                    openftl_media::Status::Success => Ok(()),
                    status => Err(format!("{status:?}")),
                },
                Ended::Zone(finished) => finished.result.map_err(|error| error.to_string()),
                Ended::Value(finished) => finished.outcome.map(drop).map_err(|error| error.to_string()),
                Ended::Page(finished) => match finished.outcome {
                    Ok(_) => Ok(()),
                    Err(PageError::Store(error, _)) => Err(error.to_string()),
                    Err(error) => Err(format!("{error:?}")),
                },
            };
            return result.map_err(|error| ServeError::Flush { name: name.to_owned(), error });
        }
        if served.len() == 0 {
            let ticket = Ticket { slot: u32::MAX, generation: u32::MAX, what: What::Stop };
            let id = served.flush(ticket).expect("an empty table has a place, and a flush needs no frames");
            served.start(now, id);
            flush = Some(id);
        } else if served.has_finished() {
            // Collected at once by the next poll.
        } else if let Some(state) = served.watch(now) {
            return Err(ServeError::Stuck {
                name: name.to_owned(),
                requests: served.len(),
                state: format!(": {state}"),
            });
        } else if let Some(due) = [served.next_due(), served.watch_due()].into_iter().flatten().min() {
            clock.wait_until(due);
        } else {
            let (name, requests, state) = (name.to_owned(), served.len(), String::new());
            return Err(ServeError::Stuck { name, requests, state });
        }
    }
}
