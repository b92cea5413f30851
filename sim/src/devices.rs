//! Small devices that differ in what a power cut may leave.

use openftl_media::Profile;
use openftl_media::profile::{Cell, Programming};

fn tiny() -> Profile {
    Profile::builtin("tiny").expect("a builtin profile")
}

/// A device with neither pages that damage each other nor blocks that are held back, and one with both and without power-loss protection.
#[must_use]
pub fn plain_and_paired() -> [Profile; 2] {
    let plain = tiny();
    let mut paired = plain.clone();
    (paired.chip.cell, paired.chip.programming) = (Cell::Mlc, Programming::Shared);
    (paired.chip.pair_distance, paired.chip.read_us) = (Some(1), vec![40, 60]);
    (paired.chip.program_us, paired.cache.power_loss_protection) = (vec![400, 800], false);
    [plain, paired]
}

/// Devices with one parallel unit a group: with and without power-loss protection, and with one-shot programming, where nothing is held back.
#[must_use]
pub fn smallest() -> [Profile; 3] {
    let mut protected = tiny();
    protected.pus_per_group = 1;
    let mut unprotected = protected.clone();
    unprotected.cache.power_loss_protection = false;
    let mut one_shot = unprotected.clone();
    one_shot.chip.programming = Programming::OneShot;
    (one_shot.chip.pair_distance, one_shot.chip.program_us) = (None, vec![1600]);
    [protected, unprotected, one_shot]
}
