//! What a program committed to a store of pages: a recording of its batches, without the bytes of pages.
//!
//! ```text
//!   OpenFTL page trace 1: sqlite lz4, 500 transactions     a line of text
//!   token token token …                                    bytes
//!
//!   token   0 n change…     a batch of n changes, volatile
//!           1 n change…     the same, durable
//!           2               all that was committed before is to be durable
//!           3 n             a phase ends, in which the program changed n bytes
//!
//!   change  d n             page LPID + d has n bytes from now on; 0: there is none
//! ```
//!
//! Numbers have seven bits a byte, the lowest first. `d` is counted from the page of the change before, in this batch or the last one; its lowest bit
//! is its sign. All is of one session.

use openftl_parts::Durability;

const VOLATILE: u8 = 0;
const DURABLE: u8 = 1;
const SYNC: u8 = 2;
const PHASE: u8 = 3;

const SHOWN: &str = "OpenFTL page trace 1: ";

/// Bytes of the first line, at most.
const LINE_MAX: usize = 256;

/// Why there is no recording.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPageTrace {
    /// Its first line says something else.
    #[error("the first line of a recording of batches begins with `{SHOWN}`, and this one is {line:?}")]
    Head {
        /// The line.
        line: String,
    },
    /// A token is none.
    #[error("byte {at} of the recording of batches: there is no such token, or it ends too early")]
    Token {
        /// Counted from its beginning.
        at: usize,
    },
}

/// A change of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageChange {
    /// Its number.
    pub lpid: u64,
    /// Its bytes from now on; 0: it is deleted.
    pub bytes: u32,
}

/// What was recorded next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageStep {
    /// A batch.
    Batch {
        /// What it changes.
        changes: Vec<PageChange>,
        /// When it is acknowledged.
        durability: Durability,
    },
    /// All that was committed before is to be durable.
    Sync,
    /// A phase ends, in which the program changed so many bytes.
    Phase {
        /// So many.
        bytes: u64,
    },
}

/// A recording that is played.
#[derive(Clone, Debug)]
pub struct PageTrace<'a> {
    about: String,
    bytes: &'a [u8],
    at: usize,
    lpid: u64,
}

impl<'a> PageTrace<'a> {
    /// A recording, from its beginning.
    ///
    /// # Errors
    /// If it is none.
    pub fn new(bytes: &'a [u8]) -> Result<PageTrace<'a>, BadPageTrace> {
        let end = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
        let line = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len().min(80))]).into_owned();
        match (end, line.strip_prefix(SHOWN)) {
            (Some(end), Some(about)) => Ok(PageTrace { about: about.to_owned(), bytes, at: end + 1, lpid: 0 }),
            _ => Err(BadPageTrace::Head { line }),
        }
    }

    /// What it is of, in words.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn change(&mut self) -> Option<PageChange> {
        let step = self.number()?;
        let away = step >> 1;
        self.lpid = if step & 1 == 0 { self.lpid.checked_add(away)? } else { self.lpid.checked_sub(away)? };
        Some(PageChange { lpid: self.lpid, bytes: self.number()?.try_into().ok()? })
    }

    fn token(&mut self) -> Option<PageStep> {
        match self.number()?.try_into().ok()? {
            token @ (VOLATILE | DURABLE) => {
                let count = self.number()?;
                let changes = (0..count).map(|_| self.change()).collect::<Option<Vec<PageChange>>>()?;
                let durability = if token == DURABLE { Durability::Durable } else { Durability::Volatile };
                Some(PageStep::Batch { changes, durability })
            }
            SYNC => Some(PageStep::Sync),
            PHASE => Some(PageStep::Phase { bytes: self.number()? }),
            _ => None,
        }
    }

    /// What comes next; `None`: it is over.
    ///
    /// # Errors
    /// If it is not as the module says.
    pub fn read_next(&mut self) -> Result<Option<PageStep>, BadPageTrace> {
        let at = self.at;
        if at == self.bytes.len() {
            return Ok(None);
        }
        self.token().map(Some).ok_or(BadPageTrace::Token { at })
    }
}

/// A recording that is made.
#[derive(Clone, Debug)]
pub struct PageRecorder {
    bytes: Vec<u8>,
    lpid: u64,
}

impl PageRecorder {
    /// A recording of nothing so far; `about` says in a line of words what it is of.
    ///
    /// # Panics
    /// If the line is too long, or more than one.
    #[must_use]
    pub fn new(about: &str) -> PageRecorder {
        assert!(about.len() + SHOWN.len() < LINE_MAX && !about.contains('\n'), "a line of words: {about:?}");
        PageRecorder { bytes: format!("{SHOWN}{about}\n").into_bytes(), lpid: 0 }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 & 0x7F | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Adds what was done.
    pub fn add(&mut self, step: &PageStep) {
        match step {
            PageStep::Batch { changes, durability } => {
                self.bytes.push(if *durability == Durability::Durable { DURABLE } else { VOLATILE });
                self.number(changes.len() as u64);
                for change in changes {
                    let away = change.lpid.abs_diff(self.lpid);
                    assert!(away < 1 << 62, "pages of a program are nearer to each other: {change:?}");
                    self.number(away << 1 | u64::from(change.lpid < self.lpid));
                    self.number(change.bytes.into());
                    self.lpid = change.lpid;
                }
            }
            PageStep::Sync => self.bytes.push(SYNC),
            PageStep::Phase { bytes } => {
                self.bytes.push(PHASE);
                self.number(*bytes);
            }
        }
    }

    /// The recording.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Vec<PageStep> {
        let change = |lpid, bytes| PageChange { lpid, bytes };
        vec![
            PageStep::Batch {
                changes: vec![change(1 << 32 | 5, 4096), change(1 << 32, 0), change(7, 130)],
                durability: Durability::Durable,
            },
            PageStep::Sync,
            PageStep::Phase { bytes: 1 << 40 },
            PageStep::Batch { changes: vec![change(8, 1)], durability: Durability::Volatile },
        ]
    }

    #[test]
    fn a_recording_is_played_as_it_was_made() {
        let mut recorder = PageRecorder::new("two batches");
        steps().iter().for_each(|step| recorder.add(step));
        let bytes = recorder.finish();
        let mut trace = PageTrace::new(&bytes).unwrap();
        assert_eq!(trace.about(), "two batches");
        assert_eq!(std::iter::from_fn(|| trace.read_next().unwrap()).collect::<Vec<_>>(), steps());
    }

    #[test]
    fn what_is_no_recording_of_batches_is_refused() {
        assert!(matches!(PageTrace::new(b"something else\n"), Err(BadPageTrace::Head { .. })));
        assert!(matches!(PageTrace::new(SHOWN.as_bytes()), Err(BadPageTrace::Head { .. })));
        let whole = PageRecorder::new("nothing").finish();
        let at = whole.len();
        for wrong in [&[4_u8][..], &[DURABLE, 1, 8], &[VOLATILE, 1, 1 << 1 | 1, 5], &[PHASE, 0x80]] {
            let bytes = [&whole, wrong].concat();
            assert_eq!(PageTrace::new(&bytes).unwrap().read_next(), Err(BadPageTrace::Token { at }), "{wrong:?}");
        }
    }
}
