//! What a server says while it serves: events with fields, each as a line of a log, or in words for whoever watches.
//!
//! ```text
//!            ┌ no --log ─▶ the few that a person wants to know of ─▶ their message alone, where the greeting goes
//!   event ───┤
//!            └ --log ─▶ level ─▶ budget of its kind ─▶ text or JSON ─▶ waiting lines ─▶ thread ─▶ standard error
//!                               (what peers cause)                    at most 1 MiB
//! ```
//!
//! Nobody outside can make the log grow as he likes, nor stop the server by not reading it:
//!
//! | what | bound |
//! |---|---|
//! | lines of one kind that peers cause, one kind for each place in the code | [`LINES_AT_ONCE`], then one every [`LINE_EVERY`]; others are counted, and the next line says how many (`unlogged`) |
//! | bytes of a field | [`VALUE_BYTES_MAX`] |
//! | bytes of lines that whoever reads standard error has not taken | [`WAITING_BYTES_MAX`]; more are lost, and a line says how many |
//! | time that the end of the process waits for that reader | [`LAST_WORDS_MAX`] |
//!
//! `trace` has no budget: it is for whoever looks for something, and is switched off unless he asks for it.
//!
//! This is a whole [`tracing::Subscriber`]. There are no spans, so that it needs no registry of them.

use crate::cli;
use crate::failure::Failure;
use crate::terminal::{Palette, say};
use clap::ValueEnum;
use openftl_core::{Nanos, Time};
use serde::ser::SerializeMap;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines of one kind that peers may cause at once…
const LINES_AT_ONCE: u32 = 128;

/// …and for each span of this length one more.
const LINE_EVERY: Nanos = Nanos::from_millis(10_000);

/// The longest value of a field; a peer may choose names.
const VALUE_BYTES_MAX: usize = 1024;

/// Lines that wait to be written.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// How long the end of the process waits until they are.
const LAST_WORDS_MAX: Duration = Duration::from_secs(2);

/// What events are about. `docs/guide/logging.md` says what each has.
const TARGETS: [&str; 10] =
    ["drive", "power", "fault", "namespace", "host", "control", "connection", "nbd", "nvme", "log"];

/// Those that peers cause.
const OF_PEERS: [&str; 4] = ["connection", "nbd", "nvme", "control"];

/// Of which a person is told who asked for no log.
const TOLD: [(&str, LevelFilter); 5] = [
    ("drive", LevelFilter::ERROR),
    ("power", LevelFilter::WARN),
    ("fault", LevelFilter::WARN),
    ("namespace", LevelFilter::INFO),
    ("host", LevelFilter::WARN),
];

/// How a log is written.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A line to read: time, level, target, message, fields.
    Text,
    /// One JSON object on each line.
    Json,
}

/// Which events are logged: from which level on, and of some targets from another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levels {
    all: LevelFilter,
    of: Vec<(&'static str, LevelFilter)>,
}

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

impl Levels {
    fn told() -> Levels {
        Levels { all: LevelFilter::OFF, of: TOLD.to_vec() }
    }

    fn of(&self, target: &str) -> LevelFilter {
        self.of.iter().rev().find(|(of, _)| *of == target).map_or(self.all, |(_, level)| *level)
    }

    fn most(&self) -> LevelFilter {
        self.of.iter().map(|(_, level)| *level).fold(self.all, Ord::max)
    }
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Levels, String> {
        let names = |names: &mut dyn Iterator<Item = &'static str>| names.collect::<Vec<_>>().join(", ");
        let level = |name: &str| {
            LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level).ok_or_else(|| {
                let known = names(&mut LEVELS.iter().map(|(known, _)| *known));
                format!("`{name}` is no level; write one of {known}, and for single targets like info,nvme=debug")
            })
        };
        let mut levels = Levels { all: LevelFilter::OFF, of: Vec::new() };
        let mut has_all = false;
        for part in text.split(',') {
            match part.split_once('=') {
                None if std::mem::replace(&mut has_all, true) => {
                    return Err(format!("`{part}` is a second level for all; write that of a target like nvme={part}"));
                }
                None => levels.all = level(part)?,
                Some((name, of)) => {
                    let target = TARGETS.iter().find(|target| **target == name).ok_or_else(|| {
                        format!("`{name}` is no target; write one of {}", names(&mut TARGETS.iter().copied()))
                    })?;
                    levels.of.push((target, level(of)?));
                }
            }
        }
        Ok(levels)
    }
}

