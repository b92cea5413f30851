//! `openftl serve`: a drive for real clients, until it is told to stop.

use crate::assembly::{self, Drive};
use crate::cli::{self, NvmeFormat, Store, Timing};
use crate::control::{self, Control, Toll};
use crate::ctl::socket_beside;
use crate::drive_file::StoreName;
use crate::failure::Failure;
use crate::flash::Flash;
use crate::host_access::HostAccess;
use crate::power::{self, Home};
use crate::settings::{Settings, find_profile};
use crate::terminal::{Ink, Palette, say};
use crate::totals::Totals;
use openftl_core::units::{ByteSize, Interval};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Nanos};
use openftl_ftl::{BlockTarget, Config, RecoveryReport};
use openftl_media::{EmulatedDevice, Store as MediaStore, Timing as MediaTiming};
use openftl_nvme::{BlockFormat, HostsAllowed, Nqn};
use openftl_nvme_media::Place;
use openftl_server::{
    Device, End, Endpoint, Export, Listener, Protocol, ServeError, Server, ServerConfig, Stop, TlsPolicy, WallClock,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

/// What a drive in memory has unless the command says otherwise.
const CAPACITY_DEFAULT: ByteSize = ByteSize(1 << 30);

/// Where clients connect unless the command says otherwise: the port that IANA gave to NBD.
const NBD_DEFAULT: &str = "127.0.0.1:10809";

/// The subsystem that NVMe hosts connect to unless the command says otherwise.
const NQN_DEFAULT: &str = "nqn.2026-11.org.openftl:drive";

/// Who reaches a device of another machine.
const HOST_NQN: &str = "nqn.2026-11.org.openftl:host";

/// Blocks of payload that are under way to and from an Open-Channel device: 64 MiB.
const DEVICE_FRAMES: usize = 16_384;

/// How often a served drive reads all it holds unless the command says otherwise.
const SCRUB_INTERVAL_DEFAULT: Interval = Interval::days(7);

/// The longest that a server may look for more before it sleeps.
const POLL_MAX: Nanos = Nanos::from_millis(1_000);

/// Frames for requests under way: two of NBD's longest, 32 MiB each.
const HOST_FRAMES: u32 = 16_384;

/// What the last words of a process are that a second Ctrl-C ended (128 + SIGINT, as shells count).
const INTERRUPTED_TWICE: i32 = 130;

/// Where a server tells what happens.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Standard output belongs to the report.
    json: bool,
}

impl Log {
    /// Prints `text`. Whoever read it may have gone; the drive serves on.
    pub fn tell(self, text: &str) {
        if self.json {
            _ = writeln!(std::io::stderr(), "{}", text.trim_end());
        } else {
            _ = say(text);
        }
    }
}

/// A drive that is served, and everything that it takes.
struct Serving {
    server: Server,
    control: Control,
    clock: WallClock,
    stop: Stop,
    home: Home,
    timing: MediaTiming,
    name: String,
    /// Served beside the drive.
    devices: Vec<Device<Flash>>,
}

/// What a stopped server leaves.
enum Last {
    Drive(Box<Drive>, Result<(), ServeError>),
    /// The power is off.
    Dark,
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
    let log = Log { json: arguments.json };
    let palette = if arguments.json { Palette::of_stderr() } else { Palette::of_stdout() };

    let stop = Stop::new().map_err(Failure::failed)?;
    stop_at_signals(&stop)?;
    let poll = arguments.poll.or(settings.host.poll).unwrap_or(Nanos::ZERO);
    if poll > POLL_MAX {
        return Err(Failure::bad_input(format_args!("poll = {poll} is more than {POLL_MAX}"))
            .fix("choose less; 50us to 1ms do for hosts that are busy"));
    }
    let server_config = ServerConfig { allow_remote: arguments.allow_remote, poll, ..ServerConfig::default() };
    let mut server = Server::new(server_config).map_err(Failure::failed)?;
    // Before the drive is opened: an address in use is found out before anything is written. And controlling it comes first:
    // who can connect can also control.
    let listener = match control_endpoint(arguments, &settings)? {
        Some(endpoint) => Ok(Some(
            control::listen(endpoint)
                .map_err(|error| Failure::failed(error).fix("choose another --control address"))?,
        )),
        None => control_beside(&home),
    };
    let endpoints = endpoints
        .into_iter()
        .map(|endpoint| {
            server
                .listen(endpoint, Protocol::Nbd)
                .map_err(|error| Failure::failed(error).fix("choose another --nbd address"))
        })
        .collect::<Result<Vec<Endpoint>, Failure>>()?;
    let addresses = if arguments.nvme_tcp.is_empty() { &settings.host.nvme_tcp } else { &arguments.nvme_tcp };
    let access = HostAccess::of(addresses, arguments, &settings.host)?;
    let devices = open_channel_devices(arguments, &settings, timing, addresses.is_empty())?;
    let nvme = addresses.iter().map(|address| {
        let endpoint = server.listen(Endpoint::Tcp(*address), Protocol::NvmeTcp);
        endpoint.map_err(|error| Failure::failed(error).fix("choose another --nvme-tcp address"))
    });
    let nvme = nvme.collect::<Result<Vec<Endpoint>, Failure>>()?;

