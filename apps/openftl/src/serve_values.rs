//! `openftl serve` of a key-value drive: Redis clients, until it is told to stop.
//!
//! One thread owns the drive, the sockets and their clients, and so nothing is locked: it moves bytes between sockets and the
//! [`Front`], and sleeps until a socket, the drive or the next flush is due. The server of blocks has another loop, whose frames and requests
//! are those of blocks.

use crate::cli;
use crate::failure::Failure;
use crate::log::Voice;
use crate::notify;
use crate::passed::Passed;
use crate::ready::Ready;
use crate::serve::{announce, exit_with_parent, stop_at_signals};
use crate::terminal::{Ink, say};
use openftl_core::{Clock, Nanos, Time};
use openftl_drive::description::{DriveDescription, FtlKind, Timing};
use openftl_drive::new_file::Existing;
use openftl_drive::small_file::is_stored_drive;
use openftl_drive::value_drive::{ValueDrive, open_stored};
use openftl_drive::value_store::ValueStore;
use openftl_lab::picture::thousands;
use openftl_media::EmulatedDevice;
use openftl_parts::Access;
use openftl_redis::{Front, PeerId};
use openftl_server::Stop;
use openftl_values::{ValueFtl, ValueTarget};
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use tracing::{debug, info, warn};

/// Clients at a time.
const CLIENTS_MAX: usize = 1024;

/// Bytes that are received at a time.
const RECEIVED: usize = 64 << 10;

/// Changes are durable after this, also without anybody asking.
const FLUSH_AFTER: Nanos = Nanos::from_millis(1000);

/// What is served.
pub enum Served {
    /// A drive that a description describes.
    Described(Box<ValueDrive>),
    /// A drive in a file.
    Stored(PathBuf),
}

/// The key-value drive that is to be served, if it is one.
pub fn value_drive(arguments: &cli::Serve) -> Result<Option<Served>, Failure> {
    if let Some(path) = &arguments.flags.drive {
        let file = DriveDescription::read(path)?;
        if file.ftl.kind != Some(FtlKind::Values) {
            return expect_values(arguments);
        }
        if file.media.timing == Some(Timing::Virtual) {
            return Err(Failure::bad_input("media.timing = \"virtual\": a drive with real clients runs in real time")
                .fix("use wall-clock or instant"));
        }
        return ValueDrive::of(&file).map(|drive| Some(Served::Described(Box::new(drive))));
    }
    match &arguments.disk {
        // What kind it is is found when it is opened.
        Some(disk) if !arguments.redis.is_empty() && is_stored_drive(disk) => Ok(Some(Served::Stored(disk.clone()))),
        _ => expect_values(arguments),
    }
}

/// Another drive has no Redis clients.
fn expect_values(arguments: &cli::Serve) -> Result<Option<Served>, Failure> {
    match arguments.redis.is_empty() {
        true => Ok(None),
        false => Err(Failure::bad_input("--redis is for key-value drives, and this is none")
            .fix("make one with `openftl create --drive drives/kv.toml`, or leave --redis away")),
    }
}

fn refuse(arguments: &cli::Serve) -> Result<(), Failure> {
    let flags = &arguments.flags;
    let refused = [
        (!arguments.nbd.is_empty(), "--nbd"),
        (!arguments.nvme_tcp.is_empty(), "--nvme-tcp"),
        (!arguments.open_channel.is_empty(), "--open-channel"),
        (arguments.control.is_some(), "--control"),
        (arguments.memory, "--memory"),
        (arguments.lie_about_flush, "--lie-about-flush"),
        (arguments.poll.is_some(), "--poll"),
        (arguments.timing.is_some(), "--timing"),
        (flags.capacity.is_some(), "--capacity"),
        (flags.over_provisioning.is_some(), "--over-provisioning"),
        (flags.profile.is_some(), "--profile"),
    ];
    match refused.iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, flag)) => {
            Err(Failure::bad_input(format_args!("{flag} is for block drives, and this is a key-value drive"))
                .fix("leave it away; Redis clients connect with --redis 127.0.0.1:6379"))
        }
    }
}

