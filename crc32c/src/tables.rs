//! Eight bytes at a time, each with a table of its own.

use crate::polynomial::times_x;

/// What byte `b` leaves behind, when so many others follow it.
const TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut table = 0;
        while table < 8 {
            let mut bit = 0;
            while bit < 8 {
                state = times_x(state);
                bit += 1;
            }
            tables[table][byte] = state;
            table += 1;
        }
        byte += 1;
    }
    tables
};

/// See [`crate::update`].
pub(crate) fn update(mut state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = (u64::from_le_bytes(*word) ^ u64::from(state)).to_le_bytes();
        state = word.iter().zip(TABLES.iter().rev()).fold(0, |state, (byte, table)| state ^ table[usize::from(*byte)]);
    }
    rest.iter().fold(state, |state, byte| state >> 8 ^ TABLES[0][usize::from(state as u8 ^ byte)])
}
