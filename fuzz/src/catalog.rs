//! The catalog of a table drive: what is found is the same again when it is written, and what damage makes of it is an error.
//!
//! An input is a row of blocks, each the number of its block, the length of its bytes, and these; the rest of the block is zero. It
//! is read as it is, with the header's magic and version, and once more as the bytes of an entry that is whole.

use openftl_core::BLOCK_BYTES;
use openftl_tables::CatalogError;
use openftl_tables::catalog::{CATALOG_MAGIC, CATALOG_VERSION, Catalog, Entry, PART_BYTES, PARTS_MAX, Parts, Reader};
use std::collections::BTreeMap;

/// Blocks of the catalog.
const BLOCKS: u32 = 256;

type Blocks = BTreeMap<u32, Box<[u8; BLOCK_BYTES]>>;

pub fn run(data: &[u8]) {
    let mut blocks = Blocks::new();
    let mut rest = data;
    while let Some((&[block, low, high], bytes)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(bytes.len()).min(BLOCK_BYTES);
        let (bytes, behind) = bytes.split_at(length);
        let mut whole = Box::new([0; BLOCK_BYTES]);
        whole[..length].copy_from_slice(bytes);
        blocks.insert(block.into(), whole);
        rest = behind;
    }
    look(&blocks);
    for block in blocks.values_mut() {
        sign(block);
    }
    look(&blocks);
    look(&entry(data));
}

fn sign(block: &mut [u8; BLOCK_BYTES]) {
    block[..4].copy_from_slice(&CATALOG_MAGIC.to_le_bytes());
    block[4..6].copy_from_slice(&CATALOG_VERSION.to_le_bytes());
}

/// The parts of an entry that has these bytes.
fn entry(bytes: &[u8]) -> Blocks {
    let parts = bytes.chunks(PART_BYTES).take(PARTS_MAX);
    let count = parts.len() as u16;
    let block = |(part, bytes): (u32, &[u8])| {
        let mut block = Box::new([0; BLOCK_BYTES]);
        sign(&mut block);
        block[6..8].copy_from_slice(&count.to_le_bytes());
        block[8..10].copy_from_slice(&(part as u16).to_le_bytes());
        block[10..12].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
        block[16] = 1;
        block[24] = 1;
        block[BLOCK_BYTES - PART_BYTES..][..bytes.len()].copy_from_slice(bytes);
        (part, block)
    };
    (0..).zip(parts).map(block).collect()
}

fn read(blocks: &Blocks) -> Result<(Catalog, Vec<Entry>, Vec<Parts>), CatalogError> {
    let mut reader = Reader::default();
    for (block, bytes) in blocks {
        reader.take(*block, bytes)?;
    }
    reader.finish(BLOCKS)
}

fn write(blocks: &mut Blocks, parts: Vec<Parts>) {
    for Parts { first, blocks: bytes } in parts {
        assert!(first as usize + bytes.len() <= BLOCKS as usize, "it is inside the catalog");
        blocks.extend((first..).zip(bytes));
    }
}

fn look(blocks: &Blocks) {
    let Ok((mut catalog, entries, stale)) = read(blocks) else { return };
    assert!(entries.is_sorted_by(|one, other| one.number < other.number), "each number once");
    assert!(catalog.free_blocks() <= BLOCKS as usize);
    // What was left of older versions is overwritten.
    let mut blocks = blocks.clone();
    write(&mut blocks, stale);
    let (_, found, stale) = read(&blocks).expect("what is overwritten leaves the others whole");
    assert!(found == entries && stale.is_empty(), "{found:?}, not {entries:?}");
    let number = catalog.new_number();
    assert!(entries.iter().all(|entry| entry.number < number), "a new number is new");
    let sequence = |block: &[u8; BLOCK_BYTES]| u64::from_le_bytes(block[24..32].try_into().expect("eight bytes"));
    let is_used_up = blocks.values().any(|block| sequence(block) >= (1 << 63) - u64::from(BLOCKS));
    for Entry { number, note, table } in &entries {
        // A longer version needs room elsewhere; this one is as long.
        let Some(parts) = catalog.put(*number, note, table.as_ref()) else {
            assert!(is_used_up, "it was there");
            return;
        };
        write(&mut blocks, parts);
    }
    let (_, found, _) = read(&blocks).expect("what a catalog writes can be read");
    assert_eq!(found, entries);
    for entry in &entries {
        let parts = catalog.remove(entry.number).expect("it is there");
        write(&mut blocks, vec![parts]);
    }
    let (catalog, found, _) = read(&blocks).expect("what a catalog writes can be read");
    assert!(found.is_empty());
    assert_eq!(catalog.free_blocks(), BLOCKS as usize);
}
