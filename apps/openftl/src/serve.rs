//! `openftl serve`: a drive for real clients, until it is told to stop.

mod endpoints;
mod greeting;
mod nvme_target;
mod operators;
mod recording;
mod signals;

pub use endpoints::control_at;
pub use greeting::write_recovery;
pub use signals::{exit_with_parent, stop_at_signals};

use crate::assembly::{self, Drive};
use crate::cli::{self, NvmeFormat, Timing};
use crate::companion::Companion;
use crate::control::{self, Control, Toll};
use crate::drive_events;
use crate::failure::Failure;
use crate::host_access::HostAccess;
use crate::log::{self, Voice};
use crate::namespaces::{Namespaces, of_kind, ordered};
use crate::notify;
use crate::passed::Passed;
use crate::power::{self, Home};
use crate::ready::{Ready, Uris};
use crate::serve_tables;
use crate::settings::Settings;
use crate::terminal::{Ink, Palette, say};
use crate::totals::Totals;
use crate::waiting::while_opening;
use endpoints::{control_beside, control_endpoint, endpoints, listen_failure};
use greeting::{drive_uris, greeting, to_nvme_hosts, to_redis_clients};
use nvme_target::nvme_target;
use openftl_core::units::{ByteSize, Interval, Poll};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Nanos};
use openftl_drive::any_drive::AnyDrive;
use openftl_drive::description::{StoreName, another_seed, find_profile};
use openftl_drive::table_drive::written;
use openftl_media::{EmulatedDevice, PartKind, PartLabel, Store as MediaStore, Timing as MediaTiming};
use openftl_nvme::{BlockFormat, Nqn};
use openftl_nvme_media::Place;
use openftl_parts::{BlockTarget, Config};
use openftl_server::{
    Device, End, Endpoint, Export, ListenError, Other, Protocol, ServeError, Server, ServerConfig, Stop, WallClock,
};
use openftl_serving::flash::Flash;
use openftl_serving::redis_door::RedisDoor;
use openftl_serving::service;
use openftl_zones::Face;
use operators::Operators;
use recording::Recording;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;
use tracing::{info, warn};

/// What a drive in memory has unless the command says otherwise.
const CAPACITY_DEFAULT: ByteSize = ByteSize(1 << 30);

/// The subsystem that NVMe hosts connect to unless the command says otherwise.
const NQN_DEFAULT: &str = "nqn.2026-11.org.openftl:drive";

/// Who reaches a device of another machine.
const HOST_NQN: &str = "nqn.2026-11.org.openftl:host";

/// Blocks of payload that are under way to and from an Open-Channel device: 64 MiB.
const DEVICE_FRAMES: usize = 16_384;

/// The same of each of several parts of a device, which share the above: 8 MiB at least.
const DEVICE_FRAMES_MIN: usize = 2048;

/// How often a served drive reads all it holds unless the command says otherwise.
const SCRUB_INTERVAL_DEFAULT: Interval = Interval::days(7);

/// The longest that a server may look for more before it sleeps.
const POLL_MAX: Nanos = Nanos::from_millis(1_000);

/// The most threads that move bytes: more than there are cores in one socket of most machines.
pub const REACTORS_MAX: usize = 64;

/// Frames for requests under way: two of NBD's longest, 32 MiB each.
const HOST_FRAMES: u32 = 16_384;

/// What is served, and everything that it takes.
struct Serving {
    server: Server,
    operators: Operators,
    clock: WallClock,
    stop: Stop,
    home: Home,
    timing: MediaTiming,
    /// Of all namespaces, in the order of their ids.
    names: Vec<String>,
    /// Served beside what is on the device.
    others: Vec<Device<Flash>>,
    recording: Option<Recording>,
    voice: Voice,
}

/// What a stopped server leaves.
enum Last {
    Served(Box<Namespaces>, Result<(), ServeError>),
    /// The power is off.
    Dark,
}

