//! `openftl serve` of a table drive: its files for other processes, until it is told to stop.
//!
//! The server has a thread for each connection; this one operates the drive:
//!
//! ```text
//!   Power::On ── power-cut: connections end, the drive stops, the device forgets ──▶ Power::Off
//!      ▲                                                                                 │
//!      └───────────────────── power-on: opened again, by recovery ───────────────────────┘
//! ```

use crate::assembly::{opened_how, opened_in};
use crate::cli;
use crate::companion::Companion;
use crate::control::{self, Moment};
use crate::drive_events;
use crate::failure::Failure;
use crate::inspect::{self, TenantFacts};
use crate::log::Voice;
use crate::notify;
use crate::passed::Passed;
use crate::ready::Ready;
use crate::serve::{announce, exit_with_parent, stop_at_signals, write_recovery};
use crate::terminal::{Ink, Palette, say};
use openftl_control::socket_beside;
use openftl_control::{Answer, Command, ControlServer, Cut, Refusal, RefusalKind, Request};
use openftl_core::units::ByteSize;
use openftl_drive::description::{DriveDescription, FtlKind, Timing};
use openftl_drive::plugin;
use openftl_drive::table_drive::{TableDrive, TableFiles, written};
use openftl_files::{FileError, FileServer, Pace};
use openftl_media::{EmulatedDevice, PowerLoss};
use openftl_parts::{Access, RecoveryReport};
use openftl_server::{Endpoint, Listener, Stop};
use openftl_serving::service;
use rustix::event::{PollFd, PollFlags, poll};
use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};
use tracing::{debug, error, info, warn};

/// How often it is looked whether a power cut is to strike.
const LOOK: Duration = Duration::from_micros(200);

/// The table drive that `--drive` describes, if it does.
pub fn table_drive(arguments: &cli::Serve) -> Result<Option<(DriveDescription, TableDrive)>, Failure> {
    let Some(path) = &arguments.flags.drive else { return Ok(None) };
    let file = DriveDescription::read(path)?;
    if file.ftl.kind != Some(FtlKind::Tables) {
        return Ok(None);
    }
    let drive = TableDrive::of(&file).map_err(|error| Failure::bad_input(error.of(&path.display().to_string())))?;
    Ok(Some((file, drive)))
}

/// A served table drive.
struct Serving<'a> {
    drive: &'a TableDrive,
    server: FileServer<EmulatedDevice>,
    power: Power,
    voice: Voice,
    started: Instant,
    power_cuts: u64,
    turned_away_before: u64,
}

/// Whether there is some.
enum Power {
    On,
    /// A drive in memory waits here, with its clock.
    Off(Option<(Box<EmulatedDevice>, Pace)>),
}

