//! What the log holds: records, in groups that are each written as one. A header ([`crate::place`]) stands before a group.
//!
//! | kind of record | fields |
//! |---|---|
//! | 1, changes | session (16 bytes), write sequence number (8), digest (4), whether the batch ends with it (1), how many (4); each: page number (8), place (8) or all ones for a deletion, or [`CARRIED`], version (8), length (4) and the bytes |
//! | 2, a page has moved | page number, place before, place now (8 each) |
//! | 3, a page is lost | page number, place (8 each) |
//! | 4, a session is forgotten | session (16) |
//! | 5, a chunk was opened for pages | chunk, seal (4 each) |
//! | 6, a group begins: the first of its records | 1 if all groups before it were on media for good when it was begun (1) |

use crate::place::{COUNT_MAX, Place};
use crate::request::SessionId;
use openftl_core::ChunkId;

/// What stands for the place of a page whose bytes follow.
pub const CARRIED: u64 = u64::MAX - 2;

/// Where a page is, as a record says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Put {
    /// On media.
    At(Place),
    /// Nowhere any more.
    Deleted,
    /// Its bytes follow.
    Carried {
        /// Its version.
        version: u64,
        /// Its bytes.
        bytes: Vec<u8>,
    },
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Changes of a batch.
    Changes {
        /// Its session.
        session: SessionId,
        /// Its number.
        wsn: u64,
        /// What tells it from others with that number.
        digest: u32,
        /// Whether it ends with these.
        is_last: bool,
        /// Page by page.
        puts: Vec<(u64, Put)>,
    },
    /// A page was moved by the drive.
    Moved {
        /// The page.
        lpid: u64,
        /// Where it was: else the record says nothing.
        from: Place,
        /// Where it is.
        to: Place,
    },
    /// A page was lost by the medium.
    Lost {
        /// The page.
        lpid: u64,
        /// Where it was.
        from: Place,
    },
    /// A session is known no more.
    Forgotten(SessionId),
    /// A chunk was opened for pages.
    Opened {
        /// The chunk.
        chunk: ChunkId,
        /// What ties its blocks to this opening.
        seal: u32,
    },
    /// A group begins.
    Begins {
        /// All groups before it were on media for good.
        is_secure: bool,
    },
}

/// Bytes of the record of changes, without them, and of a change that is not carried.
pub const CHANGES_HEAD_BYTES: usize = 1 + 16 + 8 + 4 + 1 + 4;
/// See above.
pub const CHANGE_BYTES: usize = 16;
/// Bytes of a carried change beyond those of its page.
pub const CARRIED_BYTES: usize = CHANGE_BYTES + 12;
/// Bytes of any other record, at most.
pub const OTHER_BYTES: usize = 25;

/// Begins a group.
pub fn begin_group(out: &mut Vec<u8>) {
    push(out, &Record::Begins { is_secure: false });
}

/// Has a group say that all groups before it are on media for good.
pub fn begins_secure(group: &mut [u8]) {
    group[1] = 1;
}

/// Begins a record of changes in `out`. Returns where its number of changes stands.
pub fn begin_changes(out: &mut Vec<u8>, session: SessionId, wsn: u64, digest: u32, is_last: bool) -> usize {
    out.push(1);
    out.extend(session.0);
    out.extend(wsn.to_le_bytes());
    out.extend(digest.to_le_bytes());
    out.push(is_last.into());
    out.extend([0; 4]);
    out.len() - 4
}

/// Sets how many changes a record has.
pub fn end_changes(out: &mut [u8], at: usize, changes: u32) {
    out[at..at + 4].copy_from_slice(&changes.to_le_bytes());
}

/// Adds a change: the place of a page, or that it is deleted.
pub fn push_change(out: &mut Vec<u8>, lpid: u64, place: Option<Place>) {
    out.extend(lpid.to_le_bytes());
    out.extend(place.map_or(Place::NONE_BITS, Place::bits).to_le_bytes());
}

/// Adds a change whose bytes are to be appended.
pub fn push_carried(out: &mut Vec<u8>, lpid: u64, version: u64, bytes: u32) {
    out.extend(lpid.to_le_bytes());
    out.extend(CARRIED.to_le_bytes());
    out.extend(version.to_le_bytes());
    out.extend(bytes.to_le_bytes());
}

