//! Why a connection ends, for the log and for the counters.

use openftl_nbd::protocol::Closing;
use openftl_nvme::Status;
use openftl_nvme_auth::Refusal;
use openftl_nvme_tcp::Termination;

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Parting {
    /// Nothing more comes from the peer.
    #[error("the peer closed the connection")]
    HungUp,
    /// The system says so.
    #[error("the connection broke")]
    Broken,
    /// Of the server.
    #[error("the server stops")]
    Stop,
    /// The operator has interrupted the service.
    #[error("the power was cut")]
    PowerCut,
    /// The server cannot go on.
    #[error("the server failed")]
    Failed,
    /// By the rules of NBD, or against them.
    #[error("{0}")]
    Nbd(Closing),
    /// By the rules of NVMe/TCP.
    #[error("{0}")]
    NvmeTcp(Termination),
    /// The first command has to be a Connect, and one that is accepted.
    #[error("the first command, which has to be Connect, ended with status {}", .0.of_fabrics())]
    Connect(Status),
    /// The host did not show who it is, or does not believe who the controller is.
    #[error("authentication failed: {0}")]
    Authentication(Refusal),
    /// The host has deleted the queue (Fabrics, "Disconnect").
    #[error("the host deleted the queue")]
    Disconnect,
    /// Its host fell silent or closed the admin queue.
    #[error("the controller of the queue is gone")]
    NoController,
    /// More commands than the queue has entries.
    #[error("the host sent more commands than its queue has entries")]
    Overrun,
    /// Every host has to use TLS.
    #[error("the host does not use TLS, which is required")]
    NoTls,
    /// The host has another key, or another idea of TLS.
    #[error("the TLS handshake failed")]
    TlsHandshake,
    /// A record that is none.
    #[error("a TLS record is broken")]
    TlsRecord,
    /// The handshake took too long.
    #[error("the handshake took longer than allowed")]
    LateHandshake,
    /// There were too many handshakes; its own was the oldest.
    #[error("too many connections have not done their handshake, and this was the oldest")]
    Crowd,
    /// The peer owed payload, or had to read.
    #[error("the peer kept the server waiting, with payload that it owes or replies that it does not read")]
    Stalled,
    /// Too much memory went to slow peers.
    #[error("slow peers kept too much memory, and this one the most")]
    KeptTooMuch,
    /// What is written to a device or to zones keeps its order.
    #[error("a slow host of an open-channel or zoned namespace held frames that others wait for")]
    SlowDeviceHost,
}

impl Parting {
    /// Whether the peer broke a rule, or kept the server or others waiting.
    pub fn is_rude(self) -> bool {
        match self {
            Parting::HungUp
            | Parting::Broken
            | Parting::Stop
            | Parting::PowerCut
            | Parting::Failed
            | Parting::Nbd(Closing::Goodbye)
            | Parting::Disconnect
            | Parting::NoController => false,
            Parting::Nbd(_)
            | Parting::NvmeTcp(_)
            | Parting::Connect(_)
            | Parting::Authentication(_)
            | Parting::Overrun
            | Parting::NoTls
            | Parting::TlsHandshake
            | Parting::TlsRecord
            | Parting::LateHandshake
            | Parting::Crowd
            | Parting::Stalled
            | Parting::KeptTooMuch
            | Parting::SlowDeviceHost => true,
        }
    }
}
