//! A step of a run, in memory and in the few letters that a history is written in.
//!
//! | letters | step |
//! |---|---|
//! | `w12+8`, `W12+8` | write 8 blocks from block 12 on; durably |
//! | `u12+8`, `U12+8` | write them as uncorrectable; durably |
//! | `t12+8`, `T12+8` | trim them; durably |
//! | `r12+8` | read them |
//! | `h3` | writes carry handle 3 from here on; 0: none |
//! | `a12+8` | announce blocks 12 to 19 as one object (FlashAlloc) |
//! | `b3+40` | begin a table; the first number says how long it is to live, the second its blocks at most (0: unknown) |
//! | `p3+12` | append 12 blocks to one of those being written; the first number picks the table, counted round |
//! | `e3+90` | end one, with a note of 90 bytes |
//! | `g3+0` | give one up that is being written |
//! | `n3+90` | note something else of one that is in the catalog |
//! | `d3+0` | delete one |
//! | `k3+0`, `l3+0` | keep one readable, let it go |
//! | `q3+8` | read 8 blocks of one that can be read |
//! | `m3+90`, `v3+0` | put an entry without a table: a new one if the number is even; delete one |
//! | `A3+12`, `D3+12` | append 12 blocks to zone 3; durably |
//! | `S3+12` | write them at its write pointer |
//! | `Q3+12` | read 12 blocks of it; which, follows from how often the number goes round all zones |
//! | `O3+0`, `C3+0`, `F3+0`, `R3+0` | open it, close it, finish it, reset it |
//! | `jwrite37` | something is asked of a file system; which file and how much, is drawn from the number 37 |
//! | `f` | flush |
//! | `s` | wait until no request is under way |
//! | `i500` | let 500 µs pass |
//! | `o7` | from its next opening on the drive has other settings, drawn from the number 7; 0: those it had first |
//! | `c` | close the drive and open it again |
//! | `x37` | the FTL is gone 37 events from here, and the power with it |
//! | `x37+2t` | the power goes two instants of the device later, and tears what is being programmed |
//! | `x37~81` | what becomes of each die is drawn from the number 81: see [`Fates`] |
//! | `x37/5/9t` | the recovery is cut too, after 5 events, and the next one, after 9 |
//! | `!lose7` | a fault: see [`Fault`] |

use crate::fate::Fates;
use crate::fault::Fault;
use crate::file_steps::FileAct;
use openftl_parts::Durability;
use std::fmt;
use std::str::FromStr;

/// A range of logical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first.
    pub first: u64,
    /// How many.
    pub blocks: u64,
}

/// When the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Events until the FTL is gone.
    pub events: u64,
    /// Instants of the device from then on until the power is gone, counted round.
    pub later: u32,
    /// Whether what is being programmed then is torn.
    pub torn: bool,
    /// What becomes of each die, if not the same of all.
    pub fates: Option<Fates>,
}

impl Moment {
    /// At once.
    pub const NOW: Moment = Moment { events: 0, later: 0, torn: false, fates: None };
}

/// What is done with tables, by letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeedKind {
    /// One is begun.
    Begin,
    /// Blocks are appended to one.
    Append,
    /// One is ended and put into the catalog.
    Commit,
    /// One is given up.
    Abandon,
    /// Something else is noted of one.
    Note,
    /// One is deleted.
    Delete,
    /// One stays readable when it is deleted.
    Pin,
    /// Once less than before.
    Unpin,
    /// Blocks of one are read.
    Read,
    /// An entry without a table is put.
    PutFile,
    /// Such an entry is deleted.
    DeleteFile,
}

impl DeedKind {
    /// All of them, with the letter that each is written by.
    pub const ALL: [(DeedKind, char); 11] = [
        (DeedKind::Begin, 'b'),
        (DeedKind::Append, 'p'),
        (DeedKind::Commit, 'e'),
        (DeedKind::Abandon, 'g'),
        (DeedKind::Note, 'n'),
        (DeedKind::Delete, 'd'),
        (DeedKind::Pin, 'k'),
        (DeedKind::Unpin, 'l'),
        (DeedKind::Read, 'q'),
        (DeedKind::PutFile, 'm'),
        (DeedKind::DeleteFile, 'v'),
    ];
}

/// Something that is done with a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deed {
    /// What.
    pub kind: DeedKind,
    /// Picks the table, counted round among those that it may be done with.
    pub pick: u32,
    /// Blocks, or bytes of a note.
    pub size: u32,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, letter) = DeedKind::ALL.into_iter().find(|(kind, _)| *kind == self.kind).expect("all kinds are listed");
        write!(f, "{letter}{}+{}", self.pick, self.size)
    }
}

/// What is done with zones, by letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneDeedKind {
    /// Blocks are appended.
    Append,
    /// Blocks are appended, durably.
    AppendDurably,
    /// Blocks are written at the write pointer.
    Write,
    /// Blocks are read.
    Read,
    /// It is opened.
    Open,
    /// It is opened with a window.
    OpenWithWindow,
    /// Blocks of its window are committed.
    Commit,
    /// It is closed.
    Close,
    /// It is finished.
    Finish,
    /// It is reset.
    Reset,
}

