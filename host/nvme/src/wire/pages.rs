//! The command set of stores of pages (OX-ELEOS), our own: CSI 31h. No other host or device has it.
//!
//! A page has a number (LPID, 64 bits) and 1 byte to 1 MiB. A host opens a *session*, gathers changes of pages in a *batch*, and commits that: all of
//! a batch is there or nothing of it. Batches of a session are numbered from 1 on (write sequence number, WSN), and are committed in that order.
//!
//! # Commands
//! Bits 1 and 0 of an opcode are the direction of its data, by which Linux's passthrough goes.
//!
//! | opcode | command | data | CDW10 | CDW11 | CDW12 | CDW13 | CDW14 | CDW15 |
//! |---|---|---|---|---|---|---|---|---|
//! | 00h | Flush: all that was committed is durable | none | | | | | | |
//! | A1h | Write: a part of a batch | to the drive: a directory and the bytes of the pages | session | 0 | WSN, low | bit 0: last part, which commits; bit 1: durably; bits 31-16: number of the part, from 0 on | WSN, high | bytes of data |
//! | A2h | Read | from the drive: bytes of the page | LPID, low | LPID, high | bytes, at most | first byte | | |
//! | A5h | Control, 0: open a session | to the drive: its identifier, 16 bytes | | | | 0 | | 16 |
//! | A5h | Control, 1: close a session | none | session | 0 | | 1 | | |
//! | A5h | Control, 2: close it, and forget its identifier | none | session | 0 | | 2 | | |
//! | A5h | Control, 3: abort a batch | none | session | 0 | WSN, low | 3 | WSN, high | |
//! | A6h | Report, 0: a page | from the drive: [`PageStat`] | LPID, low | LPID, high | bytes, at most | 0 | | |
//! | A6h | Report, 1: pages from an LPID on | from the drive: [`ListHead`], [`ListEntry`] … | LPID, low | LPID, high | bytes, at most, to [`LIST_BYTES_MAX`] | 1 | | |
//! | A6h | Report, 2: a session | from the drive: [`SessionReport`] | session | 0 | bytes, at most | 2 | | |
//! | A6h | Report, 3: the store | from the drive: [`StoreReport`] | | | bytes, at most | 3 | | |
//!
//! Data are at most as long as MDTS says. Many pages are read by many commands, which are under way together: a command that reads several would
//! have data in both directions.
//!
//! | completion of | DW0 | DW1 |
//! |---|---|---|
//! | Read | 0-20: bytes of the page, of which as many came as were asked for and are there; 21-31: bits 32-42 of its version | its version, low |
//! | Control, open | session | last durable WSN, low; [`SessionReport`] has all of it |
//!
//! # The data of a Write
//! | bytes | field |
//! |---|---|
//! | 0-3 | changes: n |
//! | 4-7 | 0 |
//! | 8 … 8 + 24 n | [`ChangeEntry`], one for each change |
//! | then | the bytes of the pages that are put, one after the other without gaps, to the end of the data |
//!
//! A part has at least one change, but for the last one, which may have no data at all. The parts of a batch come in the order of their numbers; on
//! one queue they may be under way together. Of two changes of one page the later one counts.
//!
//! # Rules
//! - A session belongs to the controller that has opened it. It is closed when the host leaves or resets the controller, or its admin queue is gone;
//!   batches that were not committed are given up then. While it is open no other controller can open it: [`Status::SESSION_IN_USE`].
//! - Commands on different queues have no order, nor have Control commands with Writes that are under way: a host waits for their completions.
//! - If a Write fails because of its fields or of its directory, nothing has happened. If the store refuses a change, or the commit, all of the batch
//!   is given up: the host sends it again, from part 0 on. Parts behind it that are under way end with [`Status::COMMAND_SEQUENCE_ERROR`], and so
//!   does a part whose number is not the next one.
//! - A batch that was committed before, under the same number and with the same changes, is committed by sending it again: that is how a host goes on
//!   that did not get the completion.
//! - A session has at most [`BATCHES_MAX`] batches that grow, and all sessions together [`CHANGES_MAX`] changes in such batches.
//!
//! # Statuses
//! Besides those of any command (0001h Invalid Command Opcode, 0002h Invalid Field in Command, 000Bh Invalid Namespace or Format, 000Fh Data SGL Length
//! Invalid, 0011h SGL Descriptor Type Invalid):
//!
//! | status | when | DW0 | DW1 |
//! |---|---|---|---|
//! | 000Ch Command Sequence Error | the part is not the next one of its batch | number of the next part | |
//! | 0081h Capacity Exceeded | the store is full | which change of the part | units of 64 bytes that are free |
//! | 0082h Namespace Not Ready | no memory or clean flash right now: send the batch again | which change of the part | |
//! | 01D0h Invalid Page Directory | directory and data disagree, or a flag is reserved | the byte of the data at fault | |
//! | 01D1h Invalid Page Length | a page of 0 bytes, or longer than the drive takes | which change of the part | bytes of a page, at most |
//! | 01D2h Page Map Full | no room for more pages with numbers like these | which change of the part | pieces of the map |
//! | 01D3h Batch Too Long | more changes than a batch, or all that grow, may have | which change of the part | how many there may be |
//! | 01D4h Session Not Open | this controller has no such session | | |
//! | 01D5h Session In Use | the session with this identifier is open, here or on another controller | | |
//! | 01D6h Too Many Sessions | the drive knows as many as it can | how many | |
//! | 01D7h Batch Too Early | the number is more than 16 ahead; or too many batches grow | last committed WSN, low | high |
//! | 01D8h Batch Differs From The Committed One | other changes were committed under this number | | |
//! | 01D9h Batch Too Late | the number is older than the last 16 | last committed WSN, low | high |
//! | 01DAh Batch Is Being Committed | it takes no more changes | | |
//! | 01DBh Batch Aborted | it was given up, or its session closed, before it was committed | | |
//! | 01DCh Page Version Mismatch | a condition does not hold: nothing of the batch is committed | LPID, low | LPID, high |
//! | 01DDh Page Not Found | | | |
//! | 01DEh Page Offset Out of Range | the page ends before the first byte that is read | bytes of the page | |
//! | 0182h Attempted Write to Read Only Range | the drive takes no more writes | | |
//! | 0280h Write Fault | the log of the store has failed | | |
//! | 0281h Unrecovered Read Error | the medium has lost the page | | |