    let mut clock = WallClock::new();
    let (mut drive, name) = match &home {
        Home::Memory => (in_memory(&settings, timing, &mut clock)?, "memory".to_owned()),
        Home::File(path) => {
            let flags = &arguments.flags;
            if flags.drive.is_some() && !path.exists() {
                crate::create::make(&settings, path, crate::create::another_seed())?;
                log.tell(&format!("{} made", path.display()));
            }
            let name = path.file_stem().map_or("disk".into(), |stem| stem.to_string_lossy().into_owned());
            let drive =
                assembly::open_file(path, timing, &assembly::Reopen::of(&settings, flags, HOST_FRAMES), &mut clock)?;
            (drive, name)
        }
        Home::Elsewhere(place) => {
            let config = settings.config(FrameForm::Bytes, crate::create::another_seed());
            let config = Config { host_frames: HOST_FRAMES, ..config };
            let drive = assembly::open_elsewhere(place, config, arguments.format_device, &mut clock)?;
            (drive, "disk".to_owned())
        }
    };
    drive.lie_about_flush(arguments.lie_about_flush);
    let listener = listener.unwrap_or_else(|error| {
        log.tell(&format!("This drive cannot be controlled: {error} (--control names another place)"));
        None
    });
    log.tell(&greeting(&home, &drive, &endpoints, listener.as_ref(), palette));

    if !nvme.is_empty() {
        let nqn = arguments.nqn.clone().or(settings.host.nqn.clone());
        let nqn = nqn.unwrap_or_else(|| NQN_DEFAULT.parse().expect("the default name is one"));
        log.tell(&to_nvme_hosts(&nqn, &access, &nvme));
        let format = match arguments.nvme_format {
            Some(NvmeFormat::Bytes512) => BlockFormat::Bytes512,
            Some(NvmeFormat::Bytes4096) | None => BlockFormat::FourKib,
        };
        server.set_target(nvme_target(nqn, format, &access, &drive, &devices, &nvme)?);
        access.secrets.into_iter().for_each(|secrets| server.set_secrets(secrets));
        if let Some(tls) = &access.tls {
            server.set_tls(&tls.keys, tls.policy).map_err(Failure::failed)?;
        }
    }
    let control = Control::new(listener, Totals::new(server.counters()), log)?;
    let mut serving = Serving { server, control, clock, stop, home, timing, name, devices };
    let last = serving.until_stopped(drive)?;
    serving.end(last, arguments.json, palette)
}

impl Serving {
    /// Serves `drive`, through as many power cuts as come.
    fn until_stopped(&mut self, mut drive: Drive) -> Result<Last, Failure> {
        loop {
            let capacity = ByteSize(drive.blocks() * BLOCK_BYTES as u64);
            let description = format!("{capacity} of {}", drive.media().name());
            let mut exports = [Export { name: self.name.clone(), description, read_only: false, target: drive }];
            let (control, devices) = (&mut self.control, &mut self.devices[..]);
            let end = self.server.run_with_devices(control, &mut exports, devices, &mut self.clock, &self.stop);
            let [Export { target, .. }] = exports;
            let Ok(End::Interrupted { connections, requests }) = end else {
                return Ok(Last::Drive(Box::new(target), end.map(|_| ())));
            };
            match self.cut_power(target, connections, requests)? {
                Some(recovered) => drive = recovered,
                None => return Ok(Last::Dark),
            }
        }
    }

