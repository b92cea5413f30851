//! Traces of MSR Cambridge: servers of a data centre for a week of 2007, as CSV (SNIA IOTTA, set 388).
//!
//! ```text
//!   timestamp,host,disk,type,offset,size,response time        bytes; times in 100 ns
//!   128166372003061629,hm,0,Read,383496192,32768,413
//! ```
//!
//! A device is a disk number: a file is of one host.

use super::{Fault, Operation, Record, number};

/// What a line asks for.
///
/// # Errors
/// If it is no line of such a trace.
pub fn record(text: &str) -> Result<Option<Record<'_>>, Fault<'_>> {
    let mut fields = text.split(',').map(str::trim);
    let time = fields.next().unwrap_or_default();
    let mut fields = fields.skip(1);
    let device = fields.next().unwrap_or_default();
    let operation = match fields.next().unwrap_or_default() {
        word if word.eq_ignore_ascii_case("read") => Operation::Read,
        word if word.eq_ignore_ascii_case("write") => Operation::Write,
        value => return Err(Fault { field: "type (4th field)", value, fix: "it is Read or Write" }),
    };
    let offset = number("offset (5th field)", fields.next())?;
    let bytes = number("size (6th field)", fields.next())?;
    Ok(Some(Record { device, time, operation, offset, bytes }))
}
