//! The control socket of a served drive: carries out what `openftl ctl` asks, between two turns of the server.
//!
//! Most requests are answered at once. Those that switch the power interrupt the server and are answered by whoever
//! serves the drive, when it is done:
//!
//! ```text
//!   power-cut ──▶ armed ──(now, or as its seed says)──▶ the server is interrupted ──▶ Drive, Dark ──▶ went_off
//!   power-on  ───────────────────────────────────────▶ the server is interrupted ──▶ Dark, Drive ──▶ came_on
//! ```

use crate::assembly::Drive;
use crate::drive_events;
use crate::failure::Failure;
use crate::flash::Flash;
use crate::inspect::{self, PartFacts};
use crate::namespaces::{Namespaces, of_kind};
use crate::profiles::GeometryFacts;
use crate::terminal::Palette;
use crate::totals::{DriveTotals, Totals};
use openftl_control::{After, Answer, ClientId, Command, ControlServer, Cut, Refusal, RefusalKind, Request};
use openftl_core::{ChunkId, ChunkName, Nanos, Ppa, Time};
use openftl_ftl::mapping::Place;
use openftl_ftl::{BlockTarget, ReadOnlyReason, RecoveryReport};
use openftl_lab::picture::thousands;
use openftl_media::{EmulatedDevice, Media, PartKind, PartLabel, PowerLoss, ProgramFailure};
use openftl_server::{AttachError, Drives, Endpoint, ListenError, Listener, Operator};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::fs::Mode;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use tracing::{debug, error, info, warn};

/// A cut with a seed strikes after fewer device commands than this…
const COMMANDS_MAX_LOG2: u64 = 9;

/// …or after less time than this, whichever comes first: a drive that does nothing has no commands to count.
const DELAY_MAX: Nanos = Nanos::from_millis(20);

/// Operates what is on one device.
pub struct Control {
    server: Option<ControlServer<Listener>>,
    /// The namespaces, in the order of their ids.
    names: Vec<String>,
    /// Where the device is divided, into what.
    parts: Vec<PartLabel>,
    /// There is something to do of which no event tells.
    more: bool,
    asked: Option<Asked>,
    /// Clients whose cut waited for a count when another was asked for.
    overtaken: Vec<ClientId>,
    totals: Totals,
    /// Why drives take no writes, as far as that was said.
    read_only: Vec<Option<ReadOnlyReason>>,
    /// Clients that were turned away when the power last went.
    turned_away_before: u64,
    /// Whether it was said that clients are turned away.
    said_so: bool,
    /// Whether it was said that NVMe hosts come without TLS, and that some do not know their key.
    unusual_said: [bool; 3],
}

/// What the server is interrupted for.
enum Asked {
    Cut(ArmedCut),
    On(ClientId),
}

/// A power cut on its way.
pub struct ArmedCut {
    pub client: ClientId,
    /// Whether the power comes on again at once.
    pub and_on: bool,
    /// Whether units are left torn.
    pub torn: bool,
    asked_at: Time,
    /// Strikes then at the latest; never, if it waits for something to be counted.
    due: Time,
    /// Strikes when this count…
    counted: Counted,
    /// …is so large.
    count_due: u64,
    commands_asked_at: u64,
    commands_found: u64,
}

/// What is counted until a cut strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counted {
    Commands,
    Writes,
    Flushes,
}

/// What a cut took.
#[derive(Clone, Copy, Debug)]
pub struct Toll {
    pub connections: u64,
    pub requests: u64,
    pub loss: PowerLoss,
}

/// A control socket at `endpoint`, for the user who serves the drive and nobody else.
pub fn listen(endpoint: Endpoint) -> Result<Listener, ListenError> {
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listener = Listener::new(endpoint, false);
    rustix::process::umask(before);
    listener
}

impl Control {
    /// Serves the clients of `listener`, if there is one.
    pub fn new(
        listener: Option<Listener>,
        names: Vec<String>,
        parts: Vec<PartLabel>,
        totals: Totals,
    ) -> Result<Control, Failure> {
        let server = listener.map(ControlServer::new).transpose().map_err(Failure::failed)?;
        Ok(Control {
            server,
            names,
            parts,
            more: true,
            asked: None,
            overtaken: Vec::new(),
            totals,
            read_only: Vec::new(),
            turned_away_before: 0,
            said_so: false,
            unusual_said: [false; 3],
        })
    }

