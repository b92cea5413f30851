//! An association: a host and one controller, by an admin queue and as many I/O queues as one asks for.
//!
//! ```text
//!   TCP ─▶ TLS, with a key ─▶ ICReq, ICResp ─▶ Connect ─▶ authentication, if either side wants it ─▶ start the controller ─▶ Identify
//! ```

use super::Address;
use super::authentication::{Authentication, NotAuthenticated};
use super::channel::{Channel, Keys};
use super::socket::Socket;
use crate::cli::nvme::HostFlags;
use crate::failure::Failure;
use openftl_nvme::Status;
use openftl_nvme::wire::identify::{IdentifyController, cns};
use openftl_nvme_auth::{Explanation, HashFunction};
use openftl_nvme_tcp::InitiatorConfig;
use openftl_nvme_tcp::client::{Client, ClientError};
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Connected, Identity, PropertyName, QueueParameters};
use openftl_nvme_tls::ConnectError;
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// Entries of the admin queue: the tools have one command of it under way.
const ADMIN_ENTRIES: u16 = 32;

/// What listens and speaks NVMe over TCP answers the first PDU at once: it takes no command for that.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// Between two questions whether a controller has started.
const START_PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a submission queue entry, which IOCCSZ counts too.
const ENTRY_BYTES: u32 = 64;

/// A host and a controller.
pub struct Association {
    pub admin: Client<Channel>,
    pub controller: IdentifyController,
    ends: Ends,
    authentication: Option<Authentication>,
    controller_id: u16,
    /// CAP.
    capabilities: u64,
}

/// Who talks to whom, and how.
struct Ends {
    address: Address,
    identity: Identity,
    flags: HostFlags,
    keys: Option<Keys>,
}

impl Association {
    /// Connects to a controller of the subsystem and starts it.
    pub fn make(address: &Address, subsystem: &str, host: &HostFlags) -> Result<Association, Failure> {
        let host_nqn = host.host_nqn.as_str().to_owned();
        let identity = identity(&host_nqn, subsystem);
        let keys = Keys::new(host, subsystem)?;
        let ends = Ends { address: address.clone(), identity, flags: host.clone(), keys };
        let mut authentication = Authentication::new(host, subsystem)?;
        let queue = QueueParameters { queue_id: 0, entries: ADMIN_ENTRIES, flow_control: false, keep_alive_ms: 0 };
        let in_capsule = InitiatorConfig::default().in_capsule_bytes_max;
        let (mut admin, connected) = ends.queue(queue, CONTROLLER_ID_ANY, in_capsule, &mut authentication)?;
        let started = Instant::now();
        let capabilities = admin.property(PropertyName::Cap).map_err(|error| ends.failure(error))?;
        let wait = || {
            std::thread::sleep(START_PAUSE);
            started.elapsed() < ends.patience()
        };
        admin.start_controller(wait).map_err(|error| ends.failure(error))?;
        let data = admin.identify(cns::CONTROLLER, 0).map_err(|error| ends.failure(error))?;
        let controller = IdentifyController::read_from_bytes(&data).expect("a data structure has 4096 bytes");
        let controller_id = connected.controller_id;
        Ok(Association { admin, controller, ends, authentication, controller_id, capabilities })
    }

    /// Connects an I/O queue for so many commands at a time, no more than [`Association::commands_max`].
    pub fn io_queue(&mut self, commands: u16) -> Result<Client<Channel>, Failure> {
        self.admin.set_number_of_queues(1).map_err(|error| self.ends.failure(error))?;
        let in_capsule = self.controller.command_capsule_units.get().saturating_mul(16).saturating_sub(ENTRY_BYTES);
        let queue = QueueParameters { queue_id: 1, entries: commands + 1, flow_control: false, keep_alive_ms: 0 };
        let (queue, _) = self.ends.queue(queue, self.controller_id, in_capsule, &mut self.authentication)?;
        Ok(queue)
    }

    /// The most commands that a queue takes at a time (CAP.MQES: one entry stays empty).
    pub fn commands_max(&self) -> u16 {
        (self.capabilities as u16).clamp(1, u16::MAX - 1)
    }

