//! The control server over real sockets: clients that are decent, rude, slow, many or gone.

use openftl_control::protocol::{Answer, Refusal, RefusalKind};
use openftl_control::server::CLIENTS_MAX;
use openftl_control::{AskError, Client, ClientId, Command, ControlServer, Request};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// What the server under test does with a request.
type CarryOut = fn(Command) -> Option<Result<Answer, Refusal>>;

/// Answers each request with its name, and a power cut not before the power is to come on.
fn echo(command: Command) -> Option<Result<Answer, Refusal>> {
    match command {
        Command::PowerCut(_) => None,
        Command::Corrupt { block } => {
            Some(Err(Refusal::new(RefusalKind::OutOfRange, format_args!("no block {block}"))))
        }
        Command::Stats {} => Some(Ok(Answer::new("stats").with("filler", "x".repeat(1 << 20)))),
        command => Some(Ok(Answer::new(format!("{command:?}")))),
    }
}

/// A server in a thread of its own, which ends when it is asked for the wear of g9p9c9.
struct Served {
    path: PathBuf,
    thread: JoinHandle<usize>,
    _folder: tempfile::TempDir,
}

fn serve(mut server: ControlServer<UnixListener>, carry_out: CarryOut) -> usize {
    let mut held: Vec<ClientId> = Vec::new();
    let mut turns = 0;
    loop {
        if !server.has_more() {
            let event = server.event();
            poll(&mut [PollFd::new(&event, PollFlags::IN)], None).unwrap();
        }
        turns += 1;
        server.poll();
        while let Some((client, Request { command, .. })) = server.take_request() {
            match carry_out(command) {
                None => held.push(client),
                Some(result) => {
                    if let Command::PowerOn {} = command {
                        held.drain(..).for_each(|client| server.answer(client, Ok(Answer::new("cut"))));
                    }
                    server.answer(client, result);
                }
            }
            if command == the_end() {
                return turns;
            }
        }
    }
}

fn the_end() -> Command {
    Command::Wear { chunk: "g9p9c9".parse().unwrap(), resets: 0 }
}

impl Served {
    fn new() -> Served {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn(move || serve(ControlServer::new(listener).unwrap(), echo));
        Served { path, thread, _folder: folder }
    }

    fn client(&self) -> Client {
        Client::connect(&self.path).unwrap()
    }

    /// Turns of the server's loop.
    fn end(self) -> usize {
        self.client().ask(the_end()).unwrap();
        self.thread.join().unwrap()
    }
}

fn said(path: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_client_gets_an_answer_to_each_request_or_a_refusal() {
    let served = Served::new();
    let mut client = served.client();
    for _ in 0..3 {
        assert_eq!(client.ask(Command::FailRead { block: 7 }).unwrap().message, "FailRead { block: 7 }");
        let error = client.ask(Command::Corrupt { block: 9 }).unwrap_err();
        assert!(matches!(&error, AskError::Refused(refusal) if refusal.kind == RefusalKind::OutOfRange), "{error}");
        assert_eq!(client.ask(Command::Stats {}).unwrap().facts["filler"].as_str().unwrap().len(), 1 << 20);
    }
    served.end();
}

#[test]
fn a_client_that_waits_holds_up_no_other_and_is_answered_in_its_time() {
    let served = Served::new();
    let mut waiting = served.client();
    let waiter = std::thread::spawn(move || {
        let cut = waiting.ask(Command::PowerCut(Default::default())).unwrap();
        (cut.message, waiting.ask(Command::PowerOn {}).unwrap().message)
    });
    let mut other = served.client();
    // The cut may not have been asked for yet, so the power comes on until it has been answered.
    while !waiter.is_finished() {
        assert_eq!(other.ask(Command::PowerOn {}).unwrap().message, "PowerOn");
    }
    assert_eq!(waiter.join().unwrap(), ("cut".to_owned(), "PowerOn".to_owned()));
    served.end();
}

#[test]
fn whoever_has_said_all_still_gets_every_answer() {
    let served = Served::new();
    let request = b"{\"version\":1,\"command\":\"power-on\"}\n";
    let text = said(&served.path, &[&request[..], b"nonsense\n\n", request, b"{\"version\":1"].concat());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].contains("\"ok\"") && lines[2].contains("\"ok\""), "{text}");
    assert!(lines[1].contains("\"malformed\"") && lines[1].contains("fix"), "{text}");
    served.end();
}