    /// What was counted so far.
    pub fn totals(&mut self) -> &mut Totals {
        &mut self.totals
    }

    /// The cut that interrupted the server.
    pub fn take_cut(&mut self) -> Option<ArmedCut> {
        match self.asked.take() {
            Some(Asked::Cut(cut)) => Some(cut),
            other => {
                self.asked = other;
                None
            }
        }
    }

    /// The client that wants the power on.
    pub fn take_on(&mut self) -> Option<ClientId> {
        match self.asked.take() {
            Some(Asked::On(client)) => Some(client),
            other => {
                self.asked = other;
                None
            }
        }
    }

    /// The power is off. If it comes on again at once, the answer is not yet whole.
    pub fn went_off(&mut self, cut: &ArmedCut, now: Time, toll: &Toll) -> Answer {
        self.turned_away_before = self.totals.turned_away();
        self.said_so = false;
        let message = cut_message(toll);
        let Toll { connections, requests, loss } = toll;
        let PowerLoss { programs_lost, programs_torn, erases_cut_short } = loss;
        warn!(
            target: "power",
            power = "off",
            connections,
            requests,
            torn = cut.torn,
            programs_lost,
            programs_torn,
            erases_cut_short,
            "{message}"
        );
        let answer = after_cut(Answer::new(message), cut, now, toll).with("power", "off");
        if !cut.and_on {
            self.answer(cut.client, Ok(answer.clone()));
        }
        answer
    }

    /// The power is on, or could not be turned on. `before` is what there is to say of the cut.
    pub fn came_on(&mut self, client: ClientId, before: Option<Answer>, result: Result<&Namespaces, &Failure>) {
        match result {
            Ok(namespaces) => {
                let message = on_message(namespaces);
                let turned_away = self.totals.turned_away() - self.turned_away_before;
                warn!(target: "power", power = "on", clients_turned_away = turned_away, "{message}");
                self.names.iter().zip(&namespaces.drives).for_each(|(name, drive)| drive_events::opened(name, drive));
                let mut answer = before.unwrap_or_else(|| Answer::new(""));
                answer.message = format!("{}\n{message}", answer.message).trim_start().to_owned();
                self.answer(client, Ok(after_on(answer, namespaces).with("clients_turned_away", turned_away)));
            }
            Err(failure) => {
                error!(target: "power", power = "off", "The power could not be turned on. {failure}");
                self.answer(client, Err(refusal(failure)));
            }
        }
    }

    /// Says once in each outage that clients come in vain.
    fn say_who_was_turned_away(&mut self) {
        if !self.said_so && self.totals.turned_away() > self.turned_away_before {
            self.said_so = true;
            warn!(target: "power", power = "off", "A client connected and was turned away: the power is off.");
        }
    }

    /// Says once of each kind that NVMe hosts are turned away for what they lack, or are let in without a name. How many they
    /// are is counted.
    fn say_who_is_unusual(&mut self) {
        for ((count, said), what) in self.totals.unusual_hosts().iter().zip(&mut self.unusual_said).zip([
            "An NVMe host connected without TLS and was turned away: it needs a key of --tls-key (nvme connect --tls).",
            "An NVMe host was turned away in its TLS handshake: --tls-key has no such host, or another key of it.",
            "An NVMe host connected without a name (HOSTNQN) and was let in, because any host may connect.",
        ]) {
            if *count > 0 && !*said {
                *said = true;
                warn!(target: "host", hosts = count, "{what}");
            }
        }
    }

    /// Says once of each drive that it takes no more writes. Of one that was opened so, that was said then.
    fn say_what_became_read_only(&mut self, drives: &mut Drives<'_, '_, Drive>) {
        let is_new = self.read_only.is_empty();
        for (place, name) in self.names.iter().enumerate() {
            let Some(drive) = drives.get_mut(place) else { break };
            let reason = drive.read_only_reason();
            if is_new {
                self.read_only.push(reason);
            } else if self.read_only[place] != reason {
                self.read_only[place] = reason;
                // A standstill is said at more length.
                if let Some(reason) = reason.filter(|reason| *reason != ReadOnlyReason::Stalled) {
                    error!(target: "drive", drive = name, %reason, "{name} takes no more writes: {reason}.");
                }
            }
        }
    }

