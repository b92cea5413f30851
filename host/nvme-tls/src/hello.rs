//! What a ClientHello offers: the identities in its pre_shared_key extension (RFC 8446, 4.1.2 and 4.2.11).

/// Number of the extension.
const PRE_SHARED_KEY: u16 = 41;

/// Bytes before the first field of variable length: legacy_version and random.
const FIXED_BYTES: usize = 2 + 32;

/// Bytes behind each identity: obfuscated_ticket_age.
const AGE_BYTES: usize = 4;

/// The identities that a ClientHello offers, without the header of its message; none where it cannot be understood.
pub(crate) fn identities(hello: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut offered = pre_shared_key(hello).and_then(|mut extension| vector16(&mut extension)).unwrap_or_default();
    std::iter::from_fn(move || {
        let identity = vector16(&mut offered)?;
        take(&mut offered, AGE_BYTES)?;
        Some(identity)
    })
}

fn pre_shared_key(mut hello: &[u8]) -> Option<&[u8]> {
    take(&mut hello, FIXED_BYTES)?;
    let _session_id = vector8(&mut hello)?;
    let _cipher_suites = vector16(&mut hello)?;
    let _compression_methods = vector8(&mut hello)?;
    let mut extensions = vector16(&mut hello)?;
    loop {
        let kind = take(&mut extensions, 2)?;
        let body = vector16(&mut extensions)?;
        if kind == PRE_SHARED_KEY.to_be_bytes() {
            return Some(body);
        }
    }
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

/// A field whose length stands in one byte before it.
fn vector8<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = take(bytes, 1)?[0];
    take(bytes, length.into())
}

/// A field whose length stands in two bytes before it.
fn vector16<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = take(bytes, 2)?;
    take(bytes, u16::from_be_bytes([length[0], length[1]]).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello with one other extension before that of the keys.
    fn hello() -> Vec<u8> {
        let offered = [&[0, 1, b'a', 0, 0, 0, 0][..], &[0, 2, b'b', b'c', 0, 0, 0, 9]].concat();
        let keys = [&[0, offered.len() as u8][..], &offered, &[0, 2, 1, 0xff]].concat();
        let extensions = [&[0, 43, 0, 3, 2, 3, 4][..], &[0, 41, 0, keys.len() as u8], &keys].concat();
        [&[3, 3][..], &[7; 32], &[1, 5], &[0, 2, 0x13, 1], &[1, 0], &[0, extensions.len() as u8], &extensions].concat()
    }

    #[test]
    fn the_offered_identities_come_in_order() {
        assert_eq!(identities(&hello()).collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
    }

    #[test]
    fn a_hello_that_is_cut_off_offers_no_more_than_it_holds() {
        let hello = hello();
        for length in 0..hello.len() {
            assert_eq!(identities(&hello[..length]).count(), 0, "{length} bytes");
        }
    }

    #[test]
    fn lengths_that_lead_nowhere_offer_nothing_beyond_the_hello() {
        let hello = hello();
        for at in 0..hello.len() {
            for value in 0..=u8::MAX {
                let mut hello = hello.clone();
                hello[at] = value;
                assert!(identities(&hello).all(|identity| identity.len() < hello.len()));
            }
        }
    }
}
