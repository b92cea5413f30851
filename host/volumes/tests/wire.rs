//! Messages byte for byte, there and back, and what is none.

use openftl_files::wire::{Answer, BODY_BYTES_MAX, HEAD_BYTES, Head, PARTS_MAX, Part, Request, WireError};
use openftl_files::{Attributes, FileError, FileKind};
use openftl_tables::TableLifetime;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

fn requests() -> Vec<Request<'static>> {
    let (path, kind) = ("/db/000001.sst", FileKind::Table);
    let parts = vec![Part { offset: 1 << 40, bytes: 4096 }, Part { offset: 0, bytes: 0 }];
    vec![
        Request::Hello { session: u64::MAX },
        Request::Space,
        Request::Statistics,
        Request::Attributes { path },
        Request::List { folder: "/", after: "" },
        Request::Delete { path },
        Request::Rename { from: path, to: "/ä" },
        Request::MakeFolder { path },
        Request::DeleteFolder { path },
        Request::SyncNames { folder: "/db" },
        Request::Lock { path },
        Request::Unlock { path },
        Request::OpenRead { path },
        Request::Read { file: 7, parts },
        Request::ReaderState { file: 7 },
        Request::CloseReader { file: 7 },
        Request::Create { path, kind },
        Request::AppendTo { path },
        Request::Hint { bytes: 1 << 26, lifetime: TableLifetime::Long },
        Request::Append { is_quiet: true, data: b"data" },
        Request::Append { is_quiet: false, data: b"" },
        Request::Truncate { bytes: 5 },
        Request::WriterState,
        Request::Commit,
        Request::BeginSync,
        Request::FinishSync,
        Request::Close,
        Request::Forget,
    ]
}

fn answers() -> Vec<Answer<'static>> {
    let attributes = Attributes { kind: FileKind::Log, bytes: 12, modified: 1_800_000_000 };
    let mut answers = vec![
        Answer::Done,
        Answer::Welcome { session: 3 },
        Answer::Space { free: 1, all: 2 },
        Answer::Text("{}"),
        Answer::Attributes(attributes),
        Answer::Names { has_more: true, names: vec![("a", attributes), ("b", attributes)] },
        Answer::Opened { file: 9, kind: FileKind::Table },
        Answer::State { bytes: 4, id: 5 },
        Answer::Data(vec![Ok(b"abc"), Err(FileError::Corruption("block 3".to_owned())), Ok(b"")]),
    ];
    answers.extend((1..=10).map(|code| Answer::Error(FileError::from_code(code, format!("why {code}")).unwrap())));
    answers
}

fn parts_of(message: &[u8]) -> (Head, &[u8]) {
    let (head, body) = message.split_first_chunk::<HEAD_BYTES>().unwrap();
    let head = Head::parse(head).unwrap();
    assert_eq!(head.bytes.get() as usize, body.len());
    (head, body)
}

#[test]
fn every_message_is_understood_by_the_other_side() {
    for request in requests() {
        let mut message = Vec::new();
        request.write(5, &mut message);
        let (head, body) = parts_of(&message);
        assert_eq!(head.number.get(), 5);
        assert_eq!(Request::parse(head.kind.get(), body), Ok(request));
    }
    for answer in answers() {
        let mut message = Vec::new();
        answer.write(6, &mut message);
        let (head, body) = parts_of(&message);
        assert_eq!(Answer::parse(head.kind.get(), body), Ok(answer));
    }
}

#[test]
fn a_message_lies_on_the_wire_like_this() {
    let mut message = Vec::new();
    Request::Rename { from: "/a", to: "/bc" }.write(0x0102, &mut message);
    let expected: &[u8] =
        b"OFTF\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x08\x00\x00\x00\x00\x06\x02/a\x03/bc";
    assert_eq!(message, expected);
    message.clear();
    Answer::Error(FileError::Busy("why".to_owned())).write(1, &mut message);
    let expected: &[u8] =
        b"OFTF\x00\x02\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x09\x07\x03why";
    assert_eq!(message, expected);
}

