//! Serves a piece of memory over NBD, to try clients and to see what the server alone costs:
//! `serve_memory unix:./socket 1GiB`.

#[path = "../../bytes/tests/support/memory.rs"]
#[expect(dead_code, reason = "tests use more of it")]
mod memory;

use memory::{Memory, Temper};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_server::{Endpoint, Export, Protocol, ServedDrive, Server, ServerConfig, Stop, WallClock};

impl ServedDrive for Memory {
    type Device = openftl_media::EmulatedDevice;
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let endpoint: Endpoint = arguments.next().ok_or("where to listen? for example unix:./socket")?.parse()?;
    let size: ByteSize = arguments.next().as_deref().unwrap_or("1GiB").parse()?;
    let temper = match arguments.next() {
        Some(micros) => Temper::Shuffled { seed: 1, within: Nanos::from_micros(micros.parse()?) },
        None => Temper::Instant,
    };
    let target = Memory::new((size.0 / BLOCK_BYTES as u64) as usize, 32 << 10, temper);
    let stop = Stop::new()?;
    let mut server = Server::new(ServerConfig::default())?;
    let endpoint = server.listen(endpoint, Protocol::Nbd)?;
    println!("nbdinfo '{endpoint}'");
    let export =
        Export { name: "memory".to_owned(), description: format!("{size} of memory"), read_only: false, target };
    // Ends with its standard input, so that a script can end it cleanly without signals.
    let at_end_of_input = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        at_end_of_input.request();
    });
    let counters = server.counters();
    server.run(&mut [export], &mut WallClock::new(), &stop)?;
    println!("{counters:#?}");
    Ok(())
}
