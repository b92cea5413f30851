//! Memory of this machine.

use crate::failure::Failure;
use openftl_core::units::ByteSize;

/// Refuses what would not fit in this machine's memory, before it is filled.
///
/// # Errors
/// With `advice`, if it is more than there is.
pub fn check(bytes: u64, advice: &str) -> Result<(), Failure> {
    match available() {
        Some(available) if bytes > available => Err(Failure::bad_input(format_args!(
            "this drive would take about {} of memory, and {} are available",
            ByteSize(bytes),
            ByteSize(available)
        ))
        .fix(advice)),
        _ => Ok(()),
    }
}

/// Bytes of memory that programs may still have, where that is known.
#[must_use]
pub fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_larger_than_the_memory_is_refused() {
        let error = check(u64::MAX, "use less").unwrap_err().to_string();
        assert!(error.contains("16777216.00 TiB") && error.contains("fix: use less"), "{error}");
        check(1, "").unwrap();
    }
}
