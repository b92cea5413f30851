//! Files after power cuts in the middle of what is drawn, on tables, on zones and of an ALFS.

use crate::common::{Drive, Where};
use crate::play::{Play, found};

#[test]
fn after_a_power_cut_files_are_as_they_were_at_one_moment_since_the_last_sync() {
    for (place, seed) in (0..24).flat_map(|seed| [(Where::Here, seed), (Where::Zoned, seed), (Where::Alfs, seed)]) {
        let mut drive = Drive::new(place, 96, seed);
        let mut play = Play::new(seed);
        for _ in 0..6 {
            for _ in 0..60 {
                play.step(&drive);
            }
            play.forget();
            drive = drive.power_cut(play.below(2) == 0);
            play.go_on_from(&found(&drive));
        }
    }
}
