//! The server owns its listeners and connections, and what NVMe hosts connect to. It serves exports until it is stopped or
//! interrupted.

mod arrivals;
mod bounds;
mod controllers;
mod drives;
mod events;
mod fences;
mod turns;

use std::io;
use std::sync::Arc;

use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Time};
use openftl_media::Media;
use openftl_nvme::namespace::TRANSFER_BYTES_MAX;
use openftl_nvme_auth::{Policy, Secrets, TlsKeys};
use openftl_nvme_tls::TlsError;
use openftl_parts::target::Target;
use rustix::event::epoll;
use tracing::{info, warn};

use crate::authentication::Authority;
use crate::clock::Lead;
use crate::config::ServerConfig;
use crate::connection::Connection;
use crate::counters::Counters;
use crate::end::{End, ServeError};
use crate::ended::Ended;
use crate::endpoint::Endpoint;
use crate::export::{Export, export_infos};
use crate::fabric::Fabric;
use crate::lingering::Lingering;
use crate::link::{Buffers, Over};
use crate::listener::{ListenError, Listener};
use crate::operator::{NoOperator, Operator};
use crate::other::Other;
use crate::parting::Parting;
use crate::protocol::Protocol;
use crate::reactors::Reactors;
use crate::recorder::Recorder;
use crate::secure::{Secure, TlsPolicy};
use crate::served::Served;
use crate::served_drive::ServedDrive;
use crate::stop::Stop;
use drives::drain_and_flush;
use fences::Left;

/// What an event belongs to, in the upper half of its data; the lower half is an index.
const EVENT_REACTORS: u64 = u32::MAX as u64 - 4;
const EVENT_KEYS: u64 = u32::MAX as u64 - 3;
const EVENT_OPERATOR: u64 = u32::MAX as u64 - 2;
const EVENT_LISTENER: u64 = u32::MAX as u64 - 1;
const EVENT_STOP: u64 = u32::MAX as u64;

/// Blocks of what hosts send to a store of pages or a key-value drive: two of the longest commands, at least.
const STAGING_BLOCKS_MIN: usize = 2 * TRANSFER_BYTES_MAX as usize / BLOCK_BYTES;

/// Whether stores of pages and key-value drives have frames for answers beside those that they need themselves.
fn expect_pools<M: Media>(others: &[Other<M>], before: usize) -> Result<(), ServeError> {
    for (place, other) in others.iter().enumerate() {
        let (free, own) = match other {
            Other::Pages(drive) => (drive.frames().available(FrameForm::Bytes), drive.frames_to_put()),
            Other::Values(drive) => (drive.frames().available(FrameForm::Bytes), drive.store().frames_to_put()),
            Other::Zones(_) | Other::Device(_) => continue,
        };
        let (found, needed) = (free, own + TRANSFER_BYTES_MAX as usize / BLOCK_BYTES);
        if found < needed {
            let why = format!("{found} free frames in the pool of the drive; at least {needed} are needed");
            return Err(ServeError::Export { name: format!("namespace {}", before + place + 1), why });
        }
    }
    Ok(())
}

/// A place for a connection. The generation tells its tenants apart.
#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
    /// Its number is among those of [`Server::awake`].
    is_awake: bool,
}

/// A server of drives, over NBD and NVMe/TCP.
pub struct Server {
    config: ServerConfig,
    epoll: std::os::fd::OwnedFd,
    listeners: Vec<Listener>,
    slots: Vec<Slot>,
    /// Slots whose connections may have something to do: those that sleep cost a turn nothing.
    awake: Vec<u32>,
    counters: Arc<Counters>,
    lead: Lead,
    lingering: Lingering,
    fabric: Option<Fabric>,
    ended: Vec<Ended>,
    /// What connections that are gone have left at the drives.
    left: Vec<Left>,
    /// Drives that have just come to a standstill, and their states.
    standstills: Vec<(usize, String)>,
    buffers: Buffers,
    reactors: Reactors,
    /// Somebody has come since handshakes were last counted.
    is_crowded: bool,
    /// When something last came from a peer.
    heard: Time,
    recorder: Option<Arc<Recorder>>,
}

