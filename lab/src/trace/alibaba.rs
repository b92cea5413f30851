//! Alibaba's block traces: virtual disks of a cloud for a month of 2020, as CSV.
//!
//! ```text
//!   device,opcode,offset,length,timestamp        bytes; time in microseconds
//!   419,W,8792731648,16384,1577808000000046
//! ```

use super::{Fault, Operation, Record, number};

/// What a line asks for.
///
/// # Errors
/// If it is no line of such a trace.
pub fn record(text: &str) -> Result<Option<Record<'_>>, Fault<'_>> {
    let mut fields = text.split(',').map(str::trim);
    let device = fields.next().unwrap_or_default();
    // Some copies begin with the names of the fields.
    if device == "device_id" {
        return Ok(None);
    }
    let operation = match fields.next().unwrap_or_default() {
        "R" => Operation::Read,
        "W" => Operation::Write,
        value => return Err(Fault { field: "opcode (2nd field)", value, fix: "it is R or W" }),
    };
    let offset = number("offset (3rd field)", fields.next())?;
    let bytes = number("length (4th field)", fields.next())?;
    let time = fields.next().unwrap_or_default();
    Ok(Some(Record { device, time, operation, offset, bytes }))
}
