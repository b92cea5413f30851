//! RESP2: commands as they come, in any pieces, and replies.

use std::ops::Range;

/// Parts of a command, at most.
pub const PARTS_MAX: usize = 1024;

/// Bytes of a command that is a line of text.
pub const INLINE_MAX: usize = 64 << 10;

/// Digits of a number.
const NUMBER_MAX: usize = 20;

/// What is no command.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A number of parts that is none, or too large.
    #[error("Protocol error: invalid multibulk length")]
    Parts,
    /// A length that is none, or too large.
    #[error("Protocol error: invalid bulk length")]
    Length,
    /// A part does not begin as parts do.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0).escape_default())]
    NoPart(u8),
    /// A part does not end as parts do.
    #[error("Protocol error: a part ends with a line end")]
    End,
    /// A line without an end.
    #[error("Protocol error: too big inline request")]
    Line,
    /// A quotation without an end.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// What the bytes so far are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// The beginning of a command.
    Incomplete,
    /// A command: where its parts are, and how many bytes it takes. There may be no part.
    Command {
        /// Its parts among the bytes.
        parts: Vec<Range<usize>>,
        /// Its bytes.
        bytes: usize,
    },
    /// A command that is a line of text, with its parts, and how many bytes it takes.
    Line {
        /// Its parts.
        parts: Vec<Vec<u8>>,
        /// Its bytes.
        bytes: usize,
    },
}

/// The end of the line that begins at `from`, and what follows it. `None`: it has not come.
fn line(bytes: &[u8], from: usize, most: usize) -> Result<Option<(Range<usize>, usize)>, ()> {
    let rest = &bytes[from..];
    let Some(end) = rest.iter().take(most + 2).position(|byte| *byte == b'\n') else {
        return if rest.len() > most + 1 { Err(()) } else { Ok(None) };
    };
    let text = if end > 0 && rest[end - 1] == b'\r' { end - 1 } else { end };
    Ok(Some((from..from + text, from + end + 1)))
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The command that bytes begin with, of which no part is longer than `bulk_max`.
///
/// # Errors
/// If they begin with none.
pub fn parse(bytes: &[u8], bulk_max: usize) -> Result<Parsed, ProtocolError> {
    match bytes.first() {
        None => Ok(Parsed::Incomplete),
        Some(b'*') => parse_parts(bytes, bulk_max),
        Some(_) => parse_line(bytes),
    }
}

fn parse_parts(bytes: &[u8], bulk_max: usize) -> Result<Parsed, ProtocolError> {
    let Some((count, mut next)) = line(bytes, 1, NUMBER_MAX).map_err(|()| ProtocolError::Parts)? else {
        return Ok(Parsed::Incomplete);
    };
    let count = number(&bytes[count]).filter(|count| *count <= PARTS_MAX as i64).ok_or(ProtocolError::Parts)?;
    let mut parts = Vec::with_capacity(count.max(0) as usize);
    for _ in 0..count {
        match bytes.get(next) {
            None => return Ok(Parsed::Incomplete),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NoPart(*other)),
        }
        let Some((length, from)) = line(bytes, next + 1, NUMBER_MAX).map_err(|()| ProtocolError::Length)? else {
            return Ok(Parsed::Incomplete);
        };
        let length = number(&bytes[length]).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| *length <= bulk_max).ok_or(ProtocolError::Length)?;
        let end = from + length;
        match bytes.get(end..end + 2) {
            None => return Ok(Parsed::Incomplete),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::End),
        }
        parts.push(from..end);
        next = end + 2;
    }
    Ok(Parsed::Command { parts, bytes: next })
}

/// Words between spaces; those in quotation marks may have spaces, and `\n`, `\r`, `\t`, `\xHH` in double ones.
fn parse_line(bytes: &[u8]) -> Result<Parsed, ProtocolError> {
    let Some((text, next)) = line(bytes, 0, INLINE_MAX).map_err(|()| ProtocolError::Line)? else {
        return Ok(Parsed::Incomplete);
    };
    let (mut rest, mut parts) = (&bytes[text], Vec::new());
    loop {
        while let Some((b' ' | b'\t', behind)) = rest.split_first() {
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(Parsed::Line { parts, bytes: next });
        }
        if parts.len() == PARTS_MAX {
            return Err(ProtocolError::Parts);
        }
        let (word, behind) = word(rest)?;
        parts.push(word);
        rest = behind;
    }
}

