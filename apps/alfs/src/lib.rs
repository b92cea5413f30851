//! `openftl alfs`: the file system that manages its own flash, on a drive of segments.

mod place;

use openftl_alfs::mounting::{MountError, is_unfinished};
use openftl_alfs::segments::{ANCHORS, Log, Shape, State};
use openftl_alfs::{CheckReport, Options, RebuildReport, Volume};
use openftl_command_line::cli::alfs::{Alfs, AlfsCommand, AlfsDump, AlfsFsck, AlfsMkfs, AlfsMount, AlfsStat};
use openftl_command_line::companion::Companion;
use openftl_command_line::failure::Failure;
use openftl_command_line::terminal::{Ink, Live, Palette, say};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Clock, Time};
use openftl_fuse::{Mount, MountOptions, ServeClock, ServeOptions, Stopper, WallClock, serve};
use openftl_lab::picture::thousands;
use openftl_nvme_segments::Claim;
use openftl_parts::Access;
use place::AlfsDrive;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt::Write as _;
use std::path::Path;

/// Real time, for a drive that is waited for.
struct Patient(WallClock);

impl Clock for Patient {
    fn now(&mut self) -> Time {
        self.0.now()
    }

    fn wait_until(&mut self, due: Time) -> Time {
        std::thread::sleep(self.0.until(due));
        self.0.now()
    }
}

/// Runs one of its commands.
///
/// # Errors
/// If it fails.
pub fn run(arguments: &Alfs) -> Result<(), Failure> {
    match &arguments.command {
        AlfsCommand::Mkfs(arguments) => mkfs(arguments),
        AlfsCommand::Mount(arguments) => mount(arguments),
        AlfsCommand::Fsck(arguments) => fsck(arguments),
        AlfsCommand::Stat(arguments) => stat(arguments),
        AlfsCommand::Dump(arguments) => dump(arguments),
    }
}

fn mkfs(arguments: &AlfsMkfs) -> Result<(), Failure> {
    let path = &arguments.drive;
    let mut clock = Patient(WallClock::new());
    let drive = AlfsDrive::open(path, Access::ReadWrite, to_write(arguments.preempt), &mut clock)?;
    let read_only = Options { is_read_only: true, ..Options::default() };
    let (drive, there) = match Volume::mount(drive, read_only, &mut clock) {
        Ok(volume) => (volume.into_target(), Some("there is a file system")),
        Err((mut drive, why)) => {
            // What cannot be read is not taken for nothing.
            let is_unfinished = matches!(is_unfinished(&mut drive, &why, &mut clock), Ok(true));
            let there = match why {
                _ if is_unfinished => None,
                MountError::NoVolume => Some("its segments were written by another host"),
                MountError::OtherVersion(_) => Some("there is a file system of another version of the format"),
                MountError::NoRecord(_)
                | MountError::RecordLost { .. }
                | MountError::RecordsGone
                | MountError::OtherShape { .. } => Some("there is a file system that cannot be mounted"),
                error => {
                    let failure = drive.refused(path, error);
                    drive.close(&mut clock)?;
                    return Err(failure);
                }
            };
            (drive, there)
        }
    };
    if let Some(there) = there.filter(|_| !arguments.force) {
        drive.close(&mut clock)?;
        return Err(Failure::bad_input(format_args!("{}: {there}", path.display()))
            .fix("`--force` replaces it, and all of it is lost"));
    }
    let mut id = [0; 8];
    getrandom::fill(&mut id).map_err(Failure::failed)?;
    let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let time_of_day = clock.0.time_of_day();
    let volume = Volume::format(drive, u64::from_le_bytes(id), owner, time_of_day, &mut clock);
    let volume = volume.map_err(|error| Failure::failed(error).about(path.display()))?;
    let shape = volume.segments().shape;
    let room = bytes(volume.room().blocks);
    let drive = volume.unmount(&mut clock).map_err(|(drive, error)| drive.refused(path, error))?;
    drive.close(&mut clock)?;
    say(&format!(
        "{} {}: {} segments of {}, room for {room}\n",
        Palette::of_stdout().paint(Ink::Good, "✓"),
        path.display(),
        thousands(shape.segments.into()),
        bytes(shape.segment_blocks.into()),
    ))
}

/// So many of these.
fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(count), if count == 1 { "" } else { "s" })
}

fn bytes(blocks: u64) -> ByteSize {
    ByteSize(blocks * BLOCK_BYTES as u64)
}

