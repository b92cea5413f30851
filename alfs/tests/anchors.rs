//! The segments with records: how far they are filled, and which record counts.

use crate::host::Host;
use openftl_alfs::segments::ANCHORS;
use openftl_alfs::{FileKind, FileTime, Inode, Volume};
use openftl_core::VirtualClock;
use openftl_parts::target::SegmentTarget;
use openftl_segments::MemorySegments;

const SHORT: u32 = 16;

#[test]
fn a_record_that_would_fill_an_anchor_to_its_last_block_is_refused() {
    let mut ends = [0; 2];
    for segments in (3700..4100).step_by(20) {
        let drive = MemorySegments::new(segments, SHORT, 1200);
        match Volume::format(drive, 77, (0, 0), FileTime::default(), &mut VirtualClock::default()) {
            Ok(volume) => {
                let fullest = (0..ANCHORS).map(|anchor| volume.target().segment(anchor).written).max().unwrap();
                assert!(fullest < SHORT, "{segments} segments: an anchor of {fullest} blocks cannot be left");
                ends[0] += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("a record does not fit into a segment"), "{error}");
                ends[1] += 1;
            }
        }
    }
    assert!(ends[0] > 2 && ends[1] > 2, "{ends:?}: both are tried");
}

#[test]
fn a_record_of_many_nodes_stays_short_enough_for_a_short_anchor() {
    let mut host = Host::<MemorySegments>::in_memory(1200, SHORT);
    for number in 0..9000 {
        host.make(Inode::ROOT, &format!("{number}"), FileKind::Regular);
        if number % 500 == 0 {
            host.sync();
        }
    }
    host.sync();
    host.mount_again();
    assert_eq!(host.volume().failure(), None);
}
