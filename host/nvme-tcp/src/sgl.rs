//! Where the data of a command travel: the one SGL descriptor of a submission queue entry, and the direction that its
//! opcode stands for.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

use crate::SUBMISSION_BYTES;

/// SGL Data Block descriptor whose address is an offset into the capsule (Base, "SGL Descriptor Type" 0h, "SGL
/// Descriptor Sub Type" 1h).
pub const IN_CAPSULE: u8 = 0x01;

/// Transport SGL Data Block descriptor (Base, type 5h; TCP, "SGL Support", sub type Ah): data go in PDUs of their own.
pub const TRANSPORT: u8 = 0x5a;

/// Opcode of all Fabrics commands (Base, "Fabrics Command Set").
pub const FABRICS: u8 = 0x7f;

/// Opcodes of the vector commands of an Open-Channel namespace: reset, write, read, copy (Open-Channel 2.0, "I/O Commands").
/// Their lists of addresses are in host memory; where the controller cannot reach that, they come in the capsule.
pub const VECTOR_COMMANDS: std::ops::RangeInclusive<u8> = 0x90..=0x93;

/// PSDT of [`Submission::flags`]: data are described by an SGL, metadata by a single buffer (Base, "Command Dword 0").
pub const SGL_DATA: u8 = 0b01 << 6;

/// An SGL descriptor (Base, "SGL Descriptor Format").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct SglDescriptor {
    /// Address, or offset.
    pub address: U64,
    /// Bytes of data.
    pub bytes: U32,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Type in the upper, sub type in the lower half.
    pub identifier: u8,
}

/// What a transport looks at in a submission queue entry (Base, "Common Command Format").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Submission {
    /// OPC.
    pub opcode: u8,
    /// FUSE and PSDT.
    pub flags: u8,
    /// CID.
    pub command_id: U16,
    /// FCTYPE of Fabrics commands, else the first byte of NSID.
    pub fabrics_type: u8,
    /// Not the transport's.
    pub middle: [u8; 19],
    /// SGL1 of DPTR.
    pub sgl: SglDescriptor,
    /// Not the transport's.
    pub end: [u8; 24],
}

/// What a transport looks at in a completion queue entry (Base, "Common Completion Queue Entry Layout").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Completion {
    /// DW0 and DW1.
    pub specific: U64,
    /// SQHD.
    pub submission_head: U16,
    /// SQID, reserved over fabrics.
    pub queue_id: U16,
    /// CID.
    pub command_id: U16,
    /// Phase tag, reserved over fabrics, in bit 0; status above.
    pub status: U16,
}

const _: () = {
    assert!(size_of::<SglDescriptor>() == 16);
    assert!(size_of::<Submission>() == SUBMISSION_BYTES);
    assert!(std::mem::offset_of!(Submission, sgl) == 24);
    assert!(size_of::<Completion>() == crate::COMPLETION_BYTES);
};

/// Which way the data of a command go: the lower two bits of the opcode, or of FCTYPE (Base, "Opcode", "Fabrics Command
/// Type").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// There are none.
    None,
    /// From the host to the controller.
    ToController,
    /// From the controller to the host.
    ToHost,
    /// Either, as the SGL descriptor has it.
    Both,
}

/// The data of a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Data {
    /// None.
    None,
    /// This many bytes for the controller, right behind the command.
    InCapsule(u32),
    /// At most this many bytes for the controller, which asks for them when it has room.
    OnRequest(u32),
    /// At most this many bytes for the host.
    ToHost(u32),
}

/// An SGL descriptor that the transport cannot serve; the command fails with this status (Base, "Generic Command Status
/// Values").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum SglError {
    /// Data SGL Length Invalid.
    #[error("the SGL descriptor is of another length than the data in the capsule")]
    Length,
    /// SGL Descriptor Type Invalid.
    #[error("the SGL descriptor is of a type that this command cannot have over TCP")]
    Type,
    /// SGL Offset Invalid.
    #[error("the SGL descriptor's offset is not the beginning of the data in the capsule")]
    Offset,
}

impl SglError {
    /// Status Code of the status code type "Generic Command Status".
    #[must_use]
    pub fn status_code(self) -> u8 {
        match self {
            SglError::Length => 0x0f,
            SglError::Type => 0x11,
            SglError::Offset => 0x16,
        }
    }
}

impl Submission {
    /// Of an entry's bytes.
    #[must_use]
    pub fn of(entry: &[u8; SUBMISSION_BYTES]) -> &Submission {
        zerocopy::transmute_ref!(entry)
    }

    /// Whether it is a Fabrics command.
    #[must_use]
    pub fn is_fabrics(&self) -> bool {
        self.opcode == FABRICS
    }

    /// Whether data in the capsule are a list of addresses, and no data of the command: the descriptor says where those are.
    #[must_use]
    pub fn has_list(&self) -> bool {
        VECTOR_COMMANDS.contains(&self.opcode) && self.sgl.identifier != IN_CAPSULE
    }

    /// Which way data go.
    #[must_use]
    pub fn direction(&self) -> Direction {
        let code = if self.is_fabrics() { self.fabrics_type } else { self.opcode };
        match code & 3 {
            0 => Direction::None,
            1 => Direction::ToController,
            2 => Direction::ToHost,
            _ => Direction::Both,
        }
    }