    /// Notes what an operator asked for at once, and what came of it; faults and lies so that nobody overlooks them.
    fn note(&self, request: &Request, result: &Result<Answer, Refusal>, drives: &mut Drives<'_, '_, Drive>) {
        let Request { command, namespace } = request;
        let answer = match result {
            Ok(answer) => answer,
            Err(refusal) => {
                debug!(target: "control", request = written(request), reason = %refusal, "request refused");
                return;
            }
        };
        let place = self.place_of(namespace.as_deref(), drives).ok();
        let drive = place.map(|place| &self.names[place]);
        let message = &answer.message;
        match command {
            Command::FailRead { block } => {
                let place = answer.facts["place"].as_str();
                warn!(target: "fault", fault = "fail-read", drive, block, place, "{message}");
            }
            Command::Corrupt { block } => {
                let place = answer.facts["place"].as_str();
                warn!(target: "fault", fault = "corrupt", drive, block, place, "{message}");
            }
            Command::FailProgram { chunk, close } => {
                let (chunk, drive) = (chunk.map(|chunk| chunk.to_string()), drive.filter(|_| chunk.is_some()));
                warn!(target: "fault", fault = "fail-program", drive, chunk, close, "{message}");
            }
            Command::Wear { chunk, resets } => {
                warn!(target: "fault", fault = "wear", drive, %chunk, resets, "{message}");
            }
            Command::LieAboutFlush { on } => {
                warn!(target: "fault", fault = "lie-about-flush", drive, on, "{message}");
            }
            Command::Stats {} | Command::Inspect { .. } => {
                debug!(target: "control", request = written(request), "request carried out");
            }
            // Each is noted where it is done.
            Command::Attach {}
            | Command::Detach {}
            | Command::PowerCut(_)
            | Command::PowerOn {}
            | Command::PowerCycle(_) => {}
        }
    }

    fn answer(&mut self, client: ClientId, result: Result<Answer, Refusal>) {
        if let Some(server) = &mut self.server {
            server.answer(client, result);
            self.more = true;
        }
    }

    /// Carries out what can be done at once. `None` for what switches the power.
    fn carry_out(
        &mut self,
        now: Time,
        client: ClientId,
        request: &Request,
        drives: &mut Drives<'_, '_, Drive>,
    ) -> Option<Result<Answer, Refusal>> {
        let Request { command, namespace } = request;
        let namespace = namespace.as_deref();
        if let Some(asked) = &self.asked
            && !matches!(command, Command::Stats {} | Command::Inspect { .. })
        {
            match asked {
                // Faults may come while a cut waits for its count, and another cut may.
                Asked::Cut(cut) if cut.may_be_overtaken() => {}
                _ => return Some(Err(not_now("the power is being switched").fix("wait until that is answered"))),
            }
        }
        if let (Some(name), false) = (namespace, is_of_a_namespace(command)) {
            let what = format_args!("namespace {name}: this is about all of the device").to_string();
            return Some(Err(Refusal::new(RefusalKind::Malformed, what).fix("leave --namespace away")));
        }
        if drives.is_empty() {
            return match command {
                Command::PowerOn {} => {
                    self.asked = Some(Asked::On(client));
                    None
                }
                Command::Stats {} => Some(Ok(self.totals.answer(false))),
                _ => Some(Err(not_now("the power is off").fix("turn it on first: openftl ctl DRIVE power-on"))),
            };
        }
        let result = match *command {
            Command::PowerCut(cut) => return self.arm(now, client, cut, false, drives),
            Command::PowerCycle(cut) => return self.arm(now, client, cut, true, drives),
            Command::PowerOn {} => Err(not_now("the power is on already")),
            Command::FailRead { block } => self.drive(namespace, drives).and_then(|drive| fail_read(drive, block)),
            Command::Corrupt { block } => self.drive(namespace, drives).and_then(|drive| corrupt(drive, block)),
            Command::FailProgram { chunk: None, close } => fail_next_program(flash(drives, 0), close),
            Command::FailProgram { chunk: Some(chunk), close } => {
                self.flash(namespace, drives).and_then(|flash| fail_program(flash, chunk, close))
            }
            Command::Wear { chunk, resets } => {
                self.flash(namespace, drives).and_then(|flash| wear(flash, chunk, resets))
            }
            Command::LieAboutFlush { on } => self.drive(namespace, drives).map(|drive| lie_about_flush(drive, on)),
            Command::Attach {} => self.set_attached(namespace, drives, true),
            Command::Detach {} => self.set_attached(namespace, drives, false),
            Command::Stats {} => Ok(self.statistics(drives)),
            Command::Inspect { first_chunk, colour } => {
                self.inspect(namespace, first_chunk, Palette::with_colour(colour), drives)
            }
        };
        Some(result)
    }