impl ZoneDeedKind {
    /// All of them, with the letter that each is written by.
    pub const ALL: [(ZoneDeedKind, char); 10] = [
        (ZoneDeedKind::Append, 'A'),
        (ZoneDeedKind::AppendDurably, 'D'),
        (ZoneDeedKind::Write, 'S'),
        (ZoneDeedKind::Read, 'Q'),
        (ZoneDeedKind::Open, 'O'),
        (ZoneDeedKind::OpenWithWindow, 'Z'),
        (ZoneDeedKind::Commit, 'K'),
        (ZoneDeedKind::Close, 'C'),
        (ZoneDeedKind::Finish, 'F'),
        (ZoneDeedKind::Reset, 'R'),
    ];
}

/// Something that is done with a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneDeed {
    /// What.
    pub kind: ZoneDeedKind,
    /// Picks the zone, counted round.
    pub pick: u32,
    /// Blocks.
    pub size: u32,
}

impl fmt::Display for ZoneDeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = ZoneDeedKind::ALL.into_iter().find(|(kind, _)| *kind == self.kind);
        write!(f, "{}{}+{}", listed.expect("all kinds are listed").1, self.pick, self.size)
    }
}

/// Something that is asked of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileDeed {
    /// What.
    pub act: FileAct,
    /// Of which file, and how much: drawn from this number when it comes to it.
    pub pick: u32,
}

impl fmt::Display for FileDeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "j{}{}", self.act, self.pick)
    }
}

/// What happens next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A write is submitted.
    Write(Range, Durability),
    /// A write of uncorrectable blocks is submitted.
    WriteUncorrectable(Range, Durability),
    /// A trim is submitted.
    Trim(Range, Durability),
    /// A read is submitted.
    Read(Range),
    /// Writes carry this handle from here on.
    Handle(u8),
    /// An object is announced.
    Announce(Range),
    /// Something is done with a table.
    Table(Deed),
    /// Something is done with a zone.
    Zone(ZoneDeed),
    /// Something is asked of a file system.
    File(FileDeed),
    /// A flush is submitted.
    Flush,
    /// All requests end.
    Settle,
    /// Time passes, in microseconds.
    Idle(u64),
    /// From its next opening on the drive has other settings, drawn from this number; 0: those that it was made with.
    Settings(u32),
    /// The drive is closed and opened again.
    Restart,
    /// The power is cut, during what follows. Then each recovery is, but for the last.
    Cut {
        /// When.
        at: Moment,
        /// And when during the recoveries.
        recoveries: Vec<Moment>,
    },
    /// Something goes wrong on the medium.
    Fault(Fault),
}

impl Step {
    /// The blocks that a request names.
    #[must_use]
    pub fn range(&self) -> Option<Range> {
        match self {
            Step::Write(range, _)
            | Step::WriteUncorrectable(range, _)
            | Step::Trim(range, _)
            | Step::Announce(range)
            | Step::Read(range) => Some(*range),
            _ => None,
        }
    }

    /// The same request for other blocks.
    #[must_use]
    pub fn with_range(&self, range: Range) -> Step {
        match self {
            Step::Write(_, durability) => Step::Write(range, *durability),
            Step::WriteUncorrectable(_, durability) => Step::WriteUncorrectable(range, *durability),
            Step::Trim(_, durability) => Step::Trim(range, *durability),
            Step::Read(_) => Step::Read(range),
            Step::Announce(_) => Step::Announce(range),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.first, self.blocks)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.events)?;
        if self.later > 0 {
            write!(f, "+{}", self.later)?;
        }
        if let Some(Fates(number)) = self.fates {
            write!(f, "~{number}")?;
        }
        f.write_str(if self.torn { "t" } else { "" })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Write(range, Durability::Volatile) => write!(f, "w{range}"),
            Step::Write(range, Durability::Durable) => write!(f, "W{range}"),
            Step::WriteUncorrectable(range, Durability::Volatile) => write!(f, "u{range}"),
            Step::WriteUncorrectable(range, Durability::Durable) => write!(f, "U{range}"),
            Step::Trim(range, Durability::Volatile) => write!(f, "t{range}"),
            Step::Trim(range, Durability::Durable) => write!(f, "T{range}"),
            Step::Read(range) => write!(f, "r{range}"),
            Step::Handle(handle) => write!(f, "h{handle}"),
            Step::Announce(range) => write!(f, "a{range}"),
            Step::Table(deed) => write!(f, "{deed}"),
            Step::Zone(deed) => write!(f, "{deed}"),
            Step::File(deed) => write!(f, "{deed}"),
            Step::Flush => write!(f, "f"),
            Step::Settle => write!(f, "s"),
            Step::Idle(micros) => write!(f, "i{micros}"),
            Step::Settings(number) => write!(f, "o{number}"),
            Step::Restart => write!(f, "c"),
            Step::Cut { at, recoveries } => {
                write!(f, "x{at}")?;
                recoveries.iter().try_for_each(|moment| write!(f, "/{moment}"))
            }
            Step::Fault(fault) => write!(f, "!{fault}"),
        }
    }
}

