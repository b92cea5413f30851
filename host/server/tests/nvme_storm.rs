//! Hosts that say anything after a good handshake: whatever it is, the server goes on, others are served, and nothing is
//! kept. The fuzz target `server` has a fuzzer decide what they say.

#[path = "../../bytes/tests/support/memory.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod memory;
#[path = "support/nvme.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod nvme;
#[path = "support/rant.rs"]
mod rant;
#[path = "support/reactors.rs"]
mod reactors;

use memory::{Memory, Temper};
use nvme::{Queue, Served, Wishes, page_store, zoned_drive};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rant::{Chance, visit};

const SEEDS: u64 = 400;

struct Seeded(Xoshiro256PlusPlus);

impl Chance for Seeded {
    fn next(&mut self) -> u32 {
        self.0.next_u32()
    }
}

#[test]
fn whatever_follows_a_handshake_the_server_goes_on() {
    let within = Nanos::from_micros(100);
    let device = EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 4, Store::Ram, Timing::Instant, 1).unwrap();
    let wishes =
        Wishes { zoned: Some(zoned_drive()), pages: Some(page_store()), device: Some(device), ..Wishes::default() };
    let served = Served::with(Memory::new(512, 512, Temper::Shuffled { seed: 1, within }), wishes);
    let good = served.host();
    let mut witness: Queue = good.queue(1);
    for seed in 0..SEEDS {
        visit(&served, &mut Seeded(Xoshiro256PlusPlus::seed_from_u64(seed)));
        let data = vec![seed as u8; BLOCK_BYTES];
        assert_eq!(witness.write(511, &data), 0, "seed {seed}");
        assert_eq!(witness.read(511, 1).len(), BLOCK_BYTES, "seed {seed}");
    }
    drop((good, witness));
    served.end();
}
