//! The handshake: fixed newstyle, without TLS ("Handshake", "NOTLS mode").

use zerocopy::IntoBytes;

use super::{Closing, Event, ExportInfo, OPTION_BYTES_MAX, Phase, Session, head};
use crate::wire::{
    Greeting, InfoBlockSize, InfoExport, NBD_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHead, OptionReplyHead,
    handshake_flag, info, option, option_reply, transmission_flag,
};
use openftl_core::BLOCK_BYTES;
use zerocopy::byteorder::network_endian::{U16, U32, U64};

const OFFERED: u16 = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;

/// Bytes of zeroes after the answer to `EXPORT_NAME`, unless agreed away ("Newstyle negotiation").
const EXPORT_NAME_ZEROES: usize = 124;

/// The most bytes of a client's own text that an error message repeats.
const QUOTED_BYTES_MAX: usize = 64;

pub(super) fn greet(output: &mut Vec<u8>) {
    let greeting = Greeting { magic: NBD_MAGIC.into(), option_magic: OPTION_MAGIC.into(), flags: OFFERED.into() };
    output.extend_from_slice(greeting.as_bytes());
}

impl Session {
    /// "Client flags": 32 bits, and a bit that was not offered ends the connection.
    pub(super) fn client_flags(&mut self, input: &[u8]) -> (usize, Event) {
        let Some(flags) = head::<U32>(input) else { return (0, Event::Starved) };
        let flags = flags.get();
        if flags & !u32::from(OFFERED) != 0 {
            return (4, self.close(Closing::ClientFlags(flags)));
        }
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        self.phase = Phase::Options;
        (4, Event::Step)
    }

    pub(super) fn option(&mut self, input: &[u8], exports: &[ExportInfo], output: &mut Vec<u8>) -> (usize, Event) {
        let Some(head) = head::<OptionHead>(input) else { return (0, Event::Starved) };
        if head.magic.get() != OPTION_MAGIC {
            return (size_of::<OptionHead>(), self.close(Closing::OptionMagic(head.magic.get())));
        }
        let (option, length) = (head.option.get(), head.length.get());
        if length as usize > OPTION_BYTES_MAX {
            if option == option::EXPORT_NAME {
                return (size_of::<OptionHead>(), self.close(Closing::ExportName));
            }
            self.phase = Phase::SkipOption { option, left: length };
            return (size_of::<OptionHead>(), Event::Step);
        }
        let whole = size_of::<OptionHead>() + length as usize;
        let Some(data) = input.get(size_of::<OptionHead>()..whole) else { return (0, Event::Starved) };
        (whole, self.answer_option(option, data, exports, output))
    }

    pub(super) fn skip_option(&mut self, option: u32, left: u32, input: &[u8], output: &mut Vec<u8>) -> (usize, Event) {
        if input.is_empty() {
            return (0, Event::Starved);
        }
        let skipped = input.len().min(left as usize);
        let left = left - skipped as u32;
        self.phase = Phase::SkipOption { option, left };
        if left == 0 {
            self.phase = Phase::Options;
            let why = format!("an option has at most {OPTION_BYTES_MAX} bytes of data here");
            reply(output, option, option_reply::ERR_TOO_BIG, why.as_bytes());
        }
        (skipped, Event::Step)
    }

    fn answer_option(&mut self, option: u32, data: &[u8], exports: &[ExportInfo], output: &mut Vec<u8>) -> Event {
        if self.stopping && option != option::ABORT {
            if option == option::EXPORT_NAME {
                return self.close(Closing::ExportName);
            }
            reply(output, option, option_reply::ERR_SHUTDOWN, b"the server is stopping");
            return Event::Step;
        }
        match option {
            option::EXPORT_NAME => {
                let Some(index) = std::str::from_utf8(data).ok().and_then(|name| find(exports, name)) else {
                    return self.close(Closing::ExportName);
                };
                output.extend_from_slice(U64::new(exports[index].size).as_bytes());
                output.extend_from_slice(U16::new(self.transmission_flags(&exports[index])).as_bytes());
                if !self.no_zeroes {
                    output.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
                }
                self.open(index)
            }
            option::ABORT => {
                reply(output, option, option_reply::ACK, &[]);
                self.close(Closing::Goodbye)
            }
            option::LIST if data.is_empty() => {
                for export in exports {
                    let mut server = U32::new(export.name.len() as u32).as_bytes().to_vec();
                    server.extend_from_slice(export.name.as_bytes());
                    server.extend_from_slice(export.description.as_bytes());
                    reply(output, option, option_reply::SERVER, &server);
                }
                reply(output, option, option_reply::ACK, &[]);
                Event::Step
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                reply(output, option, option_reply::ACK, &[]);
                Event::Step
            }
            option::LIST | option::STRUCTURED_REPLY => {
                reply(output, option, option_reply::ERR_INVALID, b"this option takes no data");
                Event::Step
            }
            option::INFO | option::GO => self.answer_info(option, data, exports, output),
            option::STARTTLS => {
                reply(output, option, option_reply::ERR_POLICY, b"this server speaks no TLS; connect without it");
                Event::Step
            }
            _ => {
                reply(output, option, option_reply::ERR_UNSUP, b"this server does not know the option");
                Event::Step
            }
        }
    }

