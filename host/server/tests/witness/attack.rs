//! What rude hosts do. A row is a variant of [`Attack`]; a new one is a variant, its name and its arm in [`Attack::begin`].

use std::any::Any;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::wire::authentication::{receive, send};
use super::wire::{BLOCK, Host, Nbd, Place, RUDE, authenticator, capsule, connect, data_head, entry, nbd, queue};
use openftl_nvme_auth::DhGroup;
use openftl_nvme_tcp::ClientError;
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::CONTROLLER_ID_ANY;

const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// One kind of rude host, of those that starve others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// NBD clients announce as much as they may write, and send a byte of it.
    SlowNbdWrites,
    /// NVMe hosts are asked for the data of many long writes, and send a byte of the first.
    SlowNvmeWrites,
    /// NVMe hosts read a lot and take nothing of it.
    UnreadReplies,
    /// NBD clients make many small trims each, and are gone.
    CrowdOfTrims,
    /// An NBD client trims the same large part of the drive over and over.
    LongTrims,
    /// NVMe hosts deallocate as many ranges as a command may have, each as large as that part.
    LongDeallocations,
    /// Discovery controllers are asked for long log pages, which nobody takes.
    UnreadLogPages,
    /// Hosts that may come ask for the dearest keys, over and over, and never show who they are.
    Authentications,
    /// All places of the control socket are taken by clients that ask for nothing.
    IdleControlClients,
}

/// What counts as sent with each connection, whatever was said on it: its handshakes.
const CONNECTION_BYTES: u64 = 512;

/// Rude hosts at work, until they are dropped.
pub struct Rude {
    /// What they did, for people.
    pub did: String,
    /// Bytes that they have sent, [`CONNECTION_BYTES`] with each connection among them.
    pub sent: Arc<AtomicU64>,
    /// What they hold on to until then: connections, mostly.
    pub held: Vec<Box<dyn Any + Send>>,
}

impl Rude {
    fn new<T: Any + Send>(held: Vec<T>, connections: usize, sent: usize, did: String) -> Rude {
        let sent = Arc::new(AtomicU64::new(connections as u64 * CONNECTION_BYTES + sent as u64));
        Rude { did, sent, held: held.into_iter().map(|thing| Box::new(thing) as _).collect() }
    }
}

impl Attack {
    pub const ALL: [Attack; 9] = [
        Attack::SlowNbdWrites,
        Attack::SlowNvmeWrites,
        Attack::UnreadReplies,
        Attack::CrowdOfTrims,
        Attack::LongTrims,
        Attack::LongDeallocations,
        Attack::UnreadLogPages,
        Attack::Authentications,
        Attack::IdleControlClients,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Attack::SlowNbdWrites => "slow NBD writes",
            Attack::SlowNvmeWrites => "slow NVMe writes",
            Attack::UnreadReplies => "unread NVMe reads",
            Attack::CrowdOfTrims => "a crowd of trims",
            Attack::LongTrims => "long trims",
            Attack::LongDeallocations => "long deallocations",
            Attack::UnreadLogPages => "unread log pages",
            Attack::Authentications => "authentications",
            Attack::IdleControlClients => "idle control clients",
        }
    }

    /// Whether it is one of the control socket.
    pub fn is_of_control(self) -> bool {
        self == Attack::IdleControlClients
    }

    /// Whether it needs a server that asks hosts to show who they are.
    pub fn is_of_authentication(self) -> bool {
        self == Attack::Authentications
    }

    /// Does the worst, and returns when it is done and goes on.
    pub fn begin(self, place: &Place) -> Rude {
        match self {
            Attack::SlowNbdWrites => slow_nbd_writes(place),
            Attack::SlowNvmeWrites => slow_nvme_writes(place),
            Attack::UnreadReplies => unread_replies(place),
            Attack::CrowdOfTrims => crowd_of_trims(place),
            Attack::LongTrims => long_trims(place),
            Attack::LongDeallocations => long_deallocations(place),
            Attack::UnreadLogPages => unread_log_pages(place),
            Attack::Authentications => authentications(place),
            Attack::IdleControlClients => idle_control_clients(place),
        }
    }
}