    /// Cuts the power and waits for it to come on again. `None` if the server is stopped before.
    fn cut_power(&mut self, drive: Drive, connections: u64, requests: u64) -> Result<Option<Drive>, Failure> {
        let cut = self.control.take_cut().expect("a drive at work is interrupted for a power cut only");
        let now = self.clock.now();
        self.control.totals().power_cut(&drive);
        let (mut dark, loss) = power::cut(drive, &self.home, self.timing, now, cut.torn)?;
        for device in &mut self.devices {
            let device = device.media_mut().emulated_mut().expect("such devices are emulated");
            device.power_cut(now, cut.torn).map_err(Failure::failed)?;
        }
        let answer = self.control.went_off(&cut, now, &Toll { connections, requests, loss });
        let (mut client, mut before) = (cut.client, Some(answer));
        let mut comes_on = cut.and_on;
        loop {
            if comes_on {
                let on = dark.turn_on(&mut self.clock);
                self.control.came_on(client, before.take(), on.as_ref());
                if let Ok(drive) = on {
                    return Ok(Some(drive));
                }
            }
            let end = self.server.turn_away(&mut self.control, &mut self.clock, &self.stop);
            match end.map_err(|error| serve_failure(&error))? {
                End::Stopped => return Ok(None),
                End::Interrupted { .. } => {}
            }
            client = self.control.take_on().expect("a drive without power is interrupted to turn it on only");
            (before, comes_on) = (None, true);
        }
    }

