//! Requests and responses: one JSON object each, on a line of its own.
//!
//! ```text
//!   → {"version":1,"command":"fail-read","block":7}
//!   → {"version":1,"command":"fail-read","block":7,"namespace":"database"}
//!   ← {"version":1,"ok":{"message":"…","place":"g0p1c3b12"}}
//!   ← {"version":1,"error":{"kind":"out-of-range","message":"…","fix":"…"}}
//! ```
//!
//! A client has one request at a time answered, in the order of its lines. Every answer carries a `message` for people;
//! scripts read the other fields. New fields may be added to answers within a version, so whoever reads them leaves alone
//! what it does not know; a request with an unknown field is refused.

use openftl_core::ChunkName;
use openftl_core::word::plainly;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of this protocol.
pub const VERSION: u64 = 1;

/// What is asked, and of which namespace.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What.
    #[serde(flatten)]
    pub command: Command,
    /// The namespace's name or id, where there are several or the command needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl From<Command> for Request {
    fn from(command: Command) -> Request {
        Request { command, namespace: None }
    }
}

/// What may be asked.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Cuts the power.
    PowerCut(Cut),
    /// Turns it on again, and recovers the drive.
    PowerOn {},
    /// Both, with nothing in between.
    PowerCycle(Cut),
    /// A logical block cannot be read from the medium any more.
    FailRead {
        /// The logical block of 4 KiB.
        block: u64,
    },
    /// The next program operation fails.
    FailProgram {
        /// On this chunk; on whichever comes next if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chunk: Option<ChunkName>,
        /// And closes the chunk.
        #[serde(default)]
        close: bool,
    },
    /// Turns one bit of a logical block on the medium.
    Corrupt {
        /// The logical block of 4 KiB.
        block: u64,
    },
    /// Makes a chunk look as if it had been erased so many times.
    Wear {
        /// The chunk.
        chunk: ChunkName,
        /// The times.
        resets: u32,
    },
    /// Acknowledges flushes and durable writes at once from now on, or does no longer.
    LieAboutFlush {
        /// Whether it lies.
        on: bool,
    },
    /// Has NVMe hosts see the namespace again.
    Attach {},
    /// Has NVMe hosts see the namespace no longer.
    Detach {},
    /// What the drive has done since it was opened.
    Stats {},
    /// What the drive holds, chunk by chunk. An answer has a bounded number of chunks, so that one asks again for those behind.
    Inspect {
        /// Of the chunks the first that is wanted; what is not about single chunks comes with the first of all.
        #[serde(default)]
        first_chunk: u64,
        /// Whether the message is for a terminal with colours.
        #[serde(default)]
        colour: bool,
    },
}

/// When and how the power goes.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Units that are being programmed are left torn, where the device does not protect its cache.
    #[serde(default)]
    pub torn: bool,
    /// Chooses a moment soon after the request, and whether units are torn. Without it the power goes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Waits for so much before the power goes. Not together with a seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<After>,
}

/// What a power cut waits for: a moment that a host can repeat.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// So many more writes of hosts have ended. Whether the last of them is answered is not certain.
    Writes(u64),
    /// So many more flushes of hosts have ended.
    Flushes(u64),
    /// The device has had so many more commands.
    Commands(u64),
}

/// What came of a request that was carried out.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Answer {
    /// What happened, in words for people.
    pub message: String,
    /// What happened, for scripts.
    #[serde(flatten)]
    pub facts: Map<String, Value>,
}

impl Answer {
    /// An answer in words.
    pub fn new(message: impl Into<String>) -> Answer {
        Answer { message: message.into(), facts: Map::new() }
    }

    /// Adds one fact.
    #[must_use]
    pub fn with(mut self, name: &str, fact: impl Serialize) -> Answer {
        let fact = serde_json::to_value(fact).expect("facts are plain data with text for keys");
        self.facts.insert(name.to_owned(), fact);
        self
    }
}

/// Why a request was not carried out.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The line is no request.
    Malformed,
    /// The drive has no such block or chunk.
    OutOfRange,
    /// Not now: the power is off, or on already, or the block is not on the medium.
    NotNow,
    /// It was tried, and failed.
    Failed,
}

/// A request that was not carried out.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Why.
    pub kind: RefusalKind,
    /// What was found, in words for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Refusal {
    /// A refusal in words.
    pub fn new(kind: RefusalKind, message: impl std::fmt::Display) -> Refusal {
        Refusal { kind, message: message.to_string(), fix: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl std::fmt::Display) -> Refusal {
        self.fix = Some(fix.to_string());
        self
    }
}

/// Why a line that should be a response is none.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// No JSON, or not of the shape.
    #[error("the answer is not understood: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Of another version.
    #[error("the answer is of version {0}, and this program understands {VERSION}")]
    Version(u64),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Ok(Answer),
    Error(Refusal),
}