pub fn run(arguments: &cli::Serve) -> Result<(), Failure> {
    // Before anything is opened.
    let passed = Passed::take(arguments.allow_remote)?;
    passed.refuse_flags(!arguments.nbd.is_empty(), !arguments.nvme_tcp.is_empty(), arguments.control.is_some())?;
    let voice = log::start(arguments)?;
    let palette = voice.palette();
    if let Some((file, drive)) = serve_tables::table_drive(arguments)? {
        return serve_tables::run(arguments, &file, &drive, voice, passed);
    }
    if let Some(listener) = passed.files.first() {
        return Err(Failure::bad_input(format_args!(
            "LISTEN_FDS: a socket named files was passed, {}, and the drive is a block drive",
            written(listener.endpoint())
        ))
        .fix("serve a table drive there, or write FileDescriptorName=nbd in the .socket unit"));
    }
    let mut settings = Settings::gather_any(&arguments.flags, CAPACITY_DEFAULT)?;
    settings.drives_mut().for_each(|drive| _ = drive.scrub_interval.get_or_insert(SCRUB_INTERVAL_DEFAULT));
    let timing = match arguments.timing.or(settings.timing).unwrap_or(Timing::WallClock) {
        Timing::WallClock => MediaTiming::Modelled,
        Timing::Instant => MediaTiming::Instant,
        Timing::Virtual => {
            return Err(Failure::bad_input("timing = virtual: a drive with real clients runs in real time")
                .fix("use --timing wall-clock or instant"));
        }
    };
    let home = home(arguments, &settings)?;
    arguments.record.as_deref().map_or(Ok(()), Recording::expect_new)?;
    match home {
        Home::File(_) => {}
        Home::Memory => settings.expect_no_durability("the drive is kept in memory")?,
        Home::Elsewhere(_) => settings.expect_no_durability("the flash is on another machine")?,
    }
    let endpoints = endpoints(arguments, &settings, &passed)?;
    let addresses = match (passed.nvme_addresses(), arguments.nvme_tcp.is_empty()) {
        (passed, _) if !passed.is_empty() => passed,
        (_, true) => settings.host.nvme_tcp.clone(),
        (_, false) => arguments.nvme_tcp.clone(),
    };
    let stop = Stop::new().map_err(Failure::failed)?;
    stop_at_signals(&stop)?;
    if arguments.exit_with_parent {
        exit_with_parent()?;
    }
    let poll = arguments.poll.or(settings.host.poll).unwrap_or_default();
    if let Poll::For(span) = poll
        && span > POLL_MAX
    {
        return Err(Failure::bad_input(format_args!("poll = {span} is more than {POLL_MAX}"))
            .fix("choose less; 50us to 1ms do for hosts that are busy"));
    }
    let reactors = arguments.reactors.or(settings.host.reactors).unwrap_or(1);
    if !(1..=REACTORS_MAX).contains(&reactors) {
        return Err(Failure::bad_input(format_args!("reactors = {reactors} is not from 1 to {REACTORS_MAX}")).fix(
            "1 does for one busy host; more help where many are busy and the machine has as many cores to spare",
        ));
    }
    let server_config =
        ServerConfig { allow_remote: arguments.allow_remote, poll, reactors, ..ServerConfig::default() };
    let mut server = Server::new(server_config).map_err(Failure::failed)?;
    // Before the drive is opened: an address in use is found out before anything is written. And controlling it comes first:
    // who can connect can also control.
    let Passed { nbd: passed_nbd, nvme_tcp: passed_nvme, control: passed_control, .. } = passed;
    let listener = match (passed_control, control_endpoint(arguments, &settings)?) {
        (Some(listener), _) => Ok(Some(listener)),
        (None, Some(endpoint)) => Ok(Some(
            control::listen(endpoint)
                .map_err(|error| Failure::failed(error).fix("choose another --control address"))?,
        )),
        (None, None) => control_beside(&home),
    };
    let passed_nbd = passed_nbd.into_iter().map(|listener| server.listen_at(listener, Protocol::Nbd));
    let mut listening = passed_nbd.collect::<Result<Vec<Endpoint>, ListenError>>().map_err(Failure::failed)?;
    for endpoint in endpoints {
        let listens = server.listen(endpoint, Protocol::Nbd);
        listening.push(listens.map_err(|error| listen_failure(&error, "--nbd"))?);
    }
    let endpoints = listening;
    let access = HostAccess::of(&addresses, arguments, &settings.host)?;
    let others = open_channel_devices(arguments, &settings, timing, addresses.is_empty())?;
    let nvme = if passed_nvme.is_empty() {
        let nvme = addresses.iter().map(|address| {
            let endpoint = server.listen(Endpoint::Tcp(*address), Protocol::NvmeTcp);
            endpoint.map_err(|error| listen_failure(&error, "--nvme-tcp"))
        });
        nvme.collect::<Result<Vec<Endpoint>, Failure>>()?
    } else {
        let nvme = passed_nvme.into_iter().map(|listener| server.listen_at(listener, Protocol::NvmeTcp));
        nvme.collect::<Result<Vec<Endpoint>, ListenError>>().map_err(Failure::failed)?
    };

    let redis = match arguments.redis.is_empty() {
        true => None,
        false => Some(RedisDoor::new(&arguments.redis, arguments.allow_remote)?),
    };

    let mut clock = WallClock::new();
    let mut namespaces = match &home {
        Home::Memory => assembly::create_in_memory(&settings, timing, HOST_FRAMES, &mut clock)?,
        Home::File(path) => {
            let flags = &arguments.flags;
            if flags.drive.is_some() && !path.exists() {
                crate::create::make(&settings, path, another_seed())?;
                voice.tell(&format!("{} made", path.display()));
                info!(target: "drive", file = %path.display(), "drive made");
            }
            let reopen = assembly::Reopen::of(&settings, flags, HOST_FRAMES);
            while_opening(&path.display().to_string(), || {
                assembly::open_file(path, timing, &reopen, &stop, &mut clock)
            })?
        }
        Home::Elsewhere(place) => {
            let config = settings.drive.config(FrameForm::Bytes, another_seed());
            let config = Config { host_frames: HOST_FRAMES, ..config };
            Namespaces::one(assembly::open_elsewhere(place, config, arguments.format_device, &mut clock)?)
        }
    };
    expect_values(redis.is_some(), &namespaces)?;
    if namespaces.drives.is_empty() && nvme.is_empty() && redis.is_none() {
        let what = match namespaces.others.first() {
            Some(AnyDrive::Zones(zoned)) if zoned.face() == Face::Segments => "one of segments",
            Some(AnyDrive::Zones(_)) => "zoned, or an open-channel one",
            Some(AnyDrive::Values(_)) => {
                return Err(Failure::bad_input(
                    "nobody could connect: a key-value drive is served to NVMe hosts and Redis clients",
                )
                .fix("add --redis 127.0.0.1:6379 or --nvme-tcp 127.0.0.1:4420; `openftl kv` needs no server"));
            }
            Some(_) => "a store of pages",
            None => "an open-channel one",
        };
        return Err(Failure::bad_input(format_args!("every namespace is {what}, and no NVMe host reaches them"))
            .fix("add --nvme-tcp 127.0.0.1:4420"));
    }
    if let (true, Some(endpoint)) = (namespaces.drives.is_empty(), endpoints.first()) {
        return Err(Failure::bad_input(format_args!(
            "--nbd {}: there is no block namespace, and NBD clients know no other",
            written(endpoint)
        ))
        .fix("leave --nbd away; NVMe hosts reach all namespaces"));
    }
    namespaces.drives.iter_mut().for_each(|drive| drive.lie_about_flush(arguments.lie_about_flush));
    for drive in &mut namespaces.others {
        match drive {
            AnyDrive::Zones(zoned) => zoned.lie_about_flush(arguments.lie_about_flush),
            _ if arguments.lie_about_flush => {
                return Err(Failure::bad_input(
                    "--lie-about-flush: this drive keeps its promises, and cannot lie about them yet",
                )
                .fix("leave it away"));
            }
            _ => {}
        }
    }
    let names = names(&home, &namespaces.parts, others.len());
    let recording = arguments.record.as_deref().map(|path| Recording::begin(path, &names, &namespaces)).transpose()?;
    if let Some(Recording { recorder, .. }) = &recording {
        server.set_recorder(Arc::clone(recorder));
    }
    let listener = listener.unwrap_or_else(|error| {
        voice.tell(&format!("This drive cannot be controlled: {error} (--control names another place)"));
        warn!(target: "control", error, fix = "--control names another place", "the drive cannot be controlled");
        None
    });
    names.iter().zip(&namespaces.drives).for_each(|(name, drive)| drive_events::opened(name, drive));
    let other_names = names.iter().skip(namespaces.drives.len());
    other_names.zip(&namespaces.others).for_each(|(name, drive)| drive_events::other_opened(name, drive));
    voice.tell(&greeting(&home, &namespaces, &endpoints, listener.as_ref(), palette));

    let mut uris = Uris::default();
    if nvme.is_empty() {
        let others = [PartKind::Zoned, PartKind::OpenChannel];
        if let Some(label) = others.into_iter().find_map(|kind| of_kind(&namespaces.parts, kind).next()) {
            voice.tell(&format!("No host reaches namespace {}: add --nvme-tcp 127.0.0.1:4420", label.name));
        }
    } else {
        let nqn = arguments.nqn.clone().or(settings.host.nqn.clone());
        let nqn = nqn.unwrap_or_else(|| NQN_DEFAULT.parse().expect("the default name is one"));
        uris.pages = drive_uris(&nqn, &namespaces, &nvme, |drive| drive.pages().is_some());
        uris.values = drive_uris(&nqn, &namespaces, &nvme, |drive| drive.values().is_some());
        voice.tell(&to_nvme_hosts(&nqn, &access, &nvme, &uris));
        let format = match arguments.nvme_format {
            Some(NvmeFormat::Bytes512) => BlockFormat::Bytes512,
            Some(NvmeFormat::Bytes4096) | None => BlockFormat::FourKib,
        };
        server.set_target(nvme_target(nqn, format, &access, &namespaces, &others, &nvme)?);
        if let Some(secrets) = access.secrets {
            server.set_secrets(secrets, access.policy).map_err(Failure::failed)?;
        }
        if let Some(tls) = &access.tls {
            server.set_tls(&tls.keys, tls.policy).map_err(Failure::failed)?;
        }
    }
    for (protocol, endpoint) in
        endpoints.iter().map(|at| (Protocol::Nbd, at)).chain(nvme.iter().map(|at| (Protocol::NvmeTcp, at)))
    {
        info!(target: "connection", %protocol, endpoint = written(endpoint), "listening");
    }
    if let Some(listener) = &listener {
        info!(target: "control", endpoint = written(listener.endpoint()), "listening");
    }
    let exported: Vec<&str> = match namespaces.parts.is_empty() {
        true => namespaces.drives.iter().map(|_| "").collect(),
        false => of_kind(&namespaces.parts, PartKind::Block).map(|label| label.name.as_str()).collect(),
    };
    let addresses = redis.as_ref().map(RedisDoor::addresses).unwrap_or_default();
    if !addresses.is_empty() {
        voice.tell(&to_redis_clients(&addresses));
    }
    let ready = Ready::drives(&endpoints, &exported, &nvme, uris, &addresses, listener.as_ref());
    let control = Control::new(listener, names.clone(), namespaces.parts.clone(), Totals::new(server.counters()))?;
    let operators = Operators::new(control, redis)?;
    let companion = announce(arguments, &ready, &stop)?;
    let mut serving = Serving { server, operators, clock, stop, home, timing, names, others, recording, voice };
    let served = serving.until_stopped(namespaces).and_then(|last| {
        notify::stopping();
        serving.end(last, arguments.json, palette)
    });
    let ran = companion.map_or(Ok(()), Companion::end);
    served.and(ran)
}

