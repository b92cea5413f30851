//! `openftl serve`: a drive for real clients, until it is told to stop.

use crate::assembly::{self, Drive};
use crate::cli::{self, Store, Timing};
use crate::drive_file::StoreName;
use crate::failure::Failure;
use crate::report;
use crate::settings::Settings;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::{ByteSize, Interval};
use openftl_core::{BLOCK_BYTES, FrameForm, Nanos};
use openftl_ftl::{BlockTarget, RecoveryReport, Statistics};
use openftl_lab::picture::thousands;
use openftl_media::Timing as MediaTiming;
use openftl_nbd::{Counters, Endpoint, Export, ServeError, Server, ServerConfig, Stop, WallClock};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

/// What a drive in memory has unless the command says otherwise.
const CAPACITY_DEFAULT: ByteSize = ByteSize(1 << 30);

/// Where clients connect unless the command says otherwise: the port that IANA gave to NBD.
const NBD_DEFAULT: &str = "127.0.0.1:10809";

/// How often a served drive reads all it holds unless the command says otherwise.
const SCRUB_INTERVAL_DEFAULT: Interval = Interval::days(7);

/// Frames for requests under way: two of NBD's longest, 32 MiB each.
const HOST_FRAMES: u32 = 16_384;

/// What the last words of a process are that a second Ctrl-C ended (128 + SIGINT, as shells count).
const INTERRUPTED_TWICE: i32 = 130;

#[derive(Serialize)]
struct Served {
    connections: u64,
    reads: u64,
    writes: u64,
    trims: u64,
    flushes: u64,
    errors: u64,
    bytes_read: u64,
    bytes_written: u64,
    wall_seconds: f64,
    waf: f64,
    nand_blocks_written: u64,
    statistics: Statistics,
    read_only: bool,
}

/// Where the drive is kept.
enum Home {
    File(PathBuf),
    Memory,
}

pub fn run(arguments: &cli::Serve) -> Result<(), Failure> {
    let mut settings = Settings::gather(&arguments.flags, CAPACITY_DEFAULT)?;
    settings.scrub_interval.get_or_insert(SCRUB_INTERVAL_DEFAULT);
    let timing = match arguments.timing.or(settings.timing).unwrap_or(Timing::WallClock) {
        Timing::WallClock => MediaTiming::Modelled,
        Timing::Instant => MediaTiming::Instant,
        Timing::Virtual => {
            return Err(Failure::bad_input("timing = virtual: a drive with real clients runs in real time")
                .fix("use --timing wall-clock or instant"));
        }
    };
    let home = home(arguments, &settings)?;
    let endpoints = endpoints(arguments, &settings)?;
    let tell = |text: &str| match arguments.json {
        true => {
            eprint!("{text}");
            Ok(())
        }
        false => say(text),
    };
    let palette = if arguments.json { Palette::of_stderr() } else { Palette::of_stdout() };

    let stop = Stop::new().map_err(Failure::failed)?;
    stop_at_signals(&stop)?;
    let server_config = ServerConfig { allow_remote: arguments.allow_remote, ..ServerConfig::default() };
    let mut server = Server::new(server_config).map_err(Failure::failed)?;
    // Before the drive is opened: an address in use is found out before anything is written.
    let endpoints = endpoints
        .into_iter()
        .map(|endpoint| {
            server.listen(endpoint).map_err(|error| Failure::failed(error).fix("choose another --nbd address"))
        })
        .collect::<Result<Vec<Endpoint>, Failure>>()?;

    let mut clock = WallClock::new();
    let (drive, name) = match &home {
        Home::Memory => (in_memory(&settings, timing, &mut clock)?, "memory".to_owned()),
        Home::File(path) => {
            let flags = &arguments.flags;
            if flags.drive.is_some() && !path.exists() {
                crate::create::make(&settings, path, crate::create::another_seed())?;
                tell(&format!("{} made\n", path.display()))?;
            }
            let name = path.file_stem().map_or("disk".into(), |stem| stem.to_string_lossy().into_owned());
            let drive =
                assembly::open_file(path, timing, &assembly::Reopen::of(&settings, flags, HOST_FRAMES), &mut clock)?;
            (drive, name)
        }
    };
    tell(&greeting(&home, &drive, &endpoints, palette))?;

    let counters = server.counters();
    let started = Instant::now();
    let description = format!("{} of {}", ByteSize(drive.blocks() * BLOCK_BYTES as u64), drive.media().profile().name);
    let mut exports = [Export { name, description, read_only: false, target: drive }];
    let served = server.run(&mut exports, &mut clock, &stop);
    let [Export { target: drive, .. }] = exports;
    let wall_seconds = started.elapsed().as_secs_f64();
    let statistics = drive.statistics().clone();
    let read_only = drive.read_only_reason();
    let store_error = drive.media().store_error().map(|error| error.to_string());
    // Even if the server failed: what was acknowledged is better off with a checkpoint.
    let closing = Instant::now();
    let closed = assembly::close(drive, &mut clock);
    if let Some(error) = store_error {
        return Err(Failure::failed(format_args!("the file behind the drive failed: {error}")).fix(
            "make room for it or mend its disk, then serve it again; everything acknowledged and flushed is on it",
        ));
    }
    served.map_err(|error| serve_failure(&error))?;
    closed?;

    let summary = summary(&counters, statistics, wall_seconds, read_only.is_some());
    if arguments.json {
        return say(&crate::json(&summary)?);
    }
    let mut text = farewell(&summary, palette);
    if let Some(reason) = read_only {
        _ = writeln!(text, "\n{} The drive is read-only: {reason}.", palette.paint(Ink::Bad, "!"));
    }
    if let Home::File(path) = home {
        let took = Nanos(closing.elapsed().as_nanos() as u64);
        _ = writeln!(
            text,
            "\n{} {} is closed, with a checkpoint, in {took}.",
            palette.paint(Ink::Good, "✓"),
            path.display()
        );
    }
    say(&text)
}

