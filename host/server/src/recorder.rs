//! What hosts ask of blocks and of zones while they are served, written down as fio's I/O log of version 3: a load that can be
//! played on any other drive.
//!
//! ```text
//!   fio version 3 iolog
//!   2107 disk add                      a namespace, before its first request
//!   2107 disk open
//!   2107 disk write 1048576 65536      microseconds since the server began, namespace, first byte, bytes
//!   2109 disk datasync 0 0
//! ```
//!
//! | asked for | written down as |
//! |---|---|
//! | a read, a write, a flush | `read`, `write`, `datasync` |
//! | a durable write | `write`, and `datasync` behind it |
//! | a trim, zeroes | `trim` |
//! | Compare and Write, fused | `read`, and `write` once it is written |
//! | an append to a zone | `write`, at the address that it got |
//! | a reset of a zone, of all zones | `trim` of the zone, of all |
//!
//! A request stands where the drive got it, so writes to a zone are in their order. What zones refuse is left out; what blocks or segments
//! refuse is not. Zones follow each other there without the gaps of their addresses, as segments do: see [`openftl_segments`]. Left out are
//! other actions on zones, descriptor extensions, FlashAlloc, Write Uncorrectable, and what hosts say of lifetimes.
//!
//! A server that is killed leaves a log that ends too early, and never in the middle of a line.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use openftl_bytes::ByteRequest;
use openftl_bytes::zones::ZoneAsk;
use openftl_core::{BLOCK_BYTES, Time};
use openftl_parts::target::Durability;
use openftl_zones::{Action, ZoneFtl};
use tracing::error;

/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes down what hosts ask.
pub struct Recorder {
    state: Mutex<State>,
}

struct State {
    out: BufWriter<Box<dyn Write + Send>>,
    /// What the log calls each namespace, and whether it has said so.
    names: Vec<(String, bool)>,
    requests: u64,
    /// The lines of a request, which go to the log as one.
    text: String,
    /// Why it stopped.
    failure: Option<io::Error>,
}

/// What is written down of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    word: &'static str,
    offset: u64,
    length: u64,
    is_durable: bool,
}

impl Line {
    pub const FLUSH: Line = Line { word: "datasync", offset: 0, length: 0, is_durable: false };

    fn plain(word: &'static str, offset: u64, length: u64) -> Line {
        Line { word, offset, length, is_durable: false }
    }

    fn of_blocks(word: &'static str, first: u64, blocks: u64) -> Line {
        Line::plain(word, first * BLOCK_BYTES as u64, blocks * BLOCK_BYTES as u64)
    }

    fn made(self, durability: Durability) -> Line {
        Line { is_durable: durability == Durability::Durable, ..self }
    }

    /// The write of an exchange that has been read.
    pub fn of_exchange(request: ByteRequest) -> Option<Line> {
        let ByteRequest::Exchange { offset, length, durability, .. } = request else { return None };
        Some(Line::plain("write", offset, length).made(durability))
    }

    /// Of a request for bytes that starts.
    pub fn of_bytes(request: ByteRequest) -> Option<Line> {
        Some(match request {
            ByteRequest::Read { offset, length } | ByteRequest::Exchange { offset, length, .. } => {
                Line::plain("read", offset, length)
            }
            ByteRequest::Write { offset, length, durability, .. } => {
                Line::plain("write", offset, length).made(durability)
            }
            ByteRequest::Zero { offset, length, durability } | ByteRequest::Trim { offset, length, durability } => {
                Line::plain("trim", offset, length).made(durability)
            }
            ByteRequest::Flush => Line::FLUSH,
            ByteRequest::WriteUncorrectable { .. } | ByteRequest::FlashAlloc => return None,
        })
    }

    /// Of a request for zones that is about to start.
    pub fn of_zones(ask: ZoneAsk, drive: &ZoneFtl) -> Option<Line> {
        let layout = drive.layout();
        let capacity = u64::from(layout.capacity);
        let place = |block: u64| block / layout.size * capacity + block % layout.size;
        Some(match ask {
            ZoneAsk::Read { first, blocks } => Line::of_blocks("read", place(first), blocks.into()),
            ZoneAsk::Write { first, blocks, durability } => {
                Line::of_blocks("write", place(first), blocks.into()).made(durability)
            }
            ZoneAsk::Append { zone, blocks, durability } => {
                let index = zone / layout.size;
                if index >= u64::from(layout.zones) {
                    return None;
                }
                let written = u64::from(drive.board().zone(index as u32).written);
                Line::of_blocks("write", index * capacity + written, blocks.into()).made(durability)
            }
            ZoneAsk::Act { zone, action: Action::Reset } => Line::of_blocks("trim", place(zone), capacity),
            ZoneAsk::ActOnAll { action: Action::Reset } => {
                Line::of_blocks("trim", 0, u64::from(layout.zones) * capacity)
            }
            ZoneAsk::Flush => Line::FLUSH,
            ZoneAsk::Act { .. }
            | ZoneAsk::ActOnAll { .. }
            | ZoneAsk::OpenWithWindow { .. }
            | ZoneAsk::Commit { .. }
            | ZoneAsk::Extend { .. } => return None,
        })
    }
}

