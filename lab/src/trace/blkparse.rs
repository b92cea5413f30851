//! What `blkparse` prints of a trace that `blktrace` took, in its standard format.
//!
//! ```text
//!   device cpu sequence     time     process action rwbs sector + count [command]
//!   8,0     3      11   0.009507758    697     Q     W   223490 + 8     [kjournald]
//! ```
//!
//! Requests are taken when they are queued (action `Q`): all other actions tell what became of them. A sector has 512
//! bytes. Of `rwbs`, `D` is a discard, and `F` without blocks is a flush;
//! the flush before a write (`FW`) is left out. The summary at the end is skipped.

use super::{Fault, Operation, Record, number};

const SECTOR_BYTES: u64 = 512;

/// Whether a line begins with a device's numbers, as `8,0`.
pub(super) fn is_device(text: &str) -> bool {
    let numbers = text.split_whitespace().next().and_then(|word| word.split_once(','));
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// Whether the summary begins here, behind the last request.
pub(super) fn is_summary(text: &str) -> bool {
    (text.starts_with("CPU") || text.starts_with("Total")) && text.ends_with(':')
}

/// Seconds with nine places behind the point, as nanoseconds.
pub(super) fn nanos(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let nanos: u64 = fraction.parse().ok().filter(|_| fraction.len() == 9)?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// What a line asks for, if it is a request.
///
/// # Errors
/// If it is no line of such a text.
pub fn record(text: &str) -> Result<Option<Record<'_>>, Fault<'_>> {
    let mut words = text.split_whitespace();
    let device = words.next().unwrap_or_default();
    if !is_device(text) {
        return Err(Fault {
            field: "device",
            value: device,
            fix: "a line begins with the numbers of a device, as 8,0",
        });
    }
    let time = words.nth(2).unwrap_or_default();
    if words.nth(1) != Some("Q") {
        return Ok(None);
    }
    let rwbs = words.next().unwrap_or_default();
    let sector = words.next().filter(|word| !word.starts_with('['));
    let operation = match rwbs {
        _ if rwbs.starts_with('F') && sector.is_none() => Operation::Flush,
        _ if rwbs.contains('D') => Operation::Trim,
        _ if rwbs.contains('W') => Operation::Write,
        _ if rwbs.contains('R') => Operation::Read,
        _ if rwbs.starts_with('F') => Operation::Flush,
        _ if rwbs.contains('N') => return Ok(None),
        value => {
            let fix = "what is done is told by the letters R (read), W (write), D (discard), F (flush) or N (none)";
            return Err(Fault { field: "rwbs", value, fix });
        }
    };
    if operation == Operation::Flush {
        return Ok(Some(Record { device, time, operation, offset: 0, bytes: 0 }));
    }
    let first = sectors("sector", sector)?;
    let plus = words.next().unwrap_or_default();
    if plus != "+" {
        return Err(Fault { field: "sector and count", value: plus, fix: "write them as `223490 + 8`" });
    }
    let count = sectors("count", words.next())?;
    Ok(Some(Record { device, time, operation, offset: first, bytes: count }))
}

/// A number of sectors as bytes.
fn sectors<'a>(field: &'static str, word: Option<&'a str>) -> Result<u64, Fault<'a>> {
    let fix = "a number of sectors of 512 bytes";
    number(field, word)?.checked_mul(SECTOR_BYTES).ok_or(Fault { field, value: word.unwrap_or_default(), fix })
}
