//! One end of a connection.
//!
//! ```text
//!   shaking hands ──▶ open ──▶ closed
//! ```
//!
//! A session owns no stream: each call is handed the one that it works on, which may say that it would block.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::task::Waker;

use openftl_nvme_auth::{PskIdentity, TlsPsk};
use s2n_tls::config::Config;
use s2n_tls::connection::{Builder, Connection};
use s2n_tls::enums::{Blinding, Mode, Version};
use s2n_tls::error::Error;

use crate::acceptor::{Acceptor, builder, library_psk};
use crate::pipe::run;
use crate::{TlsError, library};

/// One end.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    known: Known,
    /// Whom both have shown to be, once hands are shaken.
    identity: Option<Arc<PskIdentity>>,
}

/// Where identities are looked up.
#[derive(Debug)]
enum Known {
    Acceptor(Acceptor),
    Offered(Vec<Arc<PskIdentity>>),
}

impl Session {
    /// A host's end, which offers these keys, the best first.
    ///
    /// # Errors
    /// If the library refuses one.
    pub fn connect(psks: impl IntoIterator<Item = TlsPsk>) -> Result<Session, TlsError> {
        Session::client(psks).map_err(library)
    }

    fn client(psks: impl IntoIterator<Item = TlsPsk>) -> Result<Session, Error> {
        let mut connection = connection(builder()?.build()?, Mode::Client)?;
        let mut offered = Vec::new();
        for psk in psks {
            connection.append_psk(&library_psk(&psk)?)?;
            offered.push(Arc::new(psk.identity));
        }
        Ok(Session { connection, known: Known::Offered(offered), identity: None })
    }

    pub(crate) fn server(config: Config, acceptor: Acceptor) -> Result<Session, Error> {
        let connection = connection(config, Mode::Server)?;
        Ok(Session { connection, known: Known::Acceptor(acceptor), identity: None })
    }

    /// Whether hands are shaken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.identity.is_some()
    }

    /// Whom both ends have shown to be: host and subsystem. `None` before hands are shaken.
    #[must_use]
    pub fn identity(&self) -> Option<&PskIdentity> {
        self.identity.as_deref()
    }

    /// Goes on with the handshake, as far as the stream lets it.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if it has to go on later, [`ErrorKind::UnexpectedEof`] if the peer is gone, and
    /// [`ErrorKind::InvalidData`] if the peer does not know the key, or does not speak TLS. Then it is over.
    pub fn shake_hands(&mut self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        run(&mut self.connection, stream, |connection| connection.poll_negotiate().map_ok(|_| ()))?;
        let mut text = vec![0; self.connection.negotiated_psk_identity_length().unwrap_or(0)];
        let is_known = !text.is_empty() && self.connection.negotiated_psk_identity(&mut text).is_ok();
        let identity = is_known.then(|| self.known.find(&text)).flatten();
        let is_modern = self.connection.actual_protocol_version().is_ok_and(|version| version == Version::TLS13);
        match identity {
            Some(identity) if is_modern => {
                self.identity = Some(identity);
                Ok(())
            }
            _ => Err(io::Error::new(ErrorKind::InvalidData, "TLS: the handshake used none of the keys")),
        }
    }

    /// Decrypts what has come into `room`, at most one record of it. Zero if the peer has closed its side.
    ///
    /// # Errors
    /// As [`Session::shake_hands`].
    pub fn read(&mut self, stream: &mut (impl Read + Write), room: &mut [u8]) -> io::Result<usize> {
        run(&mut self.connection, stream, |connection| connection.poll_recv(room))
    }

    /// Encrypts and sends `bytes`, and says how many of them the stream has taken. Others may be encrypted already: after an
    /// error that says that it would block, and after a part was taken, the next call has to begin with what was not.
    ///
    /// # Errors
    /// As [`Session::shake_hands`].
    pub fn write(&mut self, stream: &mut (impl Read + Write), bytes: &[u8]) -> io::Result<usize> {
        run(&mut self.connection, stream, |connection| connection.poll_send(bytes))
    }

    /// Tells the peer that nothing more comes, if the stream takes it at once.
    pub fn close(&mut self, stream: &mut (impl Read + Write)) {
        let _ = run(&mut self.connection, stream, |connection| connection.poll_shutdown_send().map_ok(|_| ()));
    }

    /// Gives buffers back that nothing is in.
    pub fn rest(&mut self) {
        // The library refuses while something is in them.
        let _ = self.connection.release_buffers();
    }
}

impl Known {
    fn find(&self, text: &[u8]) -> Option<Arc<PskIdentity>> {
        match self {
            Known::Acceptor(acceptor) => acceptor.identity(text),
            Known::Offered(offered) => offered.iter().find(|identity| identity.text.as_bytes() == text).cloned(),
        }
    }
}

fn connection(config: Config, mode: Mode) -> Result<Connection, Error> {
    let mut connection = config.build_connection(mode)?;
    // Nobody waits inside the library. Delays after errors guard cipher suites that TLS 1.3 does not have.
    connection.set_blinding(Blinding::SelfService)?;
    connection.prefer_throughput()?;
    connection.set_receive_buffering(true)?;
    // Choosing a key waits for nothing, but the library wants to know whom it would wake.
    connection.set_waker(Some(Waker::noop()))?;
    Ok(connection)
}
