//! In-band authentication of a queue: the messages of DH-HMAC-CHAP, carried by Authentication Send and Receive.

use crate::cli::nvme::HostFlags;
use crate::failure::Failure;
use getrandom::SysRng;
use getrandom::rand_core::UnwrapErr;
use openftl_nvme_auth::messages::RECEIVE_BYTES_MAX;
use openftl_nvme_auth::secret::read_key_file;
use openftl_nvme_auth::{Credentials, Host, Next, Nonces, Policy, Refusal, Secret};
use openftl_nvme_tcp::client::{Client, ClientError, Payload};
use openftl_nvme_tcp::fabrics;
use std::io::{Read, Write};

/// The system's randomness.
pub fn random() -> UnwrapErr<SysRng> {
    UnwrapErr(SysRng)
}

/// How a host shows its controllers who it is, queue by queue.
pub struct Authentication {
    credentials: Credentials,
    nonces: Nonces<UnwrapErr<SysRng>>,
    /// The next transaction of the association.
    transaction: u16,
}

/// Why a queue is not authenticated.
pub enum NotAuthenticated {
    /// The connection or a command failed.
    Client(ClientError),
    /// One side does not accept the other.
    Refused(Refusal),
}

impl From<ClientError> for NotAuthenticated {
    fn from(error: ClientError) -> NotAuthenticated {
        NotAuthenticated::Client(error)
    }
}

impl Authentication {
    /// With the secrets that the command line names, if it names one.
    pub fn new(host: &HostFlags, subsystem_nqn: &str) -> Result<Option<Authentication>, Failure> {
        let Some(key) = &host.dhchap_key else { return Ok(None) };
        let host_secret = secret("--dhchap-key", key)?;
        let controller_secret =
            host.dhchap_ctrl_key.as_ref().map(|key| secret("--dhchap-ctrl-key", key)).transpose()?;
        let credentials =
            Credentials::new(host.host_nqn.as_str(), subsystem_nqn, &host_secret, controller_secret.as_ref());
        Ok(Some(Authentication { credentials, nonces: Nonces::new(random()), transaction: 1 }))
    }

    /// Authenticates a queue that has just been connected.
    pub fn authenticate<S: Read + Write>(&mut self, queue: &mut Client<S>) -> Result<(), NotAuthenticated> {
        let mut host = Host::new(self.credentials.clone(), Policy::default());
        let mut message = host.begin(self.transaction);
        self.transaction = self.transaction.wrapping_add(1);
        loop {
            send(queue, message)?;
            match host.receive(&receive(queue)?, &mut self.nonces) {
                Next::Exchange(next) => message = next,
                Next::Authenticated(last) => return Ok(last.map_or(Ok(()), |last| send(queue, last))?),
                Next::Close { refusal, last } => {
                    // Only so that the controller can say in its log why; the connection ends either way.
                    _ = last.map(|last| send(queue, last));
                    return Err(NotAuthenticated::Refused(refusal));
                }
            }
        }
    }
}

fn send<S: Read + Write>(queue: &mut Client<S>, message: Vec<u8>) -> Result<(), ClientError> {
    let entry = fabrics::authentication_send(message.len() as u32);
    queue.call("Authentication Send", &entry, Payload::ToController(message)).map(drop)
}

/// What the controller has to say, which may be less than there is room for.
fn receive<S: Read + Write>(queue: &mut Client<S>) -> Result<Vec<u8>, ClientError> {
    const WHAT: &str = "Authentication Receive";
    let room = vec![0; RECEIVE_BYTES_MAX];
    queue.submit(0, &fabrics::authentication_receive(RECEIVE_BYTES_MAX as u32), Payload::ToHost(room));
    let ended = queue.wait()?;
    match ended.status() {
        0 if ended.intact => Ok(ended.data[..ended.received].to_vec()),
        0 => Err(ClientError::Damaged { what: WHAT }),
        status => Err(ClientError::Refused { what: WHAT, status }),
    }
}

/// The secret that a flag says, or the one in the file that it names.
fn secret(flag: &str, text: &str) -> Result<Secret, Failure> {
    let make_one = "`openftl nvme gen-key` makes one; write it there, or @FILE for a file that holds it";
    let Some(path) = text.strip_prefix('@') else {
        return text.parse().map_err(|error| Failure::bad_input(format_args!("{flag}: {error}")).fix(make_one));
    };
    let bytes =
        std::fs::read(path).map_err(|error| Failure::bad_input(format_args!("{flag}: cannot read {path}: {error}")))?;
    let mut secrets = read_key_file(&bytes)
        .map_err(|error| Failure::bad_input(format_args!("{flag}: {path}: {error}")).fix(make_one))?;
    match secrets.len() {
        1 => Ok(secrets.remove(0)),
        secrets => Err(Failure::bad_input(format_args!("{flag}: {path} holds {secrets} secrets, a host has one"))
            .fix("name a file with the one that this host uses")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_nvme_auth::HashFunction;

    #[test]
    fn a_secret_is_given_or_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            format!("@{}", path.display())
        };
        let text = Secret::generate(Some(HashFunction::Sha256), 32, &mut random()).unwrap().to_text();
        let good = file("good", &format!("# mine\n{}\n", text.as_str()));
        for given in [text.as_str(), &good] {
            assert_eq!(*secret("--dhchap-key", given).unwrap().to_text(), *text);
        }
        let two = file("two", &format!("{0}\n{0}\n", text.as_str()));
        let cut = file("cut", &text[..20]);
        for (given, word) in [
            ("password", "begins with DHHC-1"),
            (&text[..text.len() - 1], "ends with a colon"),
            (two.as_str(), "holds 2 secrets"),
            (cut.as_str(), "line 1"),
            ("@/nowhere", "cannot read /nowhere"),
        ] {
            let failure = secret("--dhchap-key", given).unwrap_err().to_string();
            assert!(failure.contains("--dhchap-key: ") && failure.contains(word), "{failure}");
        }
    }
}