    /// The place of the namespace that is asked for. Where there is only one drive, it need not be named.
    fn place_of(&self, namespace: Option<&str>, drives: &mut Drives<'_, '_, Drive>) -> Result<usize, Refusal> {
        let choose = format_args!("name it with --namespace; there are {}", self.names.join(", ")).to_string();
        let Some(asked) = namespace else {
            let is_only = self.names.len() == 1 || (drives.get_mut(0).is_some() && drives.get_mut(1).is_none());
            return if is_only { Ok(0) } else { Err(out_of_range("there are several namespaces").fix(choose)) };
        };
        let by_name = self.names.iter().position(|name| name == asked);
        let by_id =
            asked.parse().ok().and_then(|id: usize| id.checked_sub(1)).filter(|place| *place < self.names.len());
        by_name.or(by_id).ok_or_else(|| out_of_range(format_args!("there is no namespace {asked}")).fix(choose))
    }

    /// The drive of a block namespace.
    fn drive<'d>(
        &self,
        namespace: Option<&str>,
        drives: &'d mut Drives<'_, '_, Drive>,
    ) -> Result<&'d mut Drive, Refusal> {
        let place = self.place_of(namespace, drives)?;
        drives.get_mut(place).ok_or_else(|| {
            let name = &self.names[place];
            out_of_range(format_args!("namespace {name} is an open-channel one: it has no logical blocks of ours"))
                .fix("choose a block namespace; chunks of it can be made to fail and wear")
        })
    }

    /// The flash of a namespace.
    fn flash<'d>(
        &self,
        namespace: Option<&str>,
        drives: &'d mut Drives<'_, '_, Drive>,
    ) -> Result<&'d mut Flash, Refusal> {
        let place = self.place_of(namespace, drives)?;
        Ok(flash(drives, place))
    }

    fn set_attached(
        &self,
        namespace: Option<&str>,
        drives: &mut Drives<'_, '_, Drive>,
        is_attached: bool,
    ) -> Result<Answer, Refusal> {
        let place = self.place_of(namespace, drives)?;
        let (name, id) = (&self.names[place], place + 1);
        let done = if is_attached { "attached" } else { "detached" };
        drives.set_attached(place, is_attached).map_err(|error| match error {
            AttachError::NotReached => not_now(format_args!("namespace {name}: NVMe hosts do not reach this drive"))
                .fix("serve it with --nvme-tcp"),
            AttachError::Already => not_now(format_args!("namespace {name} is {done} already")),
        })?;
        let note = match (is_attached, drives.get_mut(place).is_some()) {
            (false, true) => " NBD clients keep it.",
            _ => "",
        };
        let message = format!("Namespace {id}, {name}, is {done}, and every connected NVMe host is told.{note}");
        info!(target: "namespace", namespace = name, id, attached = is_attached, "{message}");
        Ok(Answer::new(message).with("namespace", name).with("id", id).with("attached", is_attached))
    }

    /// What a drive holds, or in short all that the device is divided into. Nothing is asked of the device but what it has in
    /// memory.
    fn inspect(
        &self,
        namespace: Option<&str>,
        first_chunk: u64,
        palette: Palette,
        drives: &mut Drives<'_, '_, Drive>,
    ) -> Result<Answer, Refusal> {
        let elsewhere = || not_now("the flash is on another machine").fix("ask the server that has it");
        if namespace.is_none() && !self.parts.is_empty() {
            let parts = self.ordered().enumerate().map(|(place, label)| part_of(place, label, drives));
            let parts = parts.collect::<Result<Vec<_>, Refusal>>()?;
            let device = flash(drives, 0).look(|device| (device.profile().name.clone(), *device.geometry()));
            let (profile, geometry) = device.ok_or_else(elsewhere)?;
            let used: u32 = self.parts.iter().map(|label| label.partition.shape(&geometry).pus()).sum();
            let device = (profile, GeometryFacts::of(&geometry), geometry.pus() - used);
            return Ok(inspect::answer_of_parts(Some(device), parts, palette));
        }
        let place = self.place_of(namespace, drives)?;
        if let Some(drive) = drives.get_mut(place) {
            let below = inspect::Below::of(drive.media()).ok_or_else(elsewhere)?;
            return Ok(inspect::answer(drive, &below, None, first_chunk, palette));
        }
        let label = self.ordered().nth(place).ok_or_else(|| {
            let name = &self.names[place];
            out_of_range(format_args!("namespace {name} is a device in memory beside the drive"))
                .fix("its hosts know what it holds")
        })?;
        Ok(inspect::answer_of_parts(None, vec![part_of(place, label, drives)?], palette))
    }

    /// What the device is divided into, in the order of their ids.
    fn ordered(&self) -> impl Iterator<Item = &PartLabel> {
        [PartKind::Block, PartKind::OpenChannel].into_iter().flat_map(|kind| of_kind(&self.parts, kind))
    }

    /// What was counted, and of several namespaces which they are.
    fn statistics(&mut self, drives: &mut Drives<'_, '_, Drive>) -> Answer {
        for (place, name) in self.names.iter().enumerate() {
            if let Some(drive) = drives.get_mut(place) {
                self.totals.look(place, name, drive);
            }
        }
        let waits = matches!(&self.asked, Some(Asked::Cut(cut)) if cut.may_be_overtaken());
        let nand = flash(drives, 0).look(|device| *device.statistics());
        let answer = self.totals.answer(true).with("nand", nand).with("cut_waits", waits);
        if self.names.len() == 1 {
            return answer;
        }
        let shown: Vec<NamespaceShown<'_>> = self
            .names
            .iter()
            .enumerate()
            .map(|(place, name)| NamespaceShown {
                id: place + 1,
                name,
                kind: if drives.get_mut(place).is_some() { PartKind::Block } else { PartKind::OpenChannel },
                attached: drives.is_attached(place),
                drive: self.totals.drive(place),
            })
            .collect();
        answer.with("namespaces", shown)
    }

    fn arm(
        &mut self,
        now: Time,
        client: ClientId,
        cut: Cut,
        and_on: bool,
        drives: &mut Drives<'_, '_, Drive>,
    ) -> Option<Result<Answer, Refusal>> {
        let flash = flash(drives, 0);
        if !flash.is_emulated() {
            let refusal = not_now("the flash is on another machine, and so is its power");
            return Some(Err(refusal.fix("ask the server that has it")));
        }
        if let (Some(_), Some(_)) = (cut.seed, cut.after) {
            let refusal =
                Refusal::new(RefusalKind::Malformed, "a seed chooses the moment, and so does what it waits for");
            return Some(Err(refusal.fix("leave one of them away")));
        }
        let commands = commands_of(flash);
        let Moment { commands: after_commands, delay, torn } = cut.seed.map_or(Moment::NOW, Moment::chosen_by);
        let (writes, flushes) = self.totals.ended();
        let (counted, count_due, due) = match cut.after {
            None => (Counted::Commands, commands + after_commands, now + delay),
            Some(After::Commands(more)) => (Counted::Commands, commands.saturating_add(more), Time::NEVER),
            Some(After::Writes(more)) => (Counted::Writes, writes.saturating_add(more), Time::NEVER),
            Some(After::Flushes(more)) => (Counted::Flushes, flushes.saturating_add(more), Time::NEVER),
        };
        let armed = ArmedCut {
            client,
            and_on,
            torn: torn || cut.torn,
            asked_at: now,
            due,
            counted,
            count_due,
            commands_asked_at: commands,
            commands_found: commands,
        };
        info!(target: "power", and_on, torn = armed.torn, seed = cut.seed, after = cut.after.map(tracing::field::debug), "a power cut is asked for");
        if let Some(Asked::Cut(overtaken)) = self.asked.replace(Asked::Cut(armed)) {
            self.overtaken.push(overtaken.client);
        }
        None
    }
}

