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
use crate::failure::Failure;
use crate::flash::Flash;
use crate::serve::Log;
use crate::totals::Totals;
use openftl_control::{Answer, ClientId, Command, ControlServer, Cut, Refusal, RefusalKind};
use openftl_core::{ChunkId, ChunkName, Nanos, Ppa, Time};
use openftl_ftl::BlockTarget;
use openftl_ftl::mapping::Place;
use openftl_lab::picture::thousands;
use openftl_media::{EmulatedDevice, Media, PowerLoss, ProgramFailure};
use openftl_server::{Drives, Endpoint, ListenError, Listener, Operator};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::fs::Mode;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

/// A cut with a seed strikes after fewer device commands than this…
const COMMANDS_MAX_LOG2: u64 = 9;

/// …or after less time than this, whichever comes first: a drive that does nothing has no commands to count.
const DELAY_MAX: Nanos = Nanos::from_millis(20);

/// Operates one drive.
pub struct Control {
    server: Option<ControlServer<Listener>>,
    /// There is something to do of which no event tells.
    more: bool,
    asked: Option<Asked>,
    totals: Totals,
    log: Log,
    /// Clients that were turned away when the power last went.
    turned_away_before: u64,
    /// Whether it was said that clients are turned away.
    said_so: bool,
    /// Whether it was said that NVMe hosts come without TLS, and that some do not know their key.
    insecure_said: [bool; 2],
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
    due: Time,
    /// Strikes when the device has had so many commands.
    commands_asked_at: u64,
    commands_due: u64,
    commands_found: u64,
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
    pub fn new(listener: Option<Listener>, totals: Totals, log: Log) -> Result<Control, Failure> {
        let server = listener.map(ControlServer::new).transpose().map_err(Failure::failed)?;
        Ok(Control {
            server,
            more: true,
            asked: None,
            totals,
            log,
            turned_away_before: 0,
            said_so: false,
            insecure_said: [false; 2],
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
        self.log.tell(&message);
        let answer = after_cut(Answer::new(message), cut, now, toll).with("power", "off");
        if !cut.and_on {
            self.answer(cut.client, Ok(answer.clone()));
        }
        answer
    }

    /// The power is on, or could not be turned on. `before` is what there is to say of the cut.
    pub fn came_on(&mut self, client: ClientId, before: Option<Answer>, result: Result<&Drive, &Failure>) {
        match result {
            Ok(drive) => {
                let message = on_message(drive);
                self.log.tell(&message);
                let turned_away = self.totals.turned_away() - self.turned_away_before;
                let mut answer = before.unwrap_or_else(|| Answer::new(""));
                answer.message = format!("{}\n{message}", answer.message).trim_start().to_owned();
                self.answer(client, Ok(after_on(answer, drive).with("clients_turned_away", turned_away)));
            }
            Err(failure) => {
                self.log.tell(&format!("The power could not be turned on. {failure}"));
                self.answer(client, Err(refusal(failure)));
            }
        }
    }

    /// Says once in each outage that clients come in vain.
    fn say_who_was_turned_away(&mut self) {
        if !self.said_so && self.totals.turned_away() > self.turned_away_before {
            self.said_so = true;
            self.log.tell("A client connected and was turned away: the power is off.");
        }
    }

    /// Says once of each kind that NVMe hosts are turned away for what they lack. How many they are is counted.
    fn say_who_is_insecure(&mut self) {
        for ((count, said), what) in self.totals.insecure().iter().zip(&mut self.insecure_said).zip([
            "An NVMe host connected without TLS and was turned away: it needs a key of --tls-key (nvme connect --tls).",
            "An NVMe host was turned away in its TLS handshake: --tls-key has no such host, or another key of it.",
        ]) {
            if *count > 0 && !*said {
                *said = true;
                self.log.tell(what);
            }
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
        command: Command,
        drive: Option<&mut Drive>,
    ) -> Option<Result<Answer, Refusal>> {
        if self.asked.is_some() && command != (Command::Stats {}) {
            return Some(Err(not_now("the power is being switched").fix("wait until that is answered")));
        }
        let Some(drive) = drive else {
            return match command {
                Command::PowerOn {} => {
                    self.asked = Some(Asked::On(client));
                    None
                }
                Command::Stats {} => Some(Ok(self.totals.answer(None))),
                _ => Some(Err(not_now("the power is off").fix("turn it on first: openftl ctl DRIVE power-on"))),
            };
        };
        let result = match command {
            Command::PowerCut(cut) => return self.arm(now, client, cut, false, drive),
            Command::PowerCycle(cut) => return self.arm(now, client, cut, true, drive),
            Command::PowerOn {} => Err(not_now("the power is on already")),
            Command::FailRead { block } => fail_read(drive, block),
            Command::Corrupt { block } => corrupt(drive, block),
            Command::FailProgram { chunk, close } => fail_program(drive, chunk, close),
            Command::Wear { chunk, resets } => wear(drive, chunk, resets),
            Command::LieAboutFlush { on } => Ok(lie_about_flush(drive, on)),
            Command::Stats {} => Ok(self.totals.answer(Some(drive))),
        };
        Some(result)
    }

    fn arm(
        &mut self,
        now: Time,
        client: ClientId,
        cut: Cut,
        and_on: bool,
        drive: &Drive,
    ) -> Option<Result<Answer, Refusal>> {
        if drive.media().emulated().is_none() {
            let refusal = not_now("the flash is on another machine, and so is its power");
            return Some(Err(refusal.fix("ask the server that has it")));
        }
        let commands = commands_of(drive);
        let Moment { commands: after_commands, delay, torn } = cut.seed.map_or(Moment::NOW, Moment::chosen_by);
        self.asked = Some(Asked::Cut(ArmedCut {
            client,
            and_on,
            torn: torn || cut.torn,
            asked_at: now,
            due: now + delay,
            commands_asked_at: commands,
            commands_due: commands + after_commands,
            commands_found: commands,
        }));
        None
    }
}

impl Operator<Drive> for Control {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.server.as_ref().map(ControlServer::event)
    }

    fn next_due(&self) -> Option<Time> {
        match &self.asked {
            _ if self.more => Some(Time::ZERO),
            Some(Asked::Cut(cut)) => Some(cut.due),
            _ => None,
        }
    }

    fn turn(&mut self, now: Time, called: bool, drives: &mut Drives<'_, '_, Drive>) -> ControlFlow<()> {
        if (called || self.more)
            && let Some(mut server) = self.server.take()
        {
            server.poll();
            while let Some((client, command)) = server.take_request() {
                if let Some(result) = self.carry_out(now, client, command, drives.get_mut(0)) {
                    server.answer(client, result);
                }
            }
            self.more = server.has_more();
            self.server = Some(server);
        }
        self.more &= self.server.is_some();
        self.say_who_is_insecure();
        if drives.get_mut(0).is_none() {
            self.say_who_was_turned_away();
        }
        let interrupts = match (&mut self.asked, drives.get_mut(0)) {
            (Some(Asked::Cut(cut)), Some(drive)) => cut.strikes(now, drive),
            (asked, None) => matches!(asked, Some(Asked::On(_))),
            _ => false,
        };
        if interrupts { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl ArmedCut {
    fn strikes(&mut self, now: Time, drive: &Drive) -> bool {
        self.commands_found = commands_of(drive);
        self.commands_found >= self.commands_due || now >= self.due
    }
}

/// When a cut strikes, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Moment {
    /// After so many more commands to the device…
    commands: u64,
    /// …or after this time, whichever comes first.
    delay: Nanos,
    torn: bool,
}

impl Moment {
    const NOW: Moment = Moment { commands: 0, delay: Nanos::ZERO, torn: false };

    /// A few commands away more often than many.
    fn chosen_by(seed: u64) -> Moment {
        let mut chance = SplitMix64::seed_from_u64(seed);
        let span = 1 << (chance.next_u64() % (COMMANDS_MAX_LOG2 + 1));
        Moment {
            commands: chance.next_u64() % span,
            delay: Nanos(chance.next_u64() % DELAY_MAX.0),
            torn: chance.next_u64() % 2 == 1,
        }
    }
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

fn chunk(drive: &Drive, name: ChunkName) -> Result<ChunkId, Refusal> {
    let geometry = drive.media().geometry();
    geometry.chunk_named(name).ok_or_else(|| {
        out_of_range(format_args!(
            "chunk {name} is not on this drive: it has {} groups of {} parallel units of {} chunks, counted from 0",
            geometry.groups, geometry.pus_per_group, geometry.chunks_per_pu
        ))
        .fix("`openftl inspect` shows a drive's chunks")
    })
}

/// The device, if it is here.
fn emulated(drive: &mut Drive) -> Result<&mut EmulatedDevice, Refusal> {
    let device = drive.media_mut().emulated_mut();
    device.ok_or_else(|| not_now("the flash is on another machine").fix("ask the server that has it"))
}

/// Commands that the device has had.
fn commands_of(drive: &Drive) -> u64 {
    drive.media().emulated().map_or(0, |device| device.statistics().commands)
}

fn store_refusal(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Failed, error)
}

fn shown(device: &Flash, ppa: Ppa) -> String {
    device.geometry().format().unpack(ppa).to_string()
}

fn fail_read(drive: &mut Drive, block: u64) -> Result<Answer, Refusal> {
    let ppa = place(drive, block)?;
    emulated(drive)?.inject_read_failure(ppa).map_err(store_refusal)?;
    let place = shown(drive.media(), ppa);
    let message = format!("Logical block {block}, at {place}, cannot be read until it is overwritten or trimmed.");
    Ok(Answer::new(message).with("block", block).with("place", place))
}

fn corrupt(drive: &mut Drive, block: u64) -> Result<Answer, Refusal> {
    let ppa = place(drive, block)?;
    emulated(drive)?.corrupt(ppa).map_err(store_refusal)?;
    let place = shown(drive.media(), ppa);
    let message = format!("One bit of logical block {block}, at {place}, is turned. The device does not notice.");
    Ok(Answer::new(message).with("block", block).with("place", place))
}

fn fail_program(drive: &mut Drive, name: Option<ChunkName>, close: bool) -> Result<Answer, Refusal> {
    let failure = if close { ProgramFailure::ChunkClosed } else { ProgramFailure::NextUnit };
    match name {
        Some(name) => {
            let chunk = chunk(drive, name)?;
            emulated(drive)?.inject_program_failure(chunk, failure);
        }
        None => emulated(drive)?.inject_next_program_failure(failure),
    }
    let place = name.map_or("the device".to_owned(), |name| format!("chunk {name}"));
    let how = if close { " and closes its chunk" } else { "" };
    let message = format!("The next program operation on {place} fails{how}.");
    Ok(Answer::new(message).with("chunk", name).with("close", close))
}

fn wear(drive: &mut Drive, name: ChunkName, resets: u32) -> Result<Answer, Refusal> {
    let chunk = chunk(drive, name)?;
    emulated(drive)?.set_wear(chunk, resets).map_err(store_refusal)?;
    let endurance = emulated(drive)?.endurance();
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

fn on_message(drive: &Drive) -> String {
    let report = drive.recovery_report();
    let mut text = format!(
        "The power is on: {} in {}; {} log records replayed, {} of cut-off transactions dropped.",
        crate::assembly::opened_how(report),
        crate::assembly::opened_in(report),
        thousands(report.replayed),
        thousands(report.dropped)
    );
    if let Some(reason) = drive.read_only_reason() {
        text += &format!("\nThe drive takes no writes: {reason}.");
    }
    text
}

fn after_on(answer: Answer, drive: &Drive) -> Answer {
    answer.with("power", "on").with("recovery", drive.recovery_report()).with("read_only", drive.read_only_reason())
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
