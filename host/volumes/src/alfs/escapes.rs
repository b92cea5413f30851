//! Names as text: those of an ALFS are bytes, and paths are text.
//!
//! | in a name | in a path |
//! |---|---|
//! | a byte that is not part of UTF-8 | `\x` and its two hexadecimal digits: `\xFF` |
//! | a backslash before what looks like such a byte, or like a backslash so written | `\x5C` |
//! | anything else | itself |
//!
//! So each name has one text, and a path may have others that mean the same: digits of either case, and bytes of UTF-8 written one by one.

use std::borrow::Cow;

/// The text of a name.
pub(super) fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    let mut at = 0;
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character == '\\' && escaped(&name[at..]).is_some() {
                true => text.push_str(r"\x5C"),
                false => text.push(character),
            }
            at += character.len_utf8();
        }
        for byte in chunk.invalid() {
            text.push_str(&format!(r"\x{byte:02X}"));
        }
        at += chunk.invalid().len();
    }
    text
}

/// The name that a text stands for.
pub(super) fn meant(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.contains(&b'\\') {
        return Cow::Borrowed(bytes);
    }
    let (mut name, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let of_escape = escaped(&bytes[at..]);
        name.push(of_escape.unwrap_or(*byte));
        at += if of_escape.is_some() { 4 } else { 1 };
    }
    Cow::Owned(name)
}

/// The byte that is written at the beginning of these, as `\xFF`: a backslash, or one that is not ASCII.
fn escaped(bytes: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = *bytes else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = (digit(high)? << 4 | digit(low)?) as u8;
    (value == b'\\' || !value.is_ascii()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_text_that_means_it() {
        let check = |name: &[u8], expected: &str| {
            assert_eq!(shown(name), expected);
            assert_eq!(*meant(expected), *name, "{expected}");
        };
        check(b"000123.sst", "000123.sst");
        check("größe".as_bytes(), "größe");
        check(b"\xFF", r"\xFF");
        check(b"a\xC3(\xA9", r"a\xC3(\xA9");
        check(br"a\b", r"a\b");
        check(br"\xFF", r"\x5CxFF");
        check(br"\x5C", r"\x5Cx5C");
        check(br"\x41\", r"\x41\");
        check(b"\\\xFF\\x8\x9F", r"\\xFF\x8\x9F");
        check(b"\\\\xFF", r"\\x5CxFF");
    }

    #[test]
    fn any_bytes_come_back() {
        let letters = [b'\\', b'x', b'5', b'C', b'f', 0xC3, 0xA9, 0xFF];
        for number in 0..8_usize.pow(6) {
            let name: Vec<u8> = (0..6).map(|at| letters[number >> (3 * at) & 7]).collect();
            assert_eq!(*meant(&shown(&name)), name[..], "{}", name.escape_ascii());
        }
    }

    #[test]
    fn other_texts_mean_the_same() {
        assert_eq!(*meant(r"\xc3\xA9"), *"é".as_bytes());
        assert_eq!(shown(&meant(r"\xc3\xA9")), "é");
    }
}