fn slow_nbd_writes(place: &Place) -> Rude {
    const CLIENTS: usize = 12;
    let clients = (0..CLIENTS).map(|_| {
        let mut client = Nbd::open(&place.nbd);
        client.0.write_all(&Nbd::head(nbd::WRITE, 0, 32 << 20)).unwrap();
        client.0.write_all(&[1]).unwrap();
        client
    });
    let did = format!("{CLIENTS} clients announced 32 MiB each and sent one byte");
    Rude::new(clients.collect(), CLIENTS, CLIENTS * 29, did)
}

fn slow_nvme_writes(place: &Place) -> Rude {
    const HOSTS: usize = 24;
    const COMMANDS: u16 = 32;
    let hosts = (0..HOSTS).map(|_| {
        let mut host = Host::open(place);
        let write = |id: u16| capsule(entry(1, id, [u32::from(id) * 256 % 4096, 0, 255]), 1 << 20);
        host.raw.write_all(&write(0)).unwrap();
        // The R2T: the server has frames for it, or the host is of those that wait.
        host.raw.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        let is_asked = host.raw.read_exact(&mut [0; 24]).is_ok();
        (1..COMMANDS).for_each(|id| host.raw.write_all(&write(id)).unwrap());
        if is_asked {
            host.raw.write_all(&[data_head(0, 1 << 20), vec![1]].concat()).unwrap();
        }
        (host, is_asked)
    });
    let hosts: Vec<_> = hosts.collect();
    let asked = hosts.iter().filter(|(_, is_asked)| *is_asked).count();
    let did =
        format!("{HOSTS} hosts began {COMMANDS} writes of 1 MiB each; {asked} were asked for data and sent one byte");
    Rude::new(hosts, 2 * HOSTS, HOSTS * usize::from(COMMANDS) * 72, did)
}

fn unread_replies(place: &Place) -> Rude {
    const HOSTS: usize = 24;
    const READS: u16 = 48;
    let hosts = (0..HOSTS).map(|_| {
        let mut host = Host::open(place);
        for id in 0..READS {
            let read = entry(2, id, [u32::from(id) * 256 % 4096, 0, 255]);
            host.raw.write_all(&capsule(read, 1 << 20)).unwrap();
        }
        host
    });
    let did = format!("{HOSTS} hosts asked for {READS} MiB each and took nothing");
    Rude::new(hosts.collect(), 2 * HOSTS, HOSTS * usize::from(READS) * 72, did)
}

fn crowd_of_trims(place: &Place) -> Rude {
    const CLIENTS: usize = 300;
    const TRIMS: usize = 256;
    let mut clients: Vec<Nbd> = (0..CLIENTS).map(|_| Nbd::open(&place.nbd)).collect();
    let trims: Vec<u8> = (0..TRIMS).flat_map(|at| Nbd::head(nbd::TRIM, at as u64 * 512, 512)).collect();
    clients.iter_mut().for_each(|client| client.0.write_all(&trims).unwrap());
    drop(clients);
    let did = format!("{CLIENTS} clients made {TRIMS} trims each and left");
    Rude::new(Vec::<Nbd>::new(), CLIENTS, CLIENTS * trims.len(), did)
}

/// The part of the drive that is trimmed, in bytes: the witness has nothing there.
const TRIMMED: std::ops::Range<u64> = 32 << 20..64 << 20;

/// Writes all of that part, so that there is something to trim.
fn fill_trimmed(place: &Place) {
    const LENGTH: usize = 1 << 20;
    let (mut client, data) = (Nbd::open(&place.nbd), vec![5; LENGTH]);
    for offset in TRIMMED.step_by(LENGTH) {
        client.ask(nbd::WRITE, offset, LENGTH, &data);
    }
}

fn long_trims(place: &Place) -> Rude {
    const TRIMS: usize = 256;
    fill_trimmed(place);
    let mut client = Nbd::open(&place.nbd);
    let length = (TRIMMED.end - TRIMMED.start) as usize;
    let trims: Vec<u8> = (0..TRIMS).flat_map(|_| Nbd::head(nbd::TRIM, TRIMMED.start, length)).collect();
    client.0.write_all(&trims).unwrap();
    let did = format!("a client trimmed {} MiB {TRIMS} times", length >> 20);
    Rude::new(vec![client], 1, trims.len(), did)
}