    /// The most bytes of one command, if there is a limit (MDTS, in pages of CAP.MPSMIN).
    pub fn transfer_bytes_max(&self) -> Option<u64> {
        self.bytes_max(self.controller.transfer_pages_max_log2)
    }

    /// A limit of so many pages, a power of two; 0: there is none.
    pub fn bytes_max(&self, pages_max_log2: u8) -> Option<u64> {
        let page_log2 = 12 + (self.capabilities >> 48 & 0xf);
        match u64::from(pages_max_log2) {
            0 => None,
            log2 => 1_u64.checked_shl((page_log2 + log2) as u32),
        }
    }

    /// Where the target listens.
    pub fn address(&self) -> &Address {
        &self.ends.address
    }

    /// What went wrong, for people.
    pub fn failure(&self, error: ClientError) -> Failure {
        self.ends.failure(error)
    }

    /// The name of the subsystem.
    pub fn subsystem_nqn(&self) -> &str {
        &self.ends.identity.subsystem_nqn
    }
}

impl Ends {
    fn patience(&self) -> Duration {
        // A socket has no use for a bound of nothing.
        Duration::from_nanos(self.flags.timeout.0).max(Duration::from_millis(1))
    }

    /// Opens a connection, connects it to a queue and authenticates it.
    fn queue(
        &self,
        queue: QueueParameters,
        controller_id: u16,
        in_capsule_bytes_max: u32,
        authentication: &mut Option<Authentication>,
    ) -> Result<(Client<Channel>, Connected), Failure> {
        let address = &self.address;
        let socket =
            Socket::connect(address, self.patience().min(FIRST_ANSWER)).map_err(|error| match error.kind() {
                ErrorKind::ConnectionRefused => Failure::bad_input(format_args!("nobody listens at {address}"))
                    .fix("serve a drive there (openftl serve --memory --nvme-tcp ADDRESS), or name another address"),
                _ => Failure::bad_input(format_args!("{address}: {error}")).fix("name an address that can be reached"),
            })?;
        let config = InitiatorConfig {
            header_digest: self.flags.header_digest,
            data_digest: self.flags.data_digest,
            entries: queue.entries,
            in_capsule_bytes_max,
            ..InitiatorConfig::default()
        };
        let channel = Channel::open(socket, self.keys.as_ref()).map_err(|error| self.handshake_failure(&error))?;
        let mut client = Client::open(channel, config).map_err(|error| {
            Failure::failed(format_args!("what listens at {address} does not speak NVMe over TCP: {error}")).fix(
                match self.keys {
                    None => {
                        "name the port of an NVMe/TCP target: --nvme-tcp of `openftl serve`, 4420 of most others; one that \
                         requires TLS wants --tls-key"
                    }
                    Some(_) => "name the port of an NVMe/TCP target",
                },
            )
        })?;
        client.stream_mut().set_patience(self.patience()).map_err(Failure::failed)?;
        let connected =
            client.connect(queue, &self.identity, controller_id).map_err(|error| self.connect_failure(error))?;
        match authentication {
            Some(authentication) => {
                authentication.authenticate(&mut client).map_err(|error| self.authentication_failure(error))?;
            }
            None if connected.authentication_required => {
                return Err(Failure::bad_input(format_args!(
                    "{} wants its hosts to authenticate themselves",
                    self.identity.subsystem_nqn
                ))
                .fix("name this host's secret: --dhchap-key @FILE"));
            }
            None => {}
        }
        Ok((client, connected))
    }

    fn handshake_failure(&self, error: &ConnectError) -> Failure {
        let (address, Identity { host_nqn, subsystem_nqn, .. }) = (&self.address, &self.identity);
        Failure::bad_input(format_args!("{address} does not shake hands: {error}")).fix(format_args!(
            "--tls-key has to be the key that it knows of host {host_nqn} at {subsystem_nqn}; leave it away where there is no \
             TLS"
        ))
    }

