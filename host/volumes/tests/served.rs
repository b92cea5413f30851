//! What clients of a served drive have to bear, and what the server has to bear of them.

use crate::common::{Server, bytes, connect, content, power_cut, reopen, tiny};
use openftl_files::server::CONNECTIONS_MAX;
use openftl_files::wire::{Answer, BODY_BYTES_MAX, HEAD_BYTES, Head, MAGIC, Request, VERSION};
use openftl_files::{Client, FileError, FileKind, Files};
use openftl_media::EmulatedDevice;
use openftl_volumes::Volume;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use zerocopy::IntoBytes;

fn all_of(client: &Client, path: &str) -> Vec<u8> {
    content(&Volume::<EmulatedDevice>::Served(client.clone()), path)
}

fn all_here(files: &Files<EmulatedDevice>, path: &str) -> Vec<u8> {
    content(&Volume::Here(files.clone()), path)
}

/// A client that speaks for itself, byte by byte.
struct Raw(UnixStream);

impl Raw {
    fn new(server: &Server) -> Raw {
        Raw(UnixStream::connect(&server.path).unwrap())
    }

    fn say(&mut self, request: &Request<'_>) {
        let mut message = Vec::new();
        request.write(1, &mut message);
        self.0.write_all(&message).unwrap();
    }

    /// The next answer; `None` when the server has ended the connection.
    fn hear(&mut self) -> Option<(Head, Vec<u8>)> {
        let mut head = [0; HEAD_BYTES];
        self.0.read_exact(&mut head).ok()?;
        let head = Head::parse(&head).unwrap();
        let mut body = vec![0; head.bytes.get() as usize];
        self.0.read_exact(&mut body).ok()?;
        Some((head, body))
    }

    fn ask(&mut self, request: &Request<'_>) -> (Head, Vec<u8>) {
        self.say(request);
        self.hear().unwrap()
    }

    fn hears_nothing_more(&mut self) -> bool {
        while let Some((head, body)) = self.hear() {
            let answer = Answer::parse(head.kind.get(), &body).unwrap();
            assert!(matches!(answer, Answer::Error(_)), "{answer:?}");
        }
        true
    }
}

#[test]
fn what_was_flushed_is_there_when_a_client_dies_and_an_open_table_is_not() {
    let server = Server::new(tiny(64, 1));
    let mut dying = Raw::new(&server);
    dying.ask(&Request::Hello { session: 0 });
    dying.ask(&Request::Lock { path: "/LOCK" });
    dying.ask(&Request::Create { path: "/l.log", kind: FileKind::Log });
    let data = bytes(1, 0, 50_000);
    // Nobody waits for these: they are on their way when the process is killed.
    for piece in data.chunks(777) {
        dying.say(&Request::Append { is_quiet: true, data: piece });
    }
    let mut other = Raw::new(&server);
    other.ask(&Request::Hello { session: 0 });
    other.ask(&Request::Create { path: "/t.sst", kind: FileKind::Table });
    other.say(&Request::Append { is_quiet: true, data: &data });
    let other_client = server.client();
    let early = other_client.open_read("/t.sst").unwrap();
    drop((dying, other));
    // The places of both connections become free when their threads are done with them.
    while server.server.load().0 > 1 {
        std::thread::yield_now();
    }
    assert_eq!(all_of(&other_client, "/l.log"), data);
    other_client.lock("/LOCK").unwrap();
    assert!(matches!(other_client.attributes("/t.sst"), Err(FileError::NotFound(_))));
    assert_eq!(early.read(0, &mut [0; 100]), Ok(0), "nothing is left of the table");
    drop(early);
    assert!(other_client.close());
    // And it is there when the server has closed the drive.
    let files = reopen(server.server.end().unwrap().close().unwrap().unwrap());
    assert_eq!(all_here(&files, "/l.log"), data);
}

#[test]
fn a_full_drive_is_told_to_the_client_and_the_table_is_given_up() {
    let server = Server::new(tiny(64, 2));
    let client = server.client();
    let mut writer = client.create("/large.sst", FileKind::Table).unwrap();
    let error = (0..).find_map(|_| writer.append(&[0; 65_536]).err()).unwrap();
    assert!(matches!(error, FileError::TooLarge(_)), "{error}");
    drop(writer);
    client.delete("/large.sst").unwrap();
    let mut writer = client.create("/a.log", FileKind::Log).unwrap();
    let error = (0..).find_map(|_| writer.append(&[7; 65_536]).and_then(|()| writer.flush()).err()).unwrap();
    assert!(matches!(error, FileError::NoSpace(_)), "{error}");
}