fn long_deallocations(place: &Place) -> Rude {
    const COMMANDS: u16 = 4;
    const RANGES: u32 = 256;
    fill_trimmed(place);
    let mut host = Host::open(place);
    let (first, blocks) = (TRIMMED.start / BLOCK as u64, (TRIMMED.end - TRIMMED.start) as u32 / BLOCK as u32);
    // Context attributes, length in blocks, first block.
    let range = [&[0; 4][..], &blocks.to_le_bytes(), &first.to_le_bytes()].concat();
    for id in 0..COMMANDS {
        // Dataset Management: the number of ranges, less one; deallocate.
        let deallocate = entry(0x09, id, [RANGES - 1, 4, 0]);
        host.queue.submit(id.into(), &deallocate, Payload::ToController(range.repeat(RANGES as usize)));
    }
    // What is submitted is sent by then; the other commands go on.
    host.queue.wait().expect("the server answers");
    let did =
        format!("a host deallocated {RANGES} ranges of {} MiB each, {COMMANDS} times", (u64::from(blocks) * 4) >> 10);
    Rude::new(vec![host], 2, usize::from(COMMANDS) * (72 + 16 * RANGES as usize), did)
}

fn unread_log_pages(place: &Place) -> Rude {
    const CONTROLLERS: usize = 900;
    const PAGES: u16 = 8;
    let controllers = (0..CONTROLLERS).map(|_| {
        let (mut admin, mut raw, _) = queue(place.nvme, DISCOVERY, 0, CONTROLLER_ID_ANY);
        admin.start_controller(|| true).expect("the controller starts");
        for id in 0..PAGES {
            // Get Log Page: the discovery log, a megabyte of it.
            let mut page = entry(0x02, 100 + id, [0xffff_0070, 0x3, 0]);
            page[4] = 0;
            raw.write_all(&capsule(page, 1 << 20)).unwrap();
        }
        (admin, raw)
    });
    let did = format!("{CONTROLLERS} controllers were asked for {PAGES} MiB of log pages each, and took nothing");
    Rude::new(controllers.collect(), CONTROLLERS, CONTROLLERS * usize::from(PAGES) * 72, did)
}

/// Threads that go on until this is dropped.
struct Loops {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("a rude host does not panic"));
    }
}

fn authentications(place: &Place) -> Rude {
    const LOOPS: usize = 16;
    /// The data of Connect; the messages of the authentication are short.
    const CONNECT_BYTES: u64 = 1_024;
    let (end, keys) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut rude =
        Rude::new(Vec::<Loops>::new(), 0, 0, format!("{LOOPS} hosts had a key of ffdhe4096 made each, over and over"));
    let threads = (0..LOOPS).map(|_| {
        let (at, subsystem) = (place.nvme, place.subsystem.clone());
        let (end, keys, sent) = (Arc::clone(&end), Arc::clone(&keys), Arc::clone(&rude.sent));
        std::thread::spawn(move || {
            let ask = || -> Result<(), ClientError> {
                let (mut queue, ..) = connect(at, RUDE, &subsystem, (0, CONTROLLER_ID_ANY))?;
                send(&mut queue, authenticator(RUDE, &subsystem, DhGroup::Ffdhe4096).begin(1))?;
                // A challenge, with a key that was made for it.
                receive(&mut queue).map(drop)
            };
            while !end.load(Ordering::Relaxed) {
                sent.fetch_add(CONNECTION_BYTES + CONNECT_BYTES, Ordering::Relaxed);
                keys.fetch_add(u64::from(ask().is_ok()), Ordering::Relaxed);
            }
        })
    });
    let threads = threads.collect();
    // All of them are at it.
    while keys.load(Ordering::Relaxed) < LOOPS as u64 {
        std::thread::yield_now();
    }
    rude.held.push(Box::new(Loops { end, threads }));
    rude
}

fn idle_control_clients(place: &Place) -> Rude {
    const CLIENTS: usize = 16;
    let path = place.control.as_ref().expect("there is a control socket");
    let clients = (0..CLIENTS).map(|_| UnixStream::connect(path).expect("the drive can be controlled"));
    Rude::new(clients.collect(), CLIENTS, 0, format!("{CLIENTS} clients asked for nothing"))
}