    /// The data of a command that came with `in_capsule` bytes.
    ///
    /// # Errors
    /// What is wrong with the descriptor.
    pub fn data(&self, in_capsule: u32) -> Result<Data, SglError> {
        let SglDescriptor { address, bytes, identifier, .. } = self.sgl;
        let bytes = bytes.get();
        let direction = self.direction();
        if in_capsule > 0 {
            if identifier != IN_CAPSULE || !matches!(direction, Direction::ToController | Direction::Both) {
                return Err(SglError::Type);
            }
            if address.get() != 0 {
                return Err(SglError::Offset);
            }
            return if bytes == in_capsule { Ok(Data::InCapsule(bytes)) } else { Err(SglError::Length) };
        }
        if direction == Direction::None || bytes == 0 {
            return Ok(Data::None);
        }
        match (identifier, direction) {
            (TRANSPORT, Direction::ToController) => Ok(Data::OnRequest(bytes)),
            (TRANSPORT, Direction::ToHost) => Ok(Data::ToHost(bytes)),
            // Of a vendor's command that could go both ways, the transport cannot know which data it means.
            (TRANSPORT, _) => Ok(Data::None),
            (IN_CAPSULE, Direction::ToController) => Err(SglError::Length),
            _ => Err(SglError::Type),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission(opcode: u8, fabrics_type: u8, address: u64, bytes: u32, identifier: u8) -> Submission {
        let sgl = SglDescriptor { address: address.into(), bytes: bytes.into(), reserved: [0; 3], identifier };
        let (flags, middle, end) = (0x40, [0; 19], [0; 24]);
        Submission { opcode, flags, command_id: 0x0201.into(), fabrics_type, middle, sgl, end }
    }

    #[test]
    fn an_entry_lies_in_memory_as_the_specification_draws_it() {
        let submission = submission(0x7f, 0x01, 0x1112_1314_1516_1718, 0x2122_2324, TRANSPORT);
        let bytes = submission.as_bytes();
        assert_eq!(bytes[..5], [0x7f, 0x40, 1, 2, 1]);
        let golden = [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0, 0, 0, 0x5a];
        assert_eq!(bytes[24..40], golden);
        let completion = Completion {
            specific: 1.into(),
            submission_head: 0x0203.into(),
            queue_id: 0.into(),
            command_id: 0x0405.into(),
            status: 0x0607.into(),
        };
        assert_eq!(completion.as_bytes(), [1, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 5, 4, 7, 6]);
    }

    #[test]
    fn opcode_and_descriptor_say_where_data_travel() {
        let check = |opcode, fabrics_type, bytes, identifier, in_capsule, wanted| {
            let submission = submission(opcode, fabrics_type, 0, bytes, identifier);
            assert_eq!(submission.data(in_capsule), wanted, "{opcode:#x} {identifier:#x} {bytes} {in_capsule}");
        };
        // Flush, Write, Read; Connect, Property Get, Authentication Receive.
        check(0x00, 0, 0, TRANSPORT, 0, Ok(Data::None));
        check(0x01, 0, 4096, IN_CAPSULE, 4096, Ok(Data::InCapsule(4096)));
        check(0x01, 0, 65536, TRANSPORT, 0, Ok(Data::OnRequest(65536)));
        check(0x02, 0, 65536, TRANSPORT, 0, Ok(Data::ToHost(65536)));
        check(0x02, 0, 0, TRANSPORT, 0, Ok(Data::None));
        check(0x7f, 0x01, 1024, IN_CAPSULE, 1024, Ok(Data::InCapsule(1024)));
        check(0x7f, 0x04, 0, TRANSPORT, 0, Ok(Data::None));
        check(0x7f, 0x06, 512, TRANSPORT, 0, Ok(Data::ToHost(512)));
        // Vector Chunk Copy of Open-Channel 2.0 has both bits and no data.
        check(0x93, 0, 4096, TRANSPORT, 0, Ok(Data::None));
        check(0x93, 0, 64, IN_CAPSULE, 64, Ok(Data::InCapsule(64)));

        check(0x01, 0, 4096, IN_CAPSULE, 512, Err(SglError::Length));
        check(0x01, 0, 4096, IN_CAPSULE, 0, Err(SglError::Length));
        check(0x01, 0, 4096, TRANSPORT, 4096, Err(SglError::Type));
        check(0x01, 0, 4096, 0x00, 0, Err(SglError::Type));
        check(0x02, 0, 4096, IN_CAPSULE, 0, Err(SglError::Type));
        check(0x02, 0, 4096, IN_CAPSULE, 4096, Err(SglError::Type));
        check(0x00, 0, 4096, IN_CAPSULE, 4096, Err(SglError::Type));
        assert_eq!(submission(0x01, 0, 512, 512, IN_CAPSULE).data(512), Err(SglError::Offset));
        assert_eq!([SglError::Length, SglError::Type, SglError::Offset].map(SglError::status_code), [0x0f, 0x11, 0x16]);
    }
}
