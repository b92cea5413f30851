//! The kernel's table of mounts, `/proc/self/mountinfo`: reading it asks no file system.

use crate::mount::path_bytes;
use std::path::Path;

/// A line of the table.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Major and minor number of the mounted file system.
    pub(crate) device_number: String,
    /// The name of its device.
    pub(crate) name: String,
}

/// The uppermost mount at `folder`, an absolute path. `None`: there is none, or nobody knows.
pub(crate) fn find(folder: &Path) -> Option<Found> {
    find_in(&std::fs::read("/proc/self/mountinfo").ok()?, path_bytes(folder))
}

/// The last line wins: later mounts cover earlier ones.
fn find_in(table: &[u8], folder: &[u8]) -> Option<Found> {
    table.split(|byte| *byte == b'\n').rev().find_map(|line| {
        // number, parent, device number, root, mount point, options, any number of others, "-", type, name
        let mut fields = line.split(|byte| *byte == b' ');
        let device_number = fields.nth(2)?;
        if plain(fields.nth(1)?) != folder {
            return None;
        }
        let name = fields.skip_while(|field| *field != b"-").nth(2).map(plain).unwrap_or_default();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Found { device_number: text(device_number), name: text(&name) })
    })
}

/// A field without its escapes: a backslash and three octal digits.
fn plain(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let escaped = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_mount_at_a_path_with_a_space_is_found() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/root rw\n\
            40 22 0:50 / /a\\040b rw shared:7 - tmpfs older rw\n\
            41 40 0:51 / /a\\040b rw,nosuid shared:8 master:1 - fuse.alfs a\\134b rw,user_id=0\n";
        let wanted = Found { device_number: "0:51".to_owned(), name: "a\\b".to_owned() };
        assert_eq!(find_in(table, b"/a b"), Some(wanted));
        assert_eq!(find_in(table, b"/a"), None);
        assert_eq!(find_in(b"", b"/"), None);
    }
}
