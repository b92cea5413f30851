//! What copies of the payload cost the controller: writers send buffers over NVMe/TCP, and the payload is copied not at
//! all, once or twice between the socket and the medium.
//!
//! ```text
//!   writer ─ 8 MiB, durable or not, then the next ─▶ socket ─┬─────────────────────▶ frames ─┬──────────────────▶ medium
//!   writer …                                                 └─▶ receive buffer ─1─▶        └─2─▶ bounce buffer ─▶
//! ```
//!
//! The medium is a RAM store, which shares the pages of frames ([`openftl_core::page`]): from a frame to the medium and back nothing
//! is copied, also by garbage collection, and what the frames of the drive had to copy all the same is counted with the rest.
//!
//! The controller is one thread; its CPU time is read where it runs. The medium takes no time, so what is measured is what
//! the software costs. Each kind of copying has a drive of its own, and they take turns, so that other work on the machine
//! hits all of them alike. A store of pages takes its turn beside them, with batches of 8 MiB (`batches`).

mod batches;

use self::batches::PageController;
use crate::bounced::Bounced;
use openftl_blocks::BlockFtl;
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, FrameForm};
use openftl_experiments::{Assistant, Check, Claim, Experiment, ExperimentError, Figure, Options, Paper, Run};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::{BlockFormat, Hints, Namespace, NamespaceKind, Nqn, SubsystemConfig, Target};
use openftl_nvme_tcp::client::{Client, Payload};
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, QueueParameters};
use openftl_nvme_tcp::nvm::{self, Blocks};
use openftl_nvme_tcp::{ClientError, InitiatorConfig};
use openftl_parts::{Config, Target as _, chunks_per_pu};
use openftl_server::{Endpoint, Export, Protocol, Server, ServerConfig, Stop, WallClock};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::Instant;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "ox-copies",
    question: "What do copies of the payload cost the controller, by the number of writers?",
    paper: Some(Paper {
        title: "Open-Channel SSD (What is it Good For)",
        place: "section 4.3, Figure 7",
        found: "Two host threads saturate the ARM cores of the controller with writes to OX-ELEOS: it cannot keep up with \
                the copies from the network stack to the FTL, and from there to the Open-Channel SSD.",
    }),
    claims: &["000-23"],
    in_virtual_time: false,
    memory_bytes: [5 << 30, 1 << 30],
    run,
};

const PROFILE: &str = "cosmos";
const SUBSYSTEM: &str = "nqn.2026-11.org.openftl:copies";
const HOST: &str = "nqn.2026-11.org.openftl:writer";

/// A buffer of log-structured storage, as OX-ELEOS has them, and the commands that carry it.
const BUFFER_BYTES: u64 = 8 << 20;
const COMMAND_BYTES: u64 = 1 << 20;
const COMMANDS: u64 = BUFFER_BYTES / COMMAND_BYTES;

/// Frames for two buffers of each of the most writers.
const HOST_FRAMES: u32 = (16 * BUFFER_BYTES / BLOCK_BYTES as u64) as u32;

/// How the store of pages is called beside block drives.
const OF_BATCHES: &str = "ELEOS, batches";

/// What of a long write may be copied all the same: what comes with its header, and what is left at its end.
const ENDS_SHARE_MAX: f64 = 0.05;

/// What two copies cost more than none, at the least.
const DEARER_MIN: f64 = 1.1;

/// A thread that is this part of the time at work, or waits for a processor, is saturated: percentage points below all of it.
const SATURATED_WITHIN: f64 = 10.0;

struct Scale {
    capacity: u64,
    writers: &'static [usize],
    /// Bytes that all writers of a turn write together.
    turn_bytes: u64,
    rounds: usize,
}

const FULL: Scale = Scale { capacity: 1 << 30, writers: &[1, 2, 4, 8], turn_bytes: 1 << 30, rounds: 5 };
const QUICK: Scale = Scale { capacity: 128 << 20, writers: &[1, 2], turn_bytes: 64 << 20, rounds: 1 };

/// Where the payload is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    None,
    ToFtl,
    ToFtlAndDevice,
}

