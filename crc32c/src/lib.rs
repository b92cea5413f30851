//! CRC32C (Castagnoli), the checksum of everything that OpenFTL puts on media, and of NVMe/TCP, at the speed of the machine.
//!
//! ```text
//!   update ──▶ the way of this machine, chosen once
//!                ├── x86    512-bit folding    AVX-512 and VPCLMULQDQ
//!                ├── x86    256-bit folding    AVX2 and VPCLMULQDQ
//!                ├── x86    128-bit folding    PCLMULQDQ
//!                ├── x86    instruction        SSE 4.2
//!                ├── arm    instruction        CRC extension
//!                └── tables                    anywhere
//! ```
//!
//! Bytes are a polynomial over two elements, and their CRC is its remainder. *Folding* replaces what stands in front of a vector by something
//! shorter with the same remainder, and adds that to the vector (`polynomial.rs` has the constants). [`ways`] gives all that this machine can do,
//! for tests and measurements.
//!
//! `unsafe` is in `x86.rs` and `arm.rs` alone: loads of arrays of the right length, and calls of functions whose features were found.

#[cfg(target_arch = "aarch64")]
mod arm;
mod polynomial;
mod tables;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::atomic::{AtomicU8, Ordering};

/// CRC32C of `bytes`, initial value and final XOR all ones, as iSCSI and NVMe/TCP define it.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    !update(!0, bytes)
}

/// CRC32C of bytes that come in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc32c {
    state: u32,
}

impl Crc32c {
    /// Of no bytes yet.
    #[must_use]
    pub fn new() -> Crc32c {
        Crc32c { state: !0 }
    }

    /// The next piece.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.state = update(self.state, bytes);
    }

    /// What [`crc32c`] says of all pieces together.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u32 {
        !self.state
    }
}

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c::new()
    }
}

/// The state behind more bytes. The state of no bytes is all ones, and the CRC of what has been seen is the complement of the state.
#[inline]
#[must_use]
pub fn update(state: u32, bytes: &[u8]) -> u32 {
    /// A place in [`ways`], and one more; 0: not looked for.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);
    let way = match CHOSEN.load(Ordering::Relaxed) {
        0 => choose(&CHOSEN),
        chosen => Way::ALL[chosen as usize - 1],
    };
    // SAFETY: only a way that is there is chosen.
    unsafe { way.run(state, bytes) }
}

#[cold]
fn choose(chosen: &AtomicU8) -> Way {
    let at = Way::ALL.iter().position(|way| way.is_there()).expect("tables are everywhere");
    chosen.store(at as u8 + 1, Ordering::Relaxed);
    Way::ALL[at]
}

/// A way to do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Folding of 512 bits.
    Fold512,
    /// Folding of 256 bits.
    Fold256,
    /// Folding of 128 bits.
    Fold128,
    /// The instruction of x86.
    X86,
    /// The instruction of ARM.
    Arm,
    /// Eight tables.
    Tables,
}

/// What this machine can do, the fastest first.
pub fn ways() -> impl Iterator<Item = Way> {
    Way::ALL.into_iter().filter(|way| way.is_there())
}

impl Way {
    const ALL: [Way; 6] = [Way::Fold512, Way::Fold256, Way::Fold128, Way::X86, Way::Arm, Way::Tables];

    /// What [`update`] does, in this way.
    ///
    /// # Panics
    /// If this machine cannot do it.
    #[must_use]
    pub fn update(self, state: u32, bytes: &[u8]) -> u32 {
        assert!(self.is_there(), "this machine has no {self:?}");
        // SAFETY: it was just asked.
        unsafe { self.run(state, bytes) }
    }

    #[cfg(target_arch = "x86_64")]
    fn is_there(self) -> bool {
        let has_instruction = is_x86_feature_detected!("sse4.2");
        let folds = has_instruction && is_x86_feature_detected!("pclmulqdq");
        let folds_more = folds && is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx2");
        match self {
            Way::Fold512 => folds_more && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl"),
            Way::Fold256 => folds_more,
            Way::Fold128 => folds,
            Way::X86 => has_instruction,
            Way::Arm => false,
            Way::Tables => true,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn is_there(self) -> bool {
        self == Way::Tables || (self == Way::Arm && std::arch::is_aarch64_feature_detected!("crc"))
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn is_there(self) -> bool {
        self == Way::Tables
    }

    /// # Safety
    /// The machine has it.
    #[inline]
    unsafe fn run(self, state: u32, bytes: &[u8]) -> u32 {
        match self {
            // SAFETY: the machine has what these use, says the caller.
            #[cfg(target_arch = "x86_64")]
            Way::Fold512 => unsafe { x86::fold_512(state, bytes) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Way::Fold256 => unsafe { x86::fold_256(state, bytes) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Way::Fold128 => unsafe { x86::fold_128(state, bytes) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Way::X86 => unsafe { x86::words(state, bytes) },
            // SAFETY: the same.
            #[cfg(target_arch = "aarch64")]
            Way::Arm => unsafe { arm::words(state, bytes) },
            _ => tables::update(state, bytes),
        }
    }
}
