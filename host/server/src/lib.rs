//! The server: one thread that owns the drives and all connections.
//!
//! ```text
//!   wait ──▶ accept ──▶ receive, take requests ──▶ poll the drives ──▶ operator ──▶ answer, send ──▶ wait …
//!    ▲                  (who waits for frames first)                      │                             │
//!    │                                                                    └─ may interrupt it all       │
//!    └── until a socket is ready, a drive is due, a peer is late, the operator is called, or the stop ──┘
//!        is pulled
//! ```
//!
//! Each turn costs a connection at most one system call to receive and one to send, however many requests they hold;
//! and nobody gets more than that in a turn, so nobody starves.
//!
//! # Who may hold what
//! A peer can be slow, silent or gone in the middle of anything. What it holds then is bounded for itself and for all
//! together, and none of it is what others wait for:
//!
//! - **Frames.** A request that needs none of the peer any more ends by itself. A short write gets frames when all of its
//!   payload is in the receive buffer. A long one, and a read whose bytes are in line, may wait for a slow peer in frames; but
//!   as soon as another request finds too few of them, what lies in the frames of peers that moved less than 64 KiB in 50 ms
//!   goes on in memory of their connections, and their frames are free. That costs a copy of what has arrived, so no more than
//!   what the peer has paid for, and on the fast path nothing.
//! - **Memory instead of frames** is bounded for all by [`ServerConfig::kept_bytes_max`]; beyond it the connections that keep
//!   the most are closed. A client gets no frames for more replies before it has read those, and an NVMe host is asked for the
//!   data of no other write before it has sent those.
//! - **A reserve.** An eighth of the frames and of the places is for modest requests: small, of connections that hold little.
//!   They pass those that wait, so a read of 4 KiB never waits for the payload of others.
//! - **Turns.** All other requests wait for frames and places in the order in which their connections came. Requests of more
//!   than a connection's share hold at most half of the pool together.
//! - **Time.** Whoever owes something has [`ServerConfig::stall_max`], and the time that what it moves takes at 16 KiB a second.
//!
//! No two requests wait for each other: a request takes all its frames at once or none, and frames are held by the drive, which
//! ends what it has begun, or for a peer, and then they come back when somebody waits.
//!
//! # Bounds
//! | what | bound |
//! |---|---|
//! | connections | [`ServerConfig::connections_max`] |
//! | connections whose handshake is not done | [`ServerConfig::handshakes_max`] |
//! | steps of authentications and of handshakes of TLS in a turn | `AUTHENTICATION_STEPS_PER_TURN_MAX`, for those who are not yet let in |
//! | keys and secrets of authentications | one at a time, on a thread of their own that works half of the time; sources take turns by the time that each has had (`key_worker.rs`) |
//! | requests of a connection | [`ServerConfig::requests_max`] |
//! | bytes of a connection's requests | [`ServerConfig::bytes_max`], and the drive's pool by [`POOL_SHARES`] |
//! | requests admitted to a drive | `served::REQUESTS_MAX`, an eighth of them reserved for modest ones |
//! | frames | the drive's pool: without a free one NBD sockets are not read and NVMe commands parked; the longest waiting goes first |
//! | memory of slow payload and of replies that are not taken | [`ServerConfig::kept_bytes_max`] for all connections |
//! | receive buffers | one for each connection that has something unread, and `BUFFERS_KEPT_MAX` for the next |
//! | bytes of a TLS connection that is busy | a gathering buffer of `GATHERED_BYTES_MAX` and the library's, about as much again; they are given back when it rests |
//! | heap of an NVMe connection's commands | `HEAP_BYTES_MAX`, and of all [`ServerConfig::heap_bytes_max`]; beyond it they end with a status that hosts answer by trying again |
//! | answers that an NVMe or NBD peer does not take | `SMALL_WAITING_BYTES_MAX`; then nothing more is heard from it |
//! | commands of an NVMe queue | its entries, at most `QUEUE_ENTRIES_MAX`; queues of a controller: `IO_QUEUES_MAX` |
//! | time of a handshake | [`ServerConfig::handshake_max`] |
//! | time that a peer may leave the server waiting in the middle of a message or of its replies | [`ServerConfig::stall_max`], and `n` bytes at 16 KiB a second |
//! | time to finish requests when stopping | [`ServerConfig::stop_max`] |
//! | time that requests may wait for a drive that ends nothing | what the drive says of itself ([`openftl_ftl::target::Vitals`]), and none where nothing is under way; then it takes no more writes, and they end with errors |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod authentication;
mod channel;
pub mod clock;
mod connection;
mod counters;
mod device_request;
mod endpoint;
mod export;
mod fabric;
mod key_worker;
mod link;
mod listener;
mod nbd;
mod nvme;
mod operator;
mod output;
mod pace;
mod parting;
mod peer;
mod secure;
mod served;
mod stop;

