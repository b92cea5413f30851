//! Drawn histories: of the device, of what a host does, of faults and of power cuts, as the explorer has them for zoned drives.

use openftl_parts::{Config, OpenError, VictimPolicy};
use openftl_sim::page_world::PageWorld;
use openftl_sim::step::{parse_steps, write_steps};
use openftl_sim::swarm::Kind;
use openftl_sim::{Drives, Run, Tally, explore, explore_in};

const SEEDS: u64 = 100;

/// Histories that were found, each mended since: a page that a power cut had cut off hid those behind it from cleaning; a host waited for a
/// chunk that the device did not let be opened; a stop waited for a checkpoint that had begun before the last commit; a store that wore
/// out while it was stopped waited for ever; a check waited for the end of a scrub that had none.
///
/// Of the log in chunks of its own: a seal was taken over from it that was another chunk's by then; a group behind one that was torn counted; a chunk
/// was said to be opened behind a page in it; leaves were newer than the log that was done again; what was read once after a power cut was not there
/// after the next.
const FOUND: [(u64, VictimPolicy); 10] = [
    (12, VictimPolicy::Greedy),
    (22_871, VictimPolicy::Greedy),
    (30_150, VictimPolicy::Greedy),
    (31_548, VictimPolicy::Greedy),
    (72_870, VictimPolicy::Greedy),
    (52, VictimPolicy::CostBenefit),
    (77, VictimPolicy::MinimumDecliningCost),
    (168, VictimPolicy::Greedy),
    (277, VictimPolicy::CostBenefit),
    (300_441, VictimPolicy::Greedy),
];

/// Plays a history as it was drawn when it was found: the one of a zoned drive, with a store of pages in its place.
fn play_found(seed: u64, victim: VictimPolicy) {
    let run = Run::draw_of(seed, Drives::Zones);
    let Kind::Zones { chunks, .. } = run.setting.kind else { unreachable!("zoned drives are drawn") };
    let (profile, config) = (run.setting.profile.clone(), Config { victim, ..run.setting.config.clone() });
    // A device that lets fewer than three chunks be open has no store of pages.
    let made = PageWorld::try_new(profile.clone(), config.clone(), chunks + 70, seed);
    if let Err(OpenError::Tenant { is_lost: false, .. }) = made {
        return;
    }
    let explored = explore_in(&run, || PageWorld::new(profile, config, chunks + 70, seed));
    if let Some(failure) = explored.failure {
        panic!("seed {seed}: {failure}\n{}\n{}", run.setting, write_steps(&run.steps));
    }
}

#[test]
fn histories_that_were_found_are_sound() {
    FOUND.into_iter().for_each(|(seed, victim)| play_found(seed, victim));
}

/// Found among histories of stores of pages: a host waited for chunks that had gone bad; a checkpoint waited for room in the log that it was to make; a batch
/// had changes of another one with its number, which a power cut had cut off; the log of a drive that had worn out waited for a chunk, and a checkpoint
/// of another one for a chunk that only itself would have freed; a list of pages waited for a leaf that nobody read, of a store that had just been opened.
#[test]
fn histories_of_stores_that_were_found_are_sound() {
    for seed in [34, 20_097, 20_362, 20_452, 60_002_684] {
        let run = Run::draw_of(seed, Drives::Pages);
        assert_eq!(explore(&run).failure, None, "seed {seed}");
    }
}

#[test]
fn histories_of_pages_are_sound() {
    let mut tally = Tally::default();
    let first = std::env::var("OPENFTL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let seeds = std::env::var("OPENFTL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    for seed in first..first + seeds {
        let run = Run::draw_of(seed, Drives::Pages);
        let explored = explore(&run);
        if let Some(failure) = explored.failure {
            panic!("seed {seed}: {failure}\n{}\n{}", run.setting, write_steps(&run.steps));
        }
        tally += &explored.tally;
    }
    let Tally { cuts, recovery_cuts, restarts, .. } = tally;
    println!("{seeds} histories: {cuts} power cuts, {recovery_cuts} of recoveries, {} faults", tally.faults());
    assert!(cuts > 500 && recovery_cuts > 50 && restarts > 50 && tally.faults() > 50, "all of it happens: {tally:?}");
}

/// The pages of a victim found no room in the chunk that pages moved to, and there was no other: a host that put a page was to try again for ever.
#[test]
fn who_puts_hears_that_there_is_no_room_if_nothing_can_move() {
    let steps = "Q0+23 Q7917+48 A4740+26 R1+0 A548+29 A2+21 x94~3426 A2+15 Q5178+56 A1+30 S2+5 Q0+1 s Q5405+43 S1+11 S8458+9 A1+23 A1+24 A3+30 f \
        R3+0 D5402+34 Q0+38 S1+16 f F2+0 !program7226 A4121+34 D3+21 c Q3541+14 A1+30 A7303+6 S1+32 f A2+37 A7818+36 A0+36 S1+8 A427+13 \
        S1+18 s f f s A3+25 D0+39 R2+0 A2+25 R2+0 f Q2+52 s R4518+0 F7908+0 !program6880 i1000 S2+6 A1+1 A3+19 S3+20 S2+1 Q0+53 R1+0 \
        i1000 R2+0 O4212+0 S1+5 Q0+57 Q2+8 A0+33 D5390+17 R0+0 S1+34 A2797+23 S3+27 D0+29 s R3+0 x78+19 O6359+0 !ecc9570 A0+13 Q9162+5 \
        A3+39 R2+0 f !ecc6126 A7251+38 A0+33 i1000 S9950+34 A1+10 Q3+45 S3+33 Q0+32 Q5650+19 D1+6 S231+20 o56 x13~692t D3+33 f S9265+26 \
        S6683+40 x112t i1000 O1+0 o59 x61+27~3942 S3+14 O2+0 x35+9~8685 A3+30 S3997+13 R263+0 S0+25";
    let run = Run::with_steps(20_452, Drives::Pages, parse_steps(steps).unwrap()).unwrap();
    assert_eq!(explore(&run).failure, None);
}
