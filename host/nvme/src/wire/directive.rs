//! Directives (Base, "Directives"): what a host may say with its writes, beyond where they go.

use super::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// DTYPE: in a write bits 23 to 20 of dword 12, in Directive Send and Receive bits 15 to 8 of dword 11.
pub mod kind {
    /// "Identify": what directives there are.
    pub const IDENTIFY: u8 = 0x00;
    /// "Streams".
    pub const STREAMS: u8 = 0x01;
    /// "Data Placement".
    pub const DATA_PLACEMENT: u8 = 0x02;
}

/// DOPER of Directive Receive, bits 7 to 0 of dword 11.
pub mod receive {
    /// "Return Parameters", of Identify and Streams.
    pub const PARAMETERS: u8 = 0x01;
    /// "Get Status" of Streams.
    pub const STREAMS_STATUS: u8 = 0x02;
    /// "Allocate Resources" of Streams.
    pub const ALLOCATE_STREAMS: u8 = 0x03;
}

/// DOPER of Directive Send.
pub mod send {
    /// "Enable Directive" of Identify; dword 12 says which, and whether.
    pub const ENABLE: u8 = 0x01;
    /// "Release Identifier" of Streams.
    pub const RELEASE_STREAM: u8 = 0x01;
    /// "Release Resources" of Streams.
    pub const RELEASE_STREAMS: u8 = 0x02;
}

/// Dword 12 of "Enable Directive", bit 0: ENDIR.
pub const ENABLE: u32 = 1 << 0;

/// "Identify Directive - Return Parameters", with a bit for each kind of directive.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct DirectiveParameters {
    /// 0: supported.
    pub supported: [u8; 32],
    /// 32: enabled.
    pub enabled: [u8; 32],
    /// 64: enabled as before after a reset of the controller.
    pub persistent: [u8; 32],
    /// 96.
    pub reserved: [u8; 4000],
}

/// "Streams Directive - Return Parameters".
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct StreamParameters {
    /// 0: MSL, the most open streams of the subsystem.
    pub streams_max: U16,
    /// 2: NSSA, those that no namespace has to itself.
    pub subsystem_available: U16,
    /// 4: NSSO, those of them that are open.
    pub subsystem_open: U16,
    /// 6: NSSC.
    pub capability: u8,
    /// 7.
    pub reserved_7: [u8; 9],
    /// 16: SWS, the best size of a write in blocks.
    pub write_blocks: U32,
    /// 20: SGS, what a stream is given at a time, in units of SWS.
    pub granularity_writes: U16,
    /// 22: NSA, streams that the namespace has to itself.
    pub allocated: U16,
    /// 24: NSO, open streams of the namespace.
    pub open: U16,
    /// 26.
    pub reserved_26: [u8; 6],
}

impl StreamParameters {
    /// NSSC bit 0, SSID: an identifier means the same stream, whichever host says it.
    pub const SHARED_IDENTIFIERS: u8 = 1 << 0;
}

const _: () = {
    assert!(size_of::<DirectiveParameters>() == 4096);
    assert!(size_of::<StreamParameters>() == 32);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_streams_lie_on_the_wire_as_the_specification_draws_them() {
        let parameters = StreamParameters {
            streams_max: 0x0102.into(),
            subsystem_available: 0x0304.into(),
            subsystem_open: 0x0506.into(),
            capability: StreamParameters::SHARED_IDENTIFIERS,
            reserved_7: [0; 9],
            write_blocks: 0x0708_090a.into(),
            granularity_writes: 0x0b0c.into(),
            allocated: 0x0d0e.into(),
            open: 0x0f10.into(),
            reserved_26: [0; 6],
        };
        let golden = [
            0x02, 0x01, 0x04, 0x03, 0x06, 0x05, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0x09, 0x08, 0x07, 0x0c, 0x0b,
            0x0e, 0x0d, 0x10, 0x0f, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(parameters.as_bytes(), golden);
    }
}
