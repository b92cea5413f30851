//! Messages to and fro over one TCP connection on this machine, with nothing between the two ends and the kernel: the
//! limit of whatever serves requests over TCP.
//!
//! ```text
//!   ping_pong serve [poll]                                       prints `listening on PORT`
//!   ping_pong ask PORT REQUEST ANSWER DEPTH SECONDS [poll]       sizes in bytes; prints one JSON object
//! ```
//!
//! The one who asks keeps DEPTH requests under way. Both ends take what has come in one call and answer all of it in one;
//! with `poll` they look again and again instead of sleeping until something comes.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const USAGE: &str = "ping_pong serve [poll] | ping_pong ask PORT REQUEST ANSWER DEPTH SECONDS [poll]";

/// The most bytes that are under way in one direction.
const UNDER_WAY_BYTES_MAX: usize = 64 << 20;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_polling = words.pop_if(|word| *word == "poll").is_some();
    match words[..] {
        ["serve"] => serve(is_polling),
        ["ask", port, request, answer, depth, seconds] => {
            let number = |text: &str| text.parse().map_err(|_| usage());
            let sizes = Sizes { request: number(request)?, answer: number(answer)?, depth: number(depth)? };
            let port = port.parse().map_err(|_| usage())?;
            ask(port, sizes, Duration::from_secs_f64(seconds.parse().map_err(|_| usage())?), is_polling)
        }
        _ => Err(usage()),
    }
}

fn usage() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, USAGE)
}

/// What goes to and fro.
#[derive(Clone, Copy)]
struct Sizes {
    request: usize,
    answer: usize,
    depth: usize,
}

impl Sizes {
    fn is_possible(self) -> bool {
        let fits = |size: usize| size > 0 && size.saturating_mul(self.depth) <= UNDER_WAY_BYTES_MAX;
        self.depth > 0 && fits(self.request) && fits(self.answer)
    }

    /// The first thing that is said.
    fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (place, value) in bytes.chunks_exact_mut(8).zip([self.request, self.answer, self.depth]) {
            place.copy_from_slice(&(value as u64).to_le_bytes());
        }
        bytes
    }

    fn of(bytes: [u8; 24]) -> Sizes {
        let value = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize;
        Sizes { request: value(0), answer: value(8), depth: value(16) }
    }
}

/// One end of the connection, that sleeps or not.
struct End {
    stream: TcpStream,
    is_polling: bool,
}

impl End {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if !self.is_polling {
            return self.stream.read(room);
        }
        loop {
            match recv(&self.stream, &mut *room, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => std::thread::yield_now(),
                result => return Ok(result?.0),
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }
}

/// Serves one who asks after the other, until it is killed.
fn serve(is_polling: bool) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("listening on {}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        match answer(stream?, is_polling) {
            // One who asks leaves with answers on their way to him.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            result => result?,
        }
    }
    Ok(())
}

fn answer(mut stream: TcpStream, is_polling: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; 24];
    stream.read_exact(&mut head)?;
    let mut stream = End { stream, is_polling };
    let sizes = Sizes::of(head);
    if !sizes.is_possible() {
        return Err(usage());
    }
    let mut room = vec![0; sizes.request * sizes.depth];
    let answers = vec![1; sizes.answer * sizes.depth];
    let mut come = 0;
    loop {
        let read = stream.read(&mut room)?;
        if read == 0 {
            return Ok(());
        }
        come += read;
        stream.write_all(&answers[..come / sizes.request * sizes.answer])?;
        come %= sizes.request;
    }
}

fn ask(port: u16, sizes: Sizes, time: Duration, is_polling: bool) -> io::Result<()> {
    if !sizes.is_possible() {
        return Err(usage());
    }
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.write_all(&sizes.to_bytes())?;
    let mut stream = End { stream, is_polling };
    let requests = vec![1; sizes.request * sizes.depth];
    let mut room = vec![0; sizes.answer * sizes.depth];
    let (mut come, mut round_trips) = (0, 0);
    let started = Instant::now();
    stream.write_all(&requests)?;
    while started.elapsed() < time {
        let read = stream.read(&mut room)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        come += read;
        let answered = come / sizes.answer;
        come %= sizes.answer;
        round_trips += answered;
        stream.write_all(&requests[..answered * sizes.request])?;
    }
    println!("{{\"iops\": {}}}", round_trips as f64 / started.elapsed().as_secs_f64());
    Ok(())
}