/// One of several namespaces, for scripts.
#[derive(serde::Serialize)]
struct NamespaceShown<'a> {
    id: usize,
    name: &'a str,
    kind: PartKind,
    /// Whether NVMe hosts see it.
    attached: bool,
    #[serde(flatten)]
    drive: Option<&'a DriveTotals>,
}

/// Whether a command is about one namespace.
fn is_of_a_namespace(command: &Command) -> bool {
    match command {
        Command::FailRead { .. }
        | Command::Corrupt { .. }
        | Command::FailProgram { chunk: Some(_), .. }
        | Command::Wear { .. }
        | Command::LieAboutFlush { .. }
        | Command::Inspect { .. }
        | Command::Attach {}
        | Command::Detach {} => true,
        Command::PowerCut(_)
        | Command::PowerOn {}
        | Command::PowerCycle(_)
        | Command::FailProgram { chunk: None, .. }
        | Command::Stats {} => false,
    }
}

impl Operator<Drive> for Control {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.server.as_ref().map(ControlServer::event)
    }

    fn next_due(&self) -> Option<Time> {
        match &self.asked {
            _ if self.more => Some(Time::ZERO),
            Some(Asked::Cut(cut)) => Some(cut.due).filter(|due| *due < Time::NEVER),
            _ => None,
        }
    }

    fn turn(&mut self, now: Time, called: bool, drives: &mut Drives<'_, '_, Drive>) -> ControlFlow<()> {
        if (called || self.more)
            && let Some(mut server) = self.server.take()
        {
            server.poll();
            while let Some((client, request)) = server.take_request() {
                if let Some(result) = self.carry_out(now, client, &request, drives) {
                    self.note(&request, &result, drives);
                    server.answer(client, result);
                }
                for client in self.overtaken.drain(..) {
                    server.answer(client, Err(not_now("another power cut was asked for before this one struck")));
                }
            }
            self.more = server.has_more();
            self.server = Some(server);
        }
        self.more &= self.server.is_some();
        self.say_who_is_unusual();
        self.say_what_became_read_only(drives);
        if drives.is_empty() {
            self.say_who_was_turned_away();
        }
        let interrupts = match &mut self.asked {
            Some(Asked::Cut(cut)) if !drives.is_empty() => cut.strikes(now, flash(drives, 0), self.totals.ended()),
            Some(Asked::On(_)) => drives.is_empty(),
            _ => false,
        };
        if interrupts { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn came_to_standstill(&mut self, export: usize, state: &str) {
        let name = self.names.get(export).map_or("?", String::as_str);
        error!(
            target: "drive",
            drive = name,
            "{name} came to a standstill and takes no more writes; requests that waited have ended with errors. \
             This is a defect of OpenFTL or of its device: please report it with this line. State: {state}"
        );
    }
}

impl ArmedCut {
    /// Whether the power goes now, when hosts' writes and flushes that have ended are `ended`.
    fn strikes(&mut self, now: Time, flash: &Flash, ended: (u64, u64)) -> bool {
        self.commands_found = commands_of(flash);
        let count = match self.counted {
            Counted::Commands => self.commands_found,
            Counted::Writes => ended.0,
            Counted::Flushes => ended.1,
        };
        count >= self.count_due || now >= self.due
    }

    /// Whether it may wait for ever, and another cut may come before it.
    fn may_be_overtaken(&self) -> bool {
        self.due == Time::NEVER
    }
}

/// When a cut strikes, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// After so many more commands to the device…
    pub commands: u64,
    /// …or after this time, whichever comes first.
    pub delay: Nanos,
    pub torn: bool,
}