/// Redis clients are for keys and values alone.
fn expect_values(has_redis: bool, namespaces: &Namespaces) -> Result<(), Failure> {
    match has_redis && !namespaces.others.iter().any(|drive| drive.values().is_some()) {
        true => Err(Failure::bad_input("--redis is for key-value drives, and this is none")
            .fix("make one with `openftl create --drive drives/kv.toml`, or leave --redis away")),
        false => Ok(()),
    }
}

/// Tells whoever waits that the drive is served, and starts the command that uses it.
pub fn announce(arguments: &cli::Serve, ready: &Ready, stop: &Stop) -> Result<Option<Companion>, Failure> {
    if let Some(descriptor) = arguments.ready_fd {
        ready.tell(descriptor)?;
    }
    notify::ready()?;
    arguments.run.as_ref().map(|command| Companion::start(command, ready, stop)).transpose()
}

/// The names of all namespaces, in the order of their ids: drives, parts without, and `others` devices beside them.
fn names(home: &Home, parts: &[PartLabel], others: usize) -> Vec<String> {
    let only = match home {
        Home::File(path) => path.file_stem().map_or("disk".into(), |stem| stem.to_string_lossy().into_owned()),
        Home::Memory => "memory".to_owned(),
        Home::Elsewhere(_) => "disk".to_owned(),
    };
    let mut names: Vec<String> = ordered(parts).map(|label| label.name.to_string()).collect();
    if parts.is_empty() {
        names.push(only);
    }
    let before = names.len();
    names.extend((before..before + others).map(|place| format!("open-channel-{}", place + 1)));
    names
}

