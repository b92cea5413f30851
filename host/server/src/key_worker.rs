//! The thread that computes Diffie-Hellman keys and secrets for authentications, so that the thread that serves does not.
//!
//! ```text
//!   connections ── one job each at most ──▶ line ──▶ whose source has had the least time ──▶ thread ──▶ event, result
//! ```
//!
//! Whoever asks has not shown who it is, so what it may cost is bounded: one thread; of its time a part
//! ([`RESTS_PER_WORK`]); of that part sources take turns, by the time that each has had, where a source is an address and the
//! host name that is claimed there. Hosts that wait long are authenticated later, and nobody else waits at all.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use openftl_core::Nanos;
use openftl_nvme_auth::{Computed, Work};
use openftl_nvme_tcp::target::Slot as CommandSlot;
use rustix::event::{EventfdFlags, eventfd};

/// After each job the thread rests for so many times as long as it took: all authentications together take half of a core.
const RESTS_PER_WORK: u32 = 1;

/// When sources have had so much time together, what each has had counts half. So those that came long ago are forgotten.
const SPENT_HALVED_AT: Nanos = Nanos::from_millis(1_000);

/// Time below which a source is forgotten: it bounds how many are remembered.
const SPENT_FORGOTTEN_BELOW: Nanos = Nanos::from_millis(1);

/// Who asks: an address, and the host name that is claimed there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    address: Option<IpAddr>,
    host: String,
}

impl Source {
    /// The peer of `socket`, that says it is `host`.
    pub fn of(socket: BorrowedFd<'_>, host: &str) -> Source {
        let peer = rustix::net::getpeername(socket).ok().flatten();
        let address = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        Source { address: address.map(|address| address.ip()), host: host.to_owned() }
    }
}

/// Whose command waits for the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JobTicket {
    pub slot: u32,
    pub generation: u32,
    pub command: CommandSlot,
}

struct Job {
    ticket: JobTicket,
    source: Source,
    work: Work,
}

/// The time that sources have had.
#[derive(Default)]
struct Spent(Vec<(Source, Nanos)>);

impl Spent {
    fn of(&self, source: &Source) -> Nanos {
        self.0.iter().find(|(other, _)| other == source).map_or(Nanos::ZERO, |(_, time)| *time)
    }

    fn add(&mut self, source: Source, time: Nanos) {
        match self.0.iter_mut().find(|(other, _)| *other == source) {
            Some((_, spent)) => *spent += time,
            None => self.0.push((source, time)),
        }
        if self.0.iter().map(|(_, time)| time.0).sum::<u64>() >= SPENT_HALVED_AT.0 {
            self.0.iter_mut().for_each(|(_, time)| time.0 /= 2);
            self.0.retain(|(_, time)| *time >= SPENT_FORGOTTEN_BELOW);
        }
    }

    /// Which of those in line comes next: the first of the source that has had the least.
    fn next<'a>(&self, line: impl Iterator<Item = &'a Source>) -> Option<usize> {
        line.enumerate().min_by_key(|(_, source)| self.of(source)).map(|(index, _)| index)
    }
}

/// The thread, and who waits for it.
pub(crate) struct KeyWorker {
    jobs: Sender<Work>,
    results: Receiver<(Computed, Nanos)>,
    event: Arc<OwnedFd>,
    /// At most one job of each connection.
    line: VecDeque<Job>,
    /// Whose job the thread has.
    under_way: Option<(JobTicket, Source)>,
    spent: Spent,
}

impl KeyWorker {
    /// Starts the thread. It ends with this.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn new() -> io::Result<KeyWorker> {
        let event = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (jobs, to_do) = channel::<Work>();
        let (done, results) = channel();
        let bell = Arc::clone(&event);
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            for work in to_do {
                let began = Instant::now();
                let computed = work.run();
                if done.send((computed, Nanos(began.elapsed().as_nanos() as u64))).is_err() {
                    return;
                }
                // Fails only when the counter is full, and then the server is awake already.
                let _ = rustix::io::write(&*bell, &[1; 8]);
                std::thread::sleep(began.elapsed() * RESTS_PER_WORK);
            }
        })?;
        let (line, spent) = (VecDeque::new(), Spent::default());
        Ok(KeyWorker { jobs, results, event, line, under_way: None, spent })
    }

    /// What is readable when a result is there.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// The event was seen.
    pub fn clear(&self) {
        let _ = rustix::io::read(&*self.event, &mut [0_u8; 8]);
    }

    /// Adds a job of a connection that has none.
    pub fn line_up(&mut self, ticket: JobTicket, source: Source, work: Work) {
        self.line.push_back(Job { ticket, source, work });
        self.begin_next();
    }

    /// Gives the thread its next job, if it has none.
    fn begin_next(&mut self) {
        if self.under_way.is_none()
            && let Some(index) = self.spent.next(self.line.iter().map(|job| &job.source))
        {
            let Job { ticket, source, work } = self.line.remove(index).expect("it is in line");
            self.jobs.send(work).expect("the thread ends after this");
            self.under_way = Some((ticket, source));
        }
    }

    /// Takes what has come, and gives the thread its next job. Jobs for nobody are dropped.
    pub fn turn(&mut self, waits: impl Fn(JobTicket) -> bool) -> Option<(JobTicket, Computed)> {
        let mut ended = None;
        if self.under_way.is_some()
            && let Ok((computed, time)) = self.results.try_recv()
        {
            let (ticket, source) = self.under_way.take().expect("looked");
            self.spent.add(source, time);
            ended = Some((ticket, computed));
        }
        self.line.retain(|job| waits(job.ticket));
        self.begin_next();
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: u8, host: &str) -> Source {
        Source { address: Some(IpAddr::from([127, 0, 0, address])), host: host.to_owned() }
    }

    /// Sixteen loops of a peer that claims an honest host's name, and that host once from another address.
    #[test]
    fn who_has_had_little_comes_before_who_has_had_much() {
        let mut spent = Spent::default();
        let mut line: VecDeque<Source> = (0..16).map(|_| source(66, "nqn.honest")).collect();
        spent.add(source(66, "nqn.honest"), Nanos::from_millis(5));
        line.push_back(source(1, "nqn.honest"));
        assert_eq!(spent.next(line.iter()), Some(16));
        spent.add(source(1, "nqn.honest"), Nanos::from_millis(9));
        assert_eq!(spent.next(line.iter()), Some(0), "then those go on that have had less, the first of them first");
    }

    #[test]
    fn sources_take_turns_by_the_time_that_each_has_had() {
        let mut spent = Spent::default();
        let line: Vec<Source> = (0..4).map(|number| source(number, "nqn.a")).collect();
        let mut had = [0; 4];
        for _ in 0..4_000 {
            let next = spent.next(line.iter()).unwrap();
            // The first asks for what takes seven times as long.
            spent.add(line[next].clone(), Nanos::from_millis(if next == 0 { 7 } else { 1 }));
            had[next] += if next == 0 { 7 } else { 1 };
        }
        assert!(had.iter().all(|time| time * 10 > had[0] * 8), "{had:?}");
    }

    #[test]
    fn sources_that_are_gone_are_forgotten() {
        let mut spent = Spent::default();
        for number in 0..10_000 {
            spent.add(source(1, &format!("nqn.{number}")), Nanos::from_millis(2));
        }
        assert!(spent.0.len() <= 1_000, "{}", spent.0.len());
    }
}
