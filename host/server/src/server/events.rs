//! Events wake the server: a socket is ready, the operator calls, a key has been computed, or the stop is pulled. The server
//! waits for them until a drive is due or a peer is late.

use std::io;

use openftl_core::{Clock, Nanos, Time};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::bounds::is_short;
use super::{EVENT_KEYS, EVENT_LISTENER, EVENT_OPERATOR, EVENT_REACTORS, EVENT_STOP, Server};
use crate::connection::Connection;
use crate::end::{End, ServeError};
use crate::operator::Operator;
use crate::served::Served;
use crate::served_drive::ServedDrive;
use crate::stop::Stop;

/// How often sockets are looked at while the end of a wait is spun.
const LOOK_EVERY: Nanos = Nanos(1_000);

/// How long reactors are waited for before the server sleeps, and how many looks that takes at most: the clock of a test may stand still.
const REACTORS_TAKE: Nanos = Nanos(100_000);
const LOOKS_MAX: usize = 1_000;

/// What a wait ended with.
pub(super) struct Woken {
    /// When the first of the deadlines is over, if that was looked up.
    pub(super) late: Option<Time>,
    /// Whether the operator was called.
    pub(super) called: bool,
}

impl Server {
    /// Has `stop` and `operator` wake the server during `turns`.
    pub(super) fn watched<T: ServedDrive, O: Operator<T>>(
        &mut self,
        stop: &Stop,
        operator: &mut O,
        turns: impl FnOnce(&mut Server, &mut O) -> Result<End, ServeError>,
    ) -> Result<End, ServeError> {
        let data = |kind: u64| epoll::EventData::new_u64(kind << 32);
        epoll::add(&self.epoll, stop.event(), data(EVENT_STOP), epoll::EventFlags::IN).map_err(io::Error::from)?;
        if let Some(event) = operator.event() {
            epoll::add(&self.epoll, event, data(EVENT_OPERATOR), epoll::EventFlags::IN).map_err(io::Error::from)?;
        }
        let ended = turns(self, operator);
        if let Some(event) = operator.event() {
            epoll::delete(&self.epoll, event).map_err(io::Error::from)?;
        }
        epoll::delete(&self.epoll, stop.event()).map_err(io::Error::from)?;
        ended
    }