use super::{U16, U32, U64};
use crate::namespace::{PageShape, TRANSFER_BYTES_MAX};
use openftl_pages::WINDOW;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(doc)]
use super::Status;

/// Bits of DW0 of a Read that have the bytes of the page.
const LENGTH_BITS: u32 = 21;

/// What the completion of a Read says of a page: DW0, and DW1 above it.
#[must_use]
pub fn read_result(bytes: u32, version: u64) -> u64 {
    u64::from(bytes) | (version >> 32 << LENGTH_BITS & 0xffff_ffff) | version << 32
}

/// Bytes and version of the page of which it says this.
#[must_use]
pub fn read_facts(result: u64) -> (u32, u64) {
    let length = result as u32;
    (length & ((1 << LENGTH_BITS) - 1), u64::from(length >> LENGTH_BITS) << 32 | result >> 32)
}

/// Bytes of a page that fits into one Write, at most. A longer one, put by a program that has the drive inside it, can be read.
pub const PAGE_BYTES_MAX: u32 = TRANSFER_BYTES_MAX - (size_of::<DirectoryHead>() + size_of::<ChangeEntry>()) as u32;

/// Bytes of a list of pages, at most.
pub const LIST_BYTES_MAX: u32 = 64 << 10;

/// Batches of a session that grow, at most: those of the window, and as many that are repeated.
pub const BATCHES_MAX: usize = 2 * WINDOW as usize;

/// Changes in the batches of a store that grow, at most.
pub const CHANGES_MAX: usize = 1 << 20;

/// Dword 13 of Write, bit 0: the batch ends with this part, and is committed.
pub const LAST_PART: u32 = 1 << 0;
/// Dword 13 of Write, bit 1: the commit is durable.
pub const DURABLE: u32 = 1 << 1;

/// Dword 13 of Control.
pub mod control {
    /// Opens a session.
    pub const OPEN: u32 = 0;
    /// Closes a session.
    pub const CLOSE: u32 = 1;
    /// Closes a session, and forgets its identifier.
    pub const FORGET: u32 = 2;
    /// Gives up a batch.
    pub const ABORT: u32 = 3;
}

/// Dword 13 of Report.
pub mod report {
    /// A page.
    pub const STAT: u32 = 0;
    /// Pages in the order of their numbers.
    pub const LIST: u32 = 1;
    /// A session.
    pub const SESSION: u32 = 2;
    /// The store.
    pub const STORE: u32 = 3;
}

/// Before the changes of a part.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct DirectoryHead {
    /// 0: how many.
    pub changes: U32,
    /// 4: zero.
    pub reserved: U32,
}

/// A change of a page.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct ChangeEntry {
    /// 0: LPID.
    pub lpid: U64,
    /// 8: bytes of the page; 0 if it is deleted.
    pub bytes: U32,
    /// 12: [`ChangeEntry::DELETE`], [`ChangeEntry::CONDITIONAL`].
    pub flags: U32,
    /// 16: of a conditional change, the version that the page has to have, 0: it must not be there. Else 0.
    pub if_version: U64,
}

impl ChangeEntry {
    /// The page is deleted.
    pub const DELETE: u32 = 1 << 0;
    /// The change is conditional.
    pub const CONDITIONAL: u32 = 1 << 1;

    /// Whether the page is deleted.
    #[must_use]
    pub fn is_delete(&self) -> bool {
        self.flags.get() & ChangeEntry::DELETE != 0
    }