pub fn run(
    arguments: &cli::Serve,
    file: &DriveDescription,
    drive: &TableDrive,
    voice: Voice,
    passed: Passed,
) -> Result<(), Failure> {
    refuse(arguments, drive)?;
    let path = arguments.flags.drive.as_deref().expect("a table drive comes from a drive description");
    let Some(endpoint) = drive.server() else {
        return Err(Failure::bad_input(format_args!("{}: host.files is missing", path.display()))
            .fix("write files = \"unix:/run/lsm.sock\" in [host], so that clients find the server"));
    };
    if file.media.timing == Some(Timing::Virtual) {
        return Err(Failure::bad_input("media.timing = \"virtual\": a drive with real clients runs in real time")
            .fix("use wall-clock or instant"));
    }
    let palette = voice.palette();
    let stop = Stop::new().map_err(Failure::failed)?;
    stop_at_signals(&stop)?;
    if arguments.exit_with_parent {
        exit_with_parent()?;
    }
    // Before the drive is opened: an address in use is found out before anything is written.
    let Passed { control: passed_control, files: passed_files, nbd, nvme_tcp } = passed;
    if let Some(listener) = nbd.first().or(nvme_tcp.first()) {
        return Err(Failure::bad_input(format_args!(
            "LISTEN_FDS: {} was passed for a block drive, and the drive description is of a table drive",
            written(listener.endpoint())
        ))
        .fix("write FileDescriptorName=files in the .socket unit"));
    }
    if let Some(listener) = passed_files.iter().find(|listener| listener.endpoint() != endpoint) {
        return Err(Failure::bad_input(format_args!(
            "LISTEN_FDS: the socket named files is {}, and clients look for the server at host.files, {}",
            written(listener.endpoint()),
            written(endpoint)
        ))
        .fix("write the same place in the .socket unit and in the drive description"));
    }
    let (mut control, control_endpoint) = control_server(arguments, file, drive, passed_control, voice)?;
    let listen = |endpoint: &Endpoint| {
        // Whoever reaches the socket can do anything with the files.
        control::listen(endpoint.clone())
            .map_err(|error| Failure::failed(error).fix("choose another place for host.files"))
    };
    let listeners = if passed_files.is_empty() { vec![listen(endpoint)?] } else { passed_files };
    if let Some(disk) = drive.disk().filter(|disk| !disk.exists()) {
        drive.create(disk, None).map_err(Failure::bad_input)?;
        voice.tell(&format!("{} made", disk.display()));
        info!(target: "drive", file = %disk.display(), "drive made");
    }
    let files = drive.open(Access::ReadWrite).map_err(|error| failure(&error))?;
    note_opened(drive, &files);
    let greeting = greeting(path, drive, endpoint, &files, control.is_some(), palette);
    // Who has called before waits in the socket's queue; who calls after the greeting is served.
    let server = service::serve_files(listeners, files).map_err(Failure::failed)?;
    voice.tell(&greeting);
    info!(target: "connection", protocol = "files", endpoint = written(endpoint), "listening");
    if let Some(endpoint) = &control_endpoint {
        info!(target: "control", endpoint = written(endpoint), "listening");
    }
    let ready = Ready::tables(format!("openftl://{}", path.display()), control_endpoint.as_ref());
    let companion = announce(arguments, &ready, &stop)?;
    let started = Instant::now();
    let mut serving = Serving { drive, server, power: Power::On, voice, started, power_cuts: 0, turned_away_before: 0 };
    let served = serving.until_stopped(&stop, &mut control).and_then(|()| {
        notify::stopping();
        serving.end(arguments.json, palette)
    });
    let ran = companion.map_or(Ok(()), Companion::end);
    served.and(ran)
}