#[test]
fn an_endless_line_is_refused_and_its_connection_closed() {
    let served = Served::new();
    let mut stream = UnixStream::connect(&served.path).unwrap();
    // The server closes in the middle of it.
    while stream.write_all(&[b'x'; 4096]).is_ok() {}
    let mut client = served.client();
    assert_eq!(client.ask(Command::PowerOn {}).unwrap().message, "PowerOn");
    served.end();
}

#[test]
fn whoever_is_refused_for_good_hears_why_and_that_it_is_over() {
    let served = Served::new();
    let mut stream = UnixStream::connect(&served.path).unwrap();
    stream.write_all(&[b'x'; 4096]).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("longer than 4096 bytes"), "{text}");
    served.end();
}

#[test]
fn a_client_that_takes_no_answer_disturbs_nobody() {
    let served = Served::new();
    let mut deaf = UnixStream::connect(&served.path).unwrap();
    // More answers than its socket holds; the requests behind them wait.
    deaf.write_all(&b"{\"version\":1,\"command\":\"stats\"}\n".repeat(100)).unwrap();
    let mut client = served.client();
    for _ in 0..100 {
        assert_eq!(client.ask(Command::PowerOn {}).unwrap().message, "PowerOn");
    }
    deaf.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    deaf.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().count(), 100);
    served.end();
}

#[test]
fn clients_that_ask_for_nothing_lock_nobody_out() {
    let served = Served::new();
    let mut idle: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| UnixStream::connect(&served.path).unwrap()).collect();
    // Bytes that are no request are nothing asked for.
    idle.iter_mut().for_each(|client| client.write_all(b"{").unwrap());
    let mut operator = served.client();
    for _ in 0..2 * CLIENTS_MAX {
        assert_eq!(operator.ask(Command::PowerOn {}).unwrap().message, "PowerOn");
        // One more, which asks for nothing either; the operator has asked since others did.
        idle.push(UnixStream::connect(&served.path).unwrap());
    }
    assert_eq!(operator.ask(Command::PowerOn {}).unwrap().message, "PowerOn");
    drop(idle);
    served.end();
}

#[test]
fn clients_that_wait_for_answers_do_not_make_way_and_one_too_many_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut server = ControlServer::new(listener).unwrap();
    let request = b"{\"version\":1,\"command\":\"power-on\"}\n";
    let ask = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(request).unwrap();
        stream
    };
    let mut waiting: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| ask()).collect();
    server.poll();
    let ids: Vec<ClientId> = std::iter::from_fn(|| server.take_request()).map(|(client, _)| client).collect();
    assert_eq!(ids.len(), CLIENTS_MAX);
    let mut one_too_many = ask();
    server.poll();
    let mut said = String::new();
    // What it asked for was not read, so its end may be an error.
    let _ = one_too_many.read_to_string(&mut said);
    assert!(said.contains("16 clients wait for answers") && said.contains("fix"), "{said}");
    // The one that has its answer makes way.
    server.answer(ids[3], Ok(Answer::new("on")));
    let _next = ask();
    server.poll();
    assert!(server.take_request().is_some());
    let mut line = String::new();
    waiting[3].read_to_string(&mut line).unwrap();
    assert!(line.contains("\"ok\""), "{line}");
}

#[test]
fn a_client_that_goes_before_its_answer_leaves_its_place_to_another() {
    let served = Served::new();
    for _ in 0..3 * CLIENTS_MAX {
        let mut stream = UnixStream::connect(&served.path).unwrap();
        stream.write_all(b"{\"version\":1,\"command\":\"power-cut\"}\n").unwrap();
        drop(stream);
        // Its place comes back with the answer that nobody takes.
        while served.client().ask(Command::PowerOn {}).is_err() {}
    }
    served.end();
}

#[test]
fn a_server_without_clients_sleeps() {
    let served = Served::new();
    let mut client = served.client();
    client.ask(Command::PowerOn {}).unwrap();
    drop(client);
    let turns = served.end();
    assert!(turns < 20, "{turns} turns for two requests");
}