use std::fmt;
use std::io;
use std::sync::Arc;

use openftl_core::{Clock, Nanos, Time};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::clock::Lead;
use authentication::Authority;
use channel::Channel;
use connection::Connection;
use export::export_infos;
use fabric::Fabric;
use key_worker::JobTicket;
use link::{Buffers, Over};
use nvme::Turn;
use openftl_nbd::protocol::{Command, ExportInfo};
use openftl_nvme::controller::Effect;
use openftl_nvme::{ControllerName, Queue};
use openftl_nvme_auth::{Policy, Secrets, TlsKeys};
use openftl_nvme_tcp::target::Slot as CommandSlot;
use openftl_nvme_tls::TlsError;
use parting::Parting;
use peer::Peer;
use secure::Secure;
use served::{Ended, Served};
use tracing::{debug, info, warn};

pub use clock::WallClock;
pub use counters::{Counter, Counters};
pub use endpoint::{Endpoint, EndpointError};
pub use export::{EXPORT_NAME_BYTES_MAX, Export, POOL_FRAMES_MIN};
pub use fabric::ServedDrive;
pub use listener::{AdoptError, ListenError, Listener};
pub use operator::{AttachError, Drives, NoOperator, Operator};
pub use secure::TlsPolicy;
pub use served::Device;
pub use stop::Stop;

/// One connection's requests hold at most this part of a drive's pool, so that a few slow ones leave room for others. A
/// single request may be as large as half of the pool.
pub const POOL_SHARES: usize = 8;

/// How often sockets are looked at while the end of a wait is spun.
const LOOK_EVERY: Nanos = Nanos(1_000);

/// Events of one wait.
const EVENTS_MAX: usize = 128;

/// Connections accepted in one turn from one listener.
const ACCEPTS_PER_TURN_MAX: usize = 16;

/// How long a listener rests after the system refused it a connection, if none closes before: what is scarce, such as
/// descriptors, may come back without any event.
const ACCEPT_RETRY_AFTER: Nanos = Nanos::from_millis(100);

/// Polls of a drive in one turn while it says that it has more to do at once.
const POLLS_PER_TURN_MAX: usize = 4;

/// Steps of authentications and of handshakes in one turn: each may compute for some milliseconds, and the others are to be served between
/// them.
const AUTHENTICATION_STEPS_PER_TURN_MAX: u32 = 1;

/// How often late peers are looked for while the server is busy.
const LATE_PEERS_EVERY: Nanos = Nanos::from_millis(100);

/// What an event belongs to, in the upper half of its data; the lower half is an index.
const EVENT_KEYS: u64 = u32::MAX as u64 - 3;
const EVENT_OPERATOR: u64 = u32::MAX as u64 - 2;
const EVENT_LISTENER: u64 = u32::MAX as u64 - 1;
const EVENT_STOP: u64 = u32::MAX as u64;