#[test]
fn a_server_that_goes_is_an_error_that_names_it_and_the_next_one_is_as_good() {
    let server = Server::new(tiny(64, 3));
    let (client, path) = (server.client(), server.path.clone());
    let mut writer = client.create("/l.log", FileKind::Log).unwrap();
    writer.append(&bytes(1, 0, 10_000)).unwrap();
    writer.sync().unwrap();
    let reader = client.open_read("/l.log").unwrap();
    let files = server.server.end().unwrap();
    std::fs::remove_file(&path).unwrap();
    writer.append(&bytes(1, 10_000, 10_000)).unwrap();
    for error in [
        writer.sync().unwrap_err(),
        reader.read(0, &mut [0; 10]).unwrap_err(),
        client.list("/").unwrap_err(),
        client.create("/x", FileKind::Log).map(|_| ()).unwrap_err(),
    ] {
        assert!(matches!(&error, FileError::Io(text) if text.contains(path.to_str().unwrap())), "{error}");
    }
    assert!(client.is_broken());
    let error = connect(&path).map(|_| ()).unwrap_err();
    assert!(matches!(error, FileError::Io(_)), "{error}");
    let server = Server::new(reopen(files.close().unwrap().unwrap()));
    assert_eq!(all_of(&server.client(), "/l.log"), bytes(1, 0, 10_000));
}

#[test]
fn after_a_power_cut_what_was_synced_is_there() {
    let server = Server::new(tiny(256, 4));
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(4);
    let mut synced_once = 0;
    for round in 0..12_u64 {
        let (sender, receiver) = std::sync::mpsc::channel::<(String, u64, u64)>();
        let threads: Vec<_> = (0..3_u64)
            .map(|thread| {
                let (client, sender) = (server.client(), sender.clone());
                std::thread::spawn(move || {
                    let id = round * 10 + thread;
                    let path = format!("/{thread}.log");
                    let write = || -> Result<(), FileError> {
                        let mut writer = client.create(&path, FileKind::Log)?;
                        for step in 0.. {
                            writer.append(&bytes(id, step * 3000, 3000))?;
                            writer.sync()?;
                            sender.send((path.clone(), id, (step + 1) * 3000)).unwrap();
                        }
                        Ok(())
                    };
                    let error = write().unwrap_err();
                    assert!(matches!(error, FileError::Io(_) | FileError::NoSpace(_)), "{error}");
                })
            })
            .collect();
        drop(sender);
        let mut synced = std::collections::BTreeMap::new();
        for _ in 0..1 + dice.next_u64() % 40 {
            let (path, id, bytes) = receiver.recv().unwrap();
            synced.insert(path, (id, bytes));
        }
        server.power_cut(dice.next_u64().is_multiple_of(2));
        for (path, id, bytes) in receiver {
            synced.insert(path, (id, bytes));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let client = server.client();
        for (path, (id, count)) in synced {
            let found = all_of(&client, &path);
            assert!(found.len() as u64 >= count, "{path}: {} bytes, and {count} were synced", found.len());
            assert_eq!(found, bytes(id, 0, found.len() as u64), "{path}");
            synced_once += 1;
        }
    }
    assert!(synced_once > 12, "only {synced_once} files were looked at");
    let files = power_cut(server.server.end().unwrap(), false);
    assert!(!files.list("/").unwrap().is_empty());
}

#[test]
fn who_comes_while_the_power_is_off_is_told_so() {
    let server = Server::new(tiny(64, 5));
    let (files, ()) = server.server.interrupt(|_| ()).unwrap();
    let error = connect(&server.path).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("the power of the drive is off"), "{error}");
    assert_eq!(server.server.counts().turned_away, 1);
    server.server.serve(files);
    server.client().make_folder("/db").unwrap();
}

#[test]
fn another_version_is_named_and_anything_else_ends_the_connection() {
    let server = Server::new(tiny(64, 6));
    let head = |magic: u32, version: u16, kind: u16, bytes: u32| Head {
        magic: magic.into(),
        version: version.into(),
        kind: kind.into(),
        number: 1.into(),
        bytes: bytes.into(),
        reserved: 0.into(),
    };
    let mut without_session = Vec::new();
    Request::Space.write(1, &mut without_session);
    for (message, said) in [
        (head(MAGIC, VERSION + 1, 1, 8).as_bytes(), "speaks version 3 of the protocol, and this one 2"),
        (head(0x4745_5420, VERSION, 1, 8).as_bytes(), "another protocol"),
        (head(MAGIC, VERSION, 1, BODY_BYTES_MAX as u32 + 1).as_bytes(), "is longer than"),
        (head(MAGIC, VERSION, 999, 0).as_bytes(), "requests are of kind 1"),
        (head(MAGIC, VERSION, 1, 0).as_bytes(), "the body is too short"),
        (&without_session[..], "does not begin with a session"),
    ] {
        let mut raw = Raw::new(&server);
        raw.0.write_all(message).unwrap();
        let (head, body) = raw.hear().unwrap();
        let Ok(Answer::Error(error)) = Answer::parse(head.kind.get(), &body) else { panic!("{message:?}") };
        assert!(error.to_string().contains(said), "{error}");
        assert!(raw.hears_nothing_more());
    }
    server.client().make_folder("/db").unwrap();
}