impl Recorder {
    /// Writes down to `out` what is asked of namespaces of these names, in the order in which they are served. Spaces in names
    /// become underscores.
    ///
    /// # Errors
    /// If `out` takes nothing.
    pub fn new(names: &[String], out: Box<dyn Write + Send>) -> io::Result<Recorder> {
        let word = |name: &String| (name.replace(char::is_whitespace, "_"), false);
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
        out.write_all(b"fio version 3 iolog\n")?;
        out.flush()?;
        let names = names.iter().map(word).collect();
        Ok(Recorder { state: Mutex::new(State { out, names, requests: 0, text: String::new(), failure: None }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A namespace got a request.
    pub(crate) fn record(&self, namespace: usize, now: Time, line: Line) {
        let mut state = self.state();
        if state.failure.is_some() {
            return;
        }
        if let Err(error) = state.write(namespace, now, line) {
            error!(target: "drive", %error, requests = state.requests, "the recording ends here: it cannot be written");
            state.failure = Some(error);
        }
    }

    /// Writes what is left, and returns how many requests were written down.
    ///
    /// # Errors
    /// If they could not all be written.
    pub fn finish(&self) -> io::Result<u64> {
        let mut state = self.state();
        match state.failure.take() {
            Some(error) => Err(error),
            None => state.out.flush().map(|()| state.requests),
        }
    }
}

impl State {
    fn write(&mut self, namespace: usize, now: Time, line: Line) -> io::Result<()> {
        let State { out, names, requests, text, .. } = self;
        let Some((name, is_known)) = names.get_mut(namespace) else { return Ok(()) };
        let micros = now.0 / 1_000;
        text.clear();
        if !std::mem::replace(is_known, true) {
            _ = writeln!(text, "{micros} {name} add\n{micros} {name} open");
        }
        let Line { word, offset, length, is_durable } = line;
        _ = writeln!(text, "{micros} {name} {word} {offset} {length}");
        if is_durable {
            _ = writeln!(text, "{micros} {name} datasync 0 0");
        }
        out.write_all(text.as_bytes())?;
        *requests += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_parts::words::Handle;
    use std::sync::Arc;

    /// Room for so many bytes, which the test looks at.
    #[derive(Clone, Default)]
    struct Paper {
        bytes: Arc<Mutex<Vec<u8>>>,
        most: Option<usize>,
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.bytes.lock().unwrap();
            if self.most.is_some_and(|most| written.len() + bytes.len() > most) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            written.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn recorder(paper: &Paper) -> Recorder {
        Recorder::new(&["a disk".to_owned(), "other".to_owned()], Box::new(paper.clone())).unwrap()
    }

    #[test]
    fn each_namespace_is_named_before_its_first_request() {
        let paper = Paper::default();
        let recorder = recorder(&paper);
        let write =
            ByteRequest::Write { offset: 512, length: 4096, durability: Durability::Durable, handle: Handle(0) };
        recorder.record(0, Time(7_900), Line::of_bytes(write).unwrap());
        recorder.record(1, Time(8_000), Line::FLUSH);
        recorder.record(0, Time(9_000), Line::of_bytes(ByteRequest::Read { offset: 0, length: 8192 }).unwrap());
        let exchange =
            ByteRequest::Exchange { offset: 0, length: 512, durability: Durability::Volatile, handle: Handle(0) };
        recorder.record(1, Time(9_000), Line::of_bytes(exchange).unwrap());
        recorder.record(1, Time(9_000), Line::of_exchange(exchange).unwrap());
        assert_eq!((Line::of_exchange(write), Line::of_bytes(ByteRequest::FlashAlloc)), (None, None));
        assert_eq!(recorder.finish().unwrap(), 5);
        let text = String::from_utf8(paper.bytes.lock().unwrap().clone()).unwrap();
        let expected = [
            "fio version 3 iolog",
            "7 a_disk add",
            "7 a_disk open",
            "7 a_disk write 512 4096",
            "7 a_disk datasync 0 0",
            "8 other add",
            "8 other open",
            "8 other datasync 0 0",
            "9 a_disk read 0 8192",
            "9 other read 0 512",
            "9 other write 0 512",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_recording_that_cannot_be_written_ends_and_says_so() {
        let paper = Paper { most: Some(BUFFER_BYTES), ..Paper::default() };
        let recorder = recorder(&paper);
        for at in 0..10_000 {
            recorder.record(0, Time(at), Line::of_blocks("write", at, 1));
        }
        assert_eq!(paper.bytes.lock().unwrap().last(), Some(&b'\n'), "no line is cut");
        assert_eq!(recorder.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