impl Copies {
    const ALL: [Copies; 3] = [Copies::None, Copies::ToFtl, Copies::ToFtlAndDevice];

    fn name(self) -> &'static str {
        match self {
            Copies::None => "none",
            Copies::ToFtl => "to the FTL",
            Copies::ToFtlAndDevice => "to the FTL and to the device",
        }
    }
}

type Drive = BlockFtl<Bounced<EmulatedDevice>>;

/// A drive, and how its server treats payload.
struct Controller {
    copies: Copies,
    exports: [Export<Drive>; 1],
    clock: WallClock,
}

/// What a turn took.
#[derive(Clone, Copy, Default)]
struct Turn {
    bytes: f64,
    wall_seconds: f64,
    cpu_seconds: f64,
    /// Time for which the thread could have run, and another had the processor.
    queued_seconds: f64,
    copied_bytes: f64,
}

impl Turn {
    fn cpu_use(&self) -> f64 {
        self.cpu_seconds / self.wall_seconds
    }

    /// The part of the time for which it did not wait for work.
    fn busy(&self) -> f64 {
        ((self.cpu_seconds + self.queued_seconds) / self.wall_seconds).min(1.0)
    }

    fn cpu_seconds_per_gib(&self) -> f64 {
        self.cpu_seconds / gib(self.bytes)
    }

    fn gib_per_second(&self) -> f64 {
        gib(self.bytes) / self.wall_seconds
    }

    fn copies(&self) -> f64 {
        self.copied_bytes / self.bytes
    }
}

fn gib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 30)
}

/// One kind of request in a count of copies.
#[derive(Clone, Copy)]
enum Request {
    Read,
    Write,
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let steps = (scale.rounds * scale.writers.len() + 1) as f64;
    let mut done = 0.0;
    assistant.progress(0.0, "making three drives");
    let mut controllers = Copies::ALL
        .map(|copies| Controller::new(copies, scale.capacity, options.seed))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    for controller in &mut controllers {
        controller.turn(1, scale.capacity, options.seed)?;
    }
    let mut pages = PageController::new(scale.capacity, options.seed)?;
    pages.turn(1, scale.capacity, options.seed)?;
    let mut batches = vec![Vec::new(); scale.writers.len()];
    // By copies, then by writers: one turn a round.
    let mut turns = vec![vec![Vec::new(); scale.writers.len()]; controllers.len()];
    for _ in 0..scale.rounds {
        for (column, &writers) in scale.writers.iter().enumerate() {
            done += 1.0;
            assistant.progress(done / steps, &format!("writers: {writers}"));
            for (row, controller) in controllers.iter_mut().enumerate() {
                turns[row][column].push(controller.turn(writers, scale.turn_bytes, options.seed)?);
            }
            batches[column].push(pages.turn(writers, scale.turn_bytes, options.seed)?);
        }
    }
    let shipped = &mut controllers[0];
    let mut counted = Vec::new();
    for (request, name) in [(Request::Write, "write"), (Request::Read, "read")] {
        for bytes in [BLOCK_BYTES as u64, COMMAND_BYTES] {
            counted.push((name, bytes, shipped.count(request, bytes)?));
        }
    }
    assistant.progress(1.0, "done");
    let median = |turns: &Vec<Turn>| {
        let mut turns = turns.clone();
        turns.sort_by(|a, b| a.cpu_seconds_per_gib().total_cmp(&b.cpu_seconds_per_gib()));
        turns[turns.len() / 2]
    };
    let turns: Vec<Vec<Turn>> = turns.iter().map(|columns| columns.iter().map(median).collect()).collect();
    let batches: Vec<Turn> = batches.iter().map(median).collect();
    Ok(told(&scale, &turns, &batches, &counted))
}

