//! Names in an area of a folder: the inline area of its node, or the contents of a block.
//!
//! ```text
//!   0      4      8       10     11    12                 record_bytes
//!   [inode][ hash ][ bytes ][ name ][kind][ name …          ]  next record, to the end of the area
//!                    of all   bytes
//! ```
//!
//! Records follow each other without a gap; inode 0 is room. A name never moves within its area, so where it is can be what hosts go on reading from.

use crate::operation::{FileKind, Inode};

/// Bytes of a record before its name.
const FIXED: usize = 12;

/// Records begin at multiples of this.
pub const GRAIN: usize = 4;

/// A name that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a> {
    /// Where in its area.
    pub at: usize,
    /// The file.
    pub inode: Inode,
    /// What it is.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
}

/// The hash of a name: FNV-1a, folded. It decides which block of a folder the name is in.
#[must_use]
pub fn hash(name: &[u8]) -> u32 {
    let hash = name
        .iter()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3));
    (hash >> 32) as u32 ^ hash as u32
}

fn number(area: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(area[at..at + 4].try_into().expect("four bytes"))
}

fn record_bytes(area: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([area[at + 8], area[at + 9]]))
}

fn set_record_bytes(area: &mut [u8], at: usize, bytes: usize) {
    area[at + 8..at + 10].copy_from_slice(&(bytes as u16).to_le_bytes());
}

/// Bytes of the record of a name.
fn bytes_for(name: &[u8]) -> usize {
    (FIXED + name.len()).next_multiple_of(GRAIN)
}

/// Makes an area that has no name.
pub fn clear(area: &mut [u8]) {
    area.fill(0);
    set_record_bytes(area, 0, area.len());
}

/// An area has become longer: it was `bytes` long.
pub fn grow(area: &mut [u8], bytes: usize) {
    let mut at = 0;
    while at + record_bytes(area, at) < bytes {
        at += record_bytes(area, at);
    }
    if number(area, at) == 0 {
        set_record_bytes(area, at, area.len() - at);
    } else {
        area[bytes..].fill(0);
        set_record_bytes(area, bytes, area.len() - bytes);
    }
}

/// Whether the records of an area follow each other to its end, and each has a proper name.
#[must_use]
pub fn is_sound(area: &[u8]) -> bool {
    let mut at = 0;
    while at < area.len() {
        if at + FIXED > area.len() {
            return false;
        }
        let bytes = record_bytes(area, at);
        if bytes < FIXED || !bytes.is_multiple_of(GRAIN) || at + bytes > area.len() {
            return false;
        }
        if number(area, at) != 0 {
            let length = usize::from(area[at + 10]);
            if length == 0 || FIXED + length > bytes || FileKind::from_number(area[at + 11]).is_none() {
                return false;
            }
            let name = &area[at + FIXED..at + FIXED + length];
            if name.contains(&0) || name.contains(&b'/') || number(area, at + 4) != hash(name) {
                return false;
            }
        }
        at += bytes;
    }
    true
}

/// The names of an area that begin at byte `from` or behind it.
pub fn names(area: &[u8], from: usize) -> impl Iterator<Item = Name<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            if at >= area.len() {
                return None;
            }
            let here = at;
            at += record_bytes(area, here);
            let inode = number(area, here);
            if inode == 0 || here < from {
                continue;
            }
            let length = usize::from(area[here + 10]);
            let kind = FileKind::from_number(area[here + 11]).expect("the area is sound");
            let name = &area[here + FIXED..here + FIXED + length];
            return Some(Name { at: here, inode: Inode(inode), kind, name });
        }
    })
}

/// Finds a name.
#[must_use]
pub fn find<'a>(area: &'a [u8], name: &[u8], hash: u32) -> Option<Name<'a>> {
    names(area, 0).find(|found| number(area, found.at + 4) == hash && found.name == name)
}

/// Where a name would fit.
fn room(area: &[u8], name: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < area.len() {
        let bytes = record_bytes(area, at);
        if number(area, at) == 0 && bytes >= bytes_for(name) {
            return Some(at);
        }
        at += bytes;
    }
    None
}

