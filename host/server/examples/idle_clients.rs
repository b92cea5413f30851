//! What one busy client gets beside others that are connected and ask for nothing: reads of 4 KiB over NBD, one at a time, in turns without and with the
//! others, so that other work on the machine hits both alike.
//!
//! ```text
//!   cargo run --release -p openftl-server --example idle_clients -- 900        idle clients
//! ```

#[path = "../../bytes/tests/support/memory.rs"]
#[expect(dead_code, reason = "tests use more of it")]
mod memory;

use memory::{Memory, Temper};
use openftl_core::BLOCK_BYTES;
use openftl_server::{Endpoint, Export, Protocol, ServedDrive, Server, ServerConfig, Stop, WallClock};
use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const BLOCKS: u64 = 4096;
const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_secs(1);

impl ServedDrive for Memory {
    type Device = openftl_media::EmulatedDevice;
}

/// A client that has chosen the export, and may ask for blocks.
fn connected(address: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.read_exact(&mut [0; 18])?;
    // Fixed newstyle, no zeroes; then the export without a name.
    stream.write_all(&3_u32.to_be_bytes())?;
    stream.write_all(&[&b"IHAVEOPT"[..], &1_u32.to_be_bytes(), &0_u32.to_be_bytes()].concat())?;
    stream.read_exact(&mut [0; 10])?;
    Ok(stream)
}

/// Reads a second.
fn rate(stream: &mut TcpStream) -> Result<f64> {
    let (began, mut reads, mut reply) = (Instant::now(), 0, vec![0; 16 + BLOCK_BYTES]);
    while began.elapsed() < TURN {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        request[8..16].copy_from_slice(&u64::to_be_bytes(reads));
        request[16..24].copy_from_slice(&(reads * 7919 % BLOCKS * BLOCK_BYTES as u64).to_be_bytes());
        request[24..].copy_from_slice(&(BLOCK_BYTES as u32).to_be_bytes());
        stream.write_all(&request)?;
        stream.read_exact(&mut reply)?;
        assert_eq!(&reply[4..8], [0; 4], "a read that failed");
        reads += 1;
    }
    Ok(reads as f64 / began.elapsed().as_secs_f64())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let clients: usize = std::env::args().nth(1).map_or(Ok(900), |text| text.parse())?;
    let target = Memory::new(BLOCKS as usize, 1024, Temper::Instant);
    let stop = Stop::new()?;
    let mut server = Server::new(ServerConfig::default())?;
    let Endpoint::Tcp(address) = server.listen("127.0.0.1:0".parse()?, Protocol::Nbd)? else {
        unreachable!("it listens on TCP")
    };
    let its_stop = stop.clone();
    let served = std::thread::spawn(move || {
        let mut exports = [Export { name: String::new(), description: String::new(), read_only: false, target }];
        server.run(&mut exports, &mut WallClock::new(), &its_stop)
    });
    let mut busy = connected(address)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(rate(&mut busy)?);
        let idle: Vec<TcpStream> = (0..clients).map(|_| connected(address)).collect::<Result<_>>()?;
        beside.push(rate(&mut busy)?);
        drop(idle);
    }
    let (alone, beside) = (median(alone), median(beside));
    println!("{alone:.0} reads/s alone, {beside:.0} beside {clients} idle clients: {:.2}", beside / alone);
    stop.request();
    served.join().expect("the server does not panic")?;
    Ok(())
}
