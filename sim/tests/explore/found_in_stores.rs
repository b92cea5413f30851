//! What the explorer has found in stores of pages and in file systems: each is a small history that once failed.

use super::explored;
use openftl_sim::step::parse_steps;
use openftl_sim::swarm::Kind;
use openftl_sim::{Drives, Run, explore};

/// A chunk whose pages were elsewhere by the end of the log came back before that end was written again. The next power cut took the end.
#[test]
fn chunks_of_pages_come_back_when_what_was_found_of_the_log_is_durable() {
    let steps = "S0+1 i25000 A0+4 x20/59 S0+76 D0+1 S2413+1 S0+189 S4799+69 Q0+1 S5837+167 A1828+1 D0+1 Q0+1 x1/68 A0+85 S0+13 R0+0 \
                 S0+142 Q0+1 S0+92 A0+100 S0+50 f Q0+1 Q0+1 A0+3 x1+3/1/1/50 x1+26~4492/143~3437/1/113 A0+13";
    let run = Run::with_steps(1_520, Drives::Pages, parse_steps(steps).unwrap()).unwrap();
    assert_eq!(explore(&run).failure, None);
}

/// The log of a store was read until no read was under way, and a scrub that is late has one under way at every moment.
#[test]
fn a_store_of_pages_is_opened_though_its_scrub_is_late() {
    let steps = "S0+17 S0+36 A105+32 S0+7 F0+0 Q0+1 A8225+26 Q0+1 A0+28 x112 A0+40 A8376+17 f Q3568+1 x1~8673/1 x1/117 x3+28t S0+4 x67 \
                 A0+35 x3~3858/36/94 A0+1 x74+3/103 S0+1 x72/35/54/141+13 S0+1 D0+1 A0+1 s S0+5 D0+1 !retry4630 x1";
    let run = Run::with_steps(900_000_834, Drives::Pages, parse_steps(steps).unwrap()).unwrap();
    assert_eq!(explore(&run).failure, None);
}

/// Many power cuts in a row left so many chunks that none was free to write the end of the log again. The drive waited for ever, and later took no more
/// writes, though hardly any of those chunks held anything.
#[test]
fn power_cuts_in_a_row_leave_a_store_of_pages_the_chunks_that_its_recovery_needs() {
    let steps = "x5+18 A0+4 x1 x1 x1+24/72 x15/60 R0+0 A0+4 x9+6 S0+1 f R0+0 x1+18 x1 x1 x1 x1 x67/149/103/116 A1+4 S0+1 f f \
                 x1+15/53/82/44 x1/120 F0+0 A0+1 x7/114 !close8225";
    let run = Run::with_steps(910_000_904, Drives::Pages, parse_steps(steps).unwrap()).unwrap();
    assert_eq!(explored(run).worn_out, 0);
}

/// A store that is as small as one can be had no chunk left for pages that a failed program had left. It waited for chunks that were to leave when the log
/// says that they hold nothing, and the log for these pages.
#[test]
fn pages_that_lack_a_chunk_do_not_wait_for_one_that_waits_for_them() {
    let steps = "x87+27 D0+20 D0+1 x7+6 A0+4 x80+30 R0+0 D1+11 x1 x42/125+8t O0+0 x1/121 x65t S0+1 R0+0 x63 S8645+1";
    let mut run = Run::with_steps(10_484, Drives::Pages, parse_steps(steps).unwrap()).unwrap();
    run.setting.kind = Kind::Pages { chunks: 34 };
    assert_eq!(explore(&run).failure, None);
}

/// Found by the explorer. 1,970: after a power cut a segment went on behind a unit that could be read once more and never again, and what had been saved
/// of that unit was given up. 5,039: a file system on a drive that had worn out read zeroes where its last blocks had been.
#[test]
fn histories_of_files_that_once_failed_pass() {
    for (seed, steps) in [(1_970, FADING_UNIT), (5_039, WORN_OUT_BELOW_FILES)] {
        explored(Run { steps: parse_steps(steps).unwrap(), ..Run::draw_of(seed, Drives::Files) });
    }
}

const FADING_UNIT: &str = "jsync0 jsymlink0 jmake0 jwrite85411 c jmake4 jzero6655 jbegin-sync0 jwrite48125 jwrite29507 i1000 x1/80/67 \
    jwrite0 jsync0 x81~9180 jwrite36019 jmake5552 jmake-folder2 jwrite24078 jwrite23788 jwrite11523 jsync0 \
    jwrite99619 jbegin-sync0 jwrite5285 jwrite36967 jsync0 jwrite163 i1000 jbegin-sync0";
const WORN_OUT_BELOW_FILES: &str = "x1/47/42+23t/86+24~4622 x1+18 x1~190 x109+28/144 jbegin-sync0 jmake0 jmake1 jmake-special1 jwrite71005 \
    jwrite90236 jidle77189 jidle0 jmake-folder2 jwrite14448 jbegin-sync0 x91/105+14/1 i62500 jmake-special0 \
    jbegin-sync0 jwrite105 i2000000 jwrite-far0 junlink0 jbegin-sync0 i1000000 jwrite0";
