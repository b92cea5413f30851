//! The lines of one client: bytes in, commands out.
//!
//! ```text
//!   input   {"version":1,"command":"stats"}⏎{"version":1,"comm
//!           └─────── take_request ────────┘ └─ waits for more ┘   at most LINE_BYTES_MAX
//! ```

use crate::protocol::{Refusal, RefusalKind, Request, parse_request};

/// The longest line, its end included; a request is far shorter.
pub const LINE_BYTES_MAX: usize = 4096;

/// What one client has said and was not yet taken.
#[derive(Default, Debug)]
pub struct Session {
    input: Vec<u8>,
    /// Bytes of it that hold no end of a line.
    searched: usize,
    is_over: bool,
}

impl Session {
    /// How many bytes may be received now.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.is_over { 0 } else { LINE_BYTES_MAX - self.input.len() }
    }

    /// Takes bytes from the client, no more than there is room for.
    pub fn receive(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.room(), "no more is received than there is room for");
        self.input.extend_from_slice(bytes);
    }

    /// Whether [`Session::take_request`] would bring something.
    #[must_use]
    pub fn has_request(&self) -> bool {
        !self.is_over && (self.room() == 0 || self.input[self.searched..].contains(&b'\n'))
    }

    /// What the next line asks for. Empty lines are passed over.
    pub fn take_request(&mut self) -> Option<Result<Request, Refusal>> {
        while !self.is_over {
            let Some(end) = self.input[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.input.len();
                if self.room() > 0 {
                    return None;
                }
                // Where the next line begins cannot be told without reading on for ever.
                self.is_over = true;
                let what = format_args!("the line is longer than {LINE_BYTES_MAX} bytes").to_string();
                return Some(Err(Refusal::new(RefusalKind::Malformed, what).fix("connect again, and write a request")));
            };
            let line: Vec<u8> = self.input.drain(..=self.searched + end).collect();
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Some(parse_request(&line));
            }
        }
        None
    }

    /// Whether the client has broken a rule, and is listened to no more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Command, request_line};
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Everything that `bytes` say, received in pieces of random length.
    fn said(bytes: &[u8], chance: &mut Xoshiro256PlusPlus) -> (Vec<Result<Request, Refusal>>, Session) {
        let (mut session, mut said, mut bytes) = (Session::default(), Vec::new(), bytes);
        while !bytes.is_empty() && !session.is_over() {
            let most = session.room().min(bytes.len());
            let (piece, rest) = bytes.split_at(1 + chance.next_u64() as usize % most);
            session.receive(piece);
            bytes = rest;
            while session.has_request() {
                said.extend(session.take_request());
            }
            assert_eq!(session.take_request(), None);
        }
        (said, session)
    }

    #[test]
    fn lines_are_understood_however_they_arrive() {
        let commands = [Command::Stats {}, Command::FailRead { block: 3 }, Command::PowerOn {}].map(Request::from);
        let lines = commands.each_ref().map(|request| [b"\n \r\n".to_vec(), request_line(request)].concat()).concat();
        for seed in 0..50 {
            let (said, session) = said(&lines, &mut Xoshiro256PlusPlus::seed_from_u64(seed));
            assert!(said.into_iter().map(Result::unwrap).eq(commands.clone()));
            assert_eq!(session.room(), LINE_BYTES_MAX);
        }
    }

    #[test]
    fn a_line_without_end_is_refused_once_and_ends_the_session() {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
        let (said, session) = said(&[b' '; 3 * LINE_BYTES_MAX], &mut chance);
        assert_eq!(said.len(), 1);
        assert!(said[0].as_ref().unwrap_err().message.contains("longer than 4096 bytes"));
        assert!(session.is_over() && session.room() == 0 && !session.has_request());
    }

    #[test]
    fn a_broken_line_does_not_spoil_the_next_one() {
        let lines = [b"{\"version\":\n\xFF\xFE\n".to_vec(), request_line(&Command::Stats {}.into())].concat();
        let (said, _) = said(&lines, &mut Xoshiro256PlusPlus::seed_from_u64(2));
        assert_eq!(said.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn no_damage_to_a_request_does_more_than_refuse_it() {
        let commands = [
            Command::PowerCut(crate::protocol::Cut { torn: true, seed: Some(5), after: None }),
            Command::Wear { chunk: "g1p2c3".parse().unwrap(), resets: 1 },
            Command::LieAboutFlush { on: false },
        ]
        .map(Request::from)
        .map(|request| Request { namespace: Some("database".to_owned()), ..request });
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(3);
        for round in 0..20_000 {
            let mut line = request_line(&commands[round % commands.len()]);
            for _ in 0..1 + chance.next_u64() % 4 {
                let (at, byte) = (chance.next_u64() as usize % line.len(), chance.next_u64() as u8);
                match chance.next_u64() % 3 {
                    0 => line[at] = byte,
                    1 => line.insert(at, byte),
                    _ => drop(line.remove(at)),
                }
            }
            for result in said(&line, &mut chance).0 {
                match result {
                    // What is still understood is a command that can be written down.
                    Ok(request) => assert_eq!(parse_request(&request_line(&request)), Ok(request)),
                    Err(refusal) => assert_eq!(refusal.kind, RefusalKind::Malformed),
                }
            }
        }
    }
}