/// What a command that writes wants of a served drive.
fn to_write(preempt: bool) -> Claim {
    if preempt { Claim::Preempt } else { Claim::IfFree }
}

fn mount(arguments: &AlfsMount) -> Result<(), Failure> {
    let path = &arguments.drive;
    let wall = WallClock::new();
    let mut clock = Patient(wall);
    let access = if arguments.read_only { Access::Inspect } else { Access::ReadWrite };
    let claim = if arguments.read_only { Claim::None } else { to_write(arguments.preempt) };
    let drive = AlfsDrive::open(path, access, claim, &mut clock)?;
    let options = Options { is_read_only: arguments.read_only, ..Options::default() };
    let volume = match Volume::mount(drive, options, &mut clock) {
        Ok(volume) => volume,
        Err((drive, error)) => return Err(drive.refused(path, error)),
    };
    let name = path.file_name().map_or("openftl".into(), |name| name.to_string_lossy().into_owned());
    let mount_options = MountOptions {
        name,
        allow_other: arguments.allow_other,
        read_only: arguments.read_only,
        ..MountOptions::default()
    };
    let mount = Mount::new(&arguments.folder, &mount_options)
        .map_err(|error| Failure::failed(error).about(arguments.folder.display()))?;
    let stopper = Stopper::default();
    stop_at_signals(&stopper)?;
    if arguments.run.is_none() {
        let folder = arguments.folder.display();
        say(&format!("{folder} is mounted; `fusermount3 -u {folder}` or Ctrl-C unmounts it\n"))?;
    }
    let companion = arguments
        .run
        .as_ref()
        .map(|command| {
            let (folder, stopper) = (arguments.folder.display().to_string(), stopper.clone());
            let environment = [("OPENFTL_FOLDER", &folder)].into_iter();
            Companion::start_with(command, environment, move || stopper.stop())
        })
        .transpose()?;
    let serve_options = ServeOptions { threads: arguments.threads.into(), ..ServeOptions::default() };
    let served = serve(mount, volume, &wall, &serve_options, &stopper);
    let ran = companion.map_or(Ok(()), Companion::end);
    if let Err(refusal) = served.synced {
        let why = served.fs.target().trouble().or(served.fs.failure().map(str::to_owned));
        let why = why.map_or_else(|| refusal.to_string(), |why| format!("what was not synced is lost: {why}"));
        return Err(Failure::failed(why).about(path.display()));
    }
    if arguments.read_only {
        return ran;
    }
    let drive = served.fs.unmount(&mut clock).map_err(|(drive, error)| drive.refused(path, error))?;
    drive.close(&mut clock)?;
    ran
}

/// What the last words of a process are that a second Ctrl-C ended (128 + SIGINT, as shells count).
const INTERRUPTED_TWICE: i32 = 130;