/// A client and its socket.
struct Client {
    socket: TcpStream,
    peer: PeerId,
    /// The socket has failed.
    has_gone: bool,
}

struct Server {
    listeners: Vec<TcpListener>,
    clients: BTreeMap<PeerId, Client>,
    front: Front<ValueFtl<EmulatedDevice>>,
    counters: Counters,
}

#[derive(Serialize, Clone, Copy, Default)]
struct Counters {
    commands: u64,
    clients: u64,
    clients_turned_away: u64,
    clients_closed_for_memory: u64,
    keys: u64,
}

pub fn run(arguments: &cli::Serve, served: &Served, voice: Voice, passed: &Passed) -> Result<(), Failure> {
    refuse(arguments)?;
    if let Some(listener) = passed.nbd.first().or(passed.nvme_tcp.first()).or(passed.files.first()) {
        return Err(Failure::bad_input(format_args!(
            "LISTEN_FDS: {} was passed, and a key-value drive is served to Redis clients",
            openftl_drive::table_drive::written(listener.endpoint())
        ))
        .fix("leave the .socket unit away, and name an address with --redis"));
    }
    if arguments.redis.is_empty() {
        return Err(Failure::bad_input("nobody could connect: a key-value drive is served to Redis clients")
            .fix("add --redis 127.0.0.1:6379; `openftl kv` needs no server"));
    }
    let palette = voice.palette();
    let stop = Stop::new().map_err(Failure::failed)?;
    stop_at_signals(&stop)?;
    if arguments.exit_with_parent {
        exit_with_parent()?;
    }
    // Before the drive is opened: an address in use is found out before anything is written.
    let listeners = arguments.redis.iter().map(|address| listen(*address, arguments.allow_remote));
    let listeners = listeners.collect::<Result<Vec<TcpListener>, Failure>>()?;
    let store = match served {
        Served::Described(drive) => {
            if let Some(disk) = drive.disk().filter(|disk| !disk.exists()) {
                drive.make(disk, Existing::Keep, None)?;
                voice.tell(&format!("{} made", disk.display()));
                info!(target: "drive", file = %disk.display(), "drive made");
            }
            drive.open(Access::ReadWrite)?
        }
        Served::Stored(path) => open_stored(path, Access::ReadWrite)?,
    };
    let known = store.info();
    let addresses: Vec<SocketAddr> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let shown: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let sign = palette.paint(Ink::Good, "✓");
    let first = addresses.first().expect("there is one");
    voice.tell(&format!(
        "{sign} {} keys for Redis clients at {}\n  redis-cli -h {} -p {} set hello world\n  Ctrl-C ends it cleanly.",
        thousands(known.keys),
        shown.join(", "),
        first.ip(),
        first.port()
    ));
    shown.iter().for_each(|address| info!(target: "connection", protocol = "redis", endpoint = address, "listening"));
    let ready = Ready::values(&shown);
    let companion = announce(arguments, &ready, &stop)?;
    let served = serve(store, listeners, &stop);
    notify::stopping();
    let ran = companion.map_or(Ok(()), crate::companion::Companion::end);
    let counters = served?;
    if arguments.json {
        say(&crate::json(&counters)?)?;
    } else {
        voice.tell(&format!(
            "{} commands of {} clients; {} keys",
            thousands(counters.commands),
            thousands(counters.clients),
            thousands(counters.keys)
        ));
    }
    ran
}

