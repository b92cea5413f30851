//! Requests: from 28 bytes to a checked [`Request`], or to a refusal ("Request message", "Request types").

use openftl_core::BLOCK_BYTES;

use super::{Closing, Command, Event, ExportInfo, Phase, Request, SKIP_BYTES_MAX, Session, head};
use crate::wire::{ErrorCode, REQUEST_MAGIC, RequestHead, command, command_flag};

/// Why a request is not served, for the program and for people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub error: ErrorCode,
    pub why: &'static str,
}

impl Refusal {
    const RESERVED: Refusal =
        Refusal { error: ErrorCode::NotPermitted, why: "another client has reserved this export" };
}

impl Session {
    /// Refuses a request that was taken and has not begun, if another client has reserved the export meanwhile: while the
    /// payload came, or while there was no room for it. The reply is added to `output`, and its error returned.
    pub fn refuse_if_reserved(&self, request: Request, info: &ExportInfo, output: &mut Vec<u8>) -> Option<ErrorCode> {
        let reads = matches!(request.command, Command::Read { .. });
        if !info.reserved.forbids(!reads) {
            return None;
        }
        self.refuse(request.cookie, Refusal::RESERVED, output);
        Some(Refusal::RESERVED.error)
    }

    pub(super) fn request(
        &mut self,
        input: &[u8],
        export: usize,
        info: &ExportInfo,
        output: &mut Vec<u8>,
    ) -> (usize, Event) {
        let Some(request) = head::<RequestHead>(input) else { return (0, Event::Starved) };
        let whole = size_of::<RequestHead>();
        if request.magic.get() != REQUEST_MAGIC {
            return (whole, self.close(Closing::RequestMagic(request.magic.get())));
        }
        // "NBD_CMD_DISC": no reply, whatever its other fields say.
        if request.command.get() == command::DISC {
            return (whole, self.close(Closing::Goodbye));
        }
        let cookie = request.cookie.get();
        let refusal = match check(request, info, self.structured, self.stopping) {
            Ok(command) => return (whole, Event::Request(Request { cookie, command })),
            Err(refusal) => refusal,
        };
        let length = request.length.get();
        if request.command.get() != command::WRITE || length == 0 {
            self.refuse(cookie, refusal, output);
            return (whole, Event::Refused(refusal.error));
        }
        if length > SKIP_BYTES_MAX {
            return (whole, self.close(Closing::PayloadTooLong(length)));
        }
        // The refusal waits for the payload's end: half a request is never answered.
        self.phase = Phase::SkipPayload { export, cookie, left: length, refusal };
        (whole, Event::Step)
    }

    pub(super) fn skip_payload(
        &mut self,
        export: usize,
        cookie: u64,
        left: u32,
        refusal: Refusal,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> (usize, Event) {
        if input.is_empty() {
            return (0, Event::Starved);
        }
        let skipped = input.len().min(left as usize);
        let left = left - skipped as u32;
        if left > 0 {
            self.phase = Phase::SkipPayload { export, cookie, left, refusal };
            return (skipped, Event::Step);
        }
        self.phase = Phase::Transmission { export };
        self.refuse(cookie, refusal, output);
        (skipped, Event::Refused(refusal.error))
    }

    fn refuse(&self, cookie: u64, refusal: Refusal, output: &mut Vec<u8>) {
        self.reply_form().failed(cookie, refusal.error, refusal.why, output);
    }
}

fn check(request: &RequestHead, info: &ExportInfo, structured: bool, stopping: bool) -> Result<Command, Refusal> {
    let (code, flags) = (request.command.get(), request.flags.get());
    let (offset, length) = (request.offset.get(), request.length.get());
    let refuse = |error, why| Err(Refusal { error, why });

    if stopping {
        return refuse(ErrorCode::Shutdown, "the server is stopping");
    }
    // "Command flags": FUA goes with every command, the others each with one.
    let allowed = command_flag::FUA
        | match code {
            command::READ if structured => command_flag::DF,
            command::READ | command::WRITE | command::FLUSH | command::TRIM => 0,
            command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
            _ => return refuse(ErrorCode::Invalid, "this server does not know the command"),
        };
    if flags & !allowed != 0 {
        return refuse(ErrorCode::Invalid, "a flag of this request does not go with its command");
    }
    // "NBD_CMD_FLUSH": offset and length are reserved and zero.
    if code == command::FLUSH && (offset != 0 || length != 0) {
        return refuse(ErrorCode::Invalid, "offset and length of a flush are zero");
    }
    if info.reserved.forbids(code != command::READ) {
        return Err(Refusal::RESERVED);
    }
    if code == command::FLUSH {
        return Ok(Command::Flush);
    }
    let writes = code != command::READ;
    if writes && info.read_only {
        return refuse(ErrorCode::NotPermitted, "this export is read-only");
    }
    if length == 0 {
        return refuse(ErrorCode::Invalid, "a request has at least one byte");
    }
    if offset.checked_add(u64::from(length)).is_none_or(|end| end > info.size) {
        // "Error values": ENOSPC for a write beyond the end.
        let stores = matches!(code, command::WRITE | command::WRITE_ZEROES);
        let error = if stores { ErrorCode::NoSpace } else { ErrorCode::Invalid };
        return refuse(error, "the request reaches beyond the end of the export");
    }
    let durable = flags & command_flag::FUA != 0;
    match code {
        command::READ | command::WRITE if length > info.payload_bytes_max => {
            // "NBD_CMD_READ": EOVERFLOW belongs to reads that may not be fragmented.
            let error = if flags & command_flag::DF != 0 { ErrorCode::Overflow } else { ErrorCode::Invalid };
            refuse(error, "the request is longer than the largest block size of this export")
        }
        command::READ => Ok(Command::Read { offset, length }),
        command::WRITE => Ok(Command::Write { offset, length, durable }),
        command::TRIM => Ok(Command::Trim { offset, length, durable }),
        // NO_HOLE asks that later writes cannot run out of space. They never do on a drive, whose exported capacity is
        // always writable, so whole blocks are unmapped all the same. FAST_ZERO wants ENOTSUP where zeroes cost as much
        // as data: where no whole block is covered.
        _ if flags & command_flag::FAST_ZERO != 0 && !covers_a_block(offset, length) => {
            refuse(ErrorCode::NotSupported, "zeroes are fast in whole blocks of 4096 bytes only")
        }
        _ => Ok(Command::Zero { offset, length, durable }),
    }
}

fn covers_a_block(offset: u64, length: u32) -> bool {
    let block = BLOCK_BYTES as u64;
    offset.next_multiple_of(block) + block <= offset + u64::from(length)
}