/// Where a server greets and says good-bye.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Voice {
    /// Whoever started it reads along.
    Stdout,
    /// Standard output belongs to the report, or to the command that is run.
    Stderr,
    /// Nowhere: standard error is a log for programs, and every line of it JSON.
    Silent,
}

impl Voice {
    fn of(arguments: &cli::Serve) -> Voice {
        match (arguments.json || arguments.run.is_some(), arguments.log_format) {
            (false, _) => Voice::Stdout,
            (true, Some(Format::Json)) => Voice::Silent,
            (true, _) => Voice::Stderr,
        }
    }

    /// What it looks like there.
    pub fn palette(self) -> Palette {
        match self {
            Voice::Stdout => Palette::of_stdout(),
            Voice::Stderr => Palette::of_stderr(),
            Voice::Silent => Palette::PLAIN,
        }
    }

    /// Prints `text`. Whoever read it may have gone; the drive serves on.
    pub fn tell(self, text: &str) {
        match self {
            Voice::Stdout => _ = say(text),
            Voice::Stderr => _ = writeln!(std::io::stderr(), "{}", text.trim_end()),
            Voice::Silent => {}
        }
    }
}

/// The log of this process, once it has one that goes to standard error.
static LOG: OnceLock<Arc<Lines>> = OnceLock::new();

/// Has events go where the arguments say, from now on. Gives where everything else is said.
pub fn start(arguments: &cli::Serve) -> Result<Voice, Failure> {
    let voice = Voice::of(arguments);
    let log = match (&arguments.log, arguments.log_format) {
        (None, None) => Log { levels: Levels::told(), out: Out::Told(voice) },
        (levels, format) => {
            let info = Levels { all: LevelFilter::INFO, of: Vec::new() };
            let lines = Arc::new(Lines::new(format.unwrap_or(Format::Text)));
            let writing = Arc::clone(&lines);
            std::thread::Builder::new()
                .name("log".to_owned())
                .spawn(move || writing.write_out(&mut std::io::stderr()))
                .map_err(Failure::failed)?;
            _ = LOG.set(Arc::clone(&lines));
            Log { levels: levels.clone().unwrap_or(info), out: Out::Lines(lines) }
        }
    };
    tracing::subscriber::set_global_default(log).expect("a process serves once");
    Ok(voice)
}

/// Has what a command failed with be the last line of a log in JSON. False if there is none that takes it.
pub fn take_failure(failure: &Failure) -> bool {
    let is_taken =
        LOG.get().is_some_and(|lines| lines.format == Format::Json) && tracing::enabled!(target: "drive", Level::ERROR);
    if is_taken {
        tracing::error!(target: "drive", fix = failure.what_to_do(), "{}", failure.what());
    }
    is_taken
}

/// Dropped at the end of the process, however that comes: what was left out is said, and what waits is written.
pub struct LastWords;

impl Drop for LastWords {
    fn drop(&mut self) {
        if let Some(lines) = LOG.get() {
            lines.say_what_was_left_out();
            lines.wait_until_written(LAST_WORDS_MAX);
        }
    }
}

/// Takes events.
struct Log {
    levels: Levels,
    out: Out,
}

enum Out {
    Told(Voice),
    Lines(Arc<Lines>),
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.is_span() && *metadata.level() <= self.levels.of(metadata.target())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.levels.most())
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let said = |unlogged| {
            let mut said = Said::default();
            event.record(&mut said);
            said.fields.extend(Some(unlogged).filter(|count| *count > 0).map(|count: u64| ("unlogged", count.into())));
            said
        };
        match &self.out {
            Out::Told(voice) => voice.tell(&said(0).message),
            Out::Lines(lines) => {
                let is_bounded = OF_PEERS.contains(&metadata.target()) && *metadata.level() < Level::TRACE;
                let unlogged = if is_bounded { lines.take_from_budget(metadata) } else { Some(0) };
                if let Some(unlogged) = unlogged {
                    lines.add(*metadata.level(), metadata.target(), &said(unlogged));
                }
            }
        }
    }

    // There are no spans.
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// What one event says.
#[derive(Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Said {
    fn text(&mut self, field: &Field, mut text: String) {
        if field.name() == "message" {
            self.message = text;
            return;
        }
        if text.len() > VALUE_BYTES_MAX {
            text.truncate(text.floor_char_boundary(VALUE_BYTES_MAX));
            text.push('…');
        }
        self.fields.push((field.name(), text.into()));
    }
}

impl Visit for Said {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }
}

/// How many lines of one kind may still be written.
#[derive(Debug)]
struct Budget {
    left: u32,
    /// Up to when lines were added to it.
    filled: Time,
    unlogged: u64,
}