    /// The version that the page has to have, if there is a condition.
    #[must_use]
    pub fn condition(&self) -> Option<u64> {
        (self.flags.get() & ChangeEntry::CONDITIONAL != 0).then(|| self.if_version.get())
    }

    /// The field, by its first byte, that is not as it should be.
    #[must_use]
    pub fn wrong_field(&self) -> Option<u32> {
        if self.flags.get() & !(ChangeEntry::DELETE | ChangeEntry::CONDITIONAL) != 0 {
            return Some(12);
        }
        if self.is_delete() && self.bytes.get() != 0 {
            return Some(8);
        }
        (self.condition().is_none() && self.if_version.get() != 0).then_some(16)
    }
}

/// A page, as a report says it.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct PageStat {
    /// 0: its version.
    pub version: U64,
    /// 8: its bytes.
    pub bytes: U32,
    /// 12.
    pub reserved: U32,
}

/// Before a list of pages.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct ListHead {
    /// 0: how many entries follow: as many as there are and fit.
    pub pages: U32,
    /// 4.
    pub reserved: U32,
}

/// A page of a list.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct ListEntry {
    /// 0: LPID.
    pub lpid: U64,
    /// 8: its bytes; 0 if the medium has lost them.
    pub bytes: U32,
    /// 12.
    pub reserved: U32,
}

/// A session, as a report says it.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct SessionReport {
    /// 0: the last batch that was durable when the session was opened.
    pub durable_at_open: U64,
    /// 8: the last batch that is committed.
    pub committed: U64,
}

/// The store, as a report says it.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct StoreReport {
    /// 0: how many pages there are.
    pub pages: U64,
    /// 8: bytes that they take, with headers, those of batches that grow included.
    pub used_bytes: U64,
    /// 16: bytes that they may take.
    pub capacity_bytes: U64,
    /// 24: bytes of a page that can be written, at most.
    pub page_bytes_max: U32,
    /// 28.
    pub reserved: U32,
}

/// Identify Namespace of CSI 31h (CNS 05h and 1Bh).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct PagesNamespace {
    /// 0: version of the command set, 1.
    pub version: U16,
    /// 2: numbers that a batch may be ahead of the last committed one.
    pub window: U16,
    /// 4: bytes of a page that can be written, at most: [`PAGE_BYTES_MAX`] or less.
    pub page_bytes_max: U32,
    /// 8: bytes that pages may take, with a header of 32 bytes each, in units of 64 bytes.
    pub capacity_bytes: U64,
    /// 16: bytes of the data of a Write or Read, at most.
    pub transfer_bytes_max: U32,
    /// 20: bytes of a list, at most.
    pub list_bytes_max: U32,
    /// 24.
    pub reserved: [u8; 4072],
}

impl PagesNamespace {
    /// That of a store.
    #[must_use]
    pub fn of(shape: &PageShape) -> PagesNamespace {
        PagesNamespace {
            version: 1.into(),
            window: (WINDOW as u16).into(),
            page_bytes_max: shape.page_bytes_max.min(PAGE_BYTES_MAX).into(),
            capacity_bytes: shape.capacity_bytes.into(),
            transfer_bytes_max: TRANSFER_BYTES_MAX.into(),
            list_bytes_max: LIST_BYTES_MAX.into(),
            ..PagesNamespace::new_zeroed()
        }
    }

    /// The shape of the store.
    #[must_use]
    pub fn shape(&self) -> PageShape {
        PageShape { capacity_bytes: self.capacity_bytes.get(), page_bytes_max: self.page_bytes_max.get() }
    }
}

const _: () = {
    assert!(size_of::<DirectoryHead>() == 8);
    assert!(size_of::<ChangeEntry>() == 24);
    assert!(size_of::<PageStat>() == 16);
    assert!(size_of::<ListHead>() == 8);
    assert!(size_of::<ListEntry>() == 16);
    assert!(size_of::<SessionReport>() == 16);
    assert!(size_of::<StoreReport>() == 32);
    assert!(size_of::<PagesNamespace>() == 4096);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_lies_on_the_wire_as_its_table_says_and_is_wrong_where_a_field_is() {
        let entry = ChangeEntry { lpid: 0x0102.into(), bytes: 3.into(), flags: 2.into(), if_version: 9.into() };
        let golden = [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(entry.as_bytes(), golden);
        let check = |bytes: u32, flags: u32, if_version: u64, wrong| {
            let change =
                ChangeEntry { bytes: bytes.into(), flags: flags.into(), if_version: if_version.into(), ..entry };
            assert_eq!(change.wrong_field(), wrong, "{bytes} {flags} {if_version}");
        };
        check(3, 0, 0, None);
        check(0, 1, 0, None);
        check(0, 3, 7, None);
        check(3, 4, 0, Some(12));
        check(3, 1, 0, Some(8));
        check(3, 0, 1, Some(16));
    }
}