    /// Closes the drive and says what was done.
    fn end(mut self, last: Last, json: bool, palette: Palette) -> Result<(), Failure> {
        let closing = Instant::now();
        let totals = self.control.totals();
        let mut read_only = None;
        let is_closed = match last {
            Last::Dark => false,
            Last::Drive(drive, served) => {
                totals.look(&drive);
                read_only = drive.read_only_reason();
                let error = drive.media().error();
                // Even if the server failed: what was acknowledged is better off with a checkpoint.
                let closed = assembly::close(*drive, &mut self.clock);
                if let Some(error) = error {
                    return Err(Failure::failed(error).fix(
                        "mend what is behind the drive, then serve it again; everything acknowledged and flushed is on it",
                    ));
                }
                served.map_err(|error| serve_failure(&error))?;
                closed?;
                true
            }
        };
        if json {
            return say(&totals.json()?);
        }
        let mut text = totals.farewell(palette);
        if let Some(reason) = read_only {
            _ = writeln!(text, "\n{} The drive is read-only: {reason}.", palette.paint(Ink::Bad, "!"));
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
        say(&text)
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

/// What to type on an NVMe host. Names and secrets of hosts are theirs to fill in.
fn to_nvme_hosts(nqn: &Nqn, access: &HostAccess, endpoints: &[Endpoint]) -> String {
    let name = if access.hosts == HostsAllowed::Any { "" } else { " -q HOSTNQN" };
    let secret = if access.secrets.is_some() { " -S DHHC-1:…:" } else { "" };
    let tls = access.tls.as_ref().is_some_and(|tls| tls.policy == TlsPolicy::Required);
    let tls = if tls { " --tls" } else { "" };
    let mut text = "# to NVMe hosts".to_owned();
    for endpoint in endpoints {
        let Endpoint::Tcp(address) = endpoint else { continue };
        let (ip, port) = (address.ip(), address.port());
        _ = write!(text, "\n  nvme discover -t tcp -a {ip} -s {port}{name}{tls}");
        _ = write!(text, "\n  nvme connect -t tcp -a {ip} -s {port} -n {nqn}{name}{secret}{tls}");
    }
    text
}

/// What NVMe hosts connect to: the drive is namespace 1, the devices are those behind it.
fn nvme_target(
    nqn: Nqn,
    format: BlockFormat,
    access: &HostAccess,
    drive: &Drive,
    devices: &[Device<Flash>],
    endpoints: &[Endpoint],
) -> Result<openftl_nvme::Target, Failure> {
    use openftl_nvme::{Namespace, NamespaceKind, Port, SubsystemConfig, Target};
    let drive_id = drive.config().drive_id;
    let serial = format!("{drive_id:016X}");
    let firmware = env!("CARGO_PKG_VERSION");
    let mut target = Target::new(&serial, "OpenFTL", firmware);
    let subsystem = target
        .add_subsystem(SubsystemConfig {
            nqn,
            serial,
            model: "OpenFTL".to_owned(),
            firmware: firmware.to_owned(),
            hosts: access.hosts.clone(),
            requires_authentication: access.secrets.is_some(),
            is_shared: false,
            in_capsule_bytes: 8192,
        })
        .map_err(Failure::bad_input)?;
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&drive_id.to_be_bytes());
    uuid[8..].copy_from_slice(&(!drive_id).to_be_bytes());
    let kind = NamespaceKind::Block { format, bytes: drive.blocks() * BLOCK_BYTES as u64 };
    target.attach(subsystem, Namespace { id: 1, uuid, kind }).map_err(Failure::failed)?;
    for (id, device) in (2..).zip(devices) {
        let mut uuid = uuid;
        uuid[15] ^= id as u8;
        let kind = NamespaceKind::OpenChannel(device.geometry());
        target.attach(subsystem, Namespace { id, uuid, kind }).map_err(Failure::bad_input)?;
    }
    for (id, endpoint) in endpoints.iter().enumerate() {
        if let Endpoint::Tcp(address) = endpoint {
            target.add_port(Port { id: id as u16 + 1, address: *address });
        }
    }
    Ok(target)
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

fn endpoints(arguments: &cli::Serve, settings: &Settings) -> Result<Vec<Endpoint>, Failure> {
    let texts = match (arguments.nbd.is_empty(), settings.host.nbd.is_empty()) {
        (false, _) => arguments.nbd.clone(),
        (true, false) => settings.host.nbd.clone(),
        (true, true) => vec![NBD_DEFAULT.to_owned()],
    };
    texts.iter().map(|text| text.parse().map_err(|error| Failure::bad_input(format_args!("--nbd: {error}")))).collect()
}

/// Where the drive is to be controlled, if somebody said so.
fn control_endpoint(arguments: &cli::Serve, settings: &Settings) -> Result<Option<Endpoint>, Failure> {
    let Some(text) = arguments.control.as_ref().or(settings.host.control.as_ref()) else { return Ok(None) };
    match text.parse() {
        Ok(endpoint @ Endpoint::Unix(_)) => Ok(Some(endpoint)),
        Ok(Endpoint::Tcp(_)) => Err(Failure::bad_input(format_args!("--control: {text} is no Unix socket"))
            .fix("write it like unix:/path/to/socket: whoever reaches it can do anything to the drive")),
        Err(error) => Err(Failure::bad_input(format_args!("--control: {error}"))),
    }
}

/// The control socket beside a drive's file. A drive that can have none is served without, so the reason is but told.
fn control_beside(home: &Home) -> Result<Option<Listener>, String> {
    let Home::File(path) = home else { return Ok(None) };
    let endpoint =
        format!("unix:{}", socket_beside(path).display()).parse::<Endpoint>().map_err(|error| error.to_string())?;
    control::listen(endpoint).map(Some).map_err(|error| error.to_string())
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

fn greeting(
    home: &Home,
    drive: &Drive,
    endpoints: &[Endpoint],
    control: Option<&Listener>,
    palette: Palette,
) -> String {
    let mut text = String::new();
    let what = match home {
        Home::Memory => "a new drive in memory".to_owned(),
        Home::File(path) => path.display().to_string(),
        Home::Elsewhere(place) => format!("namespace {} at {}", place.namespace, place.address),
    };
    let capacity = ByteSize(drive.blocks() * BLOCK_BYTES as u64);
    _ = writeln!(text, "{}  {capacity} on {}", palette.paint(Ink::Bold, &what), drive.media().name());
    if !matches!(home, Home::Memory) && !drive.recovery_report().steps.is_empty() {
        write_recovery(&mut text, drive.recovery_report(), palette);
    }
    if let Some(reason) = drive.read_only_reason() {
        _ = writeln!(text, "{} The drive takes no writes: {reason}.", palette.paint(Ink::Bad, "!"));
    }
    if drive.config().lies_about_flush {
        _ = writeln!(
            text,
            "{} The drive lies about flush: nothing that it promises is kept.",
            palette.paint(Ink::Bad, "!")
        );
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
    if let Some(Endpoint::Unix(socket)) = control.map(Listener::endpoint) {
        let name = match home {
            Home::File(path) if socket_beside(path) == *socket => path.display().to_string(),
            _ => format!("unix:{}", socket.display()),
        };
        _ = writeln!(
            text,
            "\n  {}\n  openftl ctl {name} power-cut",
            palette.paint(Ink::Dim, "# cut its power; --help shows what else can happen to it")
        );
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
