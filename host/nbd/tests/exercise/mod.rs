//! Throws bytes at the protocol half and checks what must hold whatever they are. The seeded test and the fuzzer share
//! it.

use openftl_nbd::protocol::{Command, Event, ExportInfo, MESSAGE_BYTES_MAX, Reserved, Session};

/// No message makes the session say more than this; the two exports below are listed in far less.
const ANSWER_BYTES_MAX: usize = 2048;

/// Two exports, the second one read-only and small.
pub fn exports() -> Vec<ExportInfo> {
    let export = |name: &str, size, read_only| ExportInfo {
        name: name.to_owned(),
        description: format!("{size} bytes"),
        size,
        read_only,
        reserved: Reserved::default(),
        payload_bytes_max: 1 << 20,
    };
    vec![export("disk", 1 << 30, false), export("second", 12_288, true)]
}

/// What a stream of bytes led to: events (without the steps in between, which depend on how the stream was cut) and
/// output.
#[derive(PartialEq, Eq, Debug)]
pub struct Transcript {
    pub events: Vec<Event>,
    pub output: Vec<u8>,
}

/// Feeds `data` in pieces to a new session, as a server would.
pub fn listen_to(data: &[u8], mut piece: impl FnMut() -> usize) -> Transcript {
    let exports = exports();
    let mut transcript = Transcript { events: Vec::new(), output: Vec::new() };
    let mut session = Session::new(&mut transcript.output);
    let mut buffer: Vec<u8> = Vec::new();
    let mut payload = 0;
    let mut rest = data;
    while !rest.is_empty() {
        let (next, later) = rest.split_at(piece().clamp(1, rest.len()));
        rest = later;
        buffer.extend_from_slice(next);
        loop {
            let skipped = buffer.len().min(payload);
            buffer.drain(..skipped);
            payload -= skipped;
            if payload > 0 {
                break;
            }
            let said = transcript.output.len();
            let (consumed, event) = session.next(&buffer, &exports, &mut transcript.output);
            assert!(consumed <= buffer.len(), "consumed more than there was");
            buffer.drain(..consumed);
            let answer = transcript.output.len() - said;
            assert!(answer <= ANSWER_BYTES_MAX, "an answer of {answer} bytes to one message");
            match event {
                Event::Starved => {
                    assert_eq!((consumed, answer), (0, 0), "half a message was consumed or answered");
                    assert!(buffer.len() < MESSAGE_BYTES_MAX, "{} bytes and still starved", buffer.len());
                    break;
                }
                Event::Step => assert!(consumed > 0, "a step that goes nowhere"),
                Event::Closed(_) => {
                    transcript.events.push(event);
                    return transcript;
                }
                Event::Request(request) => {
                    assert_eq!(answer, 0, "a request was answered before it was served");
                    check_range(request.command);
                    if let Command::Write { length, .. } = request.command {
                        payload = length as usize;
                    }
                    transcript.events.push(event);
                }
                Event::Opened(_) | Event::Refused(_) => transcript.events.push(event),
            }
        }
    }
    transcript
}

/// Whatever passes the session lies inside the larger of the exports.
fn check_range(command: Command) {
    if let Command::Read { offset, length }
    | Command::Write { offset, length, .. }
    | Command::Trim { offset, length, .. }
    | Command::Zero { offset, length, .. } = command
    {
        assert!(length > 0 && offset + u64::from(length) <= 1 << 30, "{command:?} is outside");
    }
}

/// However a stream is cut into pieces, it leads to the same.
pub fn exercise(data: &[u8], mut piece: impl FnMut() -> usize) {
    let whole = listen_to(data, || data.len());
    let pieces = listen_to(data, &mut piece);
    assert_eq!(whole, pieces, "the answer depends on how the bytes arrived");
}
