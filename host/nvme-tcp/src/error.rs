//! Why a connection has to end.

use std::fmt;

/// Fatal Error Status (TCP, "H2CTermReq PDU" and "C2HTermReq PDU", FES). A host means R2T Limit Exceeded by the code of
/// Data Transfer Limit Exceeded; ours answers each R2T before it looks at the next, so it has nothing to complain of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FatalErrorStatus {
    /// Invalid PDU Header Field.
    InvalidHeaderField,
    /// PDU Sequence Error.
    SequenceError,
    /// Header Digest Error.
    HeaderDigestError,
    /// Data Transfer Out of Range.
    DataOutOfRange,
    /// Data Transfer Limit Exceeded: said by a controller, of an H2CData longer than MAXH2CDATA.
    DataLimitExceeded,
    /// Unsupported Parameter.
    UnsupportedParameter,
}

impl FatalErrorStatus {
    /// The code in a termination request.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            FatalErrorStatus::InvalidHeaderField => 0x01,
            FatalErrorStatus::SequenceError => 0x02,
            FatalErrorStatus::HeaderDigestError => 0x03,
            FatalErrorStatus::DataOutOfRange => 0x04,
            FatalErrorStatus::DataLimitExceeded => 0x05,
            FatalErrorStatus::UnsupportedParameter => 0x06,
        }
    }
}

/// An error that a termination request tells the other side of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub struct FatalError {
    /// FES.
    pub status: FatalErrorStatus,
    /// FEI: for a wrong field or parameter its offset in the header, for a wrong header digest the digest received, else
    /// zero.
    pub information: u32,
}

impl FatalError {
    /// The header field at `offset` is wrong.
    #[must_use]
    pub fn field(offset: usize) -> FatalError {
        FatalError { status: FatalErrorStatus::InvalidHeaderField, information: offset as u32 }
    }

    /// One that no further information belongs to.
    #[must_use]
    pub fn of(status: FatalErrorStatus) -> FatalError {
        FatalError { status, information: 0 }
    }
}

impl fmt::Display for FatalError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let information = self.information;
        match self.status {
            FatalErrorStatus::InvalidHeaderField => {
                write!(formatter, "the PDU header field at byte {information} is invalid")
            }
            FatalErrorStatus::SequenceError => write!(formatter, "the PDU came out of sequence"),
            FatalErrorStatus::HeaderDigestError => {
                write!(formatter, "the header digest {information:#010x} does not belong to the PDU header")
            }
            FatalErrorStatus::DataOutOfRange => write!(formatter, "the data lie outside of what was asked for"),
            FatalErrorStatus::DataLimitExceeded => write!(formatter, "the data are longer than MAXH2CDATA"),
            FatalErrorStatus::UnsupportedParameter => {
                write!(formatter, "the parameter at byte {information} is not supported")
            }
        }
    }
}

/// How a connection came to its end by the protocol's rules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Termination {
    /// The other side broke a rule and was told so.
    #[error("{0}")]
    Sent(FatalError),
    /// The other side says that we broke one.
    #[error("the other side ended the connection: fatal error status {status:#06x}, information {information:#010x}")]
    Received {
        /// FES.
        status: u16,
        /// FEI.
        information: u32,
    },
    /// The other side sent a termination request that is itself wrong, which nothing answers (TCP, "Error Handling
    /// Model").
    #[error("the other side ended the connection with a broken termination request")]
    Broken,
}
