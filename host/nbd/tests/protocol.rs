//! The protocol half alone: dialogues byte for byte, refusals, and a storm of broken input.

mod exercise;

use exercise::{Transcript, exercise, exports, listen_to};
use openftl_nbd::protocol::{Closing, Command, Event, MESSAGE_BYTES_MAX, OPTION_BYTES_MAX, Request, Session};
use openftl_nbd::wire::{
    ErrorCode, OPTION_MAGIC, OptionHead, REQUEST_MAGIC, RequestHead, command, command_flag, info, option, option_reply,
};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use zerocopy::IntoBytes;

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";

/// Client flags FIXED_NEWSTYLE and NO_ZEROES.
const FLAGS: [u8; 4] = [0, 0, 0, 3];

fn option_message(option: u32, data: &[u8]) -> Vec<u8> {
    let head = OptionHead { magic: OPTION_MAGIC.into(), option: option.into(), length: (data.len() as u32).into() };
    [head.as_bytes(), data].concat()
}

fn info_data(name: &str, asked: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(asked.len() as u16).to_be_bytes());
    asked.iter().for_each(|asked| data.extend_from_slice(&asked.to_be_bytes()));
    data
}

fn request(command: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    let head = RequestHead {
        magic: REQUEST_MAGIC.into(),
        flags: flags.into(),
        command: command.into(),
        cookie: 0x55.into(),
        offset: offset.into(),
        length: length.into(),
    };
    head.as_bytes().to_vec()
}

fn hear(messages: &[Vec<u8>]) -> Transcript {
    let stream = messages.concat();
    listen_to(&stream, || stream.len())
}

/// A reply to an option, as it lies on the wire.
fn option_reply(option: u32, reply: u32, data: &[u8]) -> Vec<u8> {
    let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
    let length = (data.len() as u32).to_be_bytes();
    [&magic[..], &option.to_be_bytes(), &reply.to_be_bytes(), &length, data].concat()
}

/// What the session says to one option after the greeting; error texts for people are cut off.
fn answers(option: u32, data: &[u8]) -> Vec<u8> {
    let transcript = hear(&[FLAGS.to_vec(), option_message(option, data)]);
    assert_eq!(&transcript.output[..18], GREETING);
    transcript.output[18..].to_vec()
}

fn check_refused_option(option: u32, data: &[u8], reply: u32) {
    let answer = answers(option, data);
    assert_eq!(answer[8..16], [option.to_be_bytes(), reply.to_be_bytes()].concat(), "option {option}");
    let text = std::str::from_utf8(&answer[20..]).expect("an error has a text");
    assert!(!text.is_empty());
}

#[test]
fn list_names_the_exports_with_their_descriptions() {
    let wanted = [
        option_reply(option::LIST, option_reply::SERVER, b"\x00\x00\x00\x04disk1073741824 bytes"),
        option_reply(option::LIST, option_reply::SERVER, b"\x00\x00\x00\x06second12288 bytes"),
        option_reply(option::LIST, option_reply::ACK, b""),
    ];
    assert_eq!(answers(option::LIST, b""), wanted.concat());
}

#[test]
fn info_tells_size_flags_and_block_sizes_and_what_else_was_asked() {
    // HAS_FLAGS, READ_ONLY, FLUSH, FUA, TRIM, WRITE_ZEROES, MULTI_CONN, FAST_ZERO; no DF without structured replies.
    let export = b"\x00\x00\x00\x00\x00\x00\x00\x00\x30\x00\x09\x6f";
    let sizes = b"\x00\x03\x00\x00\x00\x01\x00\x00\x10\x00\x00\x10\x00\x00";
    let wanted = [
        option_reply(option::INFO, option_reply::INFO, export),
        option_reply(option::INFO, option_reply::INFO, sizes),
        option_reply(option::INFO, option_reply::INFO, b"\x00\x01second"),
        option_reply(option::INFO, option_reply::ACK, b""),
    ];
    assert_eq!(answers(option::INFO, &info_data("second", &[info::NAME, 77])), wanted.concat());
}

#[test]
fn go_opens_the_export_and_the_empty_name_is_the_first() {
    for (name, index) in [("", 0), ("disk", 0), ("second", 1)] {
        let go = option_message(option::GO, &info_data(name, &[]));
        assert_eq!(hear(&[FLAGS.to_vec(), go]).events, [Event::Opened(index)], "{name}");
    }
}

#[test]
fn export_name_answers_with_or_without_the_zeroes() {
    let name = option_message(option::EXPORT_NAME, b"disk");
    let with = hear(&[vec![0, 0, 0, 1], name.clone()]);
    let without = hear(&[FLAGS.to_vec(), name]);
    let wanted = b"\x00\x00\x00\x00\x40\x00\x00\x00\x09\x6d";
    assert_eq!(&without.output[18..], wanted);
    assert_eq!(with.output[18..], [&wanted[..], &[0; 124]].concat());
    assert_eq!((with.events, without.events), (vec![Event::Opened(0)], vec![Event::Opened(0)]));
}

