//! The commands that a host begins a connection with, as submission queue entries.
//!
//! ```text
//!   Connect ──▶ Property Get (CAP, VS) ──▶ Property Set (CC.EN) ──▶ Property Get (CSTS.RDY) ──▶ Identify …
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::SUBMISSION_BYTES;
use crate::sgl::{Completion, FABRICS};

/// Fabrics Command Types (Base, "Fabrics Command Set", FCTYPE).
pub mod fabrics_type {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// CNTLID of a Connect that lets the controller choose (Base, "Connect Command").
pub const CONTROLLER_ID_ANY: u16 = 0xffff;

/// CATTR bit 2: the host does without SQHD (Base, "Connect Command").
pub const DISABLE_FLOW_CONTROL: u8 = 1 << 2;

/// Connect (Base, "Connect Command").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Connect {
    /// [`FABRICS`].
    pub opcode: u8,
    /// PSDT.
    pub flags: u8,
    /// CID.
    pub command_id: U16,
    /// [`fabrics_type::CONNECT`].
    pub fabrics_type: u8,
    /// Reserved.
    pub reserved: [u8; 19],
    /// SGL1: [`ConnectData`].
    pub sgl: [u8; 16],
    /// RECFMT: zero.
    pub record_format: U16,
    /// QID: zero for the Admin Queue.
    pub queue_id: U16,
    /// SQSIZE: entries, 0-based.
    pub queue_size: U16,
    /// CATTR: [`DISABLE_FLOW_CONTROL`].
    pub attributes: u8,
    /// Reserved.
    pub reserved_attributes: u8,
    /// KATO: in milliseconds; of the Admin Queue only.
    pub keep_alive_ms: U32,
    /// Reserved.
    pub reserved_end: [u8; 12],
}

/// The data of a Connect (Base, "Connect Command").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID.
    pub host_id: [u8; 16],
    /// CNTLID: [`CONTROLLER_ID_ANY`], or the controller of the Admin Queue.
    pub controller_id: U16,
    /// Reserved.
    pub reserved: [u8; 238],
    /// SUBNQN, ended by zeroes.
    pub subsystem_nqn: [u8; 256],
    /// HOSTNQN, ended by zeroes.
    pub host_nqn: [u8; 256],
    /// Reserved.
    pub reserved_end: [u8; 256],
}

/// Property Get and Property Set (Base, "Property Get Command", "Property Set Command").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Property {
    /// [`FABRICS`].
    pub opcode: u8,
    /// PSDT.
    pub flags: u8,
    /// CID.
    pub command_id: U16,
    /// [`fabrics_type::PROPERTY_GET`] or [`fabrics_type::PROPERTY_SET`].
    pub fabrics_type: u8,
    /// Reserved.
    pub reserved: [u8; 35],
    /// ATTRIB: 0 for a property of 4 bytes, 1 for one of 8.
    pub size: u8,
    /// Reserved.
    pub reserved_size: [u8; 3],
    /// OFST: of the property, in bytes.
    pub offset: U32,
    /// VALUE, of a Property Set.
    pub value: U64,
    /// Reserved.
    pub reserved_end: [u8; 8],
}

const _: () = {
    assert!(size_of::<Connect>() == SUBMISSION_BYTES);
    assert!(std::mem::offset_of!(Connect, record_format) == 40);
    assert!(size_of::<ConnectData>() == 1024);
    assert!(std::mem::offset_of!(ConnectData, subsystem_nqn) == 256);
    assert!(size_of::<Property>() == SUBMISSION_BYTES);
    assert!(std::mem::offset_of!(Property, size) == 40);
};

/// A queue to be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueParameters {
    /// QID: zero for the Admin Queue.
    pub queue_id: u16,
    /// Entries, at least 2.
    pub entries: u16,
    /// Whether completions have to carry SQHD.
    pub flow_control: bool,
    /// KATO in milliseconds; zero on other queues than the Admin Queue, or for none.
    pub keep_alive_ms: u32,
}

/// Who connects to what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// HOSTID.
    pub host_id: [u8; 16],
    /// HOSTNQN.
    pub host_nqn: String,
    /// SUBNQN.
    pub subsystem_nqn: String,
}

/// A name that no Connect can carry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the {which} NQN `{nqn}` has {} bytes; an NQN has 1 to {NQN_BYTES_MAX}", nqn.len())]
pub struct NqnError {
    /// Host or subsystem.
    pub which: &'static str,
    /// The name.
    pub nqn: String,
}

