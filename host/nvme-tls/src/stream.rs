//! A host's end on a stream that blocks: it is read and written like the stream itself.

use std::io::{self, Read, Write};

use openftl_nvme_auth::{PskIdentity, TlsPsk};

use crate::{Session, TlsError};

/// A stream with TLS on it.
#[derive(Debug)]
pub struct TlsStream<S> {
    session: Session,
    stream: S,
}

/// Why a stream has no TLS on it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is none.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] io::Error),
}

impl<S: Read + Write> TlsStream<S> {
    /// Shakes hands over `stream`, which waits until there is something to read.
    ///
    /// # Errors
    /// If the peer has none of the keys, or does not speak TLS.
    pub fn connect(mut stream: S, psks: impl IntoIterator<Item = TlsPsk>) -> Result<TlsStream<S>, ConnectError> {
        let mut session = Session::connect(psks)?;
        session.shake_hands(&mut stream)?;
        Ok(TlsStream { session, stream })
    }

    /// Whom both ends have shown to be.
    #[must_use]
    pub fn identity(&self) -> &PskIdentity {
        self.session.identity().expect("hands are shaken")
    }

    /// What lies below.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S> TlsStream<S> {
    /// What lies below. Whoever reads or writes there breaks the connection.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.session.read(&mut self.stream, room)
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.session.write(&mut self.stream, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