impl Controller {
    fn new(copies: Copies, capacity: u64, seed: u64) -> Result<Controller, ExperimentError> {
        let config = Config {
            capacity_blocks: capacity / BLOCK_BYTES as u64,
            payload: FrameForm::Bytes,
            host_frames: HOST_FRAMES,
            drive_id: seed,
            ..Config::default()
        };
        let profile = Profile::builtin(PROFILE)?;
        let shape = profile.geometry(profile.chunks_per_pu)?;
        let chunks = chunks_per_pu(&shape, &config, Share::percent(1))?;
        let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Instant, seed)?;
        let mut clock = WallClock::new();
        let mut target = BlockFtl::format(Bounced::new(device), config, &mut clock)?;
        target.media_mut().set_copying(copies == Copies::ToFtlAndDevice);
        let export = Export { name: "copies".to_owned(), description: String::new(), read_only: false, target };
        Ok(Controller { copies, exports: [export], clock })
    }

    /// Has so many writers write `bytes` together.
    fn turn(&mut self, writers: usize, bytes: u64, seed: u64) -> Result<Turn, ExperimentError> {
        let each = bytes / writers as u64 / BUFFER_BYTES * BUFFER_BYTES;
        let region = self.capacity() / writers as u64 / BUFFER_BYTES * BUFFER_BYTES;
        let all_ready = Barrier::new(writers);
        self.served(|address| {
            std::thread::scope(|scope| {
                let ready = &all_ready;
                let hands: Vec<_> = (0..writers as u64)
                    .map(|writer| {
                        scope.spawn(move || -> Result<(Instant, Instant), ClientError> {
                            let connected = Writer::connect(address, seed + writer);
                            // Whoever could not connect lets the others go on.
                            ready.wait();
                            let mut connected = connected?;
                            let began = Instant::now();
                            for offset in (0..each).step_by(BUFFER_BYTES as usize) {
                                connected.write_buffer(writer * region + offset % region)?;
                            }
                            Ok((began, Instant::now()))
                        })
                    })
                    .collect();
                let spans: Result<Vec<_>, _> = hands.into_iter().map(|hand| hand.join().expect("no panic")).collect();
                let spans = spans.map_err(of_host)?;
                let began = spans.iter().map(|(began, _)| *began).min().expect("there are writers");
                let ended = spans.iter().map(|(_, ended)| *ended).max().expect("there are writers");
                Ok((ended - began).as_secs_f64())
            })
        })
        .map(|(wall_seconds, turn)| Turn { bytes: (each * writers as u64) as f64, wall_seconds, ..turn })
    }

    /// Bytes that are copied for each byte of such requests.
    fn count(&mut self, request: Request, bytes: u64) -> Result<f64, ExperimentError> {
        const REQUESTS: u64 = 64;
        let capacity = self.capacity();
        let mut count = |requests: u64| {
            self.served(|address| {
                let mut writer = Writer::connect(address, 0).map_err(of_host)?;
                for offset in (0..requests * bytes).step_by(bytes as usize) {
                    writer.once(request, offset % capacity, bytes).map_err(of_host)?;
                }
                Ok(())
            })
        };
        // What is said before the first request is copied too.
        let before = count(0)?.1.copied_bytes;
        Ok((count(REQUESTS)?.1.copied_bytes - before) / (REQUESTS * bytes) as f64)
    }

    fn capacity(&self) -> u64 {
        self.exports[0].target.config().capacity_blocks * BLOCK_BYTES as u64
    }

    /// Serves the drive while `use_it` runs; what it found, and what the server took.
    fn served<R: Send>(
        &mut self,
        use_it: impl FnOnce(SocketAddr) -> Result<R, ExperimentError>,
    ) -> Result<(R, Turn), ExperimentError> {
        let config = ServerConfig { copies_long_writes: self.copies != Copies::None, ..ServerConfig::default() };
        let mut server = Server::new(config).map_err(of_host)?;
        let Endpoint::Tcp(address) =
            server.listen("127.0.0.1:0".parse().expect("an address"), Protocol::NvmeTcp).map_err(of_host)?
        else {
            unreachable!("listened on TCP")
        };
        server.set_target(target(self.capacity()));
        let (stop, counters) = (Stop::new().map_err(of_host)?, server.counters());
        let copied_below = |drive: &Drive| drive.media().copied() + drive.frames().bytes_copied();
        let before = copied_below(&self.exports[0].target);
        let (exports, clock) = (&mut self.exports, &mut self.clock);
        let (used, seconds) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let before = (cpu_seconds(), queued_seconds());
                server.run(exports, clock, &stop).map(|()| (cpu_seconds() - before.0, queued_seconds() - before.1))
            });
            let used = use_it(address);
            stop.request();
            (used, thread.join().expect("the server does not panic"))
        });
        let (cpu_seconds, queued_seconds) = seconds.map_err(of_host)?;
        let copied = counters.bytes_copied.get() + copied_below(&self.exports[0].target) - before;
        Ok((used?, Turn { cpu_seconds, queued_seconds, copied_bytes: copied as f64, ..Turn::default() }))
    }
}