impl Serving {
    /// Serves what is on the device, through as many power cuts as come.
    fn until_stopped(&mut self, mut namespaces: Namespaces) -> Result<Last, Failure> {
        loop {
            let Namespaces { parts, drives, others: beside, bare } = namespaces;
            let blocks = (DEVICE_FRAMES / bare.len().max(1)).max(DEVICE_FRAMES_MIN);
            let (count, own) = (beside.len(), bare.len());
            let bare = bare.into_iter().map(|flash| Other::Device(Device::new(flash, blocks)));
            let devices = self.others.drain(..).map(Other::Device);
            let mut others: Vec<Other<Flash>> = beside.into_iter().map(served_as).chain(bare).chain(devices).collect();
            let export = |(drive, name): (Drive, &String)| {
                let capacity = ByteSize(drive.blocks() * BLOCK_BYTES as u64);
                let description = format!("{capacity} of {}", drive.media().name());
                Export { name: name.clone(), description, read_only: false, target: drive }
            };
            let mut exports: Vec<Export<Drive>> = drives.into_iter().zip(&self.names).map(export).collect();
            let operators = &mut self.operators;
            let end =
                service::serve(&mut self.server, operators, &mut exports, &mut others, &mut self.clock, &self.stop);
            let mut devices = others.split_off(count).into_iter().map(device_of);
            let bare = devices.by_ref().take(own).map(Device::into_media).collect();
            self.others = devices.collect();
            let others = others.into_iter().map(drive_of).collect();
            let drives: Vec<Drive> = exports.into_iter().map(|export| export.target).collect();
            let left = Namespaces { parts, drives, others, bare };
            for (place, drive) in left.drives.iter().enumerate() {
                self.operators.control.totals().look(place, &self.names[place], drive);
            }
            for (place, drive) in (left.drives.len()..).zip(&left.others) {
                self.operators.control.totals().look_at_other(place, &self.names[place], drive);
            }
            let Ok(End::Interrupted { connections, requests }) = end else {
                return Ok(Last::Served(Box::new(left), end.map(|_| ())));
            };
            match self.cut_power(left, connections, requests)? {
                Some(recovered) => namespaces = recovered,
                None => return Ok(Last::Dark),
            }
        }
    }

