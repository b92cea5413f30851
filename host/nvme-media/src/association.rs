//! An association of a host with a controller over TCP: an admin queue and one I/O queue, for those who use a namespace of another machine.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openftl_nvme::Nqn;
use openftl_nvme::wire::identify::IdentifyController;
use openftl_nvme_tcp::client::{Client, ClientError};
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, QueueParameters};
use openftl_nvme_tcp::{InitiatorConfig, SUBMISSION_BYTES};
use zerocopy::FromBytes;

/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 8;

/// How often a controller is asked whether it has started.
const START_QUESTIONS_MAX: u32 = 1 << 16;

/// Why a controller cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum AssociationError {
    /// No connection.
    #[error("nobody answers at {address}: {error}")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The connection failed, or the controller refused something.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The controller wants the host to authenticate itself.
    #[error("the subsystem wants its hosts to authenticate themselves, which this host cannot do yet")]
    Authentication,
}

/// See the module.
pub struct Association {
    /// The admin queue.
    pub admin: Client<TcpStream>,
    /// What the controller says of itself.
    pub controller: Box<IdentifyController>,
    address: SocketAddr,
    identity: Identity,
    answer_max: Duration,
    controller_id: u16,
}

impl Association {
    /// Connects to a controller of the subsystem at `address`, and starts it. Whoever does not answer within `answer_max` is cut.
    ///
    /// # Errors
    /// If nobody is there, or the subsystem refuses.
    pub fn make(
        address: SocketAddr,
        identity: &Identity,
        answer_max: Duration,
    ) -> Result<Association, AssociationError> {
        let config = InitiatorConfig { entries: ADMIN_ENTRIES, ..InitiatorConfig::default() };
        let mut admin = Client::open(stream(address, answer_max)?, config)?;
        let queue = QueueParameters { queue_id: 0, entries: ADMIN_ENTRIES, flow_control: false, keep_alive_ms: 0 };
        let connected = admin.connect(queue, identity, CONTROLLER_ID_ANY)?;
        if connected.authentication_required {
            return Err(AssociationError::Authentication);
        }
        let mut questions = 0;
        admin.start_controller(|| {
            questions += 1;
            questions < START_QUESTIONS_MAX
        })?;
        admin.set_number_of_queues(1)?;
        let controller = admin.identify(1, 0)?;
        let controller = Box::new(IdentifyController::read_from_bytes(&controller).expect("4096 bytes"));
        let (identity, controller_id) = (identity.clone(), connected.controller_id);
        Ok(Association { admin, controller, address, identity, answer_max, controller_id })
    }

    /// Connects the I/O queue, of so many entries.
    ///
    /// # Errors
    /// [`AssociationError`].
    pub fn io_queue(&self, entries: u16) -> Result<Client<TcpStream>, AssociationError> {
        let capsule_bytes = self.controller.command_capsule_units.get() * 16;
        let config = InitiatorConfig {
            entries,
            in_capsule_bytes_max: capsule_bytes.saturating_sub(SUBMISSION_BYTES as u32),
            ..InitiatorConfig::default()
        };
        let mut io = Client::open(stream(self.address, self.answer_max)?, config)?;
        let queue = QueueParameters { queue_id: 1, entries, flow_control: false, keep_alive_ms: 0 };
        io.connect(queue, &self.identity, self.controller_id)?;
        Ok(io)
    }
}

/// This process as the host `host_nqn` of `subsystem`: two processes are two hosts, and so are two clients of one process that have
/// different `client` numbers.
#[must_use]
pub fn identity_of_process(host_nqn: &str, client: u8, subsystem: &Nqn) -> Identity {
    let mut host_id = [0; 16];
    host_id[..4].copy_from_slice(&std::process::id().to_le_bytes());
    host_id[15] = client;
    Identity { host_id, host_nqn: host_nqn.to_owned(), subsystem_nqn: subsystem.as_str().to_owned() }
}

fn stream(address: SocketAddr, answer_max: Duration) -> Result<TcpStream, AssociationError> {
    let connected = TcpStream::connect_timeout(&address, answer_max).and_then(|stream| {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(answer_max))?;
        stream.set_write_timeout(Some(answer_max))?;
        Ok(stream)
    });
    connected.map_err(|error| AssociationError::Connect { address, error })
}