impl Budget {
    fn new(now: Time) -> Budget {
        Budget { left: LINES_AT_ONCE, filled: now, unlogged: 0 }
    }

    /// Takes one line: how many before it were left out. `None` if it is left out itself.
    fn take(&mut self, now: Time) -> Option<u64> {
        let more = now.since(self.filled).0 / LINE_EVERY.0;
        self.filled += Nanos(more * LINE_EVERY.0);
        self.left = LINES_AT_ONCE.min(self.left.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)));
        let Some(left) = self.left.checked_sub(1) else {
            self.unlogged += 1;
            return None;
        };
        self.left = left;
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// Lines on their way to standard error.
struct Lines {
    format: Format,
    started: Instant,
    /// Of each place in the code that peers cause events at.
    budgets: Mutex<HashMap<Identifier, (Budget, &'static Metadata<'static>)>>,
    waiting: Mutex<Waiting>,
    /// There are lines, or they are written.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    text: String,
    is_writing: bool,
    /// Lines for which there was no room.
    lost: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lines {
    fn new(format: Format) -> Lines {
        Lines {
            format,
            started: Instant::now(),
            budgets: Mutex::default(),
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn take_from_budget(&self, metadata: &'static Metadata<'static>) -> Option<u64> {
        let now = Time(self.started.elapsed().as_nanos() as u64);
        let mut budgets = lock(&self.budgets);
        let (budget, _) = budgets.entry(metadata.callsite()).or_insert_with(|| (Budget::new(now), metadata));
        budget.take(now)
    }

    /// Puts a line in line, if there is room.
    fn add(&self, level: Level, target: &str, said: &Said) {
        let now = SystemTime::now();
        let line = line(self.format, now, level, target, said);
        let mut waiting = lock(&self.waiting);
        if waiting.text.len() + line.len() > WAITING_BYTES_MAX {
            waiting.lost += 1;
            return;
        }
        if waiting.lost > 0 {
            let fields = vec![("lines", std::mem::take(&mut waiting.lost).into())];
            let lost = Said { message: "lines are lost: whoever reads this log was too slow".to_owned(), fields };
            waiting.text += &self::line(self.format, now, Level::WARN, "log", &lost);
        }
        waiting.text += &line;
        self.changed.notify_all();
    }

    /// Writes lines as they come, for ever.
    fn write_out(&self, out: &mut impl std::io::Write) {
        let mut waiting = lock(&self.waiting);
        loop {
            while waiting.text.is_empty() {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            let text = std::mem::take(&mut waiting.text);
            waiting.is_writing = true;
            drop(waiting);
            // Whoever read it may have gone; the drive serves on.
            _ = out.write_all(text.as_bytes());
            waiting = lock(&self.waiting);
            waiting.is_writing = false;
            self.changed.notify_all();
        }
    }

    fn wait_until_written(&self, at_most: Duration) {
        let is_busy = |waiting: &mut Waiting| waiting.is_writing || !waiting.text.is_empty();
        drop(self.changed.wait_timeout_while(lock(&self.waiting), at_most, is_busy));
    }

    /// Of each kind of which the last lines were left out.
    fn say_what_was_left_out(&self) {
        for (budget, metadata) in lock(&self.budgets).values_mut().filter(|(budget, _)| budget.unlogged > 0) {
            let message = "lines of this target and level were left out: peers caused too many of one kind".to_owned();
            let fields = vec![("unlogged", std::mem::take(&mut budget.unlogged).into())];
            self.add(*metadata.level(), metadata.target(), &Said { message, fields });
        }
    }
}

/// One line, with its end.
fn line(format: Format, time: SystemTime, level: Level, target: &str, said: &Said) -> String {
    let time = rfc3339(time);
    match format {
        Format::Json => {
            let mut line = Vec::new();
            let mut serializer = serde_json::Serializer::new(&mut line);
            let level = level.as_str().to_lowercase();
            let head = [("time", &time), ("level", &level), ("target", &target.to_owned()), ("message", &said.message)];
            let mut write = || {
                let mut map = serde::Serializer::serialize_map(&mut serializer, None)?;
                head.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                said.fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            };
            write().expect("text and numbers can be written");
            line.push(b'\n');
            String::from_utf8(line).expect("JSON is text")
        }
        Format::Text => {
            let mut line = format!("{time} {level:<5} {target}: ");
            push_printable(&mut line, &said.message);
            for (name, value) in &said.fields {
                _ = write!(line, " {name}=");
                match value {
                    Value::String(text) if is_a_word(text) => line += text,
                    Value::String(text) => _ = write!(line, "{text:?}"),
                    other => _ = write!(line, "{other}"),
                }
            }
            line.push('\n');
            line
        }
    }
}

/// Whether a value can stand without quotes.
fn is_a_word(text: &str) -> bool {
    let is_plain = |character: char| character.is_alphanumeric() || "-_.,:;/+@%()[]#".contains(character);
    !text.is_empty() && text.chars().all(is_plain)
}

/// A message keeps to its line, and sends a terminal nothing but letters.
fn push_printable(line: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\n' => line.push_str(" | "),
            control if control.is_control() => _ = write!(line, "{}", control.escape_default()),
            other => line.push(other),
        }
    }
}

/// A time as RFC 3339 has it, in UTC, to the microsecond.
fn rfc3339(time: SystemTime) -> String {
    // A clock from before 1970 is set wrong, and no reason to end.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (day, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years that begin in March, so that a leap day is the last of its year; 400 of them have 146,097 days.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (400 * era + year + month / 10, (month + 2) % 12 + 1);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn at(seconds: u64, microseconds: u32) -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds, microseconds * 1000)
    }

    #[test]
    fn times_are_those_that_the_calendar_has() {
        for (seconds, microseconds, expected) in [
            (0, 0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, 999_999, "2000-02-28T23:59:59.999999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_199, 1, "2024-02-29T23:59:59.000001Z"),
            (1_735_689_599, 0, "2024-12-31T23:59:59.000000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(at(seconds, microseconds)), expected);
        }
    }

    #[track_caller]
    fn check(format: Format, said: Said, expected: Expect) {
        expected.assert_eq(&line(format, at(1_700_000_000, 5), Level::WARN, "nvme", &said));
    }

    fn rude() -> Said {
        let fields = vec![
            ("connection", 7.into()),
            ("host", "nqn.a\n2026-01-01 error \u{1b}[2J\"".into()),
            ("peer", "127.0.0.1:4420".into()),
            ("export", "".into()),
            ("torn", true.into()),
        ];
        Said { message: "host refused".to_owned(), fields }
    }

    #[test]
    fn names_that_peers_choose_cannot_forge_lines_or_send_codes_to_a_terminal() {
        check(
            Format::Text,
            rude(),
            expect![[r#"
            2023-11-14T22:13:20.000005Z WARN  nvme: host refused connection=7 host="nqn.a\n2026-01-01 error \u{1b}[2J\"" peer=127.0.0.1:4420 export="" torn=true
        "#]],
        );
        check(
            Format::Json,
            rude(),
            expect![[r#"
            {"time":"2023-11-14T22:13:20.000005Z","level":"warn","target":"nvme","message":"host refused","connection":7,"host":"nqn.a\n2026-01-01 error \u001b[2J\"","peer":"127.0.0.1:4420","export":"","torn":true}
        "#]],
        );
        check(
            Format::Text,
            Said { message: "two\nlines\u{7}".to_owned(), fields: Vec::new() },
            expect![[r#"
            2023-11-14T22:13:20.000005Z WARN  nvme: two | lines\u{7}
        "#]],
        );
    }

    #[test]
    fn levels_are_understood_or_the_wrong_word_is_named() {
        let of = |text: &str, target| Levels::from_str(text).unwrap().of(target);
        assert_eq!(of("debug", "nvme"), LevelFilter::DEBUG);
        assert_eq!(of("info,nvme=trace,nbd=off", "nvme"), LevelFilter::TRACE);
        assert_eq!(of("info,nvme=trace,nbd=off", "nbd"), LevelFilter::OFF);
        assert_eq!(of("info,nvme=trace,nbd=off", "drive"), LevelFilter::INFO);
        assert_eq!(of("nvme=trace", "drive"), LevelFilter::OFF);
        assert_eq!(Levels::from_str("warn,fault=info").unwrap().most(), LevelFilter::INFO);
        let wrong = |text: &str| Levels::from_str(text).unwrap_err();
        assert!(wrong("inof").starts_with("`inof` is no level; write one of off, error, warn"));
        assert!(wrong("").starts_with("`` is no level"));
        assert!(wrong("info,nvm=debug").starts_with("`nvm` is no target; write one of drive, power"));
        assert!(wrong("info,nvme=loud").starts_with("`loud` is no level"));
        assert!(wrong("info,debug").starts_with("`debug` is a second level for all"));
    }

    #[test]
    fn a_kind_of_line_has_some_at_once_and_then_one_now_and_then() {
        let mut budget = Budget::new(Time::ZERO);
        let mut taken = |now: Time, count: u32| -> Vec<u64> { (0..count).filter_map(|_| budget.take(now)).collect() };
        assert_eq!(taken(Time::ZERO, 10_000), vec![0; LINES_AT_ONCE as usize]);
        let left_out = 10_000 - u64::from(LINES_AT_ONCE);
        assert_eq!(taken(Time::ZERO + LINE_EVERY, 3), [left_out]);
        assert_eq!(taken(Time::ZERO + Nanos(4 * LINE_EVERY.0), 9), [2, 0, 0]);
        // However long nothing came, there are no more at once.
        assert_eq!(taken(Time(u64::MAX / 2), 10_000).len(), LINES_AT_ONCE as usize);
    }

    #[test]
    fn a_value_is_cut_where_it_is_too_long_and_not_inside_of_a_letter() {
        #[derive(Debug)]
        struct Long;
        let subscriber = Log { levels: "trace".parse().unwrap(), out: Out::Lines(Arc::new(Lines::new(Format::Json))) };
        let Out::Lines(lines) = &subscriber.out else { unreachable!("made above") };
        let lines = Arc::clone(lines);
        let name = "ä".repeat(VALUE_BYTES_MAX);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "drive", name, long = ?Long, some = Some(1), none = None::<u64>, "opened");
        });
        let text = std::mem::take(&mut lock(&lines.waiting).text);
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["name"], format!("{}…", "ä".repeat(VALUE_BYTES_MAX / 2)));
        assert_eq!((&line["long"], &line["some"], line.get("none")), (&"Long".into(), &1.into(), None));
    }

    #[test]
    fn a_reader_that_does_not_read_costs_lines_that_are_counted_and_no_memory() {
        let lines = Lines::new(Format::Json);
        let said = |message: &str| Said { message: message.to_owned(), fields: Vec::new() };
        let count = 2 * WAITING_BYTES_MAX as u64 / 1000;
        (0..count).for_each(|_| lines.add(Level::INFO, "drive", &said(&"x".repeat(1000))));
        let taken = std::mem::take(&mut lock(&lines.waiting).text);
        assert!(taken.len() <= WAITING_BYTES_MAX);
        let lost = count - taken.lines().count() as u64;
        assert!(lost > 0);
        lines.add(Level::INFO, "drive", &said("room again"));
        let text = std::mem::take(&mut lock(&lines.waiting).text);
        let after: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&after[0]["target"], &after[0]["lines"]), (&"log".into(), &lost.into()));
        assert_eq!(after[1]["message"], "room again");
    }

    #[test]
    fn events_that_peers_cause_are_bounded_and_what_an_operator_does_is_not() {
        let lines = Arc::new(Lines::new(Format::Json));
        let log = Log { levels: "debug".parse().unwrap(), out: Out::Lines(Arc::clone(&lines)) };
        tracing::subscriber::with_default(log, || {
            for connection in 0..1000_u64 {
                tracing::warn!(target: "connection", connection, "connection refused");
                tracing::warn!(target: "fault", block = connection, "fault");
                tracing::trace!(target: "nbd", connection, "not logged at all");
            }
        });
        lines.say_what_was_left_out();
        let text = std::mem::take(&mut lock(&lines.waiting).text);
        let said: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |target: &str| said.iter().filter(|line| line["target"] == target).count() as u64;
        assert_eq!(of("fault"), 1000);
        let last = said.last().unwrap();
        // One more for every ten seconds that this took.
        assert_eq!(of("connection") - 1 + last["unlogged"].as_u64().unwrap(), 1000);
        assert!(of("connection") < 200, "{}", of("connection"));
        assert_eq!(of("nbd"), 0);
    }

    #[test]
    fn what_waits_is_written_before_the_end() {
        let lines = Arc::new(Lines::new(Format::Text));
        let written = Arc::new(Mutex::new(Vec::new()));
        struct Into(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Into {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                lock(&self.0).extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (writing, mut out) = (Arc::clone(&lines), Into(Arc::clone(&written)));
        std::thread::spawn(move || writing.write_out(&mut out));
        for count in 0..100 {
            lines.add(Level::INFO, "drive", &Said { message: format!("line {count}."), fields: Vec::new() });
        }
        lines.wait_until_written(Duration::from_secs(100));
        let text = String::from_utf8(lock(&written).clone()).unwrap();
        assert!(text.lines().zip(0..100).all(|(line, count)| line.ends_with(&format!("drive: line {count}."))));
        assert_eq!(text.lines().count(), 100);
    }
}