    fn connect_failure(&self, error: ClientError) -> Failure {
        let ClientError::Refused { status, .. } = error else { return self.failure(error) };
        let Identity { host_nqn, subsystem_nqn, .. } = &self.identity;
        let (address, status) = (&self.address, Status::from_field(status));
        let refused = format!("{address} refuses to connect {subsystem_nqn}: {}", status.of_fabrics());
        match status.code() {
            code if code == Status::CONNECT_INVALID_PARAMETERS.code() => Failure::bad_input(refused)
                .fix(format_args!("`openftl nvme discover {address}` lists the subsystems there; name one with --nqn")),
            code if code == Status::CONNECT_INVALID_HOST.code() => Failure::bad_input(refused).fix(format_args!(
                "{host_nqn} is no host that it allows: connect by another name with --host-nqn, or allow this one there"
            )),
            code if code == Status::CONNECT_CONTROLLER_BUSY.code() => {
                Failure::failed(refused).fix("it has no controller left: try again when other hosts have gone")
            }
            _ => Failure::failed(refused),
        }
    }

    fn authentication_failure(&self, error: NotAuthenticated) -> Failure {
        let subsystem = &self.identity.subsystem_nqn;
        match error {
            NotAuthenticated::Client(ClientError::Refused { status, .. })
                if Status::from_field(status).code() == Status::INVALID_OPCODE.code() =>
            {
                Failure::bad_input(format_args!("{subsystem} does not authenticate its hosts"))
                    .fix("leave --dhchap-key away")
            }
            NotAuthenticated::Client(error) => self.failure(error),
            NotAuthenticated::Refused(refusal) if refusal.explanation == Explanation::Failed => Failure::bad_input(
                format_args!("authentication with {subsystem} failed: {}", refusal.why),
            )
            .fix(format_args!(
                "--dhchap-key has to be the secret that it knows of host {}, --dhchap-ctrl-key its own",
                self.identity.host_nqn
            )),
            NotAuthenticated::Refused(refusal) => {
                Failure::failed(format_args!("authentication with {subsystem} failed: {refusal}"))
            }
        }
    }

    fn failure(&self, error: ClientError) -> Failure {
        let address = &self.address;
        match error {
            ClientError::Refused { what, status } => refused(what, Status::from_field(status)),
            ClientError::Nqn(error) => Failure::bad_input(error),
            ClientError::Stream(error) if error.kind() == ErrorKind::TimedOut => {
                Failure::failed(format_args!("{address}: {error}")).fix("--timeout waits for longer")
            }
            error => Failure::failed(format_args!("{address}: {error}")),
        }
    }
}

/// A command that the controller ended with an error.
pub fn refused(what: &str, status: Status) -> Failure {
    let failure = Failure::failed(format_args!("{what} failed: {status}"));
    if status.is_permanent() { failure } else { failure.fix("the controller says that trying again may help") }
}

/// The host identifier that goes with a name: the UUID in it, or one that follows from it. Two hosts of one name are one
/// host.
/// Who connects to what.
pub fn identity(host: &str, subsystem: &str) -> Identity {
    Identity { host_id: host_id(host), host_nqn: host.to_owned(), subsystem_nqn: subsystem.to_owned() }
}

fn host_id(nqn: &str) -> [u8; 16] {
    if let Some(uuid) = nqn.strip_prefix("nqn.2014-08.org.nvmexpress:uuid:") {
        let digits = uuid.replace('-', "");
        if let (32, Ok(number)) = (digits.len(), u128::from_str_radix(&digits, 16)) {
            return number.to_be_bytes();
        }
    }
    let hash = HashFunction::Sha256.digest(nqn.as_bytes());
    hash.as_ref()[..16].try_into().expect("a hash has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_recognised_by_its_name() {
        let uuid = host_id("nqn.2014-08.org.nvmexpress:uuid:befdec4c-2234-11b2-a85c-ca77c773af36");
        assert_eq!(uuid, 0xbefd_ec4c_2234_11b2_a85c_ca77_c773_af36_u128.to_be_bytes());
        assert_eq!(host_id("nqn.a"), host_id("nqn.a"));
        assert_ne!(host_id("nqn.a"), host_id("nqn.b"));
    }
}
