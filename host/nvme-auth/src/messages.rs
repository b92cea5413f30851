//! The messages: the payload of Authentication Send and Authentication Receive, byte for byte, little-endian.
//!
//! Common messages stand in 8.3.4.4 and those of DH-HMAC-CHAP in 8.3.4.5. All begin alike:
//!
//! ```text
//!  0          1        2..4      4..6
//!  AUTH_TYPE  AUTH_ID  reserved  T_ID
//! ```
//!
//! | message | type, id | from | bytes |
//! |---|---|---|---|
//! | [`Negotiate`](`NegotiateHead`) | 00h 00h | host | 8, and 64 for each protocol |
//! | [`Challenge`](`ChallengeHead`) | 01h 01h | controller | 16, C1 (HL), g^x (DHVLEN) |
//! | [`Reply`](`ReplyHead`) | 01h 02h | host | 16, R1 (HL), C2 (HL), g^y (DHVLEN) |
//! | [`Success1`](`Success1Head`) | 01h 03h | controller | 16, R2 (HL) |
//! | [`Success2`] | 01h 04h | host | 16 |
//! | [`Failure`] 2 | 00h F0h | host | 8 |
//! | [`Failure`] 1 | 00h F1h | controller | 8 |
//!
//! What a host sends is exactly as long as its message. What it receives may be longer: controllers fill the rest of the
//! buffer with zeroes. Reserved bytes are written as zeroes and not looked at.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::group::{DH_VALUE_BYTES_MAX, DhGroup};
use crate::hash::{DIGEST_BYTES_MAX, HashFunction};
use crate::policy::Policy;
use crate::refusal::{Explanation, Refusal};

/// Bytes of the longest message that a controller sends, so enough for any Authentication Receive.
pub const RECEIVE_BYTES_MAX: usize = size_of::<ChallengeHead>() + DIGEST_BYTES_MAX + DH_VALUE_BYTES_MAX;
/// Bytes of the longest message that a host sends: a negotiation with as many protocols as it can name.
pub const SEND_BYTES_MAX: usize = size_of::<NegotiateHead>() + u8::MAX as usize * size_of::<ProtocolDescriptor>();

/// AUTH_TYPE.
pub mod auth_type {
    /// Common messages.
    pub const COMMON: u8 = 0x00;
    /// DH-HMAC-CHAP.
    pub const DH_HMAC_CHAP: u8 = 0x01;
}

/// AUTH_ID of the common messages.
pub mod common_id {
    /// AUTH_Negotiate.
    pub const NEGOTIATE: u8 = 0x00;
    /// AUTH_Failure2.
    pub const FAILURE2: u8 = 0xF0;
    /// AUTH_Failure1.
    pub const FAILURE1: u8 = 0xF1;
}

/// AUTH_ID of the messages of DH-HMAC-CHAP.
pub mod dh_hmac_chap_id {
    /// DH-HMAC-CHAP_Challenge.
    pub const CHALLENGE: u8 = 0x01;
    /// DH-HMAC-CHAP_Reply.
    pub const REPLY: u8 = 0x02;
    /// DH-HMAC-CHAP_Success1.
    pub const SUCCESS1: u8 = 0x03;
    /// DH-HMAC-CHAP_Success2.
    pub const SUCCESS2: u8 = 0x04;
}

/// What every message begins with.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct MessageHead {
    /// AUTH_TYPE: [`auth_type`].
    pub auth_type: u8,
    /// AUTH_ID: [`common_id`] or [`dh_hmac_chap_id`].
    pub auth_id: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// T_ID: the host's number of the transaction, the same in all its messages.
    pub transaction: U16,
}

/// AUTH_Negotiate up to the protocol descriptors.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct NegotiateHead {
    /// Type, identifier, transaction.
    pub head: MessageHead,
    /// SC_C: 0 if no secure channel is to follow.
    pub secure_channel: u8,
    /// NAPD: how many protocol descriptors follow.
    pub protocols: u8,
}

/// Identifiers that a protocol descriptor has room for.
pub const IDENTIFIERS_MAX: usize = 30;