impl Server {
    /// A server that listens nowhere yet.
    ///
    /// # Errors
    /// If the process has no file descriptor or thread left.
    pub fn new(config: ServerConfig) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let reactors = Reactors::new(config.reactors, config.reactors_above)?;
        let data = epoll::EventData::new_u64(EVENT_REACTORS << 32);
        epoll::add(&epoll, reactors.event(), data, epoll::EventFlags::IN)?;
        Ok(Server {
            config,
            epoll,
            listeners: Vec::new(),
            slots: Vec::new(),
            awake: Vec::new(),
            counters: Arc::default(),
            lead: Lead::new(),
            lingering: Lingering::new(config.poll),
            fabric: None,
            ended: Vec::new(),
            left: Vec::new(),
            standstills: Vec::new(),
            buffers: Buffers::default(),
            reactors,
            is_crowded: false,
            heard: Time::ZERO,
            recorder: None,
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

    /// Has what hosts ask of blocks and zones written down, under the numbers of the namespaces from 0.
    pub fn set_recorder(&mut self, recorder: Arc<Recorder>) {
        self.recorder = Some(recorder);
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
        self.run_with_others(operator, exports, &mut [], clock, stop)
    }

    /// The same, and `others` to NVMe hosts: their namespaces come behind those of the drives, in this order.
    ///
    /// # Errors
    /// As [`Server::run_with`].
    pub fn run_with_others<T: ServedDrive, C: Clock, O: Operator<T>>(
        &mut self,
        operator: &mut O,
        exports: &mut [Export<T>],
        others: &mut [Other<T::Device>],
        clock: &mut C,
        stop: &Stop,
    ) -> Result<End, ServeError> {
        let mut infos = export_infos(exports, !others.is_empty())?;
        let staging_blocks = (self.config.staging_bytes as usize).div_ceil(BLOCK_BYTES).max(STAGING_BLOCKS_MIN);
        expect_pools(others, exports.len())?;
        let read_only: Vec<bool> = exports.iter().map(|export| export.read_only).collect();
        let drives = exports.iter_mut().map(|export| Served::drive(&mut export.target));
        let others = others.iter_mut().map(|other| Served::other(other, staging_blocks));
        let mut served: Vec<Served<'_, T>> = drives.chain(others).collect();
        if let Some(recorder) = &self.recorder {
            (0..).zip(&mut served).for_each(|(number, served)| served.record(recorder, number));
        }
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
        // No drive is at work any more, and no reactor.
        self.left.clear();
        self.reactors.finish();
        if let Ok(End::Interrupted { .. }) = ended {
            self.fabric.iter_mut().for_each(Fabric::power_lost);
            return ended;
        }
        self.listeners.clear();
        let now = clock.now();
        for served in &mut served {
            served.close_sessions(now, |_| false);
            // The last flush is no host's.
            served.stop_recording();
        }
        let names = infos.iter().map(|info| info.name.as_str()).chain(std::iter::repeat("another namespace"));
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

    fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|slot| slot.connection.as_ref())
    }

    /// Those that do not sleep.
    fn awake(&self) -> impl Iterator<Item = &Connection> {
        self.awake.iter().filter_map(|slot| self.slots[*slot as usize].connection.as_ref())
    }

    /// A connection may have something to do.
    fn wake(&mut self, slot: usize) {
        if !std::mem::replace(&mut self.slots[slot].is_awake, true) {
            self.awake.push(slot as u32);
        }
    }

    /// Connections that have nothing to do are not looked at until something comes for them.
    fn let_sleep(&mut self) {
        let (slots, config) = (&mut self.slots, &self.config);
        self.awake.retain(|slot| {
            let slot = &mut slots[*slot as usize];
            slot.is_awake = slot.connection.as_ref().is_some_and(|connection| !connection.may_sleep(config));
            slot.is_awake
        });
        self.counters.connections_awake.set(self.awake.len() as u64);
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
        connection.link().reactor.into_iter().for_each(|reactor| self.reactors.leave(reactor));
        if let Connection::Nvme(connection) = &connection {
            self.leave_requests(slot, connection);
        }
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
