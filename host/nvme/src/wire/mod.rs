//! The bits of NVMe: entries, codes and data structures as they lie on the wire, all little-endian.
//!
//! | module | bits |
//! |---|---|
//! | [`entry`] | submission and completion queue entries, the data pointer |
//! | [`opcode`] | what the first byte of a command says |
//! | [`status`] | how a command ended |
//! | [`fabrics`] | properties, Connect, authentication |
//! | [`identify`] | what a controller and its namespaces say of themselves |
//! | [`feature`] | what a host may set |
//! | [`log`] | log pages |
//! | [`data_placement`] | Flexible Data Placement |
//! | [`directive`] | what a host may say with its writes |
//! | [`open_channel`] | what Open-Channel 2.0 adds |
//! | [`zoned`] | zoned namespaces |
//! | [`pages`] | stores of pages, our own |
//! | [`values`] | key-value namespaces |
//!
//! Comments name the section of the specification, since its figures are counted anew in every revision: "Base" is the
//! NVM Express Base Specification 2.1 (Fabrics are a part of it), "NVM" the NVM Command Set Specification 1.1, "ZNS" the
//! Zoned Namespace Command Set Specification 1.1, "KV" the Key Value Command Set Specification 1.3,
//! "OCP" the OCP Datacenter NVMe SSD Specification 2.0. Numbers before a colon are bytes of the structure.

pub mod data_placement;
pub mod directive;
pub mod entry;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod opcode;
pub mod open_channel;
pub mod pages;
pub mod reservation;
pub mod status;
pub mod values;
pub mod zoned;

pub use entry::{CompletionEntry, SglDescriptor, SubmissionEntry};
pub use status::Status;

pub use zerocopy::byteorder::little_endian::{U16, U32, U64, U128};

/// `text` in a field of `N` bytes, the rest spaces (Base, "ASCII data fields").
#[must_use]
pub fn ascii<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (byte, char) in field.iter_mut().zip(text.bytes()) {
        *byte = if (0x20..0x7f).contains(&char) { char } else { b'?' };
    }
    field
}

/// `text` in a field of `N` bytes, the rest zeroes, the last byte always one (Base, "NVMe Qualified Names").
#[must_use]
pub fn zero_ended<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let length = text.len().min(N - 1);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
    field
}

/// The text before the first zero of a field, if there is a zero and the text is UTF-8.
#[must_use]
pub fn text_of(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&field[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fill_their_fields_in_the_two_ways_of_the_specification() {
        assert_eq!(&ascii::<6>("ab"), b"ab    ");
        assert_eq!(&ascii::<2>("abc"), b"ab");
        assert_eq!(&ascii::<3>("a\u{e9}"), b"a??");
        assert_eq!(&zero_ended::<4>("ab"), b"ab\0\0");
        assert_eq!(&zero_ended::<4>("abcdef"), b"abc\0");
        assert_eq!(text_of(b"ab\0c"), Some("ab"));
        assert_eq!(text_of(b"abc"), None);
        assert_eq!(text_of(b"\xff\0"), None);
    }
}