/// A protocol descriptor for DH-HMAC-CHAP.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ProtocolDescriptor {
    /// AUTHID: 1 for DH-HMAC-CHAP.
    pub protocol: u8,
    /// Reserved.
    pub reserved: u8,
    /// HALEN: hash functions in the list.
    pub hash_count: u8,
    /// DHLEN: groups in the list.
    pub group_count: u8,
    /// Hash functions.
    pub hashes: [u8; IDENTIFIERS_MAX],
    /// Groups.
    pub groups: [u8; IDENTIFIERS_MAX],
}

/// AUTHID of DH-HMAC-CHAP in a [`ProtocolDescriptor`].
const DH_HMAC_CHAP: u8 = 1;

/// DH-HMAC-CHAP_Challenge up to the values.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct ChallengeHead {
    /// Type, identifier, transaction.
    pub head: MessageHead,
    /// HL: bytes of the challenge.
    pub hash_length: u8,
    /// Reserved.
    pub reserved: u8,
    /// HashID: the hash function that the controller chose.
    pub hash: u8,
    /// DHgID: the group that the controller chose.
    pub group: u8,
    /// DHVLEN: bytes of the Diffie-Hellman value.
    pub dh_value_length: U16,
    /// SEQNUM: S1, never 0.
    pub sequence: U32,
}

/// DH-HMAC-CHAP_Reply up to the values.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct ReplyHead {
    /// Type, identifier, transaction.
    pub head: MessageHead,
    /// HL: bytes of the response, and of the challenge.
    pub hash_length: u8,
    /// Reserved.
    pub reserved1: u8,
    /// CVALID: 1 if the controller is asked who it is.
    pub challenge_valid: u8,
    /// Reserved.
    pub reserved2: u8,
    /// DHVLEN: bytes of the Diffie-Hellman value.
    pub dh_value_length: U16,
    /// SEQNUM: S2, never 0 without a secure channel.
    pub sequence: U32,
}

/// DH-HMAC-CHAP_Success1 up to the response.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct Success1Head {
    /// Type, identifier, transaction.
    pub head: MessageHead,
    /// HL: bytes of the response.
    pub hash_length: u8,
    /// Reserved.
    pub reserved1: u8,
    /// RVALID: 1 if the controller says who it is.
    pub response_valid: u8,
    /// Reserved.
    pub reserved2: [u8; 7],
}

/// DH-HMAC-CHAP_Success2.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct Success2 {
    /// Type, identifier, transaction.
    pub head: MessageHead,
    /// Reserved.
    pub reserved: [u8; 10],
}

/// AUTH_Failure1 or AUTH_Failure2.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct Failure {
    /// Type, identifier, transaction.
    pub head: MessageHead,
    /// Reason Code: always 1, "authentication failure".
    pub reason: u8,
    /// Reason Code Explanation: [`Explanation`].
    pub explanation: u8,
}

const _: () = {
    assert!(size_of::<MessageHead>() == 6);
    assert!(size_of::<NegotiateHead>() == 8);
    assert!(size_of::<ProtocolDescriptor>() == 64);
    assert!(size_of::<ChallengeHead>() == 16);
    assert!(size_of::<ReplyHead>() == 16);
    assert!(size_of::<Success1Head>() == 16);
    assert!(size_of::<Success2>() == 16);
    assert!(size_of::<Failure>() == 8);
};

/// Which message it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Negotiate,
    Challenge,
    Reply,
    Success1,
    Success2,
    Failure1,
    Failure2,
    Unknown,
}

impl Kind {
    fn ids(self) -> (u8, u8) {
        match self {
            Kind::Negotiate => (auth_type::COMMON, common_id::NEGOTIATE),
            Kind::Failure1 => (auth_type::COMMON, common_id::FAILURE1),
            Kind::Failure2 => (auth_type::COMMON, common_id::FAILURE2),
            Kind::Challenge => (auth_type::DH_HMAC_CHAP, dh_hmac_chap_id::CHALLENGE),
            Kind::Reply => (auth_type::DH_HMAC_CHAP, dh_hmac_chap_id::REPLY),
            Kind::Success1 => (auth_type::DH_HMAC_CHAP, dh_hmac_chap_id::SUCCESS1),
            Kind::Success2 => (auth_type::DH_HMAC_CHAP, dh_hmac_chap_id::SUCCESS2),
            Kind::Unknown => (0xFF, 0xFF),
        }
    }
}