impl Moment {
    pub const NOW: Moment = Moment { commands: 0, delay: Nanos::ZERO, torn: false };

    /// A few commands away more often than many.
    pub fn chosen_by(seed: u64) -> Moment {
        let mut chance = SplitMix64::seed_from_u64(seed);
        let span = 1 << (chance.next_u64() % (COMMANDS_MAX_LOG2 + 1));
        Moment {
            commands: chance.next_u64() % span,
            delay: Nanos(chance.next_u64() % DELAY_MAX.0),
            torn: chance.next_u64() % 2 == 1,
        }
    }
}

/// A request as the log shows it.
pub fn written(request: &Request) -> String {
    serde_json::to_string(request).expect("requests are plain data with text for keys")
}

fn not_now(what: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::NotNow, what)
}

fn out_of_range(what: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::OutOfRange, what)
}

fn refusal(failure: &Failure) -> Refusal {
    let refusal = Refusal::new(RefusalKind::Failed, failure.what());
    match failure.what_to_do() {
        Some(fix) => refusal.fix(fix),
        None => refusal,
    }
}

/// Where a logical block is on the medium.
fn place(drive: &Drive, block: u64) -> Result<Ppa, Refusal> {
    let blocks = drive.blocks();
    if block >= blocks {
        return Err(out_of_range(format_args!("logical block {block} is not on this drive of {blocks} blocks"))
            .fix("blocks are 4 KiB and counted from 0"));
    }
    match drive.place(block) {
        Place::Media(ppa) => Ok(ppa),
        Place::Unmapped => Err(not_now(format_args!("logical block {block} was never written, or trimmed"))
            .fix("write it first, and flush")),
        Place::Lost => {
            Err(not_now(format_args!("logical block {block} is lost already")).fix("write it again, and flush"))
        }
        Place::Buffer(_) => Err(not_now(format_args!("logical block {block} is still in the write buffer"))
            .fix("flush and turn the power off and on (openftl ctl DRIVE power-cycle), or write more behind it")),
    }
}

