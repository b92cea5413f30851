//! fio's I/O log: `write_iolog` makes it, and its manual describes it under "Trace file format". The manual calls the times of
//! version 3 milliseconds; fio writes and replays microseconds (`log_io_u` and `iolog_delay` of its `iolog.c`).
//!
//! ```text
//!   version 2                          version 3: with microseconds in front
//!   fio version 2 iolog                fio version 3 iolog
//!   /dev/sda add                       0 /dev/sda add
//!   /dev/sda open                      0 /dev/sda open
//!   /dev/sda write 0 4096              7 /dev/sda write 0 4096
//!   /dev/sda close                     9 /dev/sda close
//! ```

use super::{Fault, Operation, Record, number};

/// What line number `line` asks for, if it is a request.
///
/// # Errors
/// If it is no line of such a log.
pub fn record(line: u64, text: &str) -> Result<Option<Record<'_>>, Fault<'_>> {
    if let Some(version) = text.strip_prefix("fio version ") {
        let known = line == 1 && matches!(version, "2 iolog" | "3 iolog");
        let fix = "only logs of version 2 and 3 are known, and say so in their first line";
        return if known { Ok(None) } else { Err(Fault { field: "version", value: version, fix }) };
    }
    let mut words = text.split_whitespace();
    let mut file = words.next();
    // A file's name is a path, so a number in front is the time.
    let mut time = "";
    if let Some(word) = file.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
        (time, file) = (word, words.next());
    }
    let device = file.unwrap_or_default();
    let action = words.next().unwrap_or_default();
    let operation = match action {
        "read" => Operation::Read,
        "write" => Operation::Write,
        "trim" => Operation::Trim,
        "sync" | "datasync" => Operation::Flush,
        "add" | "open" | "close" | "wait" => return Ok(None),
        value => {
            let fix = "an action is read, write, trim, sync, datasync, wait, add, open or close";
            return Err(Fault { field: "action", value, fix });
        }
    };
    if operation == Operation::Flush {
        return Ok(Some(Record { device, time, operation, offset: 0, bytes: 0 }));
    }
    let offset = number("offset", words.next())?;
    let bytes = number("length", words.next())?;
    Ok(Some(Record { device, time, operation, offset, bytes }))
}