/// CPU time of the calling thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// How long the calling thread has waited for a processor. Nothing where the kernel does not count it.
fn queued_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok());
    nanos.unwrap_or(0.0) * 1e-9
}

fn of_host(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Host(error.to_string())
}

/// One subsystem with the drive.
fn target(capacity: u64) -> Target {
    let mut target = Target::new("1", "OpenFTL", env!("CARGO_PKG_VERSION"));
    let config = SubsystemConfig::new(Nqn::new(SUBSYSTEM).expect("a name"), "1");
    let subsystem = target.add_subsystem(config).expect("the first one");
    let kind = NamespaceKind::Block { format: BlockFormat::FourKib, bytes: capacity, hints: Hints::None };
    target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).expect("the first one");
    target
}

/// A host with one queue, and the commands of a buffer under way on it.
struct Writer {
    // Its controller lives as long as its admin queue.
    _admin: Client<TcpStream>,
    queue: Client<TcpStream>,
    buffers: Vec<Vec<u8>>,
}

impl Writer {
    fn connect(address: SocketAddr, seed: u64) -> Result<Writer, ClientError> {
        let identity = Identity { host_id: [7; 16], host_nqn: HOST.to_owned(), subsystem_nqn: SUBSYSTEM.to_owned() };
        let queue = |queue_id| QueueParameters { queue_id, entries: 32, flow_control: false, keep_alive_ms: 0 };
        let open = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Client::open(stream, InitiatorConfig::default())
        };
        let mut admin = open()?;
        let controller = admin.connect(queue(0), &identity, CONTROLLER_ID_ANY)?.controller_id;
        admin.start_controller(|| true)?;
        admin.set_number_of_queues(1)?;
        let mut client = open()?;
        client.connect(queue(1), &identity, controller)?;
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let buffers = (0..COMMANDS).map(|_| {
            let mut buffer = vec![0; COMMAND_BYTES as usize];
            chance.fill_bytes(&mut buffer);
            buffer
        });
        Ok(Writer { _admin: admin, queue: client, buffers: buffers.collect() })
    }

    /// Writes a buffer there, and waits until it is acknowledged.
    fn write_buffer(&mut self, offset: u64) -> Result<(), ClientError> {
        for command in 0..COMMANDS {
            let entry = nvm::write(blocks(offset + command * COMMAND_BYTES, COMMAND_BYTES));
            let data = self.buffers.pop().expect("one for each command");
            self.queue.submit(command, &entry, Payload::ToController(data));
        }
        for _ in 0..COMMANDS {
            let ended = self.queue.wait()?;
            let status = ended.status();
            self.buffers.push(ended.data);
            if status != 0 {
                return Err(ClientError::Refused { what: "Write", status });
            }
        }
        Ok(())
    }

    /// One request alone.
    fn once(&mut self, request: Request, offset: u64, bytes: u64) -> Result<(), ClientError> {
        let (blocks, buffer) = (blocks(offset, bytes), vec![1; bytes as usize]);
        let (what, entry, payload) = match request {
            Request::Read => ("Read", nvm::read(blocks), Payload::ToHost(buffer)),
            Request::Write => ("Write", nvm::write(blocks), Payload::ToController(buffer)),
        };
        self.queue.submit(0, &entry, payload);
        match self.queue.wait()?.status() {
            0 => Ok(()),
            status => Err(ClientError::Refused { what, status }),
        }
    }
}

fn blocks(offset: u64, bytes: u64) -> Blocks {
    let block = BLOCK_BYTES as u64;
    Blocks { namespace: 1, first: offset / block, count: (bytes / block) as u32 }
}

