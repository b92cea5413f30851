//! A client that says exactly what a test wants, also what no decent client would.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use openftl_nbd::wire::{
    ChunkHead, OPTION_MAGIC, OptionHead, REQUEST_MAGIC, RequestHead, SimpleReply, chunk, command, option,
};
use zerocopy::{FromBytes, IntoBytes};

/// A reply: the request's cookie, the error (zero for none) and the data of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub cookie: u64,
    pub error: u32,
    pub data: Vec<u8>,
}

pub struct Client {
    pub socket: UnixStream,
    pub structured: bool,
}

pub fn head(command: u16, flags: u16, cookie: u64, offset: u64, length: usize) -> Vec<u8> {
    let head = RequestHead {
        magic: REQUEST_MAGIC.into(),
        flags: flags.into(),
        command: command.into(),
        cookie: cookie.into(),
        offset: offset.into(),
        length: (length as u32).into(),
    };
    head.as_bytes().to_vec()
}

impl Client {
    /// Connects and says nothing.
    pub fn connect(path: &Path) -> Client {
        Client { socket: UnixStream::connect(path).expect("the server listens"), structured: false }
    }

    /// Connects and opens the default export.
    pub fn open(path: &Path, structured: bool) -> Client {
        let mut client = Client::connect(path);
        client.structured = structured;
        assert_eq!(&client.take(18)[..16], b"NBDMAGICIHAVEOPT");
        client.say(&[0, 0, 0, 3]);
        if structured {
            client.say_option(option::STRUCTURED_REPLY, b"");
            client.take(20);
        }
        client.say_option(option::EXPORT_NAME, b"");
        client.take(10);
        client
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server hears");
    }

    pub fn say_option(&mut self, option: u32, data: &[u8]) {
        let head = OptionHead { magic: OPTION_MAGIC.into(), option: option.into(), length: (data.len() as u32).into() };
        self.say(&[head.as_bytes(), data].concat());
    }

    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        self.socket.read_exact(&mut taken).expect("the server answers");
        taken
    }

    /// Waits until the server has closed the connection; what it said before.
    pub fn until_closed(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        match self.socket.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}"),
        }
        said
    }

    pub fn send_read(&mut self, cookie: u64, offset: u64, length: usize) {
        self.say(&head(command::READ, 0, cookie, offset, length));
    }

    pub fn send_write(&mut self, cookie: u64, offset: u64, data: &[u8]) {
        self.say(&[head(command::WRITE, 0, cookie, offset, data.len()), data.to_vec()].concat());
    }

    /// The next reply; `length_of` tells how long a successful read was, as simple replies do not.
    pub fn reply(&mut self, length_of: impl Fn(u64) -> usize) -> Reply {
        let magic = self.take(4);
        if magic == [0x67, 0x44, 0x66, 0x98] {
            let rest = [magic, self.take(12)].concat();
            let reply = SimpleReply::read_from_bytes(&rest).expect("sixteen bytes");
            let (cookie, error) = (reply.cookie.get(), reply.error.get());
            let length = if self.structured || error != 0 { 0 } else { length_of(cookie) };
            return Reply { cookie, error, data: self.take(length) };
        }
        let rest = [magic, self.take(16)].concat();
        let chunk = ChunkHead::read_from_bytes(&rest).expect("twenty bytes");
        assert_eq!((chunk.magic.get(), chunk.flags.get()), (0x668e_33ef, 1));
        let payload = self.take(chunk.length.get() as usize);
        let cookie = chunk.cookie.get();
        match chunk.kind.get() {
            chunk::OFFSET_DATA => Reply { cookie, error: 0, data: payload[8..].to_vec() },
            chunk::ERROR => {
                let error = u32::from_be_bytes(payload[..4].try_into().expect("four bytes"));
                Reply { cookie, error, data: Vec::new() }
            }
            kind => panic!("chunk of kind {kind}"),
        }
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Reply {
        self.send_read(7, offset, length);
        self.reply(|_| length)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.send_write(8, offset, data);
        self.reply(|_| 0).error
    }

    pub fn flush(&mut self) -> u32 {
        self.say(&head(command::FLUSH, 0, 9, 0, 0));
        self.reply(|_| 0).error
    }
}