impl MessageHead {
    pub(crate) fn new(kind: Kind, transaction: u16) -> MessageHead {
        let (auth_type, auth_id) = kind.ids();
        MessageHead { auth_type, auth_id, reserved: [0; 2], transaction: transaction.into() }
    }

    pub(crate) fn parse(payload: &[u8]) -> Result<MessageHead, Refusal> {
        let (head, _) = MessageHead::read_from_prefix(payload).map_err(|_| TRUNCATED)?;
        Ok(head)
    }

    pub(crate) fn belongs_to(&self, transaction: u16) -> Result<(), Refusal> {
        if self.transaction.get() == transaction {
            Ok(())
        } else {
            Err(Refusal::payload("the message belongs to another transaction"))
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        [Kind::Negotiate, Kind::Challenge, Kind::Reply, Kind::Success1, Kind::Success2, Kind::Failure1, Kind::Failure2]
            .into_iter()
            .find(|kind| kind.ids() == (self.auth_type, self.auth_id))
            .unwrap_or(Kind::Unknown)
    }
}

const TRUNCATED: Refusal = Refusal::payload("the message is shorter than it says");
const TOO_LONG: Refusal = Refusal::payload("bytes follow the message");

/// `bytes` cut after `length`.
fn cut(bytes: &[u8], length: usize) -> Result<(&[u8], &[u8]), Refusal> {
    bytes.split_at_checked(length).ok_or(TRUNCATED)
}

fn nothing_left(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.is_empty() { Ok(()) } else { Err(TOO_LONG) }
}

/// AUTH_Negotiate: what the host proposes.
#[derive(Clone, Copy)]
pub(crate) struct Negotiate<'a> {
    pub secure_channel: u8,
    pub protocols: &'a [ProtocolDescriptor],
}

impl<'a> Negotiate<'a> {
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Negotiate<'a>, Refusal> {
        let (head, rest) = NegotiateHead::ref_from_prefix(payload).map_err(|_| TRUNCATED)?;
        let (protocols, rest) =
            <[ProtocolDescriptor]>::ref_from_prefix_with_elems(rest, head.protocols.into()).map_err(|_| TRUNCATED)?;
        nothing_left(rest)?;
        Ok(Negotiate { secure_channel: head.secure_channel, protocols })
    }

    /// The first proposal of DH-HMAC-CHAP: hash functions and groups, as numbers.
    pub(crate) fn dh_hmac_chap(&self) -> Result<(&'a [u8], &'a [u8]), Refusal> {
        let descriptor = self
            .protocols
            .iter()
            .find(|descriptor| descriptor.protocol == DH_HMAC_CHAP)
            .ok_or(Refusal::new(Explanation::ProtocolNotUsable, "the host does not propose DH-HMAC-CHAP"))?;
        let hashes = descriptor.hashes.get(..descriptor.hash_count.into());
        let groups = descriptor.groups.get(..descriptor.group_count.into());
        hashes.zip(groups).ok_or(Refusal::payload("a proposal has room for 30 identifiers and claims more"))
    }
}

pub(crate) fn negotiate(transaction: u16, policy: &Policy) -> Vec<u8> {
    let mut descriptor = ProtocolDescriptor {
        protocol: DH_HMAC_CHAP,
        reserved: 0,
        hash_count: policy.hashes.len() as u8,
        group_count: policy.groups.len() as u8,
        hashes: [0; IDENTIFIERS_MAX],
        groups: [0; IDENTIFIERS_MAX],
    };
    for (id, hash) in descriptor.hashes.iter_mut().zip(&policy.hashes) {
        *id = hash.id();
    }
    for (id, group) in descriptor.groups.iter_mut().zip(&policy.groups) {
        *id = group.id();
    }
    let head = NegotiateHead { head: MessageHead::new(Kind::Negotiate, transaction), secure_channel: 0, protocols: 1 };
    [head.as_bytes(), descriptor.as_bytes()].concat()
}