/// The most bytes of an NQN (Base, "NVMe Qualified Names").
pub const NQN_BYTES_MAX: usize = 223;

/// The entry of a Connect, whose data are [`connect_data`].
#[must_use]
pub fn connect(queue: QueueParameters) -> [u8; SUBMISSION_BYTES] {
    assert!(queue.entries >= 2, "a queue has at least 2 entries");
    let mut connect = Connect::new_zeroed();
    connect.opcode = FABRICS;
    connect.fabrics_type = fabrics_type::CONNECT;
    connect.queue_id = queue.queue_id.into();
    connect.queue_size = (queue.entries - 1).into();
    connect.attributes = if queue.flow_control { 0 } else { DISABLE_FLOW_CONTROL };
    connect.keep_alive_ms = queue.keep_alive_ms.into();
    zerocopy::transmute!(connect)
}

/// The data of a Connect.
///
/// # Errors
/// Which name is too long, or empty.
pub fn connect_data(identity: &Identity, controller_id: u16) -> Result<ConnectData, NqnError> {
    let name = |which, nqn: &String| {
        let mut field = [0; 256];
        if nqn.is_empty() || nqn.len() > NQN_BYTES_MAX {
            return Err(NqnError { which, nqn: nqn.clone() });
        }
        field[..nqn.len()].copy_from_slice(nqn.as_bytes());
        Ok(field)
    };
    Ok(ConnectData {
        host_id: identity.host_id,
        controller_id: controller_id.into(),
        reserved: [0; 238],
        subsystem_nqn: name("subsystem", &identity.subsystem_nqn)?,
        host_nqn: name("host", &identity.host_nqn)?,
        reserved_end: [0; 256],
    })
}

/// What a successful Connect answers (Base, "Connect Response").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connected {
    /// CNTLID.
    pub controller_id: u16,
    /// AUTHREQ: whether the host has to authenticate itself before anything else.
    pub authentication_required: bool,
}

impl Connected {
    /// Of a completion.
    #[must_use]
    pub fn of(completion: &Completion) -> Connected {
        let specific = completion.specific.get();
        // AUTHREQ is in bits 31:16: ATR (bit 17) asks for authentication, ASCR (bit 18) for a secure channel with it.
        Connected { controller_id: specific as u16, authentication_required: specific >> 17 & 0b11 != 0 }
    }
}

/// The properties that a host needs to start a controller (Base, "Controller Properties").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropertyName {
    /// Controller Capabilities.
    Cap,
    /// Version.
    Vs,
    /// Controller Configuration.
    Cc,
    /// Controller Status.
    Csts,
}

impl PropertyName {
    fn offset(self) -> u32 {
        match self {
            PropertyName::Cap => 0x00,
            PropertyName::Vs => 0x08,
            PropertyName::Cc => 0x14,
            PropertyName::Csts => 0x1c,
        }
    }

    fn size_code(self) -> u8 {
        u8::from(self == PropertyName::Cap)
    }
}

fn property(fabrics_type: u8, name: PropertyName, value: u64) -> [u8; SUBMISSION_BYTES] {
    let mut property = Property::new_zeroed();
    property.opcode = FABRICS;
    property.fabrics_type = fabrics_type;
    property.size = name.size_code();
    property.offset = name.offset().into();
    property.value = value.into();
    zerocopy::transmute!(property)
}

/// The entry of a Property Get. The value is in the first eight bytes of its completion.
#[must_use]
pub fn property_get(name: PropertyName) -> [u8; SUBMISSION_BYTES] {
    property(fabrics_type::PROPERTY_GET, name, 0)
}

/// The entry of a Property Set.
#[must_use]
pub fn property_set(name: PropertyName, value: u64) -> [u8; SUBMISSION_BYTES] {
    property(fabrics_type::PROPERTY_SET, name, value)
}

/// SECP of in-band authentication, and what goes with it in SPSP0 and SPSP1 (Base, "Authentication Send Command").
const AUTHENTICATION_PROTOCOL: [u8; 4] = [0, 1, 1, 0xe9];

fn authentication(fabrics_type: u8, bytes: u32) -> [u8; SUBMISSION_BYTES] {
    let mut entry = [0; SUBMISSION_BYTES];
    (entry[0], entry[4]) = (FABRICS, fabrics_type);
    entry[40..44].copy_from_slice(&AUTHENTICATION_PROTOCOL);
    entry[44..48].copy_from_slice(&bytes.to_le_bytes());
    entry
}