/// Sleeps until somebody calls.
fn wait(stop: &Stop, control: Option<&ControlServer<Listener>>) -> Result<(), Failure> {
    if control.is_some_and(ControlServer::has_more) {
        return Ok(());
    }
    let event = control.map(ControlServer::event);
    let mut events = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    events.extend(event.map(|event| PollFd::from_borrowed_fd(event, PollFlags::IN)));
    match poll(&mut events, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// Refuses what is for block drives.
fn refuse(arguments: &cli::Serve, drive: &TableDrive) -> Result<(), Failure> {
    let flags = &arguments.flags;
    let refused = [
        (!arguments.nbd.is_empty(), "--nbd"),
        (!arguments.nvme_tcp.is_empty(), "--nvme-tcp"),
        (!arguments.open_channel.is_empty(), "--open-channel"),
        (arguments.memory, "--memory"),
        (arguments.lie_about_flush, "--lie-about-flush"),
        (arguments.poll.is_some(), "--poll"),
        (arguments.reactors.is_some(), "--reactors"),
        (arguments.record.is_some(), "--record"),
        (arguments.timing.is_some(), "--timing"),
        (flags.capacity.is_some(), "--capacity"),
        (flags.over_provisioning.is_some(), "--over-provisioning"),
        (flags.map_memory.is_some(), "--map-memory"),
        (!flags.map_pin.is_empty(), "--map-pin"),
        (flags.map_block.is_some(), "--map-block"),
        (flags.profile.is_some(), "--profile"),
        (flags.durability.is_some(), "--durability"),
    ];
    if let Some((_, flag)) = refused.iter().find(|(is_given, _)| *is_given) {
        return Err(Failure::bad_input(format_args!(
            "{flag} is for block drives, and the drive description is of a table drive"
        ))
        .fix("leave it away; the drive description says what a table drive is, and where it is served (host.files)"));
    }
    match (&arguments.disk, drive.disk()) {
        (Some(disk), named) if named != Some(disk) => {
            let named = named.map_or("memory".to_owned(), |named| named.display().to_string());
            Err(Failure::bad_input(format_args!(
                "the drive description keeps its flash in {named}, and not in {}",
                disk.display()
            ))
            .fix("leave the name away"))
        }
        _ => Ok(()),
    }
}

fn failure(error: &FileError) -> Failure {
    Failure::failed(error)
}

fn control_server(
    arguments: &cli::Serve,
    file: &DriveDescription,
    drive: &TableDrive,
    passed: Option<Listener>,
    voice: Voice,
) -> Result<(Option<ControlServer<Listener>>, Option<Endpoint>), Failure> {
    let listener = match arguments.control.as_ref().or(file.host.control.as_ref()) {
        _ if passed.is_some() => passed,
        Some(text) => {
            let endpoint = crate::serve::control_at(text)?;
            let listener = control::listen(endpoint);
            Some(listener.map_err(|error| Failure::failed(error).fix("choose another --control address"))?)
        }
        None => match drive.disk().map(control_beside) {
            Some(Err(error)) => {
                voice.tell(&format!("This drive cannot be controlled: {error} (--control names another place)"));
                warn!(target: "control", error, fix = "--control names another place", "the drive cannot be controlled");
                None
            }
            Some(Ok(listener)) => Some(listener),
            None => None,
        },
    };
    let endpoint = listener.as_ref().map(|listener| listener.endpoint().clone());
    Ok((listener.map(ControlServer::new).transpose().map_err(Failure::failed)?, endpoint))
}

fn control_beside(disk: &Path) -> Result<Listener, String> {
    let endpoint = format!("unix:{}", socket_beside(disk).display());
    let endpoint = endpoint.parse::<Endpoint>().map_err(|error| error.to_string())?;
    control::listen(endpoint).map_err(|error| error.to_string())
}

/// What the log calls it.
fn name(drive: &TableDrive) -> String {
    let file = drive.disk().and_then(Path::file_stem);
    file.map_or("memory".into(), |name| name.to_string_lossy().into_owned())
}

/// Notes that a drive is open.
fn note_opened(drive: &TableDrive, files: &TableFiles) {
    let (free, all) = files.space();
    drive_events::tables_opened(&name(drive), &report(files), free, all);
}

fn report(files: &TableFiles) -> RecoveryReport {
    files.with_drive(|drive| drive.block().recovery_report().clone())
}

fn greeting(
    path: &Path,
    drive: &TableDrive,
    endpoint: &Endpoint,
    files: &TableFiles,
    is_controlled: bool,
    palette: Palette,
) -> String {
    let mut text = String::new();
    let disk = drive.disk();
    let what = disk.map_or("a new table drive in memory".to_owned(), |disk| disk.display().to_string());
    let (free, all) = files.space();
    _ = writeln!(
        text,
        "{}  {} for tables, {} of it free, and {} for logs",
        palette.paint(Ink::Bold, &what),
        ByteSize(all),
        ByteSize(free),
        drive.log_area()
    );
    let report = report(files);
    if disk.is_some() && !report.steps.is_empty() {
        write_recovery(&mut text, &report, palette);
    }
    _ = writeln!(text, "  {} {}", palette.paint(Ink::Good, "listening on"), written(endpoint));
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let uri = format!("openftl://{}", path.display());
    let (db_bench, missing) = plugin::loading("db_bench");
    let (ldb, _) = plugin::loading("ldb");
    if let Some(note) = missing {
        _ = writeln!(text, "\n  {}", palette.paint(Ink::Dim, &format!("# {note}")));
    }
    for (note, command) in [
        ("RocksDB's programs on it, as many at a time as you like", format!("{db_bench} --fs_uri={uri} --db=/db")),
        ("what is in a database", format!("{ldb} --fs_uri={uri} --db=/db scan --max_keys=10")),
    ] {
        _ = writeln!(text, "\n  {}\n  {command}", palette.paint(Ink::Dim, &format!("# {note}")));
    }
    if let (Some(disk), true) = (disk, is_controlled) {
        let note = palette.paint(Ink::Dim, "# cut its power, ask what it did");
        _ = writeln!(text, "\n  {note}\n  openftl ctl {0} power-cycle\n  openftl ctl {0} stats", disk.display());
    }
    _ = writeln!(text, "\nCtrl-C ends it cleanly.");
    text
}

fn not_now(what: &str) -> Refusal {
    Refusal::new(RefusalKind::NotNow, what)
}

impl Serving<'_> {
    fn until_stopped(&mut self, stop: &Stop, control: &mut Option<ControlServer<Listener>>) -> Result<(), Failure> {
        while !stop.is_requested() {
            wait(stop, control.as_ref())?;
            if let Some(control) = control {
                control.poll();
                while let Some((client, request)) = control.take_request() {
                    let result = self.carry_out(&request);
                    let request = control::written(&request);
                    match &result {
                        Ok(_) => debug!(target: "control", request, "request carried out"),
                        Err(reason) => debug!(target: "control", request, %reason, "request refused"),
                    }
                    control.answer(client, result);
                }
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, request: &Request) -> Result<Answer, Refusal> {
        let Request { command, namespace } = request;
        if let Some(name) = namespace {
            let what = format!("namespace {name}: a table drive has none");
            return Err(Refusal::new(RefusalKind::OutOfRange, what).fix("leave --namespace away"));
        }
        match (*command, &self.power) {
            (Command::Stats {}, _) => Ok(self.statistics()),
            (Command::Inspect { first_chunk, colour }, Power::On) => {
                let palette = Palette::with_colour(colour);
                let inspected = self.server.with_files(|files| {
                    files.with_drive(|drive| {
                        let below = inspect::Below::of_device(drive.block().media());
                        let tables = TenantFacts::of_tables(drive);
                        inspect::answer(drive.block(), &below, Some(tables), first_chunk, palette)
                    })
                });
                Ok(inspected.expect("the power is on"))
            }
            (Command::PowerOn {}, Power::Off(_)) => self.turn_on(None),
            (Command::PowerOn {}, Power::On) => Err(not_now("the power is on already")),
            (Command::PowerCut(cut), Power::On) => self.cut(cut),
            (Command::PowerCycle(cut), Power::On) => {
                let before = self.cut(cut)?;
                self.turn_on(Some(before))
            }
            (_, Power::Off(_)) => Err(not_now("the power is off").fix("turn it on first: openftl ctl DRIVE power-on")),
            (
                Command::FailRead { .. }
                | Command::FailProgram { .. }
                | Command::Corrupt { .. }
                | Command::Wear { .. }
                | Command::LieAboutFlush { .. }
                | Command::Attach {}
                | Command::Detach {},
                Power::On,
            ) => Err(not_now("this is for block drives, and a table drive is served")
                .fix("a table drive knows power-cut, power-on, power-cycle and stats")),
        }
    }

    /// Commands that the device has had.
    fn commands(&self) -> u64 {
        let commands = |files: &TableFiles| files.with_drive(|drive| drive.block().media().statistics().commands);
        self.server.with_files(commands).unwrap_or_default()
    }

    fn cut(&mut self, cut: Cut) -> Result<Answer, Refusal> {
        if cut.after.is_some() {
            let what = "a cut after so many writes, flushes or commands is for block drives";
            return Err(Refusal::new(RefusalKind::Malformed, what).fix("let a --seed choose the moment"));
        }
        let moment = cut.seed.map_or(Moment::NOW, Moment::chosen_by);
        let (asked, before) = (Instant::now(), self.commands());
        let delay = Duration::from_nanos(moment.delay.0);
        while asked.elapsed() < delay && self.commands() - before < moment.commands {
            std::thread::sleep(LOOK);
        }
        let torn = cut.torn || moment.torn;
        let (connections, requests) = self.server.load();
        let later = self.commands() - before;
        let interrupted = self.server.interrupt(|files| {
            files.stop(|drive, now| drive.media_mut().power_cut(now, torn).map_err(|error| error.to_string()))
        });
        let (files, loss) = interrupted.expect("the power is on");
        let pace = files.pace();
        let device = files.crash().expect("nobody uses it any more");
        self.power = Power::Off(match self.drive.disk() {
            // Nobody holds its file now: it can be looked at and copied as the cut left it.
            Some(_) => None,
            None => Some((Box::new(device), pace)),
        });
        self.power_cuts += 1;
        self.turned_away_before = self.server.counts().turned_away;
        let loss =
            loss.map_err(|error| Refusal::new(RefusalKind::Failed, format!("the power cut cannot be noted: {error}")))?;
        let PowerLoss { programs_lost, programs_torn, erases_cut_short } = loss;
        let mut message =
            format!("The power is off. Connections dropped: {connections}, with {requests} requests under way.");
        if loss != PowerLoss::default() {
            message += &format!(
                "\nOn the flash: {programs_lost} programs lost, {programs_torn} torn, {erases_cut_short} erases cut short."
            );
        }
        warn!(
            target: "power",
            power = "off",
            connections,
            requests,
            torn,
            programs_lost,
            programs_torn,
            erases_cut_short,
            "{message}"
        );
        Ok(Answer::new(message)
            .with("power", "off")
            .with("connections_dropped", connections)
            .with("requests_under_way", requests)
            .with("torn", torn)
            .with("device_commands_later", later)
            .with("flash", loss))
    }

    fn turn_on(&mut self, before: Option<Answer>) -> Result<Answer, Refusal> {
        let Power::Off(device) = &mut self.power else { unreachable!("it is off") };
        let opened = match (device.take(), self.drive.disk()) {
            (Some((device, pace)), _) => self.drive.reopen(*device, pace),
            (None, Some(_)) => self.drive.open(Access::ReadWrite),
            (None, None) => Err(FileError::Io(
                "the drive in memory could not be recovered and is gone; end the server and begin again".to_owned(),
            )),
        };
        let files = opened.map_err(|error| {
            error!(target: "power", power = "off", "The power could not be turned on. {error}");
            Refusal::new(RefusalKind::Failed, error)
        })?;
        let report = report(&files);
        note_opened(self.drive, &files);
        self.server.serve(files);
        self.power = Power::On;
        let message = format!(
            "The power is on: {} in {}; {} log records replayed, {} of cut-off transactions dropped.",
            opened_how(&report),
            opened_in(&report),
            report.replayed,
            report.dropped
        );
        let turned_away = self.server.counts().turned_away - self.turned_away_before;
        warn!(target: "power", power = "on", clients_turned_away = turned_away, "{message}");
        let mut answer = before.unwrap_or_else(|| Answer::new(""));
        answer.message = format!("{}\n{message}", answer.message).trim_start().to_owned();
        Ok(answer.with("power", "on").with("recovery", &report).with("clients_turned_away", turned_away))
    }

    fn statistics(&self) -> Answer {
        let (connections, requests) = self.server.load();
        let counts = self.server.counts();
        let found = self.server.with_files(|files| (files.space(), files.statistics()));
        let power = if found.is_some() { "on" } else { "off" };
        let mut message = format!(
            "The power is {power}, the server up for {} s. {connections} connections, {requests} requests under way; {} connections and {} \
             requests in all, {} connections turned away, {} broken. Power cuts: {}.",
            self.started.elapsed().as_secs(),
            counts.connections,
            counts.requests,
            counts.turned_away,
            counts.broken,
            self.power_cuts
        );
        let answer = |message: String| {
            Answer::new(message)
                .with("power", power)
                .with("power_cuts", self.power_cuts)
                .with("connections_now", connections)
                .with("server", counts)
        };
        let Some(((free, all), statistics)) = found else { return answer(message) };
        message += &format!(
            "\nTables: {} of {} are free. Since the power came on: {} written to tables, {} to logs, {} syncs, {} read; write \
             amplification {:.3}.",
            ByteSize(free),
            ByteSize(all),
            ByteSize(statistics.table_bytes_written),
            ByteSize(statistics.log_bytes_written),
            statistics.syncs,
            ByteSize(statistics.bytes_read),
            statistics.write_amplification
        );
        answer(message).with("free_bytes", free).with("all_bytes", all).with("statistics", statistics)
    }

    /// Closes the drive and says so.
    fn end(self, json: bool, palette: Palette) -> Result<(), Failure> {
        let voice = self.voice;
        let closing = Instant::now();
        let answer = self.statistics();
        let closed = match self.server.end() {
            None => None,
            Some(files) => {
                let closed = files.close().map_err(|error| failure(&error))?;
                Some(closed.expect("nobody uses it any more"))
            }
        };
        let took = openftl_core::Nanos(closing.elapsed().as_nanos() as u64);
        match closed {
            Some(_) => drive_events::closed(&name(self.drive), took),
            None => {
                info!(target: "power", "the server stops while the power is off: the next one to open the drive recovers it");
            }
        }
        if json {
            return say(&crate::json(&answer)?);
        }
        let mut text = format!("\n{}\n", answer.message);
        if let Some(disk) = self.drive.disk() {
            let disk = disk.display();
            _ = match closed {
                Some(_) => writeln!(
                    text,
                    "\n{} {disk} is closed, with a checkpoint, in {}.",
                    palette.paint(Ink::Good, "✓"),
                    took
                ),
                None => writeln!(text, "\n{disk} is as the power cut left it: the next one to open it recovers it."),
            };
        }
        voice.tell(&text);
        Ok(())
    }
}