    /// Cuts the power and waits for it to come on again. `None` if the server is stopped before.
    fn cut_power(
        &mut self,
        namespaces: Namespaces,
        connections: u64,
        requests: u64,
    ) -> Result<Option<Namespaces>, Failure> {
        let cut = self.operators.control.take_cut().expect("a drive at work is interrupted for a power cut only");
        let now = self.clock.now();
        self.operators.redis.iter_mut().for_each(RedisDoor::power_cut);
        self.operators.control.totals().power_cut();
        let (mut dark, loss) = power::cut(namespaces, &self.home, self.timing, now, cut.torn)?;
        for device in &mut self.others {
            let cut = device.media_mut().operate(|device| device.power_cut(now, cut.torn));
            cut.expect("such devices are emulated").map_err(Failure::failed)?;
        }
        let answer = self.operators.control.went_off(&cut, now, &Toll { connections, requests, loss });
        let (mut client, mut before) = (cut.client, Some(answer));
        let mut comes_on = cut.and_on;
        loop {
            if comes_on {
                let on = dark.turn_on(&self.stop, &mut self.clock);
                self.operators.control.came_on(client, before.take(), on.as_ref());
                if let Ok(namespaces) = on {
                    return Ok(Some(namespaces));
                }
            }
            let end = service::turn_away(&mut self.server, &mut self.operators, &mut self.clock, &self.stop);
            match end.map_err(|error| serve_failure(&error))? {
                End::Stopped => return Ok(None),
                End::Interrupted { .. } => {}
            }
            client = self.operators.control.take_on().expect("a drive without power is interrupted to turn it on only");
            (before, comes_on) = (None, true);
        }
    }