#[test]
fn half_a_message_and_silence_keep_nobody_else_waiting_and_there_is_a_bound() {
    let server = Server::new(tiny(64, 7));
    let client = server.client();
    let mut silent: Vec<Raw> = (1..CONNECTIONS_MAX).map(|_| Raw::new(&server)).collect();
    for raw in silent.iter_mut().step_by(2) {
        raw.0.write_all(&MAGIC.to_be_bytes()).unwrap();
    }
    let mut one_more = Raw::new(&server);
    let (head, body) = one_more.hear().unwrap();
    let answer = Answer::parse(head.kind.get(), &body).unwrap();
    assert!(matches!(&answer, Answer::Error(FileError::Busy(text)) if text.contains("256 connections")), "{answer:?}");
    client.make_folder("/db").unwrap();
    drop(silent);
    // Their places are free again.
    while connect(&server.path).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn what_one_session_has_another_cannot_use() {
    let server = Server::new(tiny(64, 8));
    let (one, other) = (server.client(), server.client());
    one.lock("/LOCK").unwrap();
    assert!(matches!(other.lock("/LOCK"), Err(FileError::Busy(_))));
    assert!(matches!(other.unlock("/LOCK"), Err(FileError::Invalid(_))));
    let mut raw = Raw::new(&server);
    raw.ask(&Request::Hello { session: 0 });
    drop(one.create("/x", FileKind::Log).unwrap());
    let _reader = one.open_read("/x").unwrap();
    let (head, body) = raw.ask(&Request::ReaderState { file: 1 });
    assert!(matches!(Answer::parse(head.kind.get(), &body), Ok(Answer::Error(FileError::Invalid(_)))));
    drop((_reader, one));
    while other.lock("/LOCK").is_err() {
        std::thread::yield_now();
    }
}

/// Requests that could be meant.
fn some_request(dice: &mut Xoshiro256PlusPlus) -> Request<'static> {
    let file = (dice.next_u64() % 4) as u32;
    let path = ["/a", "/b", "/folder", "/folder/c", "x", ""][dice.next_u64() as usize % 6];
    let kind = [FileKind::Table, FileKind::Log, FileKind::Folder][dice.next_u64() as usize % 3];
    match dice.next_u64() % 23 {
        0 => Request::Space,
        1 => Request::Statistics,
        2 => Request::Attributes { path },
        3 => Request::List { folder: "/", after: path },
        4 => Request::Delete { path },
        5 => Request::Rename { from: path, to: "/b" },
        6 => Request::MakeFolder { path },
        7 => Request::DeleteFolder { path },
        8 => Request::SyncNames { folder: "/" },
        9 => Request::Lock { path },
        10 => Request::Unlock { path },
        11 => Request::OpenRead { path },
        12 => {
            let part = openftl_files::wire::Part { offset: dice.next_u64() >> (dice.next_u64() % 64), bytes: 1000 };
            Request::Read { file, parts: vec![part; dice.next_u64() as usize % 3] }
        }
        13 => Request::CloseReader { file },
        14 => Request::Create { path, kind },
        15 => Request::AppendTo { path },
        16 | 17 => Request::Append { is_quiet: dice.next_u64().is_multiple_of(2), data: &[7; 5000] },
        18 => Request::Truncate { bytes: dice.next_u64() % 6000 },
        19 => Request::BeginSync,
        20 => Request::Close,
        21 => Request::Commit,
        _ => Request::Forget,
    }
}

#[test]
fn no_storm_of_bytes_breaks_the_server() {
    let server = Server::new(tiny(64, 9));
    for seed in 0..300 {
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut raw = Raw::new(&server);
        let mut stream = Vec::new();
        if seed % 4 > 0 {
            Request::Hello { session: 0 }.write(1, &mut stream);
        }
        for number in 2..2 + dice.next_u64() % 30 {
            some_request(&mut dice).write(number, &mut stream);
        }
        if seed % 2 == 0 && !stream.is_empty() {
            for _ in 0..1 + dice.next_u64() % 4 {
                let at = dice.next_u64() as usize % stream.len();
                match dice.next_u64() % 3 {
                    0 => stream[at] = dice.next_u64() as u8,
                    1 => stream[at] ^= 1 << (dice.next_u64() % 8),
                    _ => stream.truncate(at + 1),
                }
            }
        }
        // The server may end the connection before it has heard all of it.
        let mut listener = raw.0.try_clone().unwrap();
        let listening = std::thread::spawn(move || listener.read_to_end(&mut Vec::new()));
        let _ = raw.0.write_all(&stream);
        let _ = raw.0.shutdown(std::net::Shutdown::Write);
        let _ = listening.join().unwrap();
    }
    let client = server.client();
    for (name, _) in client.list("/").unwrap() {
        client.attributes(&format!("/{name}")).unwrap();
    }
    let mut writer = client.create("/after", FileKind::Log).unwrap();
    writer.append(b"whole").unwrap();
    writer.close().unwrap();
    assert_eq!(all_of(&client, "/after"), b"whole");
    assert!(client.close());
    server.server.end().unwrap().close().unwrap().expect("nobody uses it");
}