/// Letters that name no step.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no step; steps look like w12+8, f, x37+2t, !lose7 (docs/SIMULATION.md)")]
pub struct NoStep(String);

impl FromStr for Range {
    type Err = ();

    fn from_str(text: &str) -> Result<Range, ()> {
        let (first, blocks) = text.split_once('+').ok_or(())?;
        Ok(Range { first: number(first)?, blocks: number(blocks)? })
    }
}

impl FromStr for Moment {
    type Err = ();

    fn from_str(text: &str) -> Result<Moment, ()> {
        let (text, torn) = text.strip_suffix('t').map_or((text, false), |text| (text, true));
        let (text, fates) = match text.split_once('~') {
            Some((text, fates)) => (text, Some(Fates(number(fates)?))),
            None => (text, None),
        };
        let (events, later) = text.split_once('+').unwrap_or((text, "0"));
        Ok(Moment { events: number(events)?, later: number(later)?, torn, fates })
    }
}

fn number<N: FromStr>(text: &str) -> Result<N, ()> {
    text.parse().map_err(|_| ())
}

impl FromStr for Step {
    type Err = NoStep;

    fn from_str(text: &str) -> Result<Step, NoStep> {
        parse(text).map_err(|()| NoStep(text.to_owned()))
    }
}

fn parse(text: &str) -> Result<Step, ()> {
    let kind = text.chars().next().ok_or(())?;
    let rest = &text[kind.len_utf8()..];
    let alone = |step: Step| if rest.is_empty() { Ok(step) } else { Err(()) };
    match kind {
        'w' => Ok(Step::Write(rest.parse()?, Durability::Volatile)),
        'W' => Ok(Step::Write(rest.parse()?, Durability::Durable)),
        'u' => Ok(Step::WriteUncorrectable(rest.parse()?, Durability::Volatile)),
        'U' => Ok(Step::WriteUncorrectable(rest.parse()?, Durability::Durable)),
        't' => Ok(Step::Trim(rest.parse()?, Durability::Volatile)),
        'T' => Ok(Step::Trim(rest.parse()?, Durability::Durable)),
        'r' => Ok(Step::Read(rest.parse()?)),
        'h' => Ok(Step::Handle(number(rest)?)),
        'a' => Ok(Step::Announce(rest.parse()?)),
        'f' => alone(Step::Flush),
        'j' => {
            let digits = rest.find(|letter: char| letter.is_ascii_digit()).ok_or(())?;
            let (act, pick) = rest.split_at(digits);
            Ok(Step::File(FileDeed { act: act.parse().map_err(|_| ())?, pick: number(pick)? }))
        }
        's' => alone(Step::Settle),
        'i' => Ok(Step::Idle(number(rest)?)),
        'o' => Ok(Step::Settings(number(rest)?)),
        'c' => alone(Step::Restart),
        'x' => {
            let mut moments = rest.split('/').map(str::parse);
            let at = moments.next().ok_or(())??;
            Ok(Step::Cut { at, recoveries: moments.collect::<Result<_, ()>>()? })
        }
        '!' => Ok(Step::Fault(rest.parse()?)),
        letter => {
            let (pick, size) = rest.split_once('+').ok_or(())?;
            let (pick, size) = (number(pick)?, number(size)?);
            if let Some((kind, _)) = ZoneDeedKind::ALL.into_iter().find(|(_, other)| *other == letter) {
                return Ok(Step::Zone(ZoneDeed { kind, pick, size }));
            }
            let (kind, _) = DeedKind::ALL.into_iter().find(|(_, other)| *other == letter).ok_or(())?;
            Ok(Step::Table(Deed { kind, pick, size }))
        }
    }
}

/// Steps as they are written: with spaces or ends of lines between them.
///
/// # Errors
/// The first that is none.
pub fn parse_steps(text: &str) -> Result<Vec<Step>, NoStep> {
    text.split_whitespace().map(str::parse).collect()
}

/// The other way round.
#[must_use]
pub fn write_steps(steps: &[Step]) -> String {
    steps.iter().map(Step::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_back_as_they_were_written() {
        let text = "b3+40 p0+12 e1+90 g0+0 n2+12 d3+0 k0+0 l0+0 q7+8 m1+12 v0+0 A3+12 D0+1 S2+9 Q31+8 O1+0 C1+0 F2+0 R3+0 jmake3 jrename-no-replace0 jsync17 w12+8 W0+1 u2+1 U9+3 t3+4 T5+6 r7+8 h3 a9+10 f s i500 c o7 x37 x37+2t x37~81 x3+1~0t x0/5/9+1t !lose7 !program0 !offline12";
        assert_eq!(write_steps(&parse_steps(text).unwrap()), text);
    }

    #[test]
    fn what_is_no_step_is_named() {
        for text in ["y", "p3", "j3", "jburn3", "jmake", "w12", "w12+", "f1", "x", "x5/", "!burn3", "!lose", "i", "ü3"]
        {
            assert_eq!(parse_steps(text), Err(NoStep(text.to_owned())), "{text}");
        }
    }
}
