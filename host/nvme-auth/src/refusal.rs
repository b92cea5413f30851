//! Why one side does not go on: the number that stands in AUTH_Failure1 and AUTH_Failure2, and a word for the log.

use std::fmt;

/// Reason Code Explanation (8.3.4.4, AUTH_Failure1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Explanation {
    /// 01h: the response is wrong.
    Failed,
    /// 02h: no protocol that both speak.
    ProtocolNotUsable,
    /// 03h: a secure channel is asked for and not offered, or the other way round.
    SecureChannelMismatch,
    /// 04h: no hash function that both accept.
    HashNotUsable,
    /// 05h: no group that both accept.
    GroupNotUsable,
    /// 06h: a message that contradicts itself or what was agreed.
    IncorrectPayload,
    /// 07h: another message was due.
    IncorrectMessage,
    /// Any other number.
    Unknown(u8),
}

impl Explanation {
    /// The explanation with this number.
    #[must_use]
    pub fn from_id(id: u8) -> Explanation {
        match id {
            1 => Explanation::Failed,
            2 => Explanation::ProtocolNotUsable,
            3 => Explanation::SecureChannelMismatch,
            4 => Explanation::HashNotUsable,
            5 => Explanation::GroupNotUsable,
            6 => Explanation::IncorrectPayload,
            7 => Explanation::IncorrectMessage,
            id => Explanation::Unknown(id),
        }
    }

    /// Its number on the wire.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Explanation::Failed => 1,
            Explanation::ProtocolNotUsable => 2,
            Explanation::SecureChannelMismatch => 3,
            Explanation::HashNotUsable => 4,
            Explanation::GroupNotUsable => 5,
            Explanation::IncorrectPayload => 6,
            Explanation::IncorrectMessage => 7,
            Explanation::Unknown(id) => id,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Explanation::Failed => f.write_str("authentication failed"),
            Explanation::ProtocolNotUsable => f.write_str("authentication protocol not usable"),
            Explanation::SecureChannelMismatch => f.write_str("secure channel concatenation mismatch"),
            Explanation::HashNotUsable => f.write_str("hash function not usable"),
            Explanation::GroupNotUsable => f.write_str("Diffie-Hellman group not usable"),
            Explanation::IncorrectPayload => f.write_str("incorrect payload"),
            Explanation::IncorrectMessage => f.write_str("incorrect protocol message"),
            Explanation::Unknown(id) => write!(f, "explanation {id:#04x}"),
        }
    }
}

/// Why a transaction ended: what the other side is told, and a word more for whoever reads the log of this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{explanation}: {why}")]
pub struct Refusal {
    /// What stands in AUTH_Failure1 or AUTH_Failure2.
    pub explanation: Explanation,
    /// What was found.
    pub why: &'static str,
}

impl Refusal {
    pub(crate) const fn new(explanation: Explanation, why: &'static str) -> Refusal {
        Refusal { explanation, why }
    }

    pub(crate) const fn payload(why: &'static str) -> Refusal {
        Refusal::new(Explanation::IncorrectPayload, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_an_explanation_and_stays_the_same() {
        for id in 0..=255 {
            assert_eq!(Explanation::from_id(id).id(), id);
        }
    }
}