/// Whether a name would fit.
#[must_use]
pub fn has_room(area: &[u8], name: &[u8]) -> bool {
    room(area, name).is_some()
}

/// Puts a name into an area that has room for it.
///
/// # Panics
/// If it has none.
pub fn put(area: &mut [u8], name: &[u8], inode: Inode, kind: FileKind) {
    let at = room(area, name).expect("there is room for the name");
    let (bytes, needed) = (record_bytes(area, at), bytes_for(name));
    let rest = bytes - needed;
    if rest >= FIXED {
        set_record_bytes(area, at, needed);
        area[at + needed..at + needed + FIXED].fill(0);
        set_record_bytes(area, at + needed, rest);
    }
    area[at..at + 4].copy_from_slice(&inode.0.to_le_bytes());
    area[at + 4..at + 8].copy_from_slice(&hash(name).to_le_bytes());
    area[at + 10] = name.len() as u8;
    area[at + 11] = kind as u8;
    area[at + FIXED..at + FIXED + name.len()].copy_from_slice(name);
}

/// The name at `at` is that of another file from now on.
pub fn set(area: &mut [u8], at: usize, inode: Inode, kind: FileKind) {
    area[at..at + 4].copy_from_slice(&inode.0.to_le_bytes());
    area[at + 11] = kind as u8;
}

/// Takes the name at `at` away; room before and behind it becomes one.
pub fn remove(area: &mut [u8], at: usize) {
    let mut before = None;
    let mut here = 0;
    while here < at {
        before = (number(area, here) == 0).then_some(here);
        here += record_bytes(area, here);
    }
    let mut bytes = record_bytes(area, at);
    let behind = at + bytes;
    if behind < area.len() && number(area, behind) == 0 {
        bytes += record_bytes(area, behind);
    }
    let begins = before.unwrap_or(at);
    let total = at + bytes - begins;
    area[at..at + FIXED].fill(0);
    area[begins..begins + FIXED].fill(0);
    set_record_bytes(area, begins, total);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_and_go_and_the_area_stays_whole() {
        let mut area = vec![0; 400];
        clear(&mut area);
        let mut there: Vec<Vec<u8>> = Vec::new();
        let mut seed = 1_u64;
        for round in 0..10_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let name = vec![b'a' + (seed >> 60) as u8; 1 + (seed >> 33) as usize % 40];
            if let Some(index) = there.iter().position(|other| *other == name) {
                let at = find(&area, &name, hash(&name)).expect("it was put").at;
                remove(&mut area, at);
                there.swap_remove(index);
            } else if has_room(&area, &name) {
                put(&mut area, &name, Inode(round + 1), FileKind::Regular);
                there.push(name);
            }
            assert!(is_sound(&area), "round {round}");
            let mut found: Vec<_> = names(&area, 0).map(|name| name.name.to_vec()).collect();
            found.sort();
            there.sort();
            assert_eq!(found, there);
        }
        for name in &there {
            let at = find(&area, name, hash(name)).unwrap().at;
            remove(&mut area, at);
        }
        let mut empty = vec![0; 400];
        clear(&mut empty);
        assert_eq!(area[..FIXED], empty[..FIXED]);
    }

    #[test]
    fn an_area_that_grows_keeps_the_places_of_its_names() {
        let mut area = vec![0; 100];
        clear(&mut area);
        put(&mut area, b"first", Inode(1), FileKind::Regular);
        put(&mut area, &[b'x'; 60], Inode(2), FileKind::Regular);
        let before: Vec<_> = names(&area, 0).map(|name| (name.at, name.inode)).collect();
        area.resize(300, 0xEE);
        grow(&mut area, 100);
        assert!(is_sound(&area));
        assert_eq!(names(&area, 0).map(|name| (name.at, name.inode)).collect::<Vec<_>>(), before);
        assert!(has_room(&area, &[b'y'; 180]));
    }
}
