//! In-band authentication of a queue: the messages of DH-HMAC-CHAP, carried by Authentication Send and Receive.

use crate::cli::nvme::HostFlags;
use crate::failure::Failure;
use crate::small_file;
use getrandom::SysRng;
use getrandom::rand_core::UnwrapErr;
use openftl_nvme_auth::messages::RECEIVE_BYTES_MAX;
use openftl_nvme_auth::{Credentials, Host, Next, Nonces, Policy, Refusal, Secret, SecretError, read_key_file};
use openftl_nvme_tcp::client::{Client, ClientError, Payload};
use openftl_nvme_tcp::fabrics;
use std::io::{Read, Write};
use std::path::Path;
use std::str::FromStr;

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
        let host_secret: Secret = secret("--dhchap-key", key)?;
        let controller_secret =
            host.dhchap_ctrl_key.as_ref().map(|key| secret::<Secret>("--dhchap-ctrl-key", key)).transpose()?;
        let credentials =
            Credentials::new(host.host_nqn.as_str(), subsystem_nqn, &host_secret, controller_secret.as_ref());
        Ok(Some(Authentication { credentials, nonces: Nonces::new(random()), transaction: 1 }))
    }

    /// Authenticates a queue that has just been connected.
    pub fn authenticate<S: Read + Write>(&mut self, queue: &mut Client<S>) -> Result<(), NotAuthenticated> {
        let mut host = Host::new(self.credentials.clone(), Policy::everything());
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
pub fn secret<K: FromStr<Err = SecretError>>(flag: &str, text: &str) -> Result<K, Failure> {
    let make_one =
        "`openftl nvme gen-key` makes one, with --tls for TLS; write it there, or @FILE for a file that holds it";
    let Some(path) = text.strip_prefix('@') else {
        return text.parse().map_err(|error| Failure::bad_input(format_args!("{flag}: {error}")).fix(make_one));
    };
    let bytes = small_file::read(Path::new(path))
        .map_err(|error| Failure::bad_input(format_args!("{flag}: {path}: {error}")).fix(make_one))?;
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
    use openftl_core::Time;
    use openftl_nvme_auth::controller::time_limit;
    use openftl_nvme_auth::{Controller, HashFunction};
    use openftl_nvme_tcp::sgl::Completion;
    use openftl_nvme_tcp::target::{Ending, Event, Slot, Target};
    use openftl_nvme_tcp::{InitiatorConfig, SUBMISSION_BYTES, TargetConfig};
    use std::io;
    use zerocopy::FromZeros;

    const SUBSYSTEM: &str = "nqn.2026-11.org.example:drive";

    /// A stream at whose other end a controller wants to know who it is.
    struct Line {
        transport: Target,
        controller: Controller,
        /// Whether answers are filled up with zeroes to the room that the host has, as Linux does.
        fills_up: bool,
        heard: Vec<u8>,
        said: Vec<u8>,
        /// Of an Authentication Send whose data come.
        message: Vec<u8>,
        command_id: [u8; 2],
    }

    impl Line {
        fn complete(&mut self, slot: Slot) {
            let mut completion = Completion::new_zeroed();
            completion.command_id = self.command_id.into();
            self.transport.complete(slot, &zerocopy::transmute!(completion), &mut self.said);
        }

        fn begin(&mut self, slot: Slot, entry: &[u8; SUBMISSION_BYTES]) {
            self.command_id = [entry[2], entry[3]];
            self.message.clear();
            if entry[4] == fabrics::fabrics_type::AUTHENTICATION_RECEIVE {
                let room = u32::from_le_bytes(entry[44..48].try_into().unwrap()) as usize;
                let (mut answer, _) = self.controller.receive(Time::ZERO, room, &mut Nonces::new(random())).unwrap();
                if self.fills_up {
                    answer.resize(room, 0);
                }
                _ = self.transport.send_data(slot, answer.len() as u32, Ending::Last, &mut self.said);
                self.said.extend_from_slice(&answer);
                self.complete(slot);
            }
        }
    }

    impl Write for Line {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.heard.extend_from_slice(bytes);
            loop {
                let (consumed, event) = self.transport.next(&self.heard, &mut self.said);
                self.heard.drain(..consumed);
                match event {
                    Event::Starved => return Ok(bytes.len()),
                    Event::Step => {}
                    Event::Command { slot, entry, .. } => self.begin(slot, &entry),
                    Event::Payload { bytes, .. } => {
                        let piece: Vec<u8> = self.heard.drain(..bytes as usize).collect();
                        self.transport.took(&piece);
                        self.message.extend_from_slice(&piece);
                    }
                    Event::PayloadComplete { slot, .. } => {
                        _ = self.controller.send(Time::ZERO, &self.message);
                        self.complete(slot);
                    }
                    Event::Terminated(termination) => panic!("{termination}"),
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Line {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let bytes = room.len().min(self.said.len());
            room[..bytes].copy_from_slice(&self.said[..bytes]);
            self.said.drain(..bytes);
            Ok(bytes)
        }
    }

    fn host(key: &Secret, controller_key: Option<&Secret>) -> HostFlags {
        HostFlags {
            host_nqn: "nqn.2026-11.org.example:host".parse().unwrap(),
            dhchap_key: Some(key.to_text().as_str().to_owned()),
            dhchap_ctrl_key: controller_key.map(|key| key.to_text().as_str().to_owned()),
            tls_key: None,
            header_digest: false,
            data_digest: false,
            timeout: openftl_core::Nanos(1),
        }
    }

    /// How two queues of the host authenticate, one after the other.
    fn authenticate(flags: &HostFlags, known: &Credentials, fills_up: bool) -> Result<(), NotAuthenticated> {
        let mut authentication = Authentication::new(flags, SUBSYSTEM).unwrap().expect("there is a key");
        for _ in 0..2 {
            let controller = Controller::new(known.clone(), Policy::default(), time_limit(0), Time::ZERO);
            let (heard, said, message) = (Vec::new(), Vec::new(), Vec::new());
            let transport = Target::new(TargetConfig::default());
            let line = Line { transport, controller, fills_up, heard, said, message, command_id: [0; 2] };
            authentication.authenticate(&mut Client::open(line, InitiatorConfig::default())?)?;
        }
        Ok(())
    }

    #[test]
    fn host_and_controller_authenticate_each_other_with_what_they_know() {
        let secret = |hash: HashFunction| Secret::generate(Some(hash), hash.length(), &mut random()).unwrap();
        let (mine, theirs, another) =
            (secret(HashFunction::Sha256), secret(HashFunction::Sha512), secret(HashFunction::Sha384));
        let known = Credentials::new("nqn.2026-11.org.example:host", SUBSYSTEM, &mine, Some(&theirs));
        for fills_up in [false, true] {
            assert!(authenticate(&host(&mine, None), &known, fills_up).is_ok());
            assert!(authenticate(&host(&mine, Some(&theirs)), &known, fills_up).is_ok());
            for wrong in [host(&another, None), host(&mine, Some(&another))] {
                let refusal = authenticate(&wrong, &known, fills_up);
                let Err(NotAuthenticated::Refused(refusal)) = refusal else { panic!("a wrong key is taken") };
                assert_eq!(refusal.explanation, openftl_nvme_auth::Explanation::Failed);
            }
        }
    }

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
            assert_eq!(*secret::<Secret>("--dhchap-key", given).unwrap().to_text(), *text);
        }
        let two = file("two", &format!("{0}\n{0}\n", text.as_str()));
        let cut = file("cut", &text[..20]);
        for (given, word) in [
            ("password", "begins with DHHC-1"),
            (&text[..text.len() - 1], "ends with a colon"),
            (two.as_str(), "holds 2 secrets"),
            (cut.as_str(), "line 1"),
            ("@/nowhere", "/nowhere: No such file"),
        ] {
            let failure = secret::<Secret>("--dhchap-key", given).unwrap_err().to_string();
            assert!(failure.contains("--dhchap-key: ") && failure.contains(word), "{failure}");
        }
    }
}
