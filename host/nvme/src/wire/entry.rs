//! Queue entries: 64 bytes go to the controller, 16 come back.
//!
//! ```text
//!   submission   0 ┌ opcode │ FUSE, PSDT │ command id ┬ NSID ┐ 8   CDW2, CDW3
//!               16 │ metadata pointer                         │
//!               24 │ data pointer: one SGL descriptor         │ 40   CDW10 … CDW15
//!   completion   0 ┌ DW0, DW1: what the command returns       ┐ 8    SQ head │ SQ id │ command id │ status, phase
//! ```

use super::status::Status;
use super::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// A scatter-gather list of one descriptor, all that a fabrics command has (Base, "Scatter Gather List").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct SglDescriptor {
    /// 0: for [`SglDescriptor::IN_CAPSULE`] the offset of the data in the capsule.
    pub address: U64,
    /// 8: bytes.
    pub length: U32,
    /// 12.
    pub reserved: [u8; 3],
    /// 15: type in bits 7 to 4, subtype in bits 3 to 0.
    pub identifier: u8,
}

impl SglDescriptor {
    /// Data Block descriptor (0h) with an offset (1h): the data are in the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Transport SGL Data Block descriptor (5h), transport's own (Ah): the transport moves the data.
    pub const TRANSPORT: u8 = 0x5a;
}

/// What a command says in its 64 bytes (Base, "Submission Queue Entry", Common Command Format).
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct SubmissionEntry {
    /// 0: [`super::opcode`]; bits 1 and 0 are the direction of the data.
    pub opcode: u8,
    /// 1: FUSE in bits 1 and 0, PSDT in bits 7 and 6.
    pub flags: u8,
    /// 2: the host's name for the command.
    pub command_id: U16,
    /// 4: the namespace; in a fabrics command byte 4 is its type.
    pub namespace: U32,
    /// 8.
    pub dwords_2_3: [U32; 2],
    /// 16: not used over fabrics, where metadata travel behind each block.
    pub metadata: U64,
    /// 24.
    pub data: SglDescriptor,
    /// 40: command dwords 10 to 15.
    pub dwords_10_15: [U32; 6],
}

impl SubmissionEntry {
    /// PSDT 01b, in its place among the flags: the data pointer is an SGL.
    pub const PSDT_SGL: u8 = 0b01 << 6;

    /// The entry that these bytes are. Any bytes are one.
    #[must_use]
    pub fn of(bytes: &[u8; 64]) -> &SubmissionEntry {
        zerocopy::transmute_ref!(bytes)
    }

    /// A command with these command dwords 10 to 15, and room for so many bytes of data, which the transport moves.
    #[must_use]
    pub fn with_data(opcode: u8, namespace: u32, bytes: u32, dwords: [u32; 6]) -> SubmissionEntry {
        SubmissionEntry {
            opcode,
            flags: SubmissionEntry::PSDT_SGL,
            namespace: namespace.into(),
            data: SglDescriptor {
                length: bytes.into(),
                identifier: SglDescriptor::TRANSPORT,
                ..SglDescriptor::default()
            },
            dwords_10_15: dwords.map(U32::new),
            ..SubmissionEntry::default()
        }
    }

    /// Command dword `number`, 10 to 15.
    #[inline]
    #[must_use]
    pub fn dword(&self, number: usize) -> u32 {
        self.dwords_10_15[number - 10].get()
    }

    /// Command dwords `number` (low) and `number` + 1 (high).
    #[inline]
    #[must_use]
    pub fn dword_pair(&self, number: usize) -> u64 {
        u64::from(self.dword(number)) | u64::from(self.dword(number + 1)) << 32
    }

    /// Whether this is a command of the fabrics command set, which any queue takes.
    #[inline]
    #[must_use]
    pub fn is_fabrics(&self) -> bool {
        self.opcode == super::opcode::FABRICS
    }

    /// The fabrics command type (Base, "Fabrics Command Set").
    #[must_use]
    pub fn fabrics_type(&self) -> u8 {
        self.namespace.get() as u8
    }
}

/// How a command ended, in 16 bytes (Base, "Completion Queue Entry").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CompletionEntry {
    /// 0: DW0 and DW1.
    pub result: U64,
    /// 8: how far the controller has taken entries off the submission queue.
    pub submission_head: U16,
    /// 10: reserved over fabrics.
    pub submission_queue: U16,
    /// 12: the host's name for the command.
    pub command_id: U16,
    /// 14: status in bits 15 to 1; bit 0, the phase, is reserved over fabrics.
    pub status: U16,
}

impl CompletionEntry {
    /// How the command ended.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get() >> 1)
    }
}

const _: () = {
    assert!(size_of::<SglDescriptor>() == 16);
    assert!(size_of::<SubmissionEntry>() == 64);
    assert!(size_of::<CompletionEntry>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_lies_on_the_wire_as_the_specification_draws_it() {
        let entry = SubmissionEntry {
            opcode: 0x02,
            flags: SubmissionEntry::PSDT_SGL,
            command_id: 0x0102.into(),
            namespace: 0x0304_0506.into(),
            data: SglDescriptor {
                address: 0x11.into(),
                length: 0x1000.into(),
                identifier: SglDescriptor::TRANSPORT,
                ..SglDescriptor::default()
            },
            dwords_10_15: [0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0].map(U32::new),
            ..SubmissionEntry::default()
        };
        let golden = [
            0x02, 0x40, 0x02, 0x01, 0x06, 0x05, 0x04, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0, 0,
            0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x5a, 0xa0, 0, 0, 0, 0xb0, 0, 0, 0, 0xc0, 0, 0, 0, 0xd0, 0, 0, 0,
            0xe0, 0, 0, 0, 0xf0, 0, 0, 0,
        ];
        assert_eq!(entry.as_bytes(), golden);
        assert_eq!((entry.dword(10), entry.dword(15), entry.dword_pair(14)), (0xa0, 0xf0, 0xf0_0000_00e0));
    }

    #[test]
    fn a_completion_lies_on_the_wire_as_the_specification_draws_it() {
        let entry = CompletionEntry {
            result: 0x1122_3344_5566_7788.into(),
            submission_head: 0x0102.into(),
            submission_queue: 0.into(),
            command_id: 0x0304.into(),
            status: (Status::INVALID_FIELD.field() << 1).into(),
        };
        let golden = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 2, 1, 0, 0, 4, 3, 0x04, 0x80];
        assert_eq!(entry.as_bytes(), golden);
        assert_eq!(entry.status(), Status::INVALID_FIELD);
    }
}