fn home(arguments: &cli::Serve, settings: &Settings) -> Result<Home, Failure> {
    match (&arguments.disk, arguments.memory, settings.store, &settings.path) {
        (Some(disk), ..) => Ok(Home::File(disk.clone())),
        (None, true, ..) | (None, false, Some(StoreName::Ram), _) => Ok(Home::Memory),
        (None, false, Some(StoreName::File), Some(path)) => Ok(Home::File(path.clone())),
        (None, false, Some(StoreName::Stamps), _) => Err(Failure::bad_input(
            "store = stamps: a drive that keeps eight bytes a block cannot keep what clients write",
        )
        .fix("serve it with --memory, or choose store = \"ram\" or \"file\"")),
        (None, false, _, _) => Err(Failure::bad_input("there is nothing to serve")
            .fix("name a drive made by `openftl create`, or serve a new one with --memory or --drive FILE")),
    }
}

fn endpoints(arguments: &cli::Serve, settings: &Settings) -> Result<Vec<Endpoint>, Failure> {
    let texts = match (arguments.nbd.is_empty(), settings.nbd.is_empty()) {
        (false, _) => arguments.nbd.clone(),
        (true, false) => settings.nbd.clone(),
        (true, true) => vec![NBD_DEFAULT.to_owned()],
    };
    texts.iter().map(|text| text.parse().map_err(|error| Failure::bad_input(format_args!("--nbd: {error}")))).collect()
}

fn in_memory(settings: &Settings, timing: MediaTiming, clock: &mut WallClock) -> Result<Drive, Failure> {
    let mut config = settings.config(FrameForm::Bytes, crate::create::another_seed());
    config.host_frames = HOST_FRAMES;
    assembly::new_in_memory(settings, config, Store::Ram, timing, crate::create::another_seed(), clock)
}

/// The first SIGINT or SIGTERM ends the server cleanly, the second ends the process at once.
fn stop_at_signals(stop: &Stop) -> Result<(), Failure> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(Failure::failed)?;
    let stop = stop.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                if stop.is_requested() {
                    std::process::exit(INTERRUPTED_TWICE);
                }
                stop.request();
            }
        })
        .map_err(Failure::failed)?;
    Ok(())
}