/// DH-HMAC-CHAP_Challenge: what the controller chose, and asks.
#[derive(Clone, Copy)]
pub(crate) struct Challenge<'a> {
    pub hash: HashFunction,
    pub group: DhGroup,
    pub sequence: u32,
    pub challenge: &'a [u8],
    pub dh_value: &'a [u8],
}

impl<'a> Challenge<'a> {
    /// Bytes of the message.
    pub(crate) fn length(hash: HashFunction, group: DhGroup) -> usize {
        size_of::<ChallengeHead>() + hash.length() + group.value_length()
    }

    pub(crate) fn parse(payload: &'a [u8]) -> Result<Challenge<'a>, Refusal> {
        let (head, rest) = ChallengeHead::ref_from_prefix(payload).map_err(|_| TRUNCATED)?;
        let hash = HashFunction::from_id(head.hash)
            .ok_or(Refusal::new(Explanation::HashNotUsable, "the controller chose an unknown hash function"))?;
        let group = DhGroup::from_id(head.group)
            .ok_or(Refusal::new(Explanation::GroupNotUsable, "the controller chose an unknown group"))?;
        check_lengths(hash, group, head.hash_length, head.dh_value_length.get())?;
        if head.sequence.get() == 0 {
            return Err(Refusal::payload("the controller's challenge has the sequence number 0"));
        }
        let (challenge, rest) = cut(rest, head.hash_length.into())?;
        let (dh_value, _) = cut(rest, head.dh_value_length.get().into())?;
        Ok(Challenge { hash, group, sequence: head.sequence.get(), challenge, dh_value })
    }

    pub(crate) fn to_bytes(self, transaction: u16) -> Vec<u8> {
        let head = ChallengeHead {
            head: MessageHead::new(Kind::Challenge, transaction),
            hash_length: self.challenge.len() as u8,
            reserved: 0,
            hash: self.hash.id(),
            group: self.group.id(),
            dh_value_length: (self.dh_value.len() as u16).into(),
            sequence: self.sequence.into(),
        };
        [head.as_bytes(), self.challenge, self.dh_value].concat()
    }
}

/// DH-HMAC-CHAP_Reply: the host's answer, and its question if it has one.
#[derive(Clone, Copy)]
pub(crate) struct Reply<'a> {
    pub response: &'a [u8],
    /// C2, if the controller is asked who it is.
    pub challenge: Option<&'a [u8]>,
    pub sequence: u32,
    pub dh_value: &'a [u8],
}

impl<'a> Reply<'a> {
    pub(crate) fn parse(payload: &'a [u8], hash: HashFunction, group: DhGroup) -> Result<Reply<'a>, Refusal> {
        let (head, rest) = ReplyHead::ref_from_prefix(payload).map_err(|_| TRUNCATED)?;
        check_lengths(hash, group, head.hash_length, head.dh_value_length.get())?;
        let (response, rest) = cut(rest, head.hash_length.into())?;
        let (challenge, rest) = cut(rest, head.hash_length.into())?;
        let (dh_value, rest) = cut(rest, head.dh_value_length.get().into())?;
        nothing_left(rest)?;
        let sequence = head.sequence.get();
        let challenge = match head.challenge_valid {
            0 => None,
            1 if sequence == 0 => return Err(Refusal::payload("the host's challenge has the sequence number 0")),
            1 => Some(challenge),
            _ => return Err(Refusal::payload("CVALID is neither 0 nor 1")),
        };
        Ok(Reply { response, challenge, sequence, dh_value })
    }

    pub(crate) fn to_bytes(self, transaction: u16) -> Vec<u8> {
        let head = ReplyHead {
            head: MessageHead::new(Kind::Reply, transaction),
            hash_length: self.response.len() as u8,
            reserved1: 0,
            challenge_valid: self.challenge.is_some().into(),
            reserved2: 0,
            dh_value_length: (self.dh_value.len() as u16).into(),
            sequence: self.sequence.into(),
        };
        let no_challenge = [0; DIGEST_BYTES_MAX];
        let challenge = self.challenge.unwrap_or(&no_challenge[..self.response.len()]);
        [head.as_bytes(), self.response, challenge, self.dh_value].concat()
    }
}

/// A challenge is as long as the hash, and a value is there if there is a group. It may be shorter than the modulus,
/// because some hosts leave leading zeroes out.
fn check_lengths(hash: HashFunction, group: DhGroup, hash_length: u8, dh_value_length: u16) -> Result<(), Refusal> {
    if usize::from(hash_length) != hash.length() {
        return Err(Refusal::payload("HL is not the length of the hash function"));
    }
    let value_length = usize::from(dh_value_length);
    if value_length > group.value_length() || (value_length == 0) != (group == DhGroup::Null) {
        return Err(Refusal::payload("DHVLEN does not fit the group"));
    }
    Ok(())
}

/// DH-HMAC-CHAP_Success1: the host is who it says, and perhaps who the controller is.
#[derive(Clone, Copy)]
pub(crate) struct Success1<'a> {
    pub response: Option<&'a [u8]>,
}