#[test]
fn structured_replies_bring_the_flag_not_to_fragment() {
    let structured = option_message(option::STRUCTURED_REPLY, b"");
    let transcript = hear(&[FLAGS.to_vec(), structured, option_message(option::EXPORT_NAME, b"")]);
    let wanted = [
        GREETING.to_vec(),
        option_reply(option::STRUCTURED_REPLY, option_reply::ACK, b""),
        b"\x00\x00\x00\x00\x40\x00\x00\x00\x09\xed".to_vec(),
    ];
    assert_eq!(transcript.output, wanted.concat());
}

#[test]
fn abort_is_acknowledged_and_ends_the_session() {
    let transcript = hear(&[FLAGS.to_vec(), option_message(option::ABORT, b"")]);
    assert_eq!(transcript.output[18..], option_reply(option::ABORT, option_reply::ACK, b""));
    assert_eq!(transcript.events, [Event::Closed(Closing::Goodbye)]);
}

#[test]
fn options_that_cannot_be_served_are_refused_by_their_own_code() {
    check_refused_option(option::STARTTLS, b"", option_reply::ERR_POLICY);
    check_refused_option(10, &[0; 8], option_reply::ERR_UNSUP);
    check_refused_option(0xdead_beef, b"whatever", option_reply::ERR_UNSUP);
    check_refused_option(option::LIST, b"x", option_reply::ERR_INVALID);
    check_refused_option(option::STRUCTURED_REPLY, b"x", option_reply::ERR_INVALID);
    check_refused_option(option::GO, &info_data("nowhere", &[]), option_reply::ERR_UNKNOWN);
    check_refused_option(option::GO, &info_data(&"é".repeat(2000), &[]), option_reply::ERR_UNKNOWN);
    check_refused_option(option::GO, b"", option_reply::ERR_INVALID);
    check_refused_option(option::GO, b"\xff\xff\xff\xffdisk\x00\x00", option_reply::ERR_INVALID);
    check_refused_option(option::GO, b"\x00\x00\x00\x04disk\x00\x02\x00\x00", option_reply::ERR_INVALID);
    check_refused_option(option::GO, b"\x00\x00\x00\x02\xff\xff\x00\x00", option_reply::ERR_INVALID);
    check_refused_option(option::GO, &vec![0; OPTION_BYTES_MAX + 1], option_reply::ERR_TOO_BIG);
}

#[test]
fn a_refused_option_leaves_the_next_one_heard() {
    let long = option_message(option::GO, &vec![7; 100_000]);
    let transcript = hear(&[FLAGS.to_vec(), long, option_message(option::EXPORT_NAME, b"disk")]);
    assert_eq!(transcript.events, [Event::Opened(0)]);
}

#[test]
fn where_the_protocol_has_no_room_for_an_error_the_session_ends() {
    let check = |messages: &[Vec<u8>], closing| {
        assert_eq!(hear(messages).events.last(), Some(&Event::Closed(closing)));
    };
    check(&[vec![0, 0, 0, 4]], Closing::ClientFlags(4));
    check(&[FLAGS.to_vec(), b"GET / HTTP/1.1\r\n\r\n".to_vec()], Closing::OptionMagic(0x4745_5420_2f20_4854));
    check(&[FLAGS.to_vec(), option_message(option::EXPORT_NAME, b"nowhere")], Closing::ExportName);
    check(&[FLAGS.to_vec(), option_message(option::EXPORT_NAME, &vec![b'x'; 10_000])], Closing::ExportName);
    check(&[open(), b"this is no request at all...".to_vec()], Closing::RequestMagic(0x7468_6973));
    check(&[open(), request(command::WRITE, 0, 0, u32::MAX)], Closing::PayloadTooLong(u32::MAX));
    check(&[open(), request(command::DISC, 0, 0, 0)], Closing::Goodbye);
}

/// A handshake with structured replies that opens the first export.
fn open() -> Vec<u8> {
    let structured = option_message(option::STRUCTURED_REPLY, b"");
    [FLAGS.to_vec(), structured, option_message(option::EXPORT_NAME, b"disk")].concat()
}

/// One that opens the second, read-only export with simple replies.
fn open_second() -> Vec<u8> {
    [FLAGS.to_vec(), option_message(option::EXPORT_NAME, b"second")].concat()
}

fn check_request(message: Vec<u8>, wanted: Command) {
    let event = Event::Request(Request { cookie: 0x55, command: wanted });
    assert_eq!(hear(&[open(), message]).events.last(), Some(&event));
}