fn listen(address: SocketAddr, allow_remote: bool) -> Result<TcpListener, Failure> {
    if !address.ip().is_loopback() && !allow_remote {
        return Err(Failure::bad_input(format_args!(
            "{address} can be reached from other machines, and there are no passwords here"
        ))
        .fix("use a loopback address like 127.0.0.1:6379, or add --allow-remote"));
    }
    let failed =
        |error| Failure::failed(format_args!("cannot listen on {address}: {error}")).fix("choose another address");
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Serves until it is told to stop, and closes the drive.
fn serve(store: ValueStore<EmulatedDevice>, listeners: Vec<TcpListener>, stop: &Stop) -> Result<Counters, Failure> {
    let (drive, mut clock) = store.into_parts();
    let mut server =
        Server { listeners, clients: BTreeMap::new(), front: Front::new(drive), counters: Counters::default() };
    let mut flush_at: Option<Time> = None;
    while !stop.is_requested() {
        let now = clock.now();
        server.front.poll(now);
        server.exchange();
        // What the clients have sent is begun at once.
        server.front.poll(clock.now());
        server.send();
        let now = clock.now();
        if flush_at.is_none_or(|at| now >= at) {
            server.front.flush(now);
            flush_at = Some(now + FLUSH_AFTER);
        }
        let due = server.front.next_due().into_iter().chain(flush_at).min();
        server.wait(stop, due.map(|due| due.since(clock.now().min(due))))?;
    }
    let counters = Counters { commands: server.front.commands(), ..server.counters };
    let drive = server.front.into_drive();
    let keys = drive.info().keys;
    ValueStore::new(drive, clock).close()?;
    Ok(Counters { keys, ..counters })
}

impl Server {
    /// Sleeps until a socket has something, or so long.
    fn wait(&self, stop: &Stop, span: Option<Nanos>) -> Result<(), Failure> {
        let mut events = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        events.extend(self.listeners.iter().map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)));
        for client in self.clients.values() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, !client.has_gone && self.front.wants_input(client.peer));
            flags.set(PollFlags::OUT, !self.front.output(client.peer).is_empty());
            events.push(PollFd::from_borrowed_fd(client.socket.as_fd(), flags));
        }
        let timeout = span.map(|span| rustix::time::Timespec {
            tv_sec: (span.0 / 1_000_000_000) as i64,
            tv_nsec: (span.0 % 1_000_000_000) as i64,
        });
        match poll(&mut events, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::failed(error)),
        }
    }

    /// Takes new clients, and what clients have sent.
    fn exchange(&mut self) {
        for listener in &self.listeners {
            // Whoever has come and gone again is none.
            while let Ok((socket, address)) = listener.accept() {
                if self.clients.len() == CLIENTS_MAX {
                    self.counters.clients_turned_away += 1;
                    warn!(target: "connection", protocol = "redis", %address, "turned away: too many clients");
                    let mut socket = socket;
                    // It may not want to know.
                    _ = socket.write(b"-ERR max number of clients reached\r\n");
                    continue;
                }
                if socket.set_nonblocking(true).is_err() {
                    continue;
                }
                // Without it replies would be slower, and no less right.
                _ = socket.set_nodelay(true);
                let peer = self.front.connect();
                debug!(target: "connection", protocol = "redis", %address, "connected");
                self.counters.clients += 1;
                self.clients.insert(peer, Client { socket, peer, has_gone: false });
            }
        }
        let mut received = vec![0; RECEIVED];
        for client in self.clients.values_mut() {
            while !client.has_gone && self.front.wants_input(client.peer) {
                match client.socket.read(&mut received) {
                    Ok(0) => self.front.end_input(client.peer),
                    Ok(count) => {
                        self.front.receive(client.peer, &received[..count]);
                        // The others have their turn.
                        break;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => client.has_gone = true,
                }
            }
        }
    }

    /// Sends what clients are to get, and closes those that are done.
    fn send(&mut self) {
        for client in self.clients.values_mut() {
            while !self.front.output(client.peer).is_empty() {
                match client.socket.write(self.front.output(client.peer)) {
                    Ok(count) => self.front.sent(client.peer, count),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        client.has_gone = true;
                        break;
                    }
                }
            }
        }
        while let Some(heaviest) = self.front.heaviest() {
            self.counters.clients_closed_for_memory += 1;
            warn!(target: "connection", protocol = "redis", client = heaviest.0, "closed: clients keep too much memory");
            self.front.disconnect(heaviest);
            self.clients.remove(&heaviest);
        }
        let front = &mut self.front;
        self.clients.retain(|peer, client| {
            let stays = !client.has_gone && !front.is_over(*peer);
            if !stays {
                front.disconnect(*peer);
                debug!(target: "connection", protocol = "redis", client = peer.0, "closed");
            }
            stays
        });
    }
}