impl<'a> Success1<'a> {
    /// Bytes of the message.
    pub(crate) fn length(hash: HashFunction) -> usize {
        size_of::<Success1Head>() + hash.length()
    }

    pub(crate) fn parse(payload: &'a [u8], hash: HashFunction) -> Result<Success1<'a>, Refusal> {
        let (head, rest) = Success1Head::ref_from_prefix(payload).map_err(|_| TRUNCATED)?;
        let response = match head.response_valid {
            0 => None,
            1 if usize::from(head.hash_length) == hash.length() => Some(cut(rest, hash.length())?.0),
            1 => return Err(Refusal::payload("HL is not the length of the hash function")),
            _ => return Err(Refusal::payload("RVALID is neither 0 nor 1")),
        };
        Ok(Success1 { response })
    }

    /// HL and the bytes of the response are always there: Linux hosts look at HL even when RVALID is 0.
    pub(crate) fn to_bytes(self, transaction: u16, hash: HashFunction) -> Vec<u8> {
        let head = Success1Head {
            head: MessageHead::new(Kind::Success1, transaction),
            hash_length: hash.length() as u8,
            reserved1: 0,
            response_valid: self.response.is_some().into(),
            reserved2: [0; 7],
        };
        let no_response = [0; DIGEST_BYTES_MAX];
        [head.as_bytes(), self.response.unwrap_or(&no_response[..hash.length()])].concat()
    }
}

impl Success2 {
    pub(crate) fn check(payload: &[u8]) -> Result<(), Refusal> {
        let (_, rest) = Success2::ref_from_prefix(payload).map_err(|_| TRUNCATED)?;
        nothing_left(rest)
    }

    pub(crate) fn bytes(transaction: u16) -> Vec<u8> {
        Success2 { head: MessageHead::new(Kind::Success2, transaction), reserved: [0; 10] }.as_bytes().to_vec()
    }
}

impl Failure {
    /// What it says, if it is long enough to say something.
    pub(crate) fn explanation(payload: &[u8]) -> Result<Explanation, Refusal> {
        let (failure, _) = Failure::ref_from_prefix(payload).map_err(|_| TRUNCATED)?;
        Ok(Explanation::from_id(failure.explanation))
    }

