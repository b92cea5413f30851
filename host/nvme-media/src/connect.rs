//! A connection to a namespace that a URI names, for those who use one of another process or machine.

use std::fmt;
use std::time::Duration;

use openftl_nvme_tcp::client::ClientError;
use openftl_nvme_tcp::fabrics::Identity;

use crate::association::{Association, AssociationError, identity_of_process};
use crate::uri::{DriveUri, UriError};

/// Why a namespace cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The machine is not known.
    #[error("{0}")]
    Uri(#[from] UriError),
    /// Nobody is there, or the subsystem refuses.
    #[error("{0}")]
    Association(#[from] AssociationError),
    /// The connection failed.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// Another host writes to the namespace, and is to be the only one.
    #[error("{uri}: another host writes to the drive and has reserved it (host {host}, controller {controller})")]
    Taken {
        /// Where.
        uri: String,
        /// HOSTID, in hexadecimal digits.
        host: String,
        /// CNTLID.
        controller: u16,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(String),
    /// Another kind of namespace.
    #[error("{uri}: namespace {namespace} {why}; `openftl nvme identify` shows what is there")]
    OtherKind {
        /// Where.
        uri: String,
        /// NSID.
        namespace: u32,
        /// What it is, or is not.
        why: String,
    },
}

impl ConnectError {
    /// The namespace is not what it has to be; `why` goes on from its name.
    #[must_use]
    pub fn other_kind(uri: &DriveUri, why: impl fmt::Display) -> ConnectError {
        ConnectError::OtherKind { uri: uri.to_string(), namespace: uri.namespace, why: why.to_string() }
    }
}

/// An association with the subsystem at `uri`, of this process as the host `host_nqn`; see [`identity_of_process`] for `client`. Whoever does not answer
/// within `answer_max` is cut, now and later.
///
/// # Errors
/// If nobody is there, or the subsystem refuses.
pub fn connect(uri: &DriveUri, host_nqn: &str, client: u8, answer_max: Duration) -> Result<Association, ConnectError> {
    connect_as(uri, &identity_of_process(host_nqn, client, &uri.subsystem), answer_max)
}

/// The same, of another host.
///
/// # Errors
/// If nobody is there, or the subsystem refuses.
pub fn connect_as(uri: &DriveUri, identity: &Identity, answer_max: Duration) -> Result<Association, ConnectError> {
    Ok(Association::make(uri.resolve()?, identity, answer_max)?)
}