#[derive(Serialize, Deserialize)]
struct Response {
    version: u64,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
struct Versioned<'a> {
    version: u64,
    #[serde(flatten)]
    request: &'a Request,
}

/// The line of a request, with its end.
#[must_use]
pub fn request_line(request: &Request) -> Vec<u8> {
    line(&Versioned { version: VERSION, request })
}

/// Understands a request.
///
/// # Errors
/// What is wrong with the line, with words for whoever wrote it.
pub fn parse_request(line: &[u8]) -> Result<Request, Refusal> {
    let malformed = |what: &dyn std::fmt::Display| Refusal::new(RefusalKind::Malformed, what);
    let example = r#"write a request like {"version":1,"command":"stats"}"#;
    let mut request: Map<String, Value> = serde_json::from_slice(line).map_err(|error| {
        malformed(&format_args!("the request is not understood: {}", plainly(&error.to_string()))).fix(example)
    })?;
    match request.remove("version") {
        Some(Value::Number(version)) if version.as_u64() == Some(VERSION) => {}
        Some(other) => {
            let what = format_args!("version {other} is not understood; this drive speaks {VERSION}").to_string();
            return Err(malformed(&what).fix("use an openftl of the same version on both sides"));
        }
        None => return Err(malformed(&"the request has no version").fix(example)),
    }
    if !request.contains_key("command") {
        return Err(malformed(&"the request has no command").fix(example));
    }
    let namespace = match request.remove("namespace") {
        None => None,
        Some(Value::String(name)) => Some(name),
        Some(other) => return Err(malformed(&format_args!("namespace {other} is no text").to_string()).fix(example)),
    };
    let command = serde_json::from_value(Value::Object(request))
        .map_err(|error| malformed(&format_args!("the request is not understood: {}", plainly(&error.to_string()))))?;
    Ok(Request { command, namespace })
}

/// The line that answers a request, with its end.
#[must_use]
pub fn response_line(result: Result<Answer, Refusal>) -> Vec<u8> {
    let outcome = match result {
        Ok(answer) => Outcome::Ok(answer),
        Err(refusal) => Outcome::Error(refusal),
    };
    line(&Response { version: VERSION, outcome })
}

/// Understands a response.
///
/// # Errors
/// If it is none.
pub fn parse_response(line: &[u8]) -> Result<Result<Answer, Refusal>, ResponseError> {
    let Response { version, outcome } = serde_json::from_slice(line)?;
    match outcome {
        _ if version != VERSION => Err(ResponseError::Version(version)),
        Outcome::Ok(answer) => Ok(Ok(answer)),
        Outcome::Error(refusal) => Ok(Err(refusal)),
    }
}

fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages are plain data with text for keys");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn chunk(text: &str) -> ChunkName {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(command: Command, expected: Expect) {
        check_request(command.into(), expected);
    }

    #[track_caller]
    fn check_request(request: Request, expected: Expect) {
        let line = String::from_utf8(request_line(&request)).unwrap();
        expected.assert_eq(&line);
        assert_eq!(parse_request(line.as_bytes()), Ok(request));
    }

    #[test]
    fn every_command_is_written_as_one_line_and_understood_again() {
        check(
            Command::PowerCut(Cut::default()),
            expect![[r#"
                {"version":1,"command":"power-cut","torn":false}
            "#]],
        );
        check(
            Command::PowerCycle(Cut { torn: true, seed: Some(u64::MAX), after: None }),
            expect![[r#"
                {"version":1,"command":"power-cycle","torn":true,"seed":18446744073709551615}
            "#]],
        );
        check(
            Command::PowerCut(Cut { after: Some(After::Flushes(3)), ..Cut::default() }),
            expect![[r#"
                {"version":1,"command":"power-cut","torn":false,"after":{"flushes":3}}
            "#]],
        );
        check(
            Command::PowerOn {},
            expect![[r#"
                {"version":1,"command":"power-on"}
            "#]],
        );
        check(
            Command::FailRead { block: 7 },
            expect![[r#"
                {"version":1,"command":"fail-read","block":7}
            "#]],
        );
        check(
            Command::FailProgram { chunk: None, close: false },
            expect![[r#"
                {"version":1,"command":"fail-program","close":false}
            "#]],
        );
        check(
            Command::FailProgram { chunk: Some(chunk("g1p0c2")), close: true },
            expect![[r#"
                {"version":1,"command":"fail-program","chunk":"g1p0c2","close":true}
            "#]],
        );
        check(
            Command::Corrupt { block: 0 },
            expect![[r#"
                {"version":1,"command":"corrupt","block":0}
            "#]],
        );
        check(
            Command::Wear { chunk: chunk("g0p0c1"), resets: 2999 },
            expect![[r#"
                {"version":1,"command":"wear","chunk":"g0p0c1","resets":2999}
            "#]],
        );
        check(
            Command::LieAboutFlush { on: true },
            expect![[r#"
                {"version":1,"command":"lie-about-flush","on":true}
            "#]],
        );
        check(
            Command::Stats {},
            expect![[r#"
                {"version":1,"command":"stats"}
            "#]],
        );
        check(
            Command::Inspect { first_chunk: 1024, colour: false },
            expect![[r#"
                {"version":1,"command":"inspect","first_chunk":1024,"colour":false}
            "#]],
        );
    }

    #[test]
    fn a_request_may_name_a_namespace() {
        let of = |command, name: &str| Request { command, namespace: Some(name.to_owned()) };
        check_request(
            of(Command::FailRead { block: 7 }, "database"),
            expect![[r#"
            {"version":1,"command":"fail-read","block":7,"namespace":"database"}
        "#]],
        );
        check_request(
            of(Command::Detach {}, "2"),
            expect![[r#"
            {"version":1,"command":"detach","namespace":"2"}
        "#]],
        );
        refused(r#"{"version":1,"command":"attach","namespace":2}"#, expect!["namespace 2 is no text"]);
    }

    #[test]
    fn what_may_be_left_out_has_its_default() {
        let parse = |line: &str| parse_request(line.as_bytes());
        assert_eq!(parse(r#"{"version":1,"command":"power-cut"}"#), Ok(Command::PowerCut(Cut::default()).into()));
        let fail = Command::FailProgram { chunk: None, close: false };
        assert_eq!(parse(r#" { "command" : "fail-program", "version" : 1 } "#), Ok(fail.into()));
    }

    #[track_caller]
    fn refused(line: &str, expected: Expect) {
        let refusal = parse_request(line.as_bytes()).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Malformed);
        expected.assert_eq(&refusal.message);
    }

    #[test]
    fn what_is_no_request_says_what_is_wrong_with_it() {
        refused("stats", expect!["the request is not understood: expected value at line 1 column 1"]);
        refused(
            r#"{"version":1,"command":"stats""#,
            expect!["the request is not understood: EOF while parsing an object at line 1 column 30"],
        );
        refused(
            "[1]",
            expect!["the request is not understood: a list stands where an object belongs at line 1 column 0"],
        );
        refused(r#"{"command":"stats"}"#, expect!["the request has no version"]);
        refused(r#"{"version":2,"command":"stats"}"#, expect!["version 2 is not understood; this drive speaks 1"]);
        refused(
            r#"{"version":"1","command":"stats"}"#,
            expect![[r#"version "1" is not understood; this drive speaks 1"#]],
        );
        refused(r#"{"version":1}"#, expect!["the request has no command"]);
        refused(
            r#"{"version":1,"command":"explode"}"#,
            expect![
                "the request is not understood: unknown variant `explode`, expected one of `power-cut`, `power-on`, `power-cycle`, `fail-read`, `fail-program`, `corrupt`, `wear`, `lie-about-flush`, `attach`, `detach`, `stats`, `inspect`"
            ],
        );
        refused(
            r#"{"version":1,"command":"fail-read"}"#,
            expect!["the request is not understood: missing field `block`"],
        );
        refused(
            r#"{"version":1,"command":"fail-read","block":-1}"#,
            expect!["the request is not understood: the number -1 stands where a whole number from 0 on belongs"],
        );
        refused(
            r#"{"version":1,"command":"wear","chunk":"first","resets":1}"#,
            expect![
                "the request is not understood: `first` names no chunk; write it like g0p1c5: group, parallel unit, chunk"
            ],
        );
        refused(
            r#"{"version":1,"command":"power-on","now":true}"#,
            expect!["the request is not understood: unknown field `now`, there are no fields"],
        );
        refused(
            r#"{"version":1,"command":"power-cut","tron":true}"#,
            expect!["the request is not understood: unknown field `tron`, expected one of `torn`, `seed`, `after`"],
        );
    }

    #[test]
    fn responses_are_understood_by_the_other_side() {
        let answer = Answer::new("done").with("connections", 2).with("place", "g0p0c0b1");
        let line = response_line(Ok(answer.clone()));
        expect![[r#"
            {"version":1,"ok":{"message":"done","connections":2,"place":"g0p0c0b1"}}
        "#]]
        .assert_eq(std::str::from_utf8(&line).unwrap());
        assert_eq!(parse_response(&line).unwrap(), Ok(answer));

        let refusal = Refusal::new(RefusalKind::NotNow, "the power is off").fix("turn it on");
        let line = response_line(Err(refusal.clone()));
        expect![[r#"
            {"version":1,"error":{"kind":"not-now","message":"the power is off","fix":"turn it on"}}
        "#]]
        .assert_eq(std::str::from_utf8(&line).unwrap());
        assert_eq!(parse_response(&line).unwrap(), Err(refusal));

        assert!(matches!(parse_response(b"{}"), Err(ResponseError::Malformed(_))));
        assert!(matches!(parse_response(br#"{"version":2,"ok":{"message":""}}"#), Err(ResponseError::Version(2))));
    }
}