fn greeting(home: &Home, drive: &Drive, endpoints: &[Endpoint], palette: Palette) -> String {
    let mut text = String::new();
    let what = match home {
        Home::Memory => "a new drive in memory".to_owned(),
        Home::File(path) => path.display().to_string(),
    };
    let capacity = ByteSize(drive.blocks() * BLOCK_BYTES as u64);
    _ = writeln!(text, "{}  {capacity} on {}", palette.paint(Ink::Bold, &what), drive.media().profile().name);
    if matches!(home, Home::File(_)) {
        write_recovery(&mut text, drive.recovery_report(), palette);
    }
    if let Some(reason) = drive.read_only_reason() {
        _ = writeln!(text, "{} The drive takes no writes: {reason}.", palette.paint(Ink::Bad, "!"));
    }
    for endpoint in endpoints {
        let uri = endpoint.uri("");
        _ = writeln!(text, "  {} {uri}", palette.paint(Ink::Good, "listening on"));
    }
    if let Some(endpoint) = endpoints.first() {
        for (note, command) in client_commands(&endpoint.uri("")) {
            _ = writeln!(text, "\n  {}\n  {command}", palette.paint(Ink::Dim, &format!("# {note}")));
        }
    }
    _ = writeln!(text, "\nCtrl-C ends it cleanly.");
    text
}

/// What to type to use a drive.
fn client_commands(uri: &str) -> [(&'static str, String); 6] {
    [
        ("what is there", format!("nbdinfo '{uri}'")),
        (
            "random writes, verified",
            format!(
                "fio --name=v --ioengine=nbd --uri='{uri}' --rw=randwrite --bs=4k --iodepth=32 --size=256M --verify=crc32c"
            ),
        ),
        ("bytes by hand", format!("qemu-io -f raw -c 'write -P 7 0 1M' -c 'read -P 7 0 1M' '{uri}'")),
        ("a virtual machine's disk onto it", format!("qemu-img convert -n -f raw -O raw image.raw '{uri}'")),
        ("all of it into a file", format!("nbdcopy '{uri}' backup.raw")),
        ("as a file: mkfs, mount -o loop", format!("mkdir -p mnt && nbdfuse mnt/disk '{uri}'")),
    ]
}

/// How a drive was opened: the steps, their times and what they found.
pub fn write_recovery(text: &mut String, report: &RecoveryReport, palette: Palette) {
    _ = writeln!(text, "  {} in {}", assembly::opened_how(report), assembly::opened_in(report));
    for step in &report.steps {
        let time = step.time.to_string();
        _ = writeln!(text, "    {:<24} {time:>10}  {}", step.name, palette.paint(Ink::Dim, &step.found));
    }
}

fn summary(counters: &Counters, statistics: Statistics, wall_seconds: f64, read_only: bool) -> Served {
    Served {
        connections: counters.connections_accepted.get(),
        reads: counters.reads.get(),
        writes: counters.writes.get(),
        trims: counters.trims.get(),
        flushes: counters.flushes.get(),
        errors: counters.errors.get(),
        bytes_read: counters.bytes_read.get(),
        bytes_written: counters.bytes_written.get(),
        wall_seconds,
        waf: statistics.waf(),
        nand_blocks_written: statistics.nand_blocks_written(),
        statistics,
        read_only,
    }
}

fn farewell(served: &Served, palette: Palette) -> String {
    let mut text = format!("\n{}\n", palette.paint(Ink::Bold, &format!("Served for {:.1} s", served.wall_seconds)));
    for (what, count, bytes) in [
        ("reads", served.reads, Some(served.bytes_read)),
        ("writes", served.writes, Some(served.bytes_written)),
        ("trims", served.trims, None),
        ("flushes", served.flushes, None),
        ("errors", served.errors, None),
    ] {
        let bytes = bytes.map_or(String::new(), |bytes| format!("  {}", ByteSize(bytes)));
        _ = writeln!(text, "  {what:<12} {:>12}{bytes}", thousands(count));
    }
    _ = writeln!(text, "  {:<12} {:>12}", "connections", thousands(served.connections));
    report::write_amplification(&mut text, &served.statistics, palette);
    report::write_care(&mut text, &served.statistics, palette);
    report::write_mishaps(&mut text, &served.statistics, palette);
    text
}

fn serve_failure(error: &ServeError) -> Failure {
    Failure::failed(error).fix("whatever was acknowledged and flushed is on the drive; `openftl check` verifies it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_commands_hold_the_uri_in_quotes() {
        let uri = "nbd+unix:///?socket=/tmp/a.sock";
        for (_, command) in client_commands(uri) {
            assert!(command.contains(&format!("'{uri}'")), "{command}");
        }
    }
}