/// The entry of an Authentication Send with a message of `bytes`.
#[must_use]
pub fn authentication_send(bytes: u32) -> [u8; SUBMISSION_BYTES] {
    authentication(fabrics_type::AUTHENTICATION_SEND, bytes)
}

/// The entry of an Authentication Receive with room for `bytes`.
#[must_use]
pub fn authentication_receive(bytes: u32) -> [u8; SUBMISSION_BYTES] {
    authentication(fabrics_type::AUTHENTICATION_RECEIVE, bytes)
}

/// The entry of a Disconnect (Base, "Disconnect Command").
#[must_use]
pub fn disconnect() -> [u8; SUBMISSION_BYTES] {
    let mut property = Property::new_zeroed();
    property.opcode = FABRICS;
    property.fabrics_type = fabrics_type::DISCONNECT;
    zerocopy::transmute!(property)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_lies_on_the_wire_as_the_specification_draws_it() {
        let queue = QueueParameters { queue_id: 3, entries: 128, flow_control: false, keep_alive_ms: 0x0102_0304 };
        let entry = connect(queue);
        let mut golden = [0; 64];
        (golden[0], golden[4]) = (0x7f, 0x01);
        golden[40..52].copy_from_slice(&[0, 0, 3, 0, 127, 0, 4, 0, 4, 3, 2, 1]);
        assert_eq!(entry, golden);
        let identity =
            Identity { host_id: [9; 16], host_nqn: "nqn.host".into(), subsystem_nqn: "nqn.subsystem".into() };
        let data = connect_data(&identity, CONTROLLER_ID_ANY).unwrap();
        let bytes = data.as_bytes();
        assert_eq!(bytes[..20], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0xff, 0xff, 0, 0]);
        assert_eq!(&bytes[256..270], b"nqn.subsystem\0");
        assert_eq!(&bytes[512..521], b"nqn.host\0");
        assert!(bytes[768..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_name_that_is_empty_or_too_long_is_refused_by_its_kind() {
        let identity = |host: &str, subsystem: &str| Identity {
            host_id: [0; 16],
            host_nqn: host.into(),
            subsystem_nqn: subsystem.into(),
        };
        let error = connect_data(&identity("", "s"), 0).unwrap_err();
        assert_eq!(error.to_string(), "the host NQN `` has 0 bytes; an NQN has 1 to 223");
        assert_eq!(connect_data(&identity("h", &"x".repeat(224)), 0).unwrap_err().which, "subsystem");
        assert!(connect_data(&identity("h", &"x".repeat(223)), 0).is_ok());
    }

    #[test]
    fn properties_are_named_by_offset_and_size() {
        let get = property_get(PropertyName::Cap);
        assert_eq!((get[0], get[4], &get[40..56]), (0x7f, 0x04, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..]));
        let set = property_set(PropertyName::Cc, 0x0046_0001);
        let golden = [0, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0x46, 0, 0, 0, 0, 0];
        assert_eq!((set[0], set[4], &set[40..56]), (0x7f, 0x00, &golden[..]));
        assert_eq!(property_get(PropertyName::Csts)[44], 0x1c);
        assert_eq!(property_get(PropertyName::Vs)[44], 0x08);
        assert_eq!((disconnect()[0], disconnect()[4]), (0x7f, 0x08));
    }

    #[test]
    fn authentication_says_its_protocol_and_the_length_of_the_message() {
        let golden = [0, 1, 1, 0xe9, 0x50, 0x04, 0, 0];
        let (send, receive) = (authentication_send(0x450), authentication_receive(0x450));
        assert_eq!((send[0], send[4], &send[40..48]), (0x7f, 0x05, &golden[..]));
        assert_eq!((receive[0], receive[4], &receive[40..48]), (0x7f, 0x06, &golden[..]));
    }

    #[test]
    fn a_connect_is_answered_with_the_controller_and_what_it_asks_for() {
        let mut completion = Completion::new_zeroed();
        completion.specific = 0x0002_0007.into();
        assert_eq!(Connected::of(&completion), Connected { controller_id: 7, authentication_required: true });
        completion.specific = 0x0000_0001.into();
        assert_eq!(Connected::of(&completion), Connected { controller_id: 1, authentication_required: false });
    }
}