/// The first SIGINT or SIGTERM unmounts, the second ends the process at once.
fn stop_at_signals(stopper: &Stopper) -> Result<(), Failure> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(Failure::failed)?;
    let stopper = stopper.clone();
    let wait = move || {
        let mut is_second = false;
        for _ in signals.forever() {
            if is_second {
                std::process::exit(INTERRUPTED_TWICE);
            }
            is_second = true;
            stopper.stop();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(Failure::failed)?;
    Ok(())
}

/// The file system of a drive, which is not written to.
fn looked_at(path: &Path, clock: &mut Patient) -> Result<Volume<AlfsDrive>, Failure> {
    let drive = AlfsDrive::open(path, Access::Inspect, Claim::None, clock)?;
    let options = Options { is_read_only: true, ..Options::default() };
    Volume::mount(drive, options, clock).map_err(|(drive, error)| drive.refused(path, error))
}

#[derive(Serialize)]
struct Rebuilt {
    unreadable_blocks: u64,
    dropped_nodes: u64,
    lost_blocks: u64,
    lost_and_found: u64,
    mended_all: u64,
    mended: Vec<String>,
}

impl From<RebuildReport> for Rebuilt {
    fn from(report: RebuildReport) -> Rebuilt {
        Rebuilt {
            unreadable_blocks: report.unreadable,
            dropped_nodes: report.dropped,
            lost_blocks: report.lost_blocks,
            lost_and_found: report.lost_and_found,
            mended_all: report.deeds_all,
            mended: report.deeds,
        }
    }
}

impl Rebuilt {
    fn text(&self, palette: Palette) -> String {
        let mut text = String::new();
        for deed in &self.mended {
            _ = writeln!(text, "{} {deed}", palette.paint(Ink::Good, "→"));
        }
        let left = self.mended_all - self.mended.len() as u64;
        if left > 0 {
            _ = writeln!(text, "{} {} more", palette.paint(Ink::Good, "→"), thousands(left));
        }
        _ = writeln!(
            text,
            "rebuilt from the logs: {} mended, {} of no use, {} lost, {} unreadable, {} in lost+found",
            counted(self.mended_all, "thing"),
            counted(self.dropped_nodes, "node"),
            counted(self.lost_blocks, "block"),
            counted(self.unreadable_blocks, "block"),
            counted(self.lost_and_found, "file"),
        );
        text
    }
}

#[derive(Serialize)]
struct Fsck {
    sound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt: Option<Rebuilt>,
    files: u64,
    folders: u64,
    nodes: u64,
    blocks: u64,
    deleted_nodes: u64,
    findings_all: u64,
    findings: Vec<String>,
}

fn checked(path: &Path, volume: &mut Volume<AlfsDrive>, clock: &mut Patient) -> Result<CheckReport, Failure> {
    let mut live = Live::new(false);
    let report =
        volume.check(clock, &mut |done, all| live.show(&[format!("blocks of the map of nodes: {done} of {all}")]));
    live.clear();
    report.map_err(|error| volume.target().refused(path, error))
}

/// Makes the file system anew, unless it can be mounted and everything agrees.
fn rebuild(path: &Path, preempt: bool, clock: &mut Patient) -> Result<(CheckReport, Option<Rebuilt>), Failure> {
    let drive = AlfsDrive::open(path, Access::ReadWrite, to_write(preempt), clock)?;
    let read_only = Options { is_read_only: true, ..Options::default() };
    let drive = match Volume::mount(drive, read_only, clock) {
        Ok(mut volume) => {
            let report = checked(path, &mut volume, clock)?;
            let drive = volume.into_target();
            if report.is_sound() {
                drive.close(clock)?;
                return Ok((report, None));
            }
            drive
        }
        Err((drive, MountError::NoRecord(_) | MountError::RecordLost { .. } | MountError::RecordsGone)) => drive,
        Err((drive, error)) => {
            let failure = drive.refused(path, error);
            drive.close(clock)?;
            return Err(failure);
        }
    };
    let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut live = Live::new(false);
    let time_of_day = clock.0.time_of_day();
    let rebuilt = Volume::rebuild(drive, owner, time_of_day, clock, &mut |done, all| {
        live.show(&[format!("segments: {done} of {all}")]);
    });
    live.clear();
    let (mut volume, rebuilt) = rebuilt.map_err(|(drive, error)| drive.refused(path, error))?;
    let report = checked(path, &mut volume, clock)?;
    let drive = volume.unmount(clock).map_err(|(drive, error)| drive.refused(path, error))?;
    drive.close(clock)?;
    Ok((report, Some(rebuilt.into())))
}

fn fsck(arguments: &AlfsFsck) -> Result<(), Failure> {
    let path = &arguments.drive;
    let mut clock = Patient(WallClock::new());
    let (report, rebuilt) = match arguments.rebuild {
        true => rebuild(path, arguments.preempt, &mut clock)?,
        false => (checked(path, &mut looked_at(path, &mut clock)?, &mut clock)?, None),
    };
    let fsck = Fsck {
        sound: report.is_sound(),
        rebuilt,
        files: report.files,
        folders: report.folders,
        nodes: report.nodes,
        blocks: report.blocks,
        deleted_nodes: report.doomed,
        findings_all: report.findings_all,
        findings: report.findings,
    };
    if arguments.json {
        say(&openftl_command_line::json(&fsck)?)?;
    } else {
        let palette = Palette::of_stdout();
        let mut text = fsck.rebuilt.as_ref().map_or_else(String::new, |rebuilt| rebuilt.text(palette));
        for finding in &fsck.findings {
            _ = writeln!(text, "{} {finding}", palette.paint(Ink::Bad, "✗"));
        }
        let (ink, sign) = if fsck.sound { (Ink::Good, "✓") } else { (Ink::Bad, "✗") };
        _ = writeln!(
            text,
            "{} {}: {}, {}, {}, {} of contents and names",
            palette.paint(ink, sign),
            path.display(),
            counted(fsck.files, "file"),
            counted(fsck.folders, "folder"),
            counted(fsck.nodes, "node"),
            bytes(fsck.blocks),
        );
        say(&text)?;
    }
    match fsck.sound {
        true => Ok(()),
        false => Err(Failure::failed(counted(fsck.findings_all, "finding")).about(path.display())),
    }
}

#[derive(Serialize)]
struct Stat {
    segments: u32,
    segment_bytes: u64,
    reserve_segments: u32,
    free_segments: usize,
    capacity_bytes: u64,
    used_bytes: u64,
    memory_bytes: usize,
    logs: Vec<LogShown>,
}

#[derive(Serialize)]
struct LogShown {
    log: String,
    segment: u32,
    blocks: usize,
}

fn stat(arguments: &AlfsStat) -> Result<(), Failure> {
    let mut clock = Patient(WallClock::new());
    let volume = looked_at(&arguments.drive, &mut clock)?;
    let (segments, room) = (volume.segments(), volume.room());
    let shape = segments.shape;
    let logs = Log::ALL.into_iter().zip(&segments.heads).filter_map(|(log, head)| {
        let head = head.as_ref()?;
        Some(LogShown { log: name_of(log).to_owned(), segment: head.segment, blocks: head.owners.len() })
    });
    let stat = Stat {
        segments: shape.segments,
        segment_bytes: bytes(shape.segment_blocks.into()).0,
        reserve_segments: shape.reserve(),
        free_segments: segments.free(),
        capacity_bytes: bytes(room.blocks).0,
        used_bytes: bytes(room.blocks - room.free).0,
        memory_bytes: volume.memory_bytes(),
        logs: logs.collect(),
    };
    if arguments.json {
        return say(&openftl_command_line::json(&stat)?);
    }
    let share = 100.0 * stat.used_bytes as f64 / stat.capacity_bytes as f64;
    let mut text = format!(
        "room      {} of {} used, {share:.1} %\nsegments  {} of {}, {} free, {} kept for cleaning\n",
        ByteSize(stat.used_bytes),
        ByteSize(stat.capacity_bytes),
        thousands(stat.segments.into()),
        ByteSize(stat.segment_bytes),
        thousands(stat.free_segments as u64),
        stat.reserve_segments,
    );
    for log in &stat.logs {
        let blocks = format!("{} of {} blocks", log.blocks, shape.data_blocks());
        _ = writeln!(text, "log       {:22} segment {:6} {blocks}", log.log, log.segment);
    }
    say(&text)
}

fn name_of(log: Log) -> &'static str {
    match log {
        Log::HotNode => "nodes of folders",
        Log::WarmNode => "nodes of files",
        Log::ColdNode => "nodes of nodes",
        Log::HotData => "names",
        Log::WarmData => "contents",
        Log::ColdData => "contents that moved",
    }
}

