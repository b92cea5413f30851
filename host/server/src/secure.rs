//! Which NVMe hosts have to use TLS, and what they are known by.

use std::collections::HashSet;

use openftl_nvme::wire::fabrics::DISCOVERY_NQN;
use openftl_nvme::{SecureChannel, Target};
use openftl_nvme_auth::{PskIdentity, TlsKeys};
use openftl_nvme_tls::{Acceptor, TlsError};

/// Whether NVMe hosts have to use TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsPolicy {
    /// All of them.
    Required,
    /// Those that have a key. Others connect without.
    Allowed,
}

/// What makes connections secure.
pub(crate) struct Secure {
    pub acceptor: Acceptor,
    pub policy: TlsPolicy,
    /// Those that have a key.
    hosts: HashSet<String>,
}

impl Secure {
    /// Keys open the discovery subsystem and those of `target`.
    pub fn new(keys: &TlsKeys, policy: TlsPolicy, target: &Target) -> Result<Secure, TlsError> {
        let subsystems = target.subsystems().iter().map(|subsystem| subsystem.config().nqn.as_str());
        let psks = subsystems.chain([DISCOVERY_NQN]).flat_map(|nqn| keys.psks(nqn));
        let hosts = keys.hosts().map(str::to_owned).collect();
        Ok(Secure { acceptor: Acceptor::new(psks)?, policy, hosts })
    }

    /// What the discovery log says of it.
    pub fn channel(&self) -> SecureChannel {
        match self.policy {
            TlsPolicy::Required => SecureChannel::Required,
            TlsPolicy::Allowed => SecureChannel::Allowed,
        }
    }

    /// Whether a host may connect to a subsystem over a connection on which `shown` has been shown: it is who it says, and
    /// one with a key has used it.
    pub fn admits(&self, shown: Option<&PskIdentity>, host_nqn: &str, subsystem_nqn: &str) -> bool {
        match shown {
            Some(identity) => identity.host_nqn == host_nqn && identity.subsystem_nqn == subsystem_nqn,
            None => self.policy == TlsPolicy::Allowed && !self.hosts.contains(host_nqn),
        }
    }
}