    /// Closes the drives and says what was done.
    fn end(mut self, last: Last, json: bool, palette: Palette) -> Result<(), Failure> {
        let closing = Instant::now();
        let redis = self.operators.redis.as_ref().map(RedisDoor::counters);
        let totals = self.operators.control.totals();
        let mut read_only = Vec::new();
        let is_closed = match last {
            Last::Dark => {
                info!(target: "power", "the server stops while the power is off: the next one to open the drive recovers it");
                false
            }
            Last::Served(namespaces, served) => {
                for (drive, name) in namespaces.ftls().zip(&self.names) {
                    let name = if namespaces.parts.is_empty() { "The drive" } else { name };
                    read_only.extend(drive.read_only_reason().map(|reason| format!("{name} is read-only: {reason}.")));
                }
                let standstill = namespaces
                    .ftls()
                    .zip(&self.names)
                    .find_map(|(drive, name)| Some((name.clone(), drive.standstill()?.to_owned())));
                let flash = namespaces.ftls().map(|drive| drive.media()).chain(&namespaces.bare);
                let error = flash.filter_map(Flash::error).next();
                let drives = namespaces.ftls().count();
                // Even if the server failed: what was acknowledged is better off with a checkpoint.
                let closed = namespaces.close(&mut self.clock);
                if let Some(error) = error {
                    return Err(Failure::failed(error).fix(
                        "mend what is behind the drive, then serve it again; everything acknowledged and flushed is on it",
                    ));
                }
                if let Some((name, state)) = standstill {
                    return Err(Failure::failed(format_args!("{name} came to a standstill with requests under way: {state}"))
                        .fix("whatever was acknowledged and flushed is on the drive; `openftl check` verifies it; please report this"));
                }
                served.map_err(|error| serve_failure(&error))?;
                closed?;
                let took = Nanos(closing.elapsed().as_nanos() as u64);
                self.names.iter().take(drives).for_each(|name| drive_events::closed(name, took));
                true
            }
        };
        totals.redis = redis;
        let recorded = self.recording.as_ref().map(Recording::finish).transpose();
        totals.recorded = recorded.as_ref().ok().copied().flatten();
        if json {
            say(&totals.json()?)?;
            return recorded.map(drop);
        }
        let mut text = totals.farewell(palette);
        for reason in read_only {
            _ = writeln!(text, "\n{} {reason}", palette.paint(Ink::Bad, "!"));
        }
        if let Home::File(path) = &self.home {
            let path = path.display();
            _ = match is_closed {
                true => writeln!(
                    text,
                    "\n{} {path} is closed, with a checkpoint, in {}.",
                    palette.paint(Ink::Good, "✓"),
                    Nanos(closing.elapsed().as_nanos() as u64)
                ),
                false => writeln!(text, "\n{path} is as the power cut left it: the next one to open it recovers it."),
            };
        }
        self.voice.tell(&text);
        recorded.map(drop)
    }
}