#[test]
fn requests_are_understood_with_their_flags() {
    let fua = command_flag::FUA;
    check_request(request(command::READ, command_flag::DF | fua, 5, 10), Command::Read { offset: 5, length: 10 });
    let (offset, length) = ((1 << 30) - 4096, 4096);
    check_request(request(command::TRIM, fua, offset, length), Command::Trim { offset, length, durable: true });
    check_request(request(command::FLUSH, fua, 0, 0), Command::Flush);
    let zero = Command::Zero { offset, length, durable: false };
    check_request(request(command::WRITE_ZEROES, command_flag::NO_HOLE, offset, length), zero);
    check_request(request(command::WRITE_ZEROES, command_flag::FAST_ZERO, offset, length), zero);
    let write = [request(command::WRITE, fua, 1, 3), b"abc".to_vec()].concat();
    check_request(write, Command::Write { offset: 1, length: 3, durable: true });
}

/// A refused request, and after it one that is heard: so the stream is still in step.
fn check_refused(open: &[u8], message: Vec<u8>, error: ErrorCode) {
    let payload = match message[6..8] {
        [0, 1] => vec![0xaa; u32::from_be_bytes(message[24..28].try_into().expect("four bytes")) as usize],
        _ => Vec::new(),
    };
    let what = format!("{message:?}");
    let transcript = hear(&[open.to_vec(), message, payload, request(command::FLUSH, 0, 0, 0)]);
    let refused = Event::Refused(error);
    let flush = Event::Request(Request { cookie: 0x55, command: Command::Flush });
    assert_eq!(transcript.events[1..], [refused, flush], "{what}");
}

#[test]
fn requests_that_cannot_be_served_are_refused_by_their_own_code() {
    let size = 1 << 30;
    let check = |message, error| check_refused(&open(), message, error);
    check(request(99, 0, 0, 4096), ErrorCode::Invalid);
    check(request(command::READ, command_flag::NO_HOLE, 0, 4096), ErrorCode::Invalid);
    check(request(command::WRITE, 1 << 9, 0, 4096), ErrorCode::Invalid);
    check(request(command::READ, 0, 0, 0), ErrorCode::Invalid);
    check(request(command::WRITE, 0, 0, 0), ErrorCode::Invalid);
    check(request(command::FLUSH, 0, 0, 1), ErrorCode::Invalid);
    check(request(command::READ, 0, size, 1), ErrorCode::Invalid);
    check(request(command::READ, 0, u64::MAX, 2), ErrorCode::Invalid);
    check(request(command::TRIM, 0, size - 1, 2), ErrorCode::Invalid);
    check(request(command::WRITE, 0, size - 1, 2), ErrorCode::NoSpace);
    check(request(command::WRITE_ZEROES, 0, u64::MAX, u32::MAX), ErrorCode::NoSpace);
    check(request(command::READ, 0, 0, (1 << 20) + 1), ErrorCode::Invalid);
    check(request(command::READ, command_flag::DF, 0, (1 << 20) + 1), ErrorCode::Overflow);
    check(request(command::WRITE, 0, 0, (1 << 20) + 1), ErrorCode::Invalid);
    check(request(command::WRITE, 0, 0, 64 << 20), ErrorCode::Invalid);
    check(request(command::WRITE_ZEROES, command_flag::FAST_ZERO, 1, 8190), ErrorCode::NotSupported);
    let check = |message, error| check_refused(&open_second(), message, error);
    check(request(command::WRITE, 0, 0, 4096), ErrorCode::NotPermitted);
    check(request(command::TRIM, 0, 0, 4096), ErrorCode::NotPermitted);
    check(request(command::WRITE_ZEROES, 0, 0, 4096), ErrorCode::NotPermitted);
    check(request(command::READ, command_flag::DF, 0, 4096), ErrorCode::Invalid);
}

#[test]
fn a_refusal_is_said_in_the_form_agreed() {
    let read = request(command::READ, 0, 1 << 40, 1);
    let simple = hear(&[open_second(), read.clone()]).output;
    assert_eq!(simple[18 + 10..], *b"\x67\x44\x66\x98\x00\x00\x00\x16\x00\x00\x00\x00\x00\x00\x00\x55");
    let structured = hear(&[open(), read]).output;
    let text = b"the request reaches beyond the end of the export";
    let head = b"\x66\x8e\x33\xef\x00\x01\x80\x01\x00\x00\x00\x00\x00\x00\x00\x55";
    let payload = [&[0, 0, 0, 6 + text.len() as u8, 0, 0, 0, 22, 0, text.len() as u8], &text[..]].concat();
    assert!(structured.ends_with(&[&head[..], &payload].concat()));
}

