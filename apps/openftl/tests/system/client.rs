//! An NBD client that can misbehave: it sends what it is told, and asks for replies when it is told.
//!
//! The numbers are those of the NBD protocol document: fixed newstyle negotiation with `NBD_OPT_EXPORT_NAME`, simple
//! replies.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPT_EXPORT_NAME: u32 = 1;
const CLIENT_FLAGS: u32 = 0b11; // fixed newstyle, no zeroes
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// Request types.
pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
/// Force unit access.
pub const FLAG_FUA: u16 = 1;

/// An error number of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NbdError(pub u32);

/// A connection in its transmission phase.
pub struct Client {
    stream: UnixStream,
    cookie: u64,
    /// Bytes of the export.
    pub size: u64,
}

impl Client {
    /// Shakes hands for the default export.
    pub fn new(stream: UnixStream) -> Client {
        Client::named(stream, "")
    }

    /// Shakes hands for the export of this name.
    pub fn named(stream: UnixStream, name: &str) -> Client {
        Client::try_new(stream, name).expect("the server shakes hands")
    }

    fn try_new(mut stream: UnixStream, name: &str) -> io::Result<Client> {
        stream.set_read_timeout(Some(crate::program::BOUND))?;
        stream.set_write_timeout(Some(crate::program::BOUND))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        stream.write_all(&CLIENT_FLAGS.to_be_bytes())?;
        stream.write_all(OPTION_MAGIC)?;
        stream.write_all(&OPT_EXPORT_NAME.to_be_bytes())?;
        stream.write_all(&(name.len() as u32).to_be_bytes())?;
        stream.write_all(name.as_bytes())?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        let size = u64::from_be_bytes(export[..8].try_into().expect("eight bytes"));
        Ok(Client { stream, cookie: 0, size })
    }

    /// Sends a request's header, and nothing of its payload. Returns the cookie that the reply will carry.
    pub fn send_header(&mut self, kind: u16, flags: u16, offset: u64, bytes: u32) -> io::Result<u64> {
        self.cookie += 1;
        let mut header = Vec::with_capacity(28);
        header.extend(REQUEST_MAGIC.to_be_bytes());
        header.extend(flags.to_be_bytes());
        header.extend(kind.to_be_bytes());
        header.extend(self.cookie.to_be_bytes());
        header.extend(offset.to_be_bytes());
        header.extend(bytes.to_be_bytes());
        self.stream.write_all(&header)?;
        Ok(self.cookie)
    }

    /// Sends a write without waiting for its reply.
    pub fn send_write(&mut self, offset: u64, bytes: &[u8], flags: u16) -> io::Result<u64> {
        let cookie = self.send_header(WRITE, flags, offset, bytes.len() as u32)?;
        self.send_bytes(bytes)?;
        Ok(cookie)
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Waits for a reply without payload. Returns its cookie and result.
    pub fn receive(&mut self) -> io::Result<(u64, Result<(), NbdError>)> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(word(0), REPLY_MAGIC, "a simple reply");
        let cookie = u64::from_be_bytes(reply[8..].try_into().expect("eight bytes"));
        Ok((cookie, if word(4) == 0 { Ok(()) } else { Err(NbdError(word(4))) }))
    }

    /// Writes and waits.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NbdError> {
        let cookie = self.send_write(offset, bytes, 0).expect("the server takes a request");
        self.result_of(cookie)
    }

    /// Flushes and waits.
    pub fn flush(&mut self) -> Result<(), NbdError> {
        let cookie = self.send_header(FLUSH, 0, 0, 0).expect("the server takes a request");
        self.result_of(cookie)
    }

    /// Trims and waits.
    pub fn trim(&mut self, offset: u64, bytes: u32) -> Result<(), NbdError> {
        let cookie = self.send_header(TRIM, 0, offset, bytes).expect("the server takes a request");
        self.result_of(cookie)
    }

    /// Reads `bytes` from `offset` on.
    pub fn read(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, NbdError> {
        let cookie = self.send_header(READ, 0, offset, bytes as u32).expect("the server takes a request");
        self.result_of(cookie)?;
        let mut payload = vec![0; bytes];
        self.stream.read_exact(&mut payload).expect("the server sends what it read");
        Ok(payload)
    }

    /// The result of the only request under way.
    fn result_of(&mut self, expected: u64) -> Result<(), NbdError> {
        let (cookie, result) = self.receive().expect("the server replies");
        assert_eq!(cookie, expected, "the reply to the only request under way");
        result
    }

    /// Asserts that the server closes this connection.
    pub fn ends_disconnected(mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the server should have closed the connection, but: {error}"),
        }
    }
}