#[derive(Serialize)]
struct SegmentShown {
    segment: u32,
    state: &'static str,
    valid_blocks: u32,
    age: u32,
}

fn dump(arguments: &AlfsDump) -> Result<(), Failure> {
    let mut clock = Patient(WallClock::new());
    let volume = looked_at(&arguments.drive, &mut clock)?;
    let segments = volume.segments();
    let shown = (0..).zip(segments.all()).skip(ANCHORS as usize).map(|(index, segment)| SegmentShown {
        segment: index,
        state: match segment.state {
            State::Free => "free",
            State::Open => "open",
            State::Full => "full",
            State::Trimmed => "trimmed",
            State::Failed => "failed",
        },
        valid_blocks: segment.valid,
        age: segment.age,
    });
    let shown: Vec<SegmentShown> = shown.collect();
    if arguments.json {
        return say(&openftl_command_line::json(&shown)?);
    }
    say(&picture(segments.shape, &shown))
}

/// How full of what is of use each segment is, a sign each.
fn picture(shape: Shape, segments: &[SegmentShown]) -> String {
    const SIGNS: [&str; 9] = ["·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    const PER_LINE: usize = 64;
    let mut text = String::new();
    for line in segments.chunks(PER_LINE) {
        _ = write!(text, "{:8} ", line[0].segment);
        for segment in line {
            let share = (u64::from(segment.valid_blocks) * 8).div_ceil(shape.data_blocks().into()) as usize;
            text.push_str(match segment.state {
                "free" => " ",
                _ => SIGNS[share.min(8)],
            });
        }
        text.push('\n');
    }
    _ = writeln!(text, "\nblank: free, · nothing of use, ▁ to █: an eighth to all of the segment is of use");
    text
}