#[test]
fn a_stopping_server_refuses_everything() {
    let exports = exports();
    let mut output = Vec::new();
    let mut session = Session::new(&mut output);
    session.stop();
    let mut next = |message: &[u8]| session.next(message, &exports, &mut output).1;
    assert_eq!(next(&FLAGS), Event::Step);
    assert_eq!(next(&option_message(option::LIST, b"")), Event::Step);
    assert_eq!(output[18 + 12..18 + 16], option_reply::ERR_SHUTDOWN.to_be_bytes());

    let mut output = Vec::new();
    let mut session = Session::new(&mut output);
    let stream = open();
    let mut from = 0;
    while from < stream.len() {
        from += session.next(&stream[from..], &exports, &mut output).0;
    }
    session.stop();
    let flush = request(command::FLUSH, 0, 0, 0);
    assert_eq!(session.next(&flush, &exports, &mut output).1, Event::Refused(ErrorCode::Shutdown));
}

#[test]
fn half_a_message_is_never_answered() {
    let messages = [
        FLAGS.to_vec(),
        option_message(option::LIST, b""),
        option_message(option::GO, &vec![0; OPTION_BYTES_MAX + 10]),
        option_message(option::INFO, &info_data("disk", &[1, 2, 3])),
        option_message(option::GO, &info_data("second", &[])),
        request(command::READ, 0, 1 << 50, 1),
        [request(command::WRITE, 0, 0, 500), vec![1; 500]].concat(),
        request(99, 0, 0, 0),
    ];
    for whole in 0..messages.len() {
        let before = messages[..whole].concat();
        let said = hear(std::slice::from_ref(&before)).output;
        for part in 0..messages[whole].len() {
            let transcript = hear(&[before.clone(), messages[whole][..part].to_vec()]);
            assert!(transcript.output == said, "{part} bytes of message {whole} were answered");
        }
    }
}

/// A stream that is mostly right: a handshake and requests, some with fields of chance, then some bytes changed.
fn mostly_right(chance: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut stream = FLAGS.to_vec();
    for _ in 0..chance.next_u64() % 6 {
        let data = match chance.next_u64() % 3 {
            0 => Vec::new(),
            1 => info_data(["", "disk", "second", "third"][chance.next_u64() as usize % 4], &[0, 1, 2, 3]),
            _ => vec![0; chance.next_u64() as usize % (2 * MESSAGE_BYTES_MAX)],
        };
        // Rarely one that ends the haggling.
        let option = match chance.next_u64() % 16 {
            0 => chance.next_u32() % 13,
            _ => [option::LIST, option::STARTTLS, option::INFO, option::STRUCTURED_REPLY, 10]
                [chance.next_u64() as usize % 5],
        };
        stream.extend(option_message(option, &data));
    }
    stream.extend(if chance.next_u64().is_multiple_of(2) { open()[4..].to_vec() } else { open_second()[4..].to_vec() });
    for _ in 0..chance.next_u64() % 20 {
        let length = chance.next_u32() % 20_000;
        let offset = chance.next_u64() % if chance.next_u64().is_multiple_of(2) { 20_000 } else { 1 << 31 };
        let command = chance.next_u32() as u16 % 9;
        if command == command::DISC && !chance.next_u64().is_multiple_of(4) {
            continue;
        }
        let flags = if chance.next_u64().is_multiple_of(4) { 1 << (chance.next_u32() % 16) } else { 0 };
        stream.extend(request(command, flags, offset, length));
        if command == command::WRITE {
            stream.resize(stream.len() + length as usize, 0x5a);
        }
    }
    if chance.next_u64().is_multiple_of(2) {
        for _ in 0..chance.next_u64() % 8 {
            let index = chance.next_u64() as usize % stream.len();
            match chance.next_u64() % 3 {
                0 => stream[index] = chance.next_u32() as u8,
                1 => stream[index] ^= 1 << (chance.next_u32() % 8),
                _ => drop(stream.drain(index..stream.len().min(index + 1 + chance.next_u64() as usize % 40))),
            }
            if stream.is_empty() {
                break;
            }
        }
    }
    stream
}

#[test]
fn no_stream_of_bytes_breaks_the_session_however_it_is_cut() {
    let mut opened = 0;
    let mut served = 0;
    for seed in 0..3_000 {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let stream = match seed % 4 {
            0 => (0..chance.next_u64() % 2_000).map(|_| chance.next_u32() as u8).collect(),
            _ => mostly_right(&mut chance),
        };
        let longest = [1, 7, 64, 5_000][chance.next_u64() as usize % 4];
        exercise(&stream, || 1 + chance.next_u64() as usize % longest);
        let transcript = listen_to(&stream, || stream.len());
        opened += transcript.events.iter().filter(|event| matches!(event, Event::Opened(_))).count();
        served += transcript.events.iter().filter(|event| matches!(event, Event::Request(_))).count();
    }
    assert!(
        opened > 1_000 && served > 1_000,
        "the storm hardly got past the handshake: {opened} opened, {served} served"
    );
}
