//! The other end: asks one thing at a time and waits for the answer.

use crate::protocol::{Answer, Refusal, Request, ResponseError, parse_response, request_line};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The longest answer that is read: statistics of a drive with thousands of groups fit.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Why there is no answer to a request.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The drive says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server went away.
    #[error("the server ended before it answered")]
    Closed,
    /// The connection broke.
    #[error("the connection to the server broke: {0}")]
    Broken(#[from] io::Error),
    /// The server said something else.
    #[error(transparent)]
    Response(#[from] ResponseError),
}

/// A connection to a drive's control socket.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn connect(path: &Path) -> io::Result<Client> {
        Ok(Client { stream: BufReader::new(UnixStream::connect(path)?) })
    }

    /// Asks, and waits until the drive has answered: a power cut until it has struck, a power-on until the drive is
    /// recovered.
    ///
    /// # Errors
    /// If the drive says no, or does not answer.
    pub fn ask(&mut self, request: impl Into<Request>) -> Result<Answer, AskError> {
        // A server that closes the connection has said why before.
        let sent = self.stream.get_mut().write_all(&request_line(&request.into()));
        let mut line = Vec::new();
        match (&mut self.stream).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(_) if line.is_empty() => sent.map_err(AskError::from).and(Err(AskError::Closed)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(AskError::Closed),
            Ok(_) => Ok(parse_response(&line)??),
            Err(error) => Err(error.into()),
        }
    }
}