/// A chunk of some flash, as it counts them.
fn chunk(flash: &Flash, name: ChunkName) -> Result<ChunkId, Refusal> {
    let geometry = flash.geometry();
    geometry.chunk_named(name).ok_or_else(|| {
        out_of_range(format_args!(
            "chunk {name} is not on this drive: it has {} groups of {} parallel units of {} chunks, counted from 0",
            geometry.groups, geometry.pus_per_group, geometry.chunks_per_pu
        ))
        .fix("`openftl inspect` shows a drive's chunks")
    })
}

/// The flash in this place: of a drive, or a device that is served as it is.
///
/// # Panics
/// If nothing is served there.
fn flash<'d>(drives: &'d mut Drives<'_, '_, Drive>, place: usize) -> &'d mut Flash {
    if drives.get_mut(place).is_some() {
        return drives.get_mut(place).expect("it is there").media_mut();
    }
    drives.device_mut(place).expect("something is served")
}

/// Operates the device behind some flash, if it is here.
fn operate<R>(flash: &mut Flash, deed: impl FnOnce(&mut EmulatedDevice) -> R) -> Result<R, Refusal> {
    flash.operate(deed).ok_or_else(|| not_now("the flash is on another machine").fix("ask the server that has it"))
}

/// Commands that the device has had.
fn commands_of(flash: &Flash) -> u64 {
    flash.look(|device| device.statistics().commands).unwrap_or_default()
}

/// One of the namespaces that the device is divided into.
fn part_of(place: usize, label: &PartLabel, drives: &mut Drives<'_, '_, Drive>) -> Result<PartFacts, Refusal> {
    let facts = match drives.get_mut(place) {
        Some(drive) => inspect::served_part(drive, label, place + 1),
        None => inspect::part_of(flash(drives, place), label, place + 1),
    };
    facts.map_err(store_refusal)
}

fn store_refusal(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Failed, error)
}

fn shown(flash: &Flash, ppa: Ppa) -> String {
    flash.geometry().format().unpack(ppa).to_string()
}

fn fail_read(drive: &mut Drive, block: u64) -> Result<Answer, Refusal> {
    let ppa = place(drive, block)?;
    let at = drive.media().on_device(ppa);
    operate(drive.media_mut(), |device| device.inject_read_failure(at))?.map_err(store_refusal)?;
    let place = shown(drive.media(), ppa);
    let message = format!("Logical block {block}, at {place}, cannot be read until it is overwritten or trimmed.");
    Ok(Answer::new(message).with("block", block).with("place", place))
}

fn corrupt(drive: &mut Drive, block: u64) -> Result<Answer, Refusal> {
    let ppa = place(drive, block)?;
    let at = drive.media().on_device(ppa);
    operate(drive.media_mut(), |device| device.corrupt(at))?.map_err(store_refusal)?;
    let place = shown(drive.media(), ppa);
    let message = format!("One bit of logical block {block}, at {place}, is turned. The device does not notice.");
    Ok(Answer::new(message).with("block", block).with("place", place))
}

fn failure_of(close: bool) -> (ProgramFailure, &'static str) {
    if close { (ProgramFailure::ChunkClosed, " and closes its chunk") } else { (ProgramFailure::NextUnit, "") }
}

fn fail_program(flash: &mut Flash, name: ChunkName, close: bool) -> Result<Answer, Refusal> {
    let (failure, how) = failure_of(close);
    let chunk = flash.chunk_on_device(chunk(flash, name)?);
    operate(flash, |device| device.inject_program_failure(chunk, failure))?;
    let message = format!("The next program operation on chunk {name} fails{how}.");
    Ok(Answer::new(message).with("chunk", name).with("close", close))
}

fn fail_next_program(flash: &mut Flash, close: bool) -> Result<Answer, Refusal> {
    let (failure, how) = failure_of(close);
    operate(flash, |device| device.inject_next_program_failure(failure))?;
    let message = format!("The next program operation on the device fails{how}.");
    Ok(Answer::new(message).with("chunk", None::<ChunkName>).with("close", close))
}

