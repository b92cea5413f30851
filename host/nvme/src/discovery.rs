//! The discovery log: each subsystem at each port, and how hosts reach it there.

use crate::queue::QUEUE_ENTRIES_MAX;
use crate::subsystem::Nqn;
use crate::wire::fabrics::{ANY_CONTROLLER, DiscoveryEntry, DiscoveryHead};
use crate::wire::log::id as page;
use crate::wire::{SubmissionEntry, ascii, opcode, zero_ended};
use std::net::SocketAddr;
use zerocopy::{FromZeros, IntoBytes};

/// Where hosts reach the target, over TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// PORTID.
    pub id: u16,
    /// TRADDR and TRSVCID.
    pub address: SocketAddr,
}

/// Whether connections have to be encrypted, as the discovery log says it (TCP Transport 1.1, "Transport Specific Address
/// Subtype"; Base, "Discovery Log Page Entry").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SecureChannel {
    /// They are not.
    #[default]
    None,
    /// By TLS 1.3.
    Required,
    /// By TLS 1.3, if the host wants.
    Allowed,
}

/// What the log says of all subsystems.
#[derive(Debug)]
pub(crate) struct DiscoveryLog {
    pub ports: Vec<Port>,
    pub secure_channel: SecureChannel,
    /// Changes of the log.
    pub generation: u64,
}

impl DiscoveryLog {
    /// A log without ports.
    pub fn new() -> DiscoveryLog {
        DiscoveryLog { ports: Vec::new(), secure_channel: SecureChannel::None, generation: 1 }
    }

    /// The log of these subsystems: a head, and a record for each of them at each port.
    pub fn pieces<'a>(&self, subsystems: impl Iterator<Item = &'a Nqn>) -> Vec<Vec<u8>> {
        let records: Vec<Vec<u8>> = subsystems
            .flat_map(|nqn| self.ports.iter().map(move |port| record(nqn, port, self.secure_channel)))
            .map(|record| record.as_bytes().to_vec())
            .collect();
        let mut head = DiscoveryHead::new_zeroed();
        head.generation = self.generation.into();
        head.records = (records.len() as u64).into();
        std::iter::once(head.as_bytes().to_vec()).chain(records).collect()
    }
}

fn record(nqn: &Nqn, port: &Port, secure_channel: SecureChannel) -> DiscoveryEntry {
    let mut record = DiscoveryEntry::new_zeroed();
    record.transport = DiscoveryEntry::TCP;
    record.address_family = if port.address.is_ipv4() { DiscoveryEntry::IPV4 } else { DiscoveryEntry::IPV6 };
    record.subsystem_type = DiscoveryEntry::NVM_SUBSYSTEM;
    record.transport_requirements = DiscoveryEntry::WITHOUT_FLOW_CONTROL
        | match secure_channel {
            SecureChannel::None => 0,
            SecureChannel::Required => DiscoveryEntry::SECURE_CHANNEL_REQUIRED,
            SecureChannel::Allowed => DiscoveryEntry::SECURE_CHANNEL_NOT_REQUIRED,
        };
    if secure_channel != SecureChannel::None {
        record.transport_specific[0] = DiscoveryEntry::TLS_1_3;
    }
    record.port_id = port.id.into();
    record.controller_id = ANY_CONTROLLER.into();
    record.admin_queue_entries_max = (QUEUE_ENTRIES_MAX as u16).into();
    record.service = ascii(&port.address.port().to_string());
    record.subsystem_nqn = zero_ended(nqn.as_str());
    record.address = ascii(&port.address.ip().to_string());
    record
}

/// Whether a command asks for it.
pub(crate) fn is_asked_for(entry: &SubmissionEntry) -> bool {
    entry.opcode == opcode::admin::GET_LOG_PAGE && entry.dword(10) as u8 == page::DISCOVERY
}