/// Adds a record that is none of changes.
///
/// # Panics
/// If it is.
pub fn push(out: &mut Vec<u8>, record: &Record) {
    match record {
        Record::Changes { .. } => panic!("changes are added one by one"),
        Record::Moved { lpid, from, to } => {
            out.push(2);
            [*lpid, from.bits(), to.bits()].iter().for_each(|word| out.extend(word.to_le_bytes()));
        }
        Record::Lost { lpid, from } => {
            out.push(3);
            [*lpid, from.bits()].iter().for_each(|word| out.extend(word.to_le_bytes()));
        }
        Record::Forgotten(session) => {
            out.push(4);
            out.extend(session.0);
        }
        Record::Opened { chunk, seal } => {
            out.push(5);
            out.extend(chunk.0.to_le_bytes());
            out.extend(seal.to_le_bytes());
        }
        Record::Begins { is_secure } => out.extend([6, u8::from(*is_secure)]),
    }
}

/// Bytes that are taken one field after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        self.0.split_off(..count)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N).and_then(|bytes| bytes.first_chunk().copied())
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn word(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn half(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn place(&mut self) -> Option<Place> {
        self.word().and_then(Place::from_bits)
    }

    fn put(&mut self) -> Option<Put> {
        Some(match self.word()? {
            Place::NONE_BITS => Put::Deleted,
            CARRIED => {
                let (version, bytes) = (self.word()?, self.half()? as usize);
                Put::Carried {
                    version: Some(version).filter(|version| *version <= COUNT_MAX)?,
                    bytes: self.take(bytes)?.to_vec(),
                }
            }
            bits => Put::At(Place::from_bits(bits)?),
        })
    }

    fn record(&mut self) -> Option<Record> {
        Some(match self.byte()? {
            1 => {
                let session = SessionId(self.array()?);
                let (wsn, digest, is_last, count) = (self.word()?, self.half()?, self.byte()? != 0, self.half()?);
                let puts = (0..count).map(|_| Some((self.word()?, self.put()?))).collect::<Option<_>>()?;
                Record::Changes { session, wsn, digest, is_last, puts }
            }
            2 => Record::Moved { lpid: self.word()?, from: self.place()?, to: self.place()? },
            3 => Record::Lost { lpid: self.word()?, from: self.place()? },
            4 => Record::Forgotten(SessionId(self.array()?)),
            5 => Record::Opened { chunk: ChunkId(self.half()?), seal: self.half()? },
            6 => Record::Begins { is_secure: self.byte()? != 0 },
            _ => return None,
        })
    }
}

/// The records of a group. `None`: they are none.
#[must_use]
pub fn read_records(bytes: &[u8]) -> Option<Vec<Record>> {
    let (mut fields, mut records) = (Fields(bytes), Vec::new());
    while !fields.0.is_empty() {
        records.push(fields.record()?);
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_no_part_of_them_is_some() {
        let (from, to) = (Place::from_bits(77).unwrap(), Place::from_bits(1 << 40).unwrap());
        let session = SessionId([3; 16]);
        let puts = vec![(1, Put::At(from)), (2, Put::Deleted), (3, Put::Carried { version: 9, bytes: vec![1, 2, 3] })];
        let records = [
            Record::Changes { session, wsn: 5, digest: 6, is_last: true, puts },
            Record::Moved { lpid: 4, from, to },
            Record::Lost { lpid: 4, from },
            Record::Forgotten(session),
            Record::Opened { chunk: ChunkId(77), seal: 0x1234_5678 },
            Record::Begins { is_secure: true },
        ];
        let mut out = Vec::new();
        let at = begin_changes(&mut out, session, 5, 6, true);
        assert_eq!(out.len(), CHANGES_HEAD_BYTES);
        push_change(&mut out, 1, Some(from));
        push_change(&mut out, 2, None);
        push_carried(&mut out, 3, 9, 3);
        out.extend([1, 2, 3]);
        end_changes(&mut out, at, 3);
        assert_eq!(out.len(), CHANGES_HEAD_BYTES + 2 * CHANGE_BYTES + CARRIED_BYTES + 3);
        let ends: Vec<usize> = records[1..].iter().map(|record| (out.len(), push(&mut out, record)).0).collect();
        assert!(ends.iter().zip(&ends[1..]).all(|(from, to)| to - from <= OTHER_BYTES));
        assert_eq!(read_records(&out).as_deref(), Some(&records[..]));
        for end in 1..out.len() {
            assert_eq!(read_records(&out[..end]).is_some(), ends.contains(&end), "{end} bytes");
        }
        assert_eq!(read_records(&[9]), None);
    }
}