fn wear(flash: &mut Flash, name: ChunkName, resets: u32) -> Result<Answer, Refusal> {
    let chunk = flash.chunk_on_device(chunk(flash, name)?);
    let (worn, endurance) = operate(flash, |device| (device.set_wear(chunk, resets), device.endurance()))?;
    worn.map_err(store_refusal)?;
    let message = format!("Chunk {name} counts as erased {resets} times; it stands {endurance}.");
    Ok(Answer::new(message).with("chunk", name).with("resets", resets).with("endurance", endurance))
}

fn lie_about_flush(drive: &mut Drive, on: bool) -> Answer {
    drive.lie_about_flush(on);
    let message = match on {
        true => "Flushes and durable writes are acknowledged at once from now on, and make nothing durable.",
        false => "Flushes and durable writes keep their promise again.",
    };
    Answer::new(message).with("lies_about_flush", on)
}

fn cut_message(toll: &Toll) -> String {
    let Toll { connections, requests, loss } = toll;
    let PowerLoss { programs_lost, programs_torn, erases_cut_short } = loss;
    let mut text = format!(
        "The power is off. Connections dropped: {connections}, with {} requests under way.",
        thousands(*requests)
    );
    if *loss != PowerLoss::default() {
        text += &format!(
            "\nOn the flash: {programs_lost} programs lost, {programs_torn} torn, {erases_cut_short} erases cut short."
        );
    }
    text
}

fn after_cut(answer: Answer, cut: &ArmedCut, now: Time, toll: &Toll) -> Answer {
    answer
        .with("connections_dropped", toll.connections)
        .with("requests_under_way", toll.requests)
        .with("torn", cut.torn)
        .with("device_commands_later", cut.commands_found - cut.commands_asked_at)
        .with("nanoseconds_later", now.since(cut.asked_at).0)
        .with("flash", toll.loss)
}

fn on_message(namespaces: &Namespaces) -> String {
    let names = of_kind(&namespaces.parts, PartKind::Block).map(|label| format!("{}: ", label.name));
    let mut text = "The power is on".to_owned();
    for (drive, name) in namespaces.drives.iter().zip(names.map(Some).chain(std::iter::repeat(None))) {
        let report = drive.recovery_report();
        text += if name.is_some() { ".\n  " } else { ": " };
        text += &format!(
            "{}{} in {}; {} log records replayed, {} of cut-off transactions dropped",
            name.unwrap_or_default(),
            crate::assembly::opened_how(report),
            crate::assembly::opened_in(report),
            thousands(report.replayed),
            thousands(report.dropped)
        );
        if let Some(reason) = drive.read_only_reason() {
            text += &format!(".\nThe drive takes no writes: {reason}");
        }
    }
    text + "."
}

/// How it came on: of several drives each.
fn after_on(answer: Answer, namespaces: &Namespaces) -> Answer {
    #[derive(serde::Serialize)]
    struct On<'a> {
        name: &'a str,
        recovery: &'a RecoveryReport,
        read_only: Option<ReadOnlyReason>,
    }
    let answer = answer.with("power", "on");
    if let ([], [drive]) = (&namespaces.parts[..], &namespaces.drives[..]) {
        return answer.with("recovery", drive.recovery_report()).with("read_only", drive.read_only_reason());
    }
    let labels = of_kind(&namespaces.parts, PartKind::Block);
    let on: Vec<On<'_>> = labels
        .zip(&namespaces.drives)
        .map(|(label, drive)| On {
            name: label.name.as_str(),
            recovery: drive.recovery_report(),
            read_only: drive.read_only_reason(),
        })
        .collect();
    answer.with("namespaces", on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_chooses_the_same_moment_each_time_and_seeds_choose_different_ones() {
        let moments: Vec<Moment> = (0..200).map(Moment::chosen_by).collect();
        assert!(moments.iter().zip(0..).all(|(moment, seed)| *moment == Moment::chosen_by(seed)));
        assert!(moments.iter().all(|moment| moment.commands < 512 && moment.delay < DELAY_MAX));
        let share = |is: &dyn Fn(&Moment) -> bool| moments.iter().filter(|moment| is(moment)).count();
        assert!((60..140).contains(&share(&|moment| moment.torn)));
        assert!((60..140).contains(&share(&|moment| moment.commands < 8)));
        assert!(share(&|moment| moment.commands > 100) > 5);
    }
}
