//! The control socket of a served drive: carries out what `openftl ctl` asks, between two turns of the server.
//!
//! Most requests are answered at once. Those that switch the power interrupt the server and are answered by whoever
//! serves the drive, when it is done:
//!
//! ```text
//!   power-cut ──▶ armed ──(now, or as its seed says)──▶ the server is interrupted ──▶ Drive, Dark ──▶ went_off
//!   power-on  ───────────────────────────────────────▶ the server is interrupted ──▶ Dark, Drive ──▶ came_on
//! ```

mod cut;
mod fault;
mod pages_shown;
mod places;
mod power_answer;
mod refusal;
mod values_shown;
mod zones_shown;

pub use cut::{Moment, Toll};

use crate::assembly::Drive;
use crate::drive_events;
use crate::failure::Failure;
use crate::inspect::{self, TenantFacts};
use crate::namespaces::{Namespaces, ordered};
use crate::profiles::GeometryFacts;
use crate::terminal::Palette;
use crate::totals::{DriveTotals, Totals};
use cut::{ArmedCut, Counted, commands_of};
use fault::{corrupt, fail_next_program, fail_program, fail_read, lies_about_flush, wear};
use openftl_blocks::Ftl;
use openftl_control::{After, Answer, ClientId, Command, ControlServer, Cut, Refusal, RefusalKind, Request};
use openftl_core::Time;
use openftl_media::{Media, PartLabel, PowerLoss};
use openftl_parts::ReadOnlyReason;
use openftl_server::{AttachError, Drives, Endpoint, ListenError, Listener, Operator};
use openftl_serving::flash::Flash;
use openftl_zones::Face;
use pages_shown::PagesShown;
use places::{flash, ftl, kind_of, part_of};
use power_answer::{after_cut, after_on, cut_message, on_message};
use refusal::{not_now, out_of_range, refusal};
use rustix::fs::Mode;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use tracing::{debug, error, info, warn};
use values_shown::ValuesShown;
use zones_shown::ZonesShown;

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
                let other_names = self.names.iter().skip(namespaces.drives.len());
                other_names.zip(&namespaces.others).for_each(|(name, drive)| drive_events::other_opened(name, drive));
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
            let Some(drive) = ftl(drives, place) else { break };
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
            Command::LieAboutFlush { on } => self.lie_about_flush(namespace, drives, on),
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
        let what = match drives.zones_mut(place).map(|zones| zones.face()) {
            None if drives.pages_mut(place).is_some() => "a store of pages",
            None if drives.values_mut(place).is_some() => "one of keys and values",
            None => "an open-channel one",
            Some(Face::Zones) => "a zoned one",
            Some(Face::Segments) => "one of segments",
        };
        drives.get_mut(place).ok_or_else(|| {
            let name = &self.names[place];
            out_of_range(format_args!("namespace {name} is {what}, and this is about blocks of a block FTL"))
                .fix("choose a block namespace; chunks of others can be made to fail and wear")
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

    /// Has a drive of blocks or zones lie, or keep its promises again.
    fn lie_about_flush(
        &self,
        namespace: Option<&str>,
        drives: &mut Drives<'_, '_, Drive>,
        on: bool,
    ) -> Result<Answer, Refusal> {
        let place = self.place_of(namespace, drives)?;
        if drives.pages_mut(place).is_some() || drives.values_mut(place).is_some() {
            return Err(not_now("this drive keeps its promises, and cannot lie about them yet"));
        }
        match drives.zones_mut(place) {
            Some(drive) => drive.lie_about_flush(on),
            None => self.drive(namespace, drives)?.lie_about_flush(on),
        }
        Ok(lies_about_flush(on))
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
        if let Some(drive) = drives.zones_mut(place) {
            let below = inspect::Below::of(drive.block().media()).ok_or_else(elsewhere)?;
            let zones = TenantFacts::of_zones(drive);
            return Ok(inspect::answer(drive.block(), &below, Some(zones), first_chunk, palette));
        }
        if let Some(drive) = drives.pages_mut(place) {
            let below = inspect::Below::of(drive.block().media()).ok_or_else(elsewhere)?;
            let pages = TenantFacts::of_pages(drive);
            return Ok(inspect::answer(drive.block(), &below, Some(pages), first_chunk, palette));
        }
        if let Some((drive, _)) = drives.values_mut(place) {
            let below = inspect::Below::of(drive.block().media()).ok_or_else(elsewhere)?;
            let values = TenantFacts::of_values(drive);
            return Ok(inspect::answer(drive.block(), &below, Some(values), first_chunk, palette));
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
        ordered(&self.parts)
    }

    /// What was counted, and of several namespaces which they are.
    fn statistics(&mut self, drives: &mut Drives<'_, '_, Drive>) -> Answer {
        for (place, name) in self.names.iter().enumerate() {
            if let Some(drive) = drives.zones_mut(place) {
                self.totals.look_at_zones(place, name, drive);
            } else if let Some(drive) = ftl(drives, place) {
                self.totals.look(place, name, drive);
            }
        }
        let waits = matches!(&self.asked, Some(Asked::Cut(cut)) if cut.may_be_overtaken());
        let nand = flash(drives, 0).look(|device| *device.statistics());
        let mut answer = self.totals.answer(true).with("nand", nand).with("cut_waits", waits);
        if let (1, Some(zones)) = (self.names.len(), drives.zones_mut(0).map(|drive| ZonesShown::of(drive))) {
            answer.message += &zones.line();
            answer = answer.with("zones", zones);
        }
        if let (1, Some(pages)) = (self.names.len(), drives.pages_mut(0).map(|drive| PagesShown::of(drive))) {
            answer.message += &pages.line();
            answer = answer.with("pages", pages);
        }
        let values = drives.values_mut(0).map(|(drive, _)| ValuesShown::of(drive));
        if let (1, Some(values)) = (self.names.len(), values) {
            answer.message += &values.line();
            answer = answer.with("values", values);
        }
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
                kind: kind_of(drives, place),
                attached: drives.is_attached(place),
                drive: self.totals.drive(place),
                zones: drives.zones_mut(place).map(|drive| ZonesShown::of(drive)),
            })
            .collect();
        for NamespaceShown { name, zones, .. } in &shown {
            if let Some(zones) = zones {
                answer.message += &format!("\n{name}: {}", zones.line().trim_start());
            }
        }
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
    kind: String,
    /// Whether NVMe hosts see it.
    attached: bool,
    #[serde(flatten)]
    drive: Option<&'a DriveTotals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zones: Option<ZonesShown>,
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

/// A request as the log shows it.
pub fn written(request: &Request) -> String {
    serde_json::to_string(request).expect("requests are plain data with text for keys")
}
