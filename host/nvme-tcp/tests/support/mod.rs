//! Both halves of a connection, joined in memory.

pub mod controller;
pub mod host;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use controller::Controller;
use host::Host;

/// A seed and what follows from it.
pub struct Chance(Xoshiro256PlusPlus);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Zero if `bound` is.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.0.next_u64() % bound as u64) as usize }
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Bytes on their way, one direction.
#[derive(Default)]
pub struct Stream {
    pub bytes: Vec<u8>,
    /// Of which these have arrived.
    arrived: usize,
    /// How many bytes of payload were put in line, and after how many of them one is to be damaged.
    pub data_bytes: usize,
    pub damage_at: Option<usize>,
}

impl Stream {
    /// Puts payload in line.
    pub fn data(&mut self, piece: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(piece);
        if let Some(at) = self.damage_at
            && (self.data_bytes..self.data_bytes + piece.len()).contains(&at)
        {
            self.bytes[start + at - self.data_bytes] ^= 0x10;
        }
        self.data_bytes += piece.len();
    }

    pub fn is_empty(&self) -> bool {
        self.arrived == self.bytes.len()
    }

    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let rest = &self.bytes[self.arrived..];
        let piece = rest[..bytes.min(rest.len())].to_vec();
        self.arrived += piece.len();
        if self.is_empty() {
            self.bytes.clear();
            self.arrived = 0;
        }
        piece
    }
}

/// Host, controller and what is on its way between them.
pub struct Pair {
    pub host: Host,
    pub controller: Controller,
    pub to_controller: Stream,
    pub to_host: Stream,
    pub chance: Chance,
    /// The longest piece that arrives at once.
    pub piece_max: usize,
}

impl Pair {
    /// Lets one thing happen. False when there is nothing left that could.
    pub fn step(&mut self) -> bool {
        let Pair { host, controller, to_controller, to_host, chance, piece_max } = self;
        let first = chance.below(3);
        for turn in 0..3 {
            match (first + turn) % 3 {
                0 if !to_controller.is_empty() => {
                    let piece = to_controller.take(1 + chance.below(*piece_max));
                    controller.hear(&piece, chance, to_host);
                    return true;
                }
                1 if !to_host.is_empty() => {
                    let piece = to_host.take(1 + chance.below(*piece_max));
                    host.hear(&piece, chance, to_controller);
                    return true;
                }
                2 if controller.work(chance, to_host) => return true,
                _ => {}
            }
        }
        false
    }

    pub fn settle(&mut self) {
        while self.step() {}
    }
}