/// Bounds of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// Connections open at a time; more are closed at once.
    pub connections_max: usize,
    /// Connections whose handshake is not done, authentication included; for one more the oldest of them is closed.
    pub handshakes_max: usize,
    /// Requests of one connection under way at a time.
    pub requests_max: usize,
    /// Bytes of reads and writes of one connection under way at a time; a single request is always served.
    pub bytes_max: u64,
    /// Bytes of the heap for data of NVMe commands that have no frames, of all connections together.
    pub heap_bytes_max: usize,
    /// Memory that slow peers keep, of all connections together: payload whose rest is missing and replies that are not
    /// taken, outside frames. Beyond it those that keep the most are closed.
    pub kept_bytes_max: usize,
    /// How long to look again and again for what comes next before going to sleep: a core for less latency. Waking up takes
    /// some microseconds, in a virtual machine a hundred.
    pub poll: Nanos,
    /// Long writes come through a receive buffer, as short ones do, and not straight from the socket to their frames: to
    /// measure what a copy costs.
    pub copies_long_writes: bool,
    /// How long a handshake may take.
    pub handshake_max: Nanos,
    /// How long a peer may send nothing in the middle of a write, or take nothing of a reply. What it does send or take buys it
    /// the time that this takes at 16 KiB a second, and no more.
    pub stall_max: Nanos,
    /// How long requests under way may take to end when the server stops.
    pub stop_max: Nanos,
    /// Whether to listen for NBD on addresses that other machines reach. It has no passwords.
    pub allow_remote: bool,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            connections_max: 1024,
            handshakes_max: 128,
            requests_max: 256,
            bytes_max: 64 << 20,
            heap_bytes_max: 256 << 20,
            kept_bytes_max: 128 << 20,
            poll: Nanos::ZERO,
            copies_long_writes: false,
            handshake_max: connection::HANDSHAKE_MAX,
            stall_max: connection::STALL_MAX,
            stop_max: Nanos::from_millis(5_000),
            allow_remote: false,
        }
    }
}

/// Why a server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The exports cannot be served.
    #[error("export `{name}`: {why}")]
    Export {
        /// Its name.
        name: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The system failed the server.
    #[error("the server cannot go on: {0}")]
    System(#[from] io::Error),
    /// When the server stopped, a drive could not be flushed.
    #[error("export `{name}`: the last flush failed: {error}")]
    Flush {
        /// The export's name.
        name: String,
        /// What the drive says.
        error: String,
    },
    /// When the server stopped, a drive had requests and nothing to do.
    #[error("export `{name}`: the drive has {requests} requests that it never ends{state}")]
    Stuck {
        /// The export's name.
        name: String,
        /// Requests left.
        requests: usize,
        /// What the drive says of its state, behind a colon, if anything.
        state: String,
    },
}

/// How serving ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was asked to stop: what was under way is finished, the drives are flushed, nobody listens any more.
    Stopped,
    /// The operator interrupted it: connections are closed, their requests have no reply, and the drives are as they were
    /// at that moment. Clients that connect from now on wait until the server runs again.
    Interrupted {
        /// Connections closed.
        connections: u64,
        /// Requests that were under way; their clients wait for them in vain.
        requests: u64,
    },
}

/// Who asked for a request, and what for.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    slot: u32,
    generation: u32,
    what: What,
}

/// What a request was made for.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A request of an NBD client, and its name for it.
    Nbd { cookie: u64, command: Command },
    /// A command of an NVMe host.
    Nvme(CommandSlot),
    /// The flush before a controller is shut down.
    Shutdown(ControllerName),
    /// The last flush.
    Stop,
}

/// What is spoken on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// NBD.
    Nbd,
    /// NVMe over TCP.
    NvmeTcp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Nbd => "nbd",
            Protocol::NvmeTcp => "nvme-tcp",
        })
    }
}

/// What a wait ended with.
struct Woken {
    /// When the first of the deadlines is over, if that was looked up.
    late: Option<Time>,
    /// Whether the operator was called.
    called: bool,
}

/// A place for a connection. The generation tells its tenants apart.
#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// An NBD server.
pub struct Server {
    config: ServerConfig,
    epoll: std::os::fd::OwnedFd,
    listeners: Vec<Listener>,
    slots: Vec<Slot>,
    counters: Arc<Counters>,
    lead: Lead,
    fabric: Option<Fabric>,
    ended: Vec<Ended>,
    /// Drives that have just come to a standstill, and their states.
    standstills: Vec<(usize, String)>,
    buffers: Buffers,
    /// Somebody has come since handshakes were last counted.
    is_crowded: bool,
    /// When something last came from a peer.
    heard: Time,
}

