//! Every way of this machine beside an implementation by somebody else.

use crc::{CRC_32_ISCSI, Crc};
use openftl_crc32c::{Crc32c, Way, crc32c, update, ways};

const OTHER: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Bytes that repeat nowhere near.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(next).collect()
}

#[test]
fn the_check_string_has_the_published_value() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    for way in ways() {
        assert_eq!(!way.update(!0, b"123456789"), 0xE306_9283, "{way:?}");
    }
}

#[test]
fn tables_are_everywhere_and_the_last_choice() {
    assert_eq!(ways().last(), Some(Way::Tables));
    println!("this machine has {:?}", ways().collect::<Vec<_>>());
}

#[test]
fn every_way_agrees_with_another_implementation_at_all_lengths_and_alignments() {
    let bytes = bytes(1_400);
    for way in ways() {
        for length in 0..=1_100 {
            for start in [0, 1, 2, 3, 7, 8, 15, 16, 31, 63] {
                let piece = &bytes[start..start + length];
                assert_eq!(!way.update(!0, piece), OTHER.checksum(piece), "{way:?}: {length} bytes from {start} on");
            }
        }
        for start in 0..64 {
            let piece = &bytes[start..start + 777];
            assert_eq!(!way.update(!0, piece), OTHER.checksum(piece), "{way:?}: from {start} on");
        }
    }
}

#[test]
fn every_way_agrees_on_blocks_and_what_is_around_them() {
    let bytes = bytes(1 << 16);
    for way in ways() {
        for length in [4_095, 4_096, 4_097, 8_192, 16_384 + 255, 65_535, 65_536] {
            assert_eq!(!way.update(!0, &bytes[..length]), OTHER.checksum(&bytes[..length]), "{way:?}: {length} bytes");
        }
    }
}

#[test]
fn every_way_goes_on_from_any_state() {
    let bytes = bytes(5_000);
    let whole = update(!0, &bytes);
    for way in ways() {
        for cut in (0..=5_000).step_by(13).chain([255, 256, 257, 4_999]) {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(way.update(way.update(!0, first), second), whole, "{way:?}: cut at {cut}");
        }
    }
}

#[test]
fn pieces_have_the_checksum_of_the_whole() {
    let bytes = bytes(10_000);
    for cut in [0, 1, 3, 8, 255, 4_096, 9_999, 10_000] {
        let mut pieces = Crc32c::new();
        pieces.update(&bytes[..cut]);
        pieces.update(&[]);
        pieces.update(&bytes[cut..]);
        assert_eq!(pieces.value(), crc32c(&bytes), "cut at {cut}");
    }
    assert_eq!(Crc32c::new().value(), crc32c(b""));
}

#[test]
fn one_bit_anywhere_is_noticed() {
    let mut bytes = bytes(4_096);
    let sound = crc32c(&bytes);
    for way in ways() {
        for bit in (0..4_096 * 8).step_by(97) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(!way.update(!0, &bytes), sound, "{way:?}: bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