    /// Waits for a socket, a drive, the operator, a late peer, the end of a listener's rest or the stop, and marks what is
    /// ready.
    pub(super) fn wait<T: ServedDrive, C: Clock>(
        &mut self,
        events: &mut Vec<epoll::Event>,
        again: bool,
        stopping: Option<Time>,
        operator_due: Option<Time>,
        served: &[Served<'_, T>],
        clock: &mut C,
        stop: &Stop,
    ) -> Result<Woken, ServeError> {
        let (mut late, mut called) = (None, false);
        let due = served.iter().filter_map(Served::next_due).min();
        let mut precise = None;
        events.clear();
        let mut sleeps = false;
        let timeout = if again || self.await_reactors(events, due, clock)? || self.linger(events, due, clock)? {
            Some(Nanos::ZERO)
        } else {
            // Where cores are scarce, a client that is about to ask more gets to do so first: then a turn serves many
            // requests instead of one. Where they are not, this costs nothing.
            std::thread::yield_now();
            let now = clock.now();
            sleeps = true;
            let deadlines = self.awake().filter_map(|connection| connection.deadline(&self.config));
            let retries = self.listeners.iter().filter_map(|listener| listener.retry_at);
            let silent = self.fabric.as_ref().and_then(|fabric| fabric.target.next_due());
            let slow = self.awake().filter_map(Connection::slow_at);
            let slow = is_short(served).then_some(slow).into_iter().flatten();
            let watch = served.iter().filter_map(Served::watch_due);
            let others = deadlines.chain(retries).chain(stopping).chain(operator_due);
            late = others.chain(silent).chain(slow).chain(watch).min();
            if let Some(due) = due.filter(|due| late.is_none_or(|late| *due <= late)) {
                // Waking up takes a while: the end of the wait is spent looking again and again.
                let span = due.since(now) - self.lead.get();
                precise = Some((now + span, due));
                Some(span)
            } else {
                late.map(|late| late.since(now))
            }
        };
        let timeout = timeout
            .map(|span| Timespec { tv_sec: (span.0 / 1_000_000_000) as i64, tv_nsec: (span.0 % 1_000_000_000) as i64 });
        if events.is_empty() {
            let is_called = sleeps && !self.reactors.may_sleep();
            let timeout = if is_called { Some(Timespec::default()) } else { timeout };
            self.look(events, timeout.as_ref())?;
            self.reactors.woke();
        }
        if let Some((meant, due)) = precise.filter(|_| events.is_empty()) {
            let mut now = clock.now();
            if timeout.is_some_and(|timeout| timeout != Timespec::default()) {
                self.lead.learn(meant, now);
            }
            while events.is_empty() && now < due && !self.reactors.has_made() {
                std::thread::yield_now();
                self.look(events, Some(&Timespec::default()))?;
                now = clock.wait_until(due.min(now + LOOK_EVERY));
            }
        }
        for event in events.iter() {
            let (data, flags) = (event.data.u64(), event.flags);
            match (data >> 32, data as u32 as usize) {
                (EVENT_STOP, _) => stop.clear(),
                (EVENT_OPERATOR, _) => called = true,
                (EVENT_REACTORS, _) => self.reactors.clear(),
                (EVENT_KEYS, _) => {
                    if let Some(authority) = self.fabric.as_ref().and_then(|fabric| fabric.authority.as_ref()) {
                        authority.worker.clear();
                    }
                }
                (EVENT_LISTENER, index) => {
                    if let Some(listener) = self.listeners.get_mut(index) {
                        listener.ready = true;
                    }
                }
                (generation, number) => {
                    let slot = &mut self.slots[number];
                    if let Some(connection) =
                        slot.connection.as_mut().filter(|_| u64::from(slot.generation) == generation)
                    {
                        use epoll::EventFlags as Flags;
                        let hung_up = flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR);
                        let link = connection.link_mut();
                        let before = std::mem::replace(&mut self.heard, clock.now());
                        if std::mem::take(&mut sleeps) {
                            self.lingering.slept(self.heard.since(before));
                        }
                        let writable = flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR);
                        link.announce(hung_up, hung_up || flags.contains(Flags::IN), writable);
                        self.wake(number);
                    }
                }
            }
        }
        Ok(Woken { late, called })
    }

    /// Looks again and again while reactors are at work, which takes microseconds, and no drive is due. Returns whether there is something
    /// to do.
    fn await_reactors<C: Clock>(
        &mut self,
        events: &mut Vec<epoll::Event>,
        due: Option<Time>,
        clock: &mut C,
    ) -> Result<bool, ServeError> {
        if !self.reactors.are_at_work() {
            return Ok(false);
        }
        let until = clock.now() + REACTORS_TAKE;
        for _ in 0..LOOKS_MAX {
            if self.reactors.has_made() {
                return Ok(true);
            }
            self.look(events, Some(&Timespec::default()))?;
            if !events.is_empty() {
                return Ok(true);
            }
            let now = clock.now();
            if due.is_some_and(|due| now >= due) {
                return Ok(true);
            }
            if now >= until {
                break;
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Looks again and again, for as long as that is better than to sleep. Returns whether there is something to do.
    fn linger<C: Clock>(
        &mut self,
        events: &mut Vec<epoll::Event>,
        due: Option<Time>,
        clock: &mut C,
    ) -> Result<bool, ServeError> {
        let began = clock.now();
        if !self.lingering.may_linger(due.map(|due| due.since(began))) {
            return Ok(false);
        }
        let (mut now, until) = (began, self.lingering.until(began, self.heard));
        let mut looks = 0..self.lingering.looks_max();
        while now < until && looks.next().is_some() {
            self.look(events, Some(&Timespec::default()))?;
            if self.reactors.has_made() {
                return Ok(true);
            }
            if !events.is_empty() {
                self.lingering.found(clock.now().since(began));
                return Ok(true);
            }
            if due.is_some_and(|due| now >= due) {
                return Ok(true);
            }
            std::thread::yield_now();
            let before = std::mem::replace(&mut now, clock.now());
            if !self.lingering.was_kept(now.since(before)) {
                return Ok(false);
            }
        }
        self.lingering.in_vain();
        Ok(false)
    }

    /// Looks which sockets are ready.
    fn look(&self, events: &mut Vec<epoll::Event>, timeout: Option<&Timespec>) -> Result<(), ServeError> {
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(ServeError::System(error.into())),
        }
    }
}
