//! The bytes of superblocks, and what is refused.

use super::*;

fn superblock() -> Superblock {
    Superblock {
        map: Some(MapOnMedia { page_entries: PageSize::WHOLE, memory_bytes: 0x31_4159, cache: CachePolicy::TwoQueues }),
        drive: 0xD21E,
        sequence: 17,
        capacity_blocks: 1 << 20,
        over_provisioning: Share::percent(7),
        catalog_blocks: 0,
        tenant: Default::default(),
        geometry: [8, 4, 1474, 6144],
        clean: true,
        copies: false,
        checkpoint: CheckpointPlace {
            sequence: 3,
            blocks: 100,
            copies: [
                vec![Extent { chunk: 5, first: 24, blocks: 48 }, Extent { chunk: 9, first: 0, blocks: 52 }],
                vec![Extent { chunk: 6, first: 0, blocks: 100 }],
            ],
        },
        first_lsn: 99,
        position: 12345,
        durable_below: 140,
        log_chunks: [vec![7, 8], vec![10]],
        log_gaps: vec![LogGap { end: 110, next: 130 }],
        places: [0, 1, 64, u32::MAX],
        sizing: Sizing { checkpoint_log_blocks: Some(24), placement: PlacementName::Fdp, handles: 5, objects_max: 300 },
        life: Life { opened: 3, host_blocks_written: 12_000, media_blocks_written: 30_000, ..Life::default() },
    }
}

#[test]
fn a_superblock_survives_its_bytes() {
    let bytes = superblock().encode();
    assert_eq!(bytes.len(), BLOCK_BYTES);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock()));
}

#[test]
fn the_bytes_on_media_are_these() {
    let text = superblock().encode()[..288 + 64].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    expect_test::expect!["4f46544c535550520600000060010000631bde96010000001ed200000000000011000000000000000000100000000000701101000800000004000000c205000000180000640000000300000000000000630000000000000039300000000000008c00000000000000020000000100000002000000010000000100000000000000000000000100000040000000ffffffff180000000000000005052c010004000059413100000000000200000000000000030000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e02e000000000000000000000000000030750000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000005000000180000003000000009000000000000003400000006000000000000006400000007000000080000000a0000006e000000000000008200000000000000"].assert_eq(&text);
}

#[test]
fn a_long_superblock_takes_several_blocks() {
    let long = Superblock { log_chunks: [(0..2980).collect(), Vec::new()], ..superblock() };
    let bytes = long.encode();
    assert_eq!(bytes.len(), 3 * BLOCK_BYTES);
    assert_eq!(Superblock::length(&bytes[..BLOCK_BYTES]), Ok(288 + 36 + 11_920 + 16));
    assert_eq!(Superblock::decode(&bytes), Ok(long));
    assert_eq!(Superblock::decode(&bytes[..BLOCK_BYTES]), Err(SuperblockError::Length(12_260)));
}

#[test]
fn a_record_with_as_many_log_chunks_as_there_is_room_for_fits_and_is_full() {
    for ws_min in [1, 4, 24] {
        let geometry = Geometry { ws_min, ws_opt: ws_min, blocks_per_chunk: 96, ..Geometry::tiny() };
        let fits = |count: u32| {
            let log_gaps = vec![LogGap { end: 1, next: 2 }; LOG_GAPS_MAX];
            let long = Superblock { log_chunks: [(0..count).collect(), Vec::new()], log_gaps, ..superblock() };
            let blocks = (long.encode().len() / BLOCK_BYTES).next_multiple_of(ws_min as usize);
            blocks * BLOCK_BYTES <= SUPERBLOCK_BYTES_MAX
        };
        let most = Superblock::log_chunks_max(&geometry, superblock().checkpoint.extents().count() as u64) as u32;
        assert!(fits(most) && !fits(most + 1), "{most} of units of {ws_min}");
    }
}

#[test]
fn gaps_of_the_log_that_touch_or_overlap_become_one() {
    let check = |known: &[(u64, u64)], gap: (u64, u64), joined: &[(u64, u64)]| {
        let gaps = |list: &[(u64, u64)]| list.iter().map(|(end, next)| LogGap { end: *end, next: *next }).collect();
        let mut superblock = Superblock { first_lsn: 1, log_gaps: gaps(known), ..superblock() };
        let next = superblock.skip_log(LogGap { end: gap.0, next: gap.1 });
        assert_eq!(next, joined.last().map(|(_, next)| *next), "{known:?} and {gap:?}");
        assert_eq!(superblock.log_gaps, gaps(joined), "{known:?} and {gap:?}");
        let skipped: u64 = joined.iter().map(|(end, next)| next - end).sum();
        assert_eq!(superblock.log_skipped(), skipped, "{known:?} and {gap:?}");
    };
    check(&[], (10, 20), &[(10, 20)]);
    check(&[(10, 20)], (30, 40), &[(10, 20), (30, 40)]);
    check(&[(10, 20)], (20, 40), &[(10, 40)]);
    check(&[(10, 20)], (15, 40), &[(10, 40)]);
    check(&[(10, 90)], (15, 40), &[(10, 90)]);
    check(&[(10, 20), (30, 90)], (25, 40), &[(10, 20), (25, 90)]);
    check(&[(10, 20), (30, 90)], (5, 40), &[(5, 90)]);
}

#[test]
fn a_gap_that_reaches_below_the_first_number_of_the_log_skips_only_what_the_log_has() {
    let log_gaps = vec![LogGap { end: 90, next: 110 }];
    assert_eq!(Superblock { first_lsn: 100, log_gaps, ..superblock() }.log_skipped(), 10);
}

#[test]
fn no_more_gaps_are_named_than_there_is_room_for() {
    let log_gaps: Vec<LogGap> =
        (1..=LOG_GAPS_MAX as u64).map(|gap| LogGap { end: 10 * gap, next: 10 * gap + 5 }).collect();
    let mut full = Superblock { log_gaps: log_gaps.clone(), ..superblock() };
    assert_eq!(full.skip_log(LogGap { end: 5000, next: 6000 }), None);
    assert_eq!(full.log_gaps, log_gaps);
    let last = log_gaps[LOG_GAPS_MAX - 1];
    assert_eq!(full.skip_log(LogGap { end: last.next, next: 6000 }), Some(6000), "one that grows takes no room");
}

#[test]
fn any_flipped_bit_is_found_out() {
    let mut bytes = superblock().encode();
    for bit in 0..336 * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = superblock().encode();
    let (newer, older) = (SUPERBLOCK_VERSION + 1, SUPERBLOCK_VERSION - 1);
    bytes[8] = newer as u8;
    let error = Superblock::decode(&bytes).unwrap_err();
    assert_eq!(error, SuperblockError::Version(newer));
    assert!(error.to_string().ends_with("use a newer OpenFTL"), "{error}");
    bytes[8] = older as u8;
    let error = Superblock::decode(&bytes).unwrap_err().to_string();
    let said =
        format!("has format version {older}, this program knows version {SUPERBLOCK_VERSION}: use the older OpenFTL");
    assert!(error.contains(&said), "{error}");
}