impl Server {
    /// A server that listens nowhere yet.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new(config: ServerConfig) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Server {
            config,
            epoll,
            listeners: Vec::new(),
            slots: Vec::new(),
            counters: Arc::default(),
            lead: Lead::new(),
            fabric: None,
            ended: Vec::new(),
            standstills: Vec::new(),
            buffers: Buffers::default(),
            is_crowded: false,
            heard: Time::ZERO,
        })
    }

    /// Listens at `endpoint`, as many as wanted. Clients that connect now are served once the server runs. Returns where
    /// it listens in fact: with the port that the system chose, if it was zero.
    ///
    /// # Errors
    /// If the endpoint is in use, is not a local one (and those are not allowed), or the system refuses it.
    pub fn listen(&mut self, endpoint: Endpoint, protocol: Protocol) -> Result<Endpoint, ListenError> {
        // Which NVMe hosts may connect is said by their names, wherever they come from.
        let allow_remote = self.config.allow_remote || protocol == Protocol::NvmeTcp;
        self.listen_at(Listener::new(endpoint, allow_remote)?, protocol)
    }

    /// Serves the clients of a socket that listens already, and returns where that is.
    ///
    /// # Errors
    /// If the system refuses to watch it.
    pub fn listen_at(&mut self, mut listener: Listener, protocol: Protocol) -> Result<Endpoint, ListenError> {
        listener.protocol = protocol;
        let data = epoll::EventData::new_u64(EVENT_LISTENER << 32 | self.listeners.len() as u64);
        epoll::add(&self.epoll, &listener, data, epoll::EventFlags::IN | epoll::EventFlags::ET)
            .map_err(|error| ListenError::System { endpoint: listener.endpoint().clone(), error: error.into() })?;
        let endpoint = listener.endpoint().clone();
        self.listeners.push(listener);
        Ok(endpoint)
    }

    /// What NVMe hosts connect to: one subsystem, whose namespace n is the drive n − 1.
    pub fn set_target(&mut self, target: openftl_nvme::Target) {
        self.fabric = Some(Fabric::new(target));
    }

    /// The secrets that hosts have to know where a subsystem requires authentication, and which hash functions and groups it
    /// accepts. Called after [`Server::set_target`].
    ///
    /// # Errors
    /// If the system has no thread or file descriptor left for computing keys.
    ///
    /// # Panics
    /// Without a target.
    pub fn set_secrets(&mut self, secrets: Secrets, policy: Policy) -> io::Result<()> {
        let fabric = self.fabric.as_mut().expect("secrets are those of a target");
        let authority = Authority::new(secrets, policy)?;
        let data = epoll::EventData::new_u64(EVENT_KEYS << 32);
        epoll::add(&self.epoll, authority.worker.event(), data, epoll::EventFlags::IN)?;
        fabric.authority = Some(authority);
        Ok(())
    }

    /// Has hosts use TLS with these keys, before anything else is said on a connection. Called after [`Server::set_target`],
    /// when that has its subsystems.
    ///
    /// # Errors
    /// If this build has no TLS.
    ///
    /// # Panics
    /// Without a target.
    pub fn set_tls(&mut self, keys: &TlsKeys, policy: TlsPolicy) -> Result<(), TlsError> {
        let fabric = self.fabric.as_mut().expect("hosts connect to a target");
        let secure = Secure::new(keys, policy, &fabric.target)?;
        fabric.target.set_secure_channel(secure.channel());
        fabric.secure = Some(secure);
        Ok(())
    }

    /// What the server has done; readable while it runs.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Serves `exports` until `stop` is requested; then finishes what is under way, flushes the drives and closes.
    ///
    /// # Errors
    /// If the exports cannot be served, the system fails, or the drives cannot be flushed.
    pub fn run<T: ServedDrive, C: Clock>(
        &mut self,
        exports: &mut [Export<T>],
        clock: &mut C,
        stop: &Stop,
    ) -> Result<(), ServeError> {
        self.run_with(&mut NoOperator, exports, clock, stop).map(|_| ())
    }

    /// Serves `exports` until `stop` is requested, or `operator` interrupts it.
    ///
    /// # Errors
    /// If the exports cannot be served, the system fails, or the drives cannot be flushed when it stops.
    pub fn run_with<T: ServedDrive, C: Clock, O: Operator<T>>(
        &mut self,
        operator: &mut O,
        exports: &mut [Export<T>],
        clock: &mut C,
        stop: &Stop,
    ) -> Result<End, ServeError> {
        let no_devices: &mut [Device<T::Device>] = &mut [];
        self.run_with_devices(operator, exports, no_devices, clock, stop)
    }

    /// The same, and beside the drives Open-Channel devices to NVMe hosts: their namespaces come behind those of the drives.
    ///
    /// # Errors
    /// As [`Server::run_with`].
    pub fn run_with_devices<T: ServedDrive, C: Clock, O: Operator<T>>(
        &mut self,
        operator: &mut O,
        exports: &mut [Export<T>],
        devices: &mut [Device<T::Device>],
        clock: &mut C,
        stop: &Stop,
    ) -> Result<End, ServeError> {
        let mut infos = export_infos(exports, !devices.is_empty())?;
        let read_only: Vec<bool> = exports.iter().map(|export| export.read_only).collect();
        let drives = exports.iter_mut().map(|export| Served::drive(&mut export.target));
        let devices = devices.iter_mut().map(Served::device);
        let mut served: Vec<Served<'_, T>> = drives.chain(devices).collect();
        let ended = self.watched(stop, operator, |server, operator| {
            server.turns(operator, &mut infos, &read_only, &mut served, clock, stop)
        });
        // Whatever ended it, nothing of this run may reach the next.
        let parting = match &ended {
            Ok(End::Stopped) => Parting::Stop,
            Ok(End::Interrupted { .. }) => Parting::PowerCut,
            Err(_) => Parting::Failed,
        };
        for slot in 0..self.slots.len() {
            self.close(slot, parting, &mut served);
        }
        if let Ok(End::Interrupted { .. }) = ended {
            return ended;
        }
        self.listeners.clear();
        let names = infos.iter().map(|info| info.name.as_str()).chain(std::iter::repeat("device"));
        let flushed = names.zip(&mut served).map(|(name, served)| drain_and_flush(name, served, clock));
        flushed.fold(Ok(()), Result::and).and(ended)
    }

    /// Closes every connection at once, until `stop` is requested or `operator` interrupts it: there is no drive.
    ///
    /// # Errors
    /// If the system fails.
    pub fn turn_away<T: ServedDrive, C: Clock, O: Operator<T>>(
        &mut self,
        operator: &mut O,
        clock: &mut C,
        stop: &Stop,
    ) -> Result<End, ServeError> {
        let ended =
            self.watched(stop, operator, |server, operator| server.turns(operator, &mut [], &[], &mut [], clock, stop));
        if !matches!(ended, Ok(End::Interrupted { .. })) {
            self.listeners.clear();
        }
        ended
    }

    /// Has `stop` and `operator` wake the server during `turns`.
    fn watched<T: ServedDrive, O: Operator<T>>(
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

    fn turns<T: ServedDrive, C: Clock, O: Operator<T>>(
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
            for (info, (read_only, served)) in infos.iter_mut().zip(read_only.iter().zip(served.iter())) {
                info.read_only = *read_only || served.is_read_only();
            }

            if stop.is_requested() && stopping.is_none() {
                stopping = Some(now + self.config.stop_max);
                self.listeners.clear();
                self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut()).for_each(Connection::stop);
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
            first = if first + 1 < self.slots.len() { first + 1 } else { 0 };
            for slot in (first..self.slots.len()).chain(0..first) {
                self.serve(now, slot, infos, served);
            }

            let mut freed = self.poll_drives(clock, served);
            for (export, state) in self.standstills.drain(..) {
                operator.came_to_standstill(export, &state);
            }
            self.look_after_controllers(now, served);
            let mut drives = Drives { served, fabric: self.fabric.as_mut() };
            if operator.turn(clock.now(), called, &mut drives).is_break() {
                return Ok(self.interrupted());
            }
            if called || self.fabric.as_ref().is_some_and(|fabric| fabric.is_restless) {
                self.tell_hosts(now, served);
            }
            for slot in 0..self.slots.len() {
                freed |= self.send(now, slot, served);
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
                        now >= deadline || (connection.is_idle() && !connection.link().readable)
                    }) {
                        self.close(slot, Parting::Stop, served);
                    }
                }
                if self.slots.iter().all(|slot| slot.connection.is_none()) {
                    return Ok(End::Stopped);
                }
            }
            again = self.can_go_on(freed, served);
        }
    }

    fn interrupted(&self) -> End {
        End::Interrupted {
            connections: self.counters.connections.get(),
            requests: self.connections().map(|connection| connection.requests_under_way() as u64).sum(),
        }
    }

    /// Waits for a socket, a drive, the operator, a late peer, the end of a listener's rest or the stop, and marks what is
    /// ready.
    fn wait<T: ServedDrive, C: Clock>(
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
        let timeout = if again || self.linger(events, due, clock)? {
            Some(Nanos::ZERO)
        } else {
            // Where cores are scarce, a client that is about to ask more gets to do so first: then a turn serves many
            // requests instead of one. Where they are not, this costs nothing.
            std::thread::yield_now();
            let now = clock.now();
            let deadlines = self.connections().filter_map(|connection| connection.deadline(&self.config));
            let retries = self.listeners.iter().filter_map(|listener| listener.retry_at);
            let silent = self.fabric.as_ref().and_then(|fabric| fabric.target.next_due());
            let slow = self.connections().filter_map(Connection::slow_at);
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
            self.look(events, timeout.as_ref())?;
        }
        if let Some((meant, due)) = precise.filter(|_| events.is_empty()) {
            let mut now = clock.now();
            if timeout.is_some_and(|timeout| timeout != Timespec::default()) {
                self.lead.learn(meant, now);
            }
            while events.is_empty() && now < due {
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
                (generation, slot) => {
                    let slot = &mut self.slots[slot];
                    if let Some(connection) =
                        slot.connection.as_mut().filter(|_| u64::from(slot.generation) == generation)
                    {
                        use epoll::EventFlags as Flags;
                        let hung_up = flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR);
                        let link = connection.link_mut();
                        self.heard = clock.now();
                        link.hung_up |= hung_up;
                        link.readable |= hung_up || flags.contains(Flags::IN);
                        link.writable |= flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR);
                    }
                }
            }
        }
        Ok(Woken { late, called })
    }

    /// Looks again and again, for as long as that is better than to sleep. Returns whether there is something to do.
    fn linger<C: Clock>(
        &self,
        events: &mut Vec<epoll::Event>,
        due: Option<Time>,
        clock: &mut C,
    ) -> Result<bool, ServeError> {
        if self.config.poll == Nanos::ZERO {
            return Ok(false);
        }
        let until = self.heard + self.config.poll;
        while clock.now() < until {
            self.look(events, Some(&Timespec::default()))?;
            if !events.is_empty() || due.is_some_and(|due| clock.now() >= due) {
                return Ok(true);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Looks which sockets are ready.
    fn look(&self, events: &mut Vec<epoll::Event>, timeout: Option<&Timespec>) -> Result<(), ServeError> {
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(ServeError::System(error.into())),
        }
    }

    /// Accepts those who wait, and lets them in if there is something to serve: drives to NBD clients, namespaces to NVMe hosts.
    fn accept(&mut self, now: Time, drives: bool, namespaces: bool) {
        for index in 0..self.listeners.len() {
            if self.listeners[index].retry_at.is_some_and(|at| now >= at) {
                self.listeners[index].ready = true;
            }
            for _ in 0..ACCEPTS_PER_TURN_MAX {
                if !self.listeners[index].ready {
                    break;
                }
                let protocol = self.listeners[index].protocol;
                let is_served = if protocol == Protocol::NvmeTcp { namespaces } else { drives };
                match self.listeners[index].accept() {
                    Ok(socket) if is_served => self.welcome(now, socket, protocol),
                    Ok(socket) => self.refuse(&socket, protocol, "nothing is served there now"),
                    Err(Errno::AGAIN) => self.listeners[index].ready = false,
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    // Out of descriptors or memory: a connection may wait in the backlog, and no event will tell of it
                    // again. To try in every turn would be to spin.
                    Err(error) => {
                        self.counters.accepts_failed.add(1);
                        warn!(target: "connection", %protocol, %error, "the system refused a connection; it is tried again");
                        self.listeners[index].ready = false;
                        self.listeners[index].retry_at = Some(now + ACCEPT_RETRY_AFTER);
                    }
                }
            }
        }
    }

    fn welcome(&mut self, now: Time, socket: std::os::fd::OwnedFd, protocol: Protocol) {
        let slot = self.slots.iter().position(|slot| slot.connection.is_none()).unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(u64::from(self.slots[slot].generation) << 32 | slot as u64);
        let is_full = self.counters.connections.get() >= self.config.connections_max as u64;
        if is_full {
            return self.refuse(&socket, protocol, "there are too many connections");
        }
        if epoll::add(&self.epoll, &socket, data, flags).is_err() {
            return self.refuse(&socket, protocol, "the system has no room for it");
        }
        self.counters.connections.add(1);
        self.counters.connections_accepted.add(1);
        let number = self.counters.connections_accepted.get();
        self.is_crowded = true;
        let is_secure =
            protocol == Protocol::NvmeTcp && self.fabric.as_ref().is_some_and(|fabric| fabric.secure.is_some());
        let channel = if is_secure { Channel::Undecided } else { Channel::Plain };
        let connection = Connection::new(now, number, socket, protocol, channel, &self.config);
        debug!(target: "connection", connection = number, peer = %connection.link().peer, %protocol, "connection accepted");
        self.slots[slot].connection = Some(connection);
    }

    /// Closes a connection that has just been accepted.
    fn refuse(&mut self, socket: &std::os::fd::OwnedFd, protocol: Protocol, reason: &str) {
        self.counters.connections_refused.add(1);
        warn!(target: "connection", peer = %Peer::of(socket), %protocol, reason, "connection refused");
    }

    /// Receives from one connection and takes its requests.
    fn serve<T: ServedDrive>(&mut self, now: Time, slot: usize, infos: &[ExportInfo], served: &mut [Served<'_, T>]) {
        let Slot { generation, connection: Some(connection) } = &mut self.slots[slot] else { return };
        let (number, generation) = (slot as u32, *generation);
        let result = match connection {
            Connection::Nbd(connection) => {
                let ticket = Ticket { slot: number, generation, what: What::Stop };
                connection
                    .receive(now, served, &mut self.buffers, &self.config)
                    .and_then(|()| connection.take_requests(now, ticket, infos, served, &self.config, &self.counters))
            }
            Connection::Nvme(connection) => {
                let fabric = self.fabric.as_mut().expect("NVMe hosts connect to a target");
                let (config, counters) = (&self.config, &*self.counters);
                let mut turn = Turn { now, slot: number, generation, served, fabric, config, counters };
                connection
                    .receive(now, &mut self.buffers, turn.fabric, counters)
                    .and_then(|()| connection.take_commands(&mut turn))
            }
        };
        connection.link_mut().give_back(&mut self.buffers);
        match result {
            Ok(()) if connection.is_over() => self.end(slot, Over::Finished, served),
            Ok(()) => {}
            Err(over) => self.end(slot, over, served),
        }
    }

    /// Goes on with an authentication whose key or secret has been computed, and has the next one computed.
    fn take_keys<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        let Some(authority) = self.fabric.as_mut().and_then(|fabric| fabric.authority.as_mut()) else { return };
        let slots = &self.slots;
        let waits = |ticket: JobTicket| {
            let slot = &slots[ticket.slot as usize];
            slot.generation == ticket.generation && slot.connection.is_some()
        };
        let Some((ticket, computed)) = authority.worker.turn(waits) else { return };
        let Slot { generation, connection: Some(Connection::Nvme(connection)) } = &mut self.slots[ticket.slot as usize]
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
    }

    /// Lets the drives work and puts replies in line. Returns whether anything finished or frames came back.
    fn poll_drives<T: ServedDrive, C: Clock>(&mut self, clock: &mut C, served: &mut [Served<'_, T>]) -> bool {
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
            _ => served[index].release(ended.id()),
        }
    }

    /// Does what NVMe controllers ask for beside their answers, and closes the connections of those that are gone.
    fn look_after_controllers<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        let Some(fabric) = &mut self.fabric else { return };
        fabric.target.expire(now, &mut fabric.expired);
        fabric.flush_for_shutdowns(now, served);
        if fabric.effects.is_empty() && fabric.expired.is_empty() && !fabric.is_disturbed {
            return;
        }
        fabric.is_disturbed = false;
        fabric.expired.clear();
        for (name, effect) in std::mem::take(&mut fabric.effects) {
            if effect == Effect::Shutdown {
                fabric.begin_shutdown(name, served.len());
            }
        }
        fabric.flush_for_shutdowns(now, served);
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
    fn tell_hosts<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        let Some(fabric) = &mut self.fabric else { return };
        fabric.look(now, served);
        for slot in 0..self.slots.len() {
            let Slot { generation, connection: Some(Connection::Nvme(connection)) } = &mut self.slots[slot] else {
                continue;
            };
            let Some(name) = connection.queue.as_ref().filter(|queue| queue.is_admin()).map(Queue::controller) else {
                continue;
            };
            let fabric = self.fabric.as_mut().expect("it is there");
            let (config, counters) = (&self.config, &*self.counters);
            let mut turn = Turn { now, slot: slot as u32, generation: *generation, served, fabric, config, counters };
            if let Err(over) = connection.take_events(name, &mut turn) {
                self.end(slot, over, served);
            }
        }
    }

    /// Sends one connection's replies. Returns whether others may go on.
    fn send<T: ServedDrive>(&mut self, now: Time, slot: usize, served: &mut [Served<'_, T>]) -> bool {
        let Some(connection) = &mut self.slots[slot].connection else { return false };
        match connection.send(now, served) {
            Ok(freed) => {
                if connection.is_over() {
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

    /// Of too many handshakes the oldest end: who is in earnest is through quickly, and comes again.
    fn make_room_for_handshakes<T: ServedDrive>(&mut self, served: &mut [Served<'_, T>]) {
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
    fn take_frames_from_slow_peers<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) -> bool {
        if !is_short(served) {
            return false;
        }
        let mut any = false;
        for slot in 0..self.slots.len() {
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
    fn bound_what_is_kept<T: ServedDrive>(&mut self, served: &mut [Served<'_, T>]) -> bool {
        let mut kept: usize = self.connections().map(Connection::kept_bytes).sum();
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

    fn expel_late_peers<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) {
        for slot in 0..self.slots.len() {
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

    /// Whether the next turn has something to do without waiting.
    fn can_go_on<T: ServedDrive>(&self, freed: bool, served: &[Served<'_, T>]) -> bool {
        served.iter().any(Served::has_finished)
            // Events are edges: whoever still waits in a backlog after a full turn of accepts is not announced again.
            || self.listeners.iter().any(|listener| listener.ready)
            || self.fabric.as_ref().is_some_and(|fabric| fabric.is_disturbed)
            || self
                .connections()
                .any(|connection| connection.can_go_on() || (freed && connection.is_held_back(&self.config)))
    }

    fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|slot| slot.connection.as_ref())
    }

    fn end<T: ServedDrive>(&mut self, slot: usize, over: Over, served: &mut [Served<'_, T>]) {
        let parting = match over {
            Over::Finished => Parting::HungUp,
            Over::Vanished => Parting::Broken,
            Over::Expelled(parting) => {
                self.counters.connections_expelled.add(1);
                parting
            }
        };
        self.close(slot, parting, served);
    }

    /// Closes a connection, for the reason that it has itself if there is one. What it had started ends without it; what it had
    /// not started never happened.
    fn close<T: ServedDrive>(&mut self, slot: usize, parting: Parting, served: &mut [Served<'_, T>]) {
        let Some(mut connection) = self.slots[slot].connection.take() else { return };
        let (link, protocol) = (connection.link(), connection.protocol());
        let (number, peer, reason) = (link.number, link.peer, link.parting.unwrap_or(parting));
        if reason.is_rude() {
            warn!(target: "connection", connection = number, %peer, %protocol, %reason, "connection closed");
        } else {
            info!(target: "connection", connection = number, %peer, %protocol, %reason, "connection closed");
        }
        connection.link_mut().close();
        connection.abandon_all(served);
        if let (Connection::Nvme(connection), Some(fabric)) = (&mut connection, &mut self.fabric) {
            fabric.heap_bytes -= connection.heap_bytes();
            if let Some(queue) = connection.queue.take() {
                fabric.is_disturbed |= queue.is_admin();
                fabric.target.disconnected(queue);
            }
        }
        for served in served {
            served.stop_waiting(slot as u32);
        }
        // Generations stay clear of the marks of listeners and stop.
        self.slots[slot].generation = (self.slots[slot].generation + 1) % (1 << 31);
        self.counters.connections.sub(1);
        // Its descriptor may be what a listener lacks.
        for listener in &mut self.listeners {
            listener.ready |= listener.retry_at.is_some();
        }
        // Closing the socket takes it out of the epoll set.
        let _ = epoll::delete(&self.epoll, connection.link().socket());
    }
}

/// Whether somebody waits for frames or a place.
fn is_short<T: ServedDrive>(served: &[Served<'_, T>]) -> bool {
    served.iter().any(Served::has_waiters)
}

/// Ends what the connections left behind and makes the drive's contents durable.
fn drain_and_flush<T: ServedDrive, C: Clock>(
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