/// A version of the protocol is what its messages are called by number: whoever moves one counts the version on.
#[test]
fn each_message_has_its_number() {
    let number_of = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut message = Vec::new();
        write(&mut message);
        message[HEAD_BYTES]
    };
    let numbers: Vec<u8> = requests().iter().map(|request| number_of(&|to| request.write(1, to))).collect();
    let expected: Vec<u8> = (0..20).chain([19, 20, 21, 22, 23, 24, 25, 26]).collect();
    assert_eq!(numbers, expected);
    let numbers: Vec<u8> = answers()[..10].iter().map(|answer| number_of(&|to| answer.write(1, to))).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<u8>>());
}

#[test]
fn errors_keep_their_code_and_text() {
    for code in 1..=10 {
        let error = FileError::from_code(code, "what".to_owned()).unwrap();
        assert_eq!((error.code(), error.text()), (code, "what"));
    }
    assert_eq!(FileError::from_code(0, String::new()), None);
    assert_eq!(FileError::from_code(11, String::new()), None);
}

#[test]
fn what_is_longer_than_the_bounds_is_refused() {
    let mut message = Vec::new();
    Request::Read { file: 1, parts: vec![Part { offset: 0, bytes: 1 }; PARTS_MAX + 1] }.write(1, &mut message);
    let (head, body) = parts_of(&message);
    assert!(matches!(Request::parse(head.kind.get(), body), Err(WireError::Body { .. })));
    message.clear();
    Request::Read { file: 1, parts: vec![Part { offset: 0, bytes: u32::MAX }] }.write(1, &mut message);
    let (head, body) = parts_of(&message);
    assert!(matches!(Request::parse(head.kind.get(), body), Err(WireError::Body { .. })));
    message.clear();
    // As many parts as there is room for in a body take no memory.
    Request::Read { file: 1, parts: vec![Part { offset: 0, bytes: 0 }; 400_000] }.write(1, &mut message);
    let (head, body) = parts_of(&message);
    assert!(matches!(Request::parse(head.kind.get(), body), Err(WireError::Body { .. })));
    let data = vec![0; openftl_files::wire::DATA_BYTES_MAX + 1];
    message.clear();
    Request::Append { is_quiet: false, data: &data }.write(1, &mut message);
    let (head, body) = parts_of(&message);
    assert!(matches!(Request::parse(head.kind.get(), body), Err(WireError::Body { .. })));
    let mut head: [u8; HEAD_BYTES] = *message.first_chunk().unwrap();
    head[16..20].copy_from_slice(&(BODY_BYTES_MAX as u32 + 1).to_be_bytes());
    assert_eq!(Head::parse(&head).unwrap_err(), WireError::TooLong(BODY_BYTES_MAX as u32 + 1));
}

#[test]
fn no_damage_to_a_message_does_more_than_refuse_it() {
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(1);
    let (requests, answers) = (requests(), answers());
    let (mut understood, mut refused) = (0, 0);
    for round in 0..40_000 {
        let mut message = Vec::new();
        match round % 2 {
            0 => requests[round / 2 % requests.len()].write(1, &mut message),
            _ => answers[round / 2 % answers.len()].write(1, &mut message),
        }
        for _ in 0..1 + dice.next_u64() % 3 {
            let at = dice.next_u64() as usize % message.len();
            match dice.next_u64() % 4 {
                0 => message[at] = dice.next_u64() as u8,
                1 => message[at] ^= 1 << (dice.next_u64() % 8),
                2 => message.insert(at, dice.next_u64() as u8),
                _ => drop(message.remove(at)),
            }
        }
        let Some((head, body)) = message.split_first_chunk::<HEAD_BYTES>() else { continue };
        let Ok(head) = Head::parse(head) else {
            refused += 1;
            continue;
        };
        // Whatever is understood can be said again.
        let mut again = Vec::new();
        match (Request::parse(head.kind.get(), body), Answer::parse(head.kind.get(), body)) {
            (Ok(request), _) => {
                request.write(2, &mut again);
                let (head, body) = parts_of(&again);
                assert_eq!(Request::parse(head.kind.get(), body), Ok(request));
                understood += 1;
            }
            (_, Ok(answer)) => {
                answer.write(2, &mut again);
                let (head, body) = parts_of(&again);
                assert_eq!(Answer::parse(head.kind.get(), body), Ok(answer));
                understood += 1;
            }
            _ => refused += 1,
        }
    }
    assert!(understood > 1_000 && refused > 1_000, "{understood} understood, {refused} refused");
}