    /// `NBD_OPT_INFO` and `NBD_OPT_GO` ("Option types"): the name's length in 32 bits, the name, the number of
    /// information types in 16 bits, and as many types of 16 bits.
    fn answer_info(&mut self, option: u32, data: &[u8], exports: &[ExportInfo], output: &mut Vec<u8>) -> Event {
        let Some((name, asked)) = parse_info(data) else {
            reply(output, option, option_reply::ERR_INVALID, b"lengths of name and list do not add up to the option's");
            return Event::Step;
        };
        let Some(index) = find(exports, name) else {
            let why = format!("there is no export `{}`; NBD_OPT_LIST names them all", quoted(name));
            reply(output, option, option_reply::ERR_UNKNOWN, why.as_bytes());
            return Event::Step;
        };
        let export = &exports[index];
        let whole = InfoExport {
            info: info::EXPORT.into(),
            size: export.size.into(),
            flags: self.transmission_flags(export).into(),
        };
        reply(output, option, option_reply::INFO, whole.as_bytes());
        // Said whether asked for or not: a client that does not ask may still listen.
        let sizes = InfoBlockSize {
            info: info::BLOCK_SIZE.into(),
            minimum: 1.into(),
            preferred: (BLOCK_BYTES as u32).into(),
            maximum: export.payload_bytes_max.into(),
        };
        reply(output, option, option_reply::INFO, sizes.as_bytes());
        for (kind, text) in [(info::NAME, &export.name), (info::DESCRIPTION, &export.description)] {
            if asked.iter().any(|asked| asked.get() == kind) {
                let mut data = U16::new(kind).as_bytes().to_vec();
                data.extend_from_slice(text.as_bytes());
                reply(output, option, option_reply::INFO, &data);
            }
        }
        reply(output, option, option_reply::ACK, &[]);
        if option == option::GO { self.open(index) } else { Event::Step }
    }

    fn open(&mut self, export: usize) -> Event {
        self.phase = Phase::Transmission { export };
        Event::Opened(export)
    }

    fn transmission_flags(&self, export: &ExportInfo) -> u16 {
        use transmission_flag as flag;
        let mut flags = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::SEND_TRIM
            | flag::SEND_WRITE_ZEROES
            | flag::SEND_FAST_ZERO
            | flag::CAN_MULTI_CONN;
        if export.read_only {
            flags |= flag::READ_ONLY;
        }
        if self.structured {
            flags |= flag::SEND_DF;
        }
        flags
    }
}

/// The export of that name; the empty name stands for the first one.
fn find(exports: &[ExportInfo], name: &str) -> Option<usize> {
    let named = exports.iter().position(|export| export.name == name);
    named.or(if name.is_empty() && !exports.is_empty() { Some(0) } else { None })
}

fn parse_info(data: &[u8]) -> Option<(&str, &[U16])> {
    let (length, rest) = data.split_at_checked(4)?;
    let length = head::<U32>(length)?.get() as usize;
    let (name, rest) = rest.split_at_checked(length)?;
    let (count, rest) = rest.split_at_checked(2)?;
    let count = head::<U16>(count)?.get() as usize;
    let asked = <[U16] as zerocopy::FromBytes>::ref_from_bytes(rest).ok()?;
    (asked.len() == count).then_some((std::str::from_utf8(name).ok()?, asked))
}

/// The front of `text`, cut where a character begins.
fn quoted(text: &str) -> &str {
    &text[..text.floor_char_boundary(QUOTED_BYTES_MAX)]
}

fn reply(output: &mut Vec<u8>, option: u32, reply: u32, data: &[u8]) {
    let head = OptionReplyHead {
        magic: OPTION_REPLY_MAGIC.into(),
        option: option.into(),
        reply: reply.into(),
        length: (data.len() as u32).into(),
    };
    output.extend_from_slice(head.as_bytes());
    output.extend_from_slice(data);
}