fn word(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), ProtocolError> {
    let mark = bytes[0];
    if mark != b'"' && mark != b'\'' {
        let end = bytes.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(bytes.len());
        return Ok((bytes[..end].to_vec(), &bytes[end..]));
    }
    let (mut word, mut rest) = (Vec::new(), &bytes[1..]);
    loop {
        let (byte, behind) = rest.split_first().ok_or(ProtocolError::Quotes)?;
        rest = behind;
        match (*byte, rest) {
            (byte, _) if byte == mark => {
                let ends = rest.first().is_none_or(|byte| matches!(byte, b' ' | b'\t'));
                return if ends { Ok((word, rest)) } else { Err(ProtocolError::Quotes) };
            }
            (b'\\', [b'x', high, low, behind @ ..])
                if mark == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |digit: u8| char::from(digit).to_digit(16).expect("it is one") as u8;
                word.push(digit(*high) << 4 | digit(*low));
                rest = behind;
            }
            (b'\\', [escaped, behind @ ..]) if mark == b'"' || *escaped == b'\'' => {
                word.push(match (mark, escaped) {
                    (b'"', b'n') => b'\n',
                    (b'"', b'r') => b'\r',
                    (b'"', b't') => b'\t',
                    (_, other) => *other,
                });
                rest = behind;
            }
            (other, _) => word.push(other),
        }
    }
}

/// Writes replies.
pub mod reply {
    /// A short text without a line end.
    pub fn status(out: &mut Vec<u8>, text: &str) {
        out.extend([b'+']);
        out.extend(text.as_bytes());
        out.extend(b"\r\n");
    }

    /// An error, of which the first word is a kind.
    pub fn error(out: &mut Vec<u8>, text: &str) {
        out.push(b'-');
        out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        out.extend(b"\r\n");
    }

    /// A number.
    pub fn number(out: &mut Vec<u8>, number: i64) {
        out.extend(format!(":{number}\r\n").bytes());
    }

    /// Bytes.
    pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
        out.extend(format!("${}\r\n", bytes.len()).bytes());
        out.extend(bytes);
        out.extend(b"\r\n");
    }

    /// Nothing.
    pub fn nil(out: &mut Vec<u8>) {
        out.extend(b"$-1\r\n");
    }

    /// So many replies follow.
    pub fn array(out: &mut Vec<u8>, count: usize) {
        out.extend(format!("*{count}\r\n").bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of a command, and its bytes.
    type Words = Option<(Vec<Vec<u8>>, usize)>;

    fn words(bytes: &[u8]) -> Result<Words, ProtocolError> {
        Ok(match parse(bytes, 1000)? {
            Parsed::Incomplete => None,
            Parsed::Command { parts, bytes: count } => {
                Some((parts.into_iter().map(|part| bytes[part].to_vec()).collect(), count))
            }
            Parsed::Line { parts, bytes } => Some((parts, bytes)),
        })
    }

    fn parts(words: &[&[u8]], bytes: usize) -> Result<Words, ProtocolError> {
        Ok(Some((words.iter().map(|word| word.to_vec()).collect(), bytes)))
    }

    #[test]
    fn a_command_is_read_whole_and_no_part_of_it_is_one() {
        let command = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n";
        assert_eq!(words(command), parts(&[b"SET", b"k", b"a\r\nb"], command.len()));
        for end in 0..command.len() {
            assert_eq!(words(&command[..end]), Ok(None), "{end} bytes");
        }
        let both = [&command[..], b"PING\r\n"].concat();
        assert_eq!(words(&both), parts(&[b"SET", b"k", b"a\r\nb"], command.len()));
        assert_eq!(words(b"*0\r\n"), parts(&[], 4));
        assert_eq!(words(b"*-1\r\n"), parts(&[], 5));
    }

    #[test]
    fn a_line_is_a_command_too() {
        assert_eq!(words(b"PING\r\n"), parts(&[b"PING"], 6));
        assert_eq!(words(b"  set  k 'it\\'s' \"a\\x00\\n\"\nGET"), parts(&[b"set", b"k", b"it's", b"a\0\n"], 27));
        assert_eq!(words(b"\r\n"), parts(&[], 2));
        assert_eq!(words(b"PING"), Ok(None));
        assert_eq!(words(b"GET \"x\r\n"), Err(ProtocolError::Quotes));
        assert_eq!(words(b"GET \"x\"y\r\n"), Err(ProtocolError::Quotes));
        assert_eq!(words(&[b'a'; INLINE_MAX + 2]), Err(ProtocolError::Line));
    }

    #[test]
    fn what_is_no_command_is_refused() {
        let refused = |bytes: &[u8]| words(bytes).unwrap_err();
        assert_eq!(refused(b"*x\r\n"), ProtocolError::Parts);
        assert_eq!(refused(b"*1025\r\n"), ProtocolError::Parts);
        assert_eq!(refused(b"*111111111111111111111111111"), ProtocolError::Parts);
        assert_eq!(refused(b"*1\r\n:1\r\n"), ProtocolError::NoPart(b':'));
        assert_eq!(refused(b"*1\r\n$-1\r\n"), ProtocolError::Length);
        assert_eq!(refused(b"*1\r\n$1001\r\n"), ProtocolError::Length);
        assert_eq!(refused(b"*1\r\n$1\r\nxyz"), ProtocolError::End);
        assert_eq!(refused(b"*1\r\n:1\r\n").to_string(), "Protocol error: expected '$', got ':'");
    }
}
