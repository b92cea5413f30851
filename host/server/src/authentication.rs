//! In-band authentication of NVMe hosts: the secrets of a server, and what each queue is authenticated with.

use std::io;

use getrandom::SysRng;
use getrandom::rand_core::UnwrapErr;
use openftl_core::Time;
use openftl_nvme::{Queue, Target};
use openftl_nvme_auth::controller::time_limit;
use openftl_nvme_auth::{Controller, Credentials, Nonces, Policy, Secret, Secrets};

use crate::key_worker::KeyWorker;

/// Bytes of the secret that nobody has.
const NOBODYS_SECRET_BYTES: usize = 32;

/// What hosts are authenticated with.
pub(crate) struct Authority {
    secrets: Secrets,
    policy: Policy,
    pub nonces: Nonces<UnwrapErr<SysRng>>,
    /// What a host without a secret is asked for: it learns no more than one with a wrong secret.
    nobodys: Secret,
    /// What computes keys and secrets.
    pub worker: KeyWorker,
}

impl Authority {
    pub fn new(secrets: Secrets, policy: Policy) -> io::Result<Authority> {
        let mut random = UnwrapErr(SysRng);
        let nobodys = Secret::generate(None, NOBODYS_SECRET_BYTES, &mut random).expect("a length that secrets have");
        Ok(Authority { secrets, policy, nonces: Nonces::new(random), nobodys, worker: KeyWorker::new()? })
    }

    /// The controller's half, for a queue that has just been connected.
    pub fn begin(&self, now: Time, target: &Target, queue: &Queue) -> Option<Controller> {
        let controller = target.controller(queue)?;
        let (host, subsystem) = (controller.host().nqn.as_str(), target.subsystem_nqn(queue).as_str());
        let credentials = self.secrets.credentials(host, subsystem);
        let credentials = credentials.unwrap_or_else(|| Credentials::new(host, subsystem, &self.nobodys, None));
        Some(Controller::new(credentials, self.policy.clone(), time_limit(controller.keep_alive_ms()), now))
    }
}
