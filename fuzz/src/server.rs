//! A server on a socket, with hosts that shake hands as they should: what they say then is up to the fuzzer.
//!
//! ```text
//!   2 bytes a decision: which queue ─▶ how much is said ─▶ command, data nobody asked for, or any bytes ─▶ each field …
//! ```
//!
//! Whatever it is, another host reads afterwards what it wrote before, within a number of turns of the server that does not
//! depend on what was said, and when the server has stopped it has kept neither a frame nor a request.

use crate::memory::{Memory, Temper};
use crate::nvme::{Served, Wishes, page_store, zoned_drive};
use crate::rant::{Chance, visit};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};

/// A block that hosts seldom name, for the one that behaves.
const BLOCK: u32 = 511;

/// Turns of the server's loop in which the host that behaves is served a write and a read, whatever others have left behind:
/// hundreds of requests at most. A server that spins, or serves others first, takes more.
const TURNS_MAX: u64 = 5_000;

/// Takes its decisions from the input, and zeroes when that has come to its end.
struct Input<'a>(&'a [u8]);

impl Chance for Input<'_> {
    fn next(&mut self) -> u32 {
        let Some((decision, rest)) = self.0.split_first_chunk::<2>() else { return 0 };
        self.0 = rest;
        u16::from_le_bytes(*decision).into()
    }
}

pub fn run(data: &[u8]) {
    let device =
        EmulatedDevice::new(Profile::builtin("tiny").expect("it is built in"), 4, Store::Ram, Timing::Instant, 1);
    let device = Some(device.expect("it can be made"));
    let wishes = Wishes { zoned: Some(zoned_drive()), pages: Some(page_store()), device, ..Wishes::default() };
    let temper = Temper::Shuffled { seed: data.len() as u64, within: Nanos::from_micros(20) };
    let served = Served::with(Memory::new(512, 512, temper), wishes);
    let host = served.host();
    let mut witness = host.queue(1);
    let mut input = Input(data);
    // One visit, and more while there is input.
    for round in 0..4 {
        visit(&served, &mut input);
        let written = vec![round | 0x80; BLOCK_BYTES];
        let before = served.counters.turns.get();
        assert_eq!(witness.write(BLOCK, &written), 0, "the server serves others");
        assert!(witness.read(BLOCK, 1) == written, "what was written is there");
        let turns = served.counters.turns.get() - before;
        assert!(turns < TURNS_MAX, "{turns} turns for a write and a read");
        if input.0.is_empty() {
            break;
        }
    }
    drop((witness, host));
    served.end();
}