    pub(crate) fn bytes(kind: Kind, transaction: u16, explanation: Explanation) -> Vec<u8> {
        const AUTHENTICATION_FAILURE: u8 = 1;
        let head = MessageHead::new(kind, transaction);
        Failure { head, reason: AUTHENTICATION_FAILURE, explanation: explanation.id() }.as_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSACTION: u16 = 0x1234;

    fn failed<T>(result: Result<T, Refusal>) -> Explanation {
        match result {
            Ok(_) => panic!("the message was taken"),
            Err(refusal) => refusal.explanation,
        }
    }

    #[test]
    fn a_negotiation_lies_on_the_wire_as_head_and_descriptor() {
        let policy = Policy {
            hashes: vec![HashFunction::Sha384, HashFunction::Sha256],
            groups: vec![DhGroup::Ffdhe8192, DhGroup::Null, DhGroup::Ffdhe2048],
        };
        let mut golden = vec![0x00, 0x00, 0, 0, 0x34, 0x12, 0, 1];
        golden.extend([0x01, 0, 2, 3]);
        golden.extend([2, 1]);
        golden.extend([0; 28]);
        golden.extend([5, 0, 1]);
        golden.extend([0; 27]);
        assert_eq!(negotiate(TRANSACTION, &policy), golden);

        let (hashes, groups) = Negotiate::parse(&golden).unwrap().dh_hmac_chap().unwrap();
        assert_eq!((hashes, groups), (&[2, 1][..], &[5, 0, 1][..]));
    }

    #[test]
    fn the_proposal_of_another_protocol_is_passed_over() {
        let mut payload = vec![0x00, 0x00, 0, 0, 0x34, 0x12, 0, 2];
        let mut other = [0xEE; 64];
        other[0] = 2;
        payload.extend(other);
        assert_eq!(failed(Negotiate::parse(&payload)), Explanation::IncorrectPayload, "one descriptor is missing");
        let mut ours = [0; 64];
        ours[..5].copy_from_slice(&[1, 0, 1, 0, 3]);
        payload.extend(ours);
        let negotiate = Negotiate::parse(&payload).unwrap();
        assert_eq!(negotiate.dh_hmac_chap().unwrap(), (&[3][..], &[][..]));

        payload.push(0);
        assert_eq!(failed(Negotiate::parse(&payload)), Explanation::IncorrectPayload);
        payload.truncate(72);
        payload[7] = 1;
        let negotiate = Negotiate::parse(&payload).unwrap();
        assert_eq!(failed(negotiate.dh_hmac_chap()), Explanation::ProtocolNotUsable);
        payload[8] = 1;
        let negotiate = Negotiate::parse(&payload).unwrap();
        assert_eq!(failed(negotiate.dh_hmac_chap()), Explanation::IncorrectPayload, "EEh identifiers do not fit");
    }

    #[test]
    fn a_challenge_lies_on_the_wire_as_head_challenge_and_value() {
        let challenge = Challenge {
            hash: HashFunction::Sha256,
            group: DhGroup::Ffdhe2048,
            sequence: 0x0102_0304,
            challenge: &[0xC1; 32],
            dh_value: &[0xD1; 256],
        };
        let mut golden = vec![0x01, 0x01, 0, 0, 0x34, 0x12, 32, 0, 1, 1, 0x00, 0x01, 0x04, 0x03, 0x02, 0x01];
        golden.extend([0xC1; 32]);
        golden.extend([0xD1; 256]);
        assert_eq!(challenge.to_bytes(TRANSACTION), golden);
        assert_eq!(golden.len(), Challenge::length(HashFunction::Sha256, DhGroup::Ffdhe2048));

        golden.resize(4096, 0);
        let read = Challenge::parse(&golden).unwrap();
        assert_eq!((read.hash, read.group, read.sequence), (HashFunction::Sha256, DhGroup::Ffdhe2048, 0x0102_0304));
        assert_eq!((read.challenge, read.dh_value), (&[0xC1; 32][..], &[0xD1; 256][..]));

        for (at, value, explanation) in [
            (6, 33, Explanation::IncorrectPayload),
            (8, 0, Explanation::HashNotUsable),
            (8, 2, Explanation::IncorrectPayload),
            (9, 6, Explanation::GroupNotUsable),
            (9, 0, Explanation::IncorrectPayload),
            (11, 2, Explanation::IncorrectPayload),
            (11, 0, Explanation::IncorrectPayload),
        ] {
            let mut spoilt = golden.clone();
            spoilt[at] = value;
            assert_eq!(failed(Challenge::parse(&spoilt)), explanation, "byte {at} is {value}");
        }
        assert_eq!(failed(Challenge::parse(&golden[..303])), Explanation::IncorrectPayload);
        golden[12..16].fill(0);
        assert_eq!(failed(Challenge::parse(&golden)), Explanation::IncorrectPayload, "the sequence number 0");
    }

    #[test]
    fn a_reply_lies_on_the_wire_as_head_response_challenge_and_value() {
        let reply = Reply {
            response: &[0xB1; 48],
            challenge: Some(&[0xC2; 48]),
            sequence: 0x0506_0708,
            dh_value: &[0xD2; 384],
        };
        let mut golden = vec![0x01, 0x02, 0, 0, 0x34, 0x12, 48, 0, 1, 0, 0x80, 0x01, 0x08, 0x07, 0x06, 0x05];
        golden.extend([0xB1; 48]);
        golden.extend([0xC2; 48]);
        golden.extend([0xD2; 384]);
        assert_eq!(reply.to_bytes(TRANSACTION), golden);

        let parse = |bytes: &[u8]| Reply::parse(bytes, HashFunction::Sha384, DhGroup::Ffdhe3072).map(|_| ());
        let read = Reply::parse(&golden, HashFunction::Sha384, DhGroup::Ffdhe3072).unwrap();
        assert_eq!((read.response, read.challenge), (&[0xB1; 48][..], Some(&[0xC2; 48][..])));
        assert_eq!((read.sequence, read.dh_value), (0x0506_0708, &[0xD2; 384][..]));

        golden.push(0);
        assert_eq!(failed(parse(&golden)), Explanation::IncorrectPayload, "a byte too many");
        golden.pop();
        for (at, value) in [(6, 32), (8, 2), (10, 0x81), (10, 0x7F), (11, 0)] {
            let mut spoilt = golden.clone();
            spoilt[at] = value;
            assert_eq!(failed(parse(&spoilt)), Explanation::IncorrectPayload, "byte {at} is {value}");
        }
        golden[12..16].fill(0);
        assert_eq!(failed(parse(&golden)), Explanation::IncorrectPayload, "a challenge with the sequence number 0");
        golden[8] = 0;
        assert!(parse(&golden).is_ok(), "older Linux hosts send the sequence number 0 without a challenge");
    }

    #[test]
    fn a_reply_without_a_challenge_has_its_place_all_the_same() {
        let reply = Reply { response: &[0xB1; 32], challenge: None, sequence: 9, dh_value: &[] };
        let mut golden = vec![0x01, 0x02, 0, 0, 0x34, 0x12, 32, 0, 0, 0, 0, 0, 9, 0, 0, 0];
        golden.extend([0xB1; 32]);
        golden.extend([0; 32]);
        assert_eq!(reply.to_bytes(TRANSACTION), golden);
    }

    #[test]
    fn success_lies_on_the_wire_with_and_without_a_response() {
        let hash = HashFunction::Sha256;
        let mut golden = vec![0x01, 0x03, 0, 0, 0x34, 0x12, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        golden.extend([0xB2; 32]);
        assert_eq!(Success1 { response: Some(&[0xB2; 32]) }.to_bytes(TRANSACTION, hash), golden);
        assert_eq!(golden.len(), Success1::length(hash));
        assert_eq!(Success1::parse(&golden, hash).unwrap().response, Some(&[0xB2; 32][..]));
        assert_eq!(failed(Success1::parse(&golden[..47], hash)), Explanation::IncorrectPayload);
        assert_eq!(failed(Success1::parse(&golden, HashFunction::Sha384)), Explanation::IncorrectPayload);
        golden[8] = 2;
        assert_eq!(failed(Success1::parse(&golden, hash)), Explanation::IncorrectPayload);

        golden[8] = 0;
        golden[16..].fill(0);
        assert_eq!(Success1 { response: None }.to_bytes(TRANSACTION, hash), golden);
        assert!(Success1::parse(&golden[..16], hash).unwrap().response.is_none(), "SPDK leaves the response out");

        let golden = [0x01, 0x04, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Success2::bytes(TRANSACTION), golden);
        assert!(Success2::check(&golden).is_ok());
        assert_eq!(failed(Success2::check(&golden[..15])), Explanation::IncorrectPayload);
        assert_eq!(failed(Success2::check(&[golden, golden].concat())), Explanation::IncorrectPayload);
    }

    #[test]
    fn failures_lie_on_the_wire_with_reason_and_explanation() {
        let bytes = Failure::bytes(Kind::Failure1, TRANSACTION, Explanation::GroupNotUsable);
        assert_eq!(bytes, [0x00, 0xF1, 0, 0, 0x34, 0x12, 1, 5]);
        assert_eq!(Failure::explanation(&bytes).unwrap(), Explanation::GroupNotUsable);
        let bytes = Failure::bytes(Kind::Failure2, TRANSACTION, Explanation::Failed);
        assert_eq!(bytes, [0x00, 0xF0, 0, 0, 0x34, 0x12, 1, 1]);
    }
}