fn told(scale: &Scale, turns: &[Vec<Turn>], batches: &[Turn], counted: &[(&'static str, u64, f64)]) -> Run {
    let mut run = Run::default();
    run.parameter("drive", format_args!("{PROFILE}, {} in memory, instant media", ByteSize(scale.capacity)));
    run.parameter("controller", "one thread: NVMe/TCP on the loopback, block FTL, device");
    run.parameter(
        "writers",
        format_args!(
            "each its own region, one buffer of {} after the other, as {COMMANDS} commands",
            ByteSize(BUFFER_BYTES)
        ),
    );
    run.parameter("measured", format_args!("median of {} turns of {}", scale.rounds, ByteSize(scale.turn_bytes)));
    let mut table = Table::new(
        "copies",
        &[
            ("copies", ""),
            ("writers", ""),
            ("written", "GiB/s"),
            ("busy", "%"),
            ("CPU use", "%"),
            ("CPU", "s/GiB"),
            ("copied", "bytes/byte"),
        ],
    );
    let names = Copies::ALL.map(Copies::name).into_iter().chain([OF_BATCHES]);
    for (name, turns) in names.zip(turns.iter().map(Vec::as_slice).chain([batches])) {
        for (writers, turn) in scale.writers.iter().zip(turns) {
            table.row(vec![
                Cell::Text(name.to_owned()),
                Cell::Count(*writers as u64),
                Cell::Number(turn.gib_per_second(), 2),
                Cell::Number(turn.busy() * 100.0, 0),
                Cell::Number(turn.cpu_use() * 100.0, 0),
                Cell::Number(turn.cpu_seconds_per_gib(), 3),
                Cell::Number(turn.copies(), 2),
            ]);
        }
    }
    run.tables.push(table);
    let mut table = Table::new("counted", &[("request", ""), ("length", "KiB"), ("copied", "bytes/byte")]);
    for &(name, bytes, copies) in counted {
        table.row(vec![Cell::Text(name.to_owned()), Cell::Count(bytes >> 10), Cell::Number(copies, 2)]);
    }
    run.tables.push(table);
    let series = |of: &dyn Fn(&Turn) -> f64| {
        let line = |(name, turns): (&str, &[Turn])| {
            let writers = scale.writers.iter().map(|writers| *writers as f64);
            Series::new(name, writers.zip(turns.iter().map(of)).collect())
        };
        let names = Copies::ALL.map(Copies::name).into_iter().chain([OF_BATCHES]);
        names.zip(turns.iter().map(Vec::as_slice).chain([batches])).map(line).collect()
    };
    run.plots.push(Plot {
        name: "use",
        title: "The time that the controller is busy, by writers".to_owned(),
        x: Axis::even("writers", ""),
        y: Axis::even("busy", "% of the time"),
        series: series(&|turn| turn.busy() * 100.0),
        caption: vec!["Where the controller is saturated, further writers share what it can do.".to_owned()],
    });
    run.plots.push(Plot {
        name: "cost",
        title: "What a GiB costs the controller".to_owned(),
        x: Axis::even("writers", ""),
        y: Axis::even("CPU time", "s/GiB"),
        series: series(&Turn::cpu_seconds_per_gib),
        caption: vec!["Kernel and FTL are in it: each line differs from the next by a copy alone.".to_owned()],
    });
    run.claims.push(saturation(scale, turns));
    run.checks.extend([cost(turns), count(turns, counted)]);
    run.notes = vec![
        "The kernel copies from its socket in all three: that copy takes hardware, or another kind of socket, to avoid. \
         Copies counted are those of the controller in memory of its own.",
        "Busy is the time that the controller's thread ran or waited for a processor that another had: what it did not wait for work. \
         So a busy neighbour makes it no less saturated.",
        "CPU time is that of the controller's thread, kernel included; that of the writers is not in it, though they share \
         the machine.",
        "What garbage collection moves goes through the bounce buffer too, and is counted: more than two bytes a byte where one \
         writer overwrites what several had interleaved.",
        "ELEOS, batches: the writers commit batches of 8 MiB of pages of 4000 bytes to a store of pages on the same medium. Copies counted are \
         those between socket and frames; from there the drive copies each page behind its header, which is in its CPU time.",
        "A real clock, sockets and threads: unlike other experiments this one does not repeat itself to the last digit.",
    ];
    run
}

fn saturation(scale: &Scale, turns: &[Vec<Turn>]) -> Claim {
    let two = scale.writers.iter().position(|writers| *writers == 2).expect("two writers are measured");
    let busy = turns[2][two].busy() * 100.0;
    Claim::new(
        &["000-23"],
        "With copies to the FTL and to the device, two writers saturate the controller.",
        vec![Figure::value("busy", " % of the time", 0, 100.0, SATURATED_WITHIN, busy)],
        "The writers and the kernel's half of TCP have the other cores: one thread is the narrowest place, with or \
         without copies. The paper's controller has eight ARM cores, and is a machine of its own.",
    )
}

fn cost(turns: &[Vec<Turn>]) -> Check {
    let mean = |turns: &[Turn]| turns.iter().map(Turn::cpu_seconds_per_gib).sum::<f64>() / turns.len() as f64;
    let [none, one, two] = [0, 1, 2].map(|copies: usize| mean(&turns[copies]));
    Check {
        claim: "Each copy costs the controller CPU time.",
        check: "one copy costs more than none, and two cost 1.1 times what none costs, or more",
        holds: one > none && two >= DEARER_MIN * none,
        measured: format!("{none:.3}, {one:.3} and {two:.3} s/GiB with no copy, one and two, over all writers"),
        why: "A buffer of 8 MiB does not stay in the nearest caches: a copy reads and writes it once more.",
    }
}

fn count(turns: &[Vec<Turn>], counted: &[(&'static str, u64, f64)]) -> Check {
    let of = |name: &str, bytes: u64| {
        counted.iter().find(|counted| (counted.0, counted.1) == (name, bytes)).expect("it was counted").2
    };
    let block = BLOCK_BYTES as u64;
    let short_and_long = [of("write", block), of("write", COMMAND_BYTES), of("read", block), of("read", COMMAND_BYTES)];
    let [short, long, short_read, long_read] = short_and_long;
    let most = turns[0].iter().map(Turn::copies).fold(0.0, f64::max);
    Check {
        claim: "As it is shipped, the controller copies short writes once, long ones not, and reads never.",
        check: "exactly 1 and 0 copies of 4 KiB writes and of reads; of 1 MiB writes no more than 5 % of the bytes",
        holds: short == 1.0 && long.max(most) <= ENDS_SHARE_MAX && short_read == 0.0 && long_read == 0.0,
        measured: format!(
            "4 KiB: write {short:.2}, read {short_read:.2}; 1 MiB: write {long:.3}, read {long_read:.2}; all writers: at \
             most {most:.3}"
        ),
        why: "Long data go from the socket straight to the frames that the FTL keeps, but for what comes with their header \
              and a rest that is not worth a system call; reads are sent from their frames.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Nanos;

    struct Silent;

    impl Assistant for Silent {
        fn progress(&mut self, _share: f64, _doing: &str) {}

        fn cpu_time(&mut self) -> Nanos {
            Nanos::ZERO
        }
    }

    #[test]
    fn copies_are_where_they_are_asked_for_and_nowhere_else() {
        let told = run(Options { seed: 1, quick: true }, &mut Silent).unwrap();
        let copied = |row: &Vec<Cell>| match row[6] {
            Cell::Number(copies, _) => copies,
            _ => panic!("{row:?}"),
        };
        for (row, copies) in told.tables[0].rows.iter().zip([0.0, 0.0, 1.0, 1.0, 2.0, 2.0]) {
            assert!((copied(row) - copies).abs() <= ENDS_SHARE_MAX, "{}", told.tables[0]);
        }
        // Batches are beside them, each page behind the others.
        assert!(told.tables[0].rows.len() == 8 && copied(&told.tables[0].rows[7]) <= 1.0, "{}", told.tables[0]);
        // What the clock says depends on the machine; what is counted does not.
        let counts = &told.checks[1];
        assert!(counts.holds, "{counts:?}");
    }
}