/// A drive that NVMe hosts alone can see, to be served.
fn served_as(drive: AnyDrive<Flash>) -> Other<Flash> {
    match drive {
        AnyDrive::Zones(drive) => Other::Zones(drive),
        AnyDrive::Pages(drive) => Other::Pages(drive),
        AnyDrive::Values(drive) => Other::Values(drive),
        AnyDrive::Blocks(_) | AnyDrive::Tables(_) => unreachable!("these are served otherwise"),
    }
}

/// The same again, when it was served.
fn drive_of(other: Other<Flash>) -> AnyDrive<Flash> {
    match other {
        Other::Zones(drive) => AnyDrive::Zones(drive),
        Other::Pages(drive) => AnyDrive::Pages(drive),
        Other::Values(drive) => AnyDrive::Values(drive),
        Other::Device(_) => unreachable!("devices come behind the drives"),
    }
}

fn device_of(other: Other<Flash>) -> Device<Flash> {
    match other {
        Other::Device(device) => device,
        Other::Zones(_) | Other::Pages(_) | Other::Values(_) => unreachable!("drives come before the devices"),
    }
}

/// Open-Channel devices that are served beside the drive.
fn open_channel_devices(
    arguments: &cli::Serve,
    settings: &Settings,
    timing: MediaTiming,
    is_out_of_reach: bool,
) -> Result<Vec<Device<Flash>>, Failure> {
    let profiles =
        if arguments.open_channel.is_empty() { &settings.host.open_channel } else { &arguments.open_channel };
    if let (Some(profile), true) = (profiles.first(), is_out_of_reach) {
        return Err(Failure::bad_input(format_args!("--open-channel {profile}: no host reaches it"))
            .fix("add --nvme-tcp 127.0.0.1:4420"));
    }
    let device = |(number, profile): (usize, &String)| {
        let profile = find_profile(profile)?;
        let chunks = profile.chunks_per_pu;
        let device = EmulatedDevice::new(profile, chunks, MediaStore::Ram, timing, number as u64);
        Ok(Device::new(device.map_err(Failure::failed)?.into(), DEVICE_FRAMES))
    };
    profiles.iter().enumerate().map(device).collect()
}

fn home(arguments: &cli::Serve, settings: &Settings) -> Result<Home, Failure> {
    if let Some(address) = arguments.device {
        let subsystem = arguments.device_nqn.as_ref().map_or(NQN_DEFAULT, Nqn::as_str).to_owned();
        let identity = crate::nvme::identity(HOST_NQN, &subsystem);
        return Ok(Home::Elsewhere(Place { address, identity, namespace: arguments.device_namespace }));
    }
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

fn serve_failure(error: &ServeError) -> Failure {
    Failure::failed(error).fix("whatever was acknowledged and flushed is on the drive; `openftl check` verifies it")
}
