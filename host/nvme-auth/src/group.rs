//! The groups of DH-HMAC-CHAP: Diffie-Hellman over the finite fields of RFC 7919, or none.
//!
//! All of them have the generator 2 and a modulus p = 2q + 1 with q prime. Values travel as big-endian numbers, and the
//! secret that both sides arrive at is hashed with its leading zeroes, as long as p.

mod moduli;

use std::fmt;
use std::str::FromStr;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};
use rand_core::CryptoRng;
use zeroize::{Zeroize, Zeroizing};

use crate::nonces::Nonces;

/// A group; its number is the one on the wire (8.3.4.5.2, "DH-HMAC-CHAP Diffie-Hellman group identifiers").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DhGroup {
    /// No Diffie-Hellman exchange.
    Null = 0,
    /// ffdhe2048.
    Ffdhe2048 = 1,
    /// ffdhe3072.
    Ffdhe3072 = 2,
    /// ffdhe4096.
    Ffdhe4096 = 3,
    /// ffdhe6144.
    Ffdhe6144 = 4,
    /// ffdhe8192.
    Ffdhe8192 = 5,
}

/// Bytes of the longest value.
pub const DH_VALUE_BYTES_MAX: usize = 1024;

impl DhGroup {
    /// All of them.
    pub const ALL: [DhGroup; 6] = [
        DhGroup::Null,
        DhGroup::Ffdhe2048,
        DhGroup::Ffdhe3072,
        DhGroup::Ffdhe4096,
        DhGroup::Ffdhe6144,
        DhGroup::Ffdhe8192,
    ];

    /// The group with this number.
    #[must_use]
    pub fn from_id(id: u8) -> Option<DhGroup> {
        DhGroup::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Its number on the wire.
    #[must_use]
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Bytes of a value.
    #[must_use]
    pub fn value_length(self) -> usize {
        match self {
            DhGroup::Null => 0,
            DhGroup::Ffdhe2048 => 256,
            DhGroup::Ffdhe3072 => 384,
            DhGroup::Ffdhe4096 => 512,
            DhGroup::Ffdhe6144 => 768,
            DhGroup::Ffdhe8192 => 1024,
        }
    }

    /// Bytes of an exponent: what RFC 7919, 5.2 and Appendix A ask for (225, 275, 325, 375 and 400 bits), rounded up to
    /// words. The time of an exponentiation grows with it.
    fn exponent_length(self) -> usize {
        match self {
            DhGroup::Null => 0,
            DhGroup::Ffdhe2048 => 32,
            DhGroup::Ffdhe3072 => 40,
            DhGroup::Ffdhe4096 | DhGroup::Ffdhe6144 => 48,
            DhGroup::Ffdhe8192 => 56,
        }
    }

    fn modulus(self) -> Option<Odd<BoxedUint>> {
        let digits = match self {
            DhGroup::Null => return None,
            DhGroup::Ffdhe2048 => moduli::FFDHE2048,
            DhGroup::Ffdhe3072 => moduli::FFDHE3072,
            DhGroup::Ffdhe4096 => moduli::FFDHE4096,
            DhGroup::Ffdhe6144 => moduli::FFDHE6144,
            DhGroup::Ffdhe8192 => moduli::FFDHE8192,
        };
        let bits = self.value_length() as u32 * 8;
        let modulus = BoxedUint::from_be_hex(digits, bits).into_option().expect("a modulus is written in hexadecimal");
        Some(modulus.into_odd().into_option().expect("a modulus is odd"))
    }

    /// The exponent of a new key; none in the NULL group.
    pub(crate) fn exponent<R: CryptoRng>(self, nonces: &mut Nonces<R>) -> Option<Zeroizing<Vec<u8>>> {
        if self == DhGroup::Null {
            return None;
        }
        let mut exponent = nonces.bytes(self.exponent_length());
        // Never a short one, and never zero.
        exponent[0] |= 0x80;
        Some(exponent)
    }

    /// The key with this exponent, which takes an exponentiation; none in the NULL group.
    pub(crate) fn key(self, exponent: &[u8]) -> Option<DhKey> {
        Some(DhKey::new(BoxedMontyParams::new_vartime(self.modulus()?), exponent))
    }
}

impl fmt::Display for DhGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DhGroup::Null => "null",
            DhGroup::Ffdhe2048 => "ffdhe2048",
            DhGroup::Ffdhe3072 => "ffdhe3072",
            DhGroup::Ffdhe4096 => "ffdhe4096",
            DhGroup::Ffdhe6144 => "ffdhe6144",
            DhGroup::Ffdhe8192 => "ffdhe8192",
        })
    }
}

/// No group has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is no Diffie-Hellman group: choose ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144, ffdhe8192 or null (none)"
)]
pub struct UnknownGroup(pub String);

impl FromStr for DhGroup {
    type Err = UnknownGroup;

    fn from_str(text: &str) -> Result<DhGroup, UnknownGroup> {
        let mut all = DhGroup::ALL.into_iter();
        all.find(|group| group.to_string() == text).ok_or_else(|| UnknownGroup(text.to_owned()))
    }
}

/// One side's exponent, and the value that the other side sees.
pub(crate) struct DhKey {
    field: BoxedMontyParams,
    exponent: Zeroizing<BoxedUint>,
    public: Box<[u8]>,
}

/// A value that no honest side sends: longer than the modulus, or not between 1 and p - 1, both excluded. Such values
/// would let their sender choose the common secret (RFC 7919, 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DegenerateValue;

impl DhKey {
    fn new(field: BoxedMontyParams, exponent: &[u8]) -> DhKey {
        let exponent = BoxedUint::from_be_slice(exponent, exponent.len() as u32 * 8).expect("the precision is its own");
        let generator = BoxedMontyForm::new(BoxedUint::from(2_u8).resize(field.bits_precision()), &field);
        let public = generator.pow(&exponent).retrieve().to_be_bytes();
        DhKey { field, exponent: Zeroizing::new(exponent), public }
    }

    /// What the other side is told, as long as the modulus.
    pub(crate) fn public_value(&self) -> &[u8] {
        &self.public
    }

    /// The secret common with the side that sent `value`, as long as the modulus. Some hosts leave leading zeroes of
    /// their value out.
    pub(crate) fn agree(&self, value: &[u8]) -> Result<Zeroizing<Box<[u8]>>, DegenerateValue> {
        let modulus = self.field.modulus().as_ref();
        let one = BoxedUint::one_with_precision(modulus.bits_precision());
        let value = BoxedUint::from_be_slice(value, modulus.bits_precision()).map_err(|_| DegenerateValue)?;
        if value <= one || value >= modulus.wrapping_sub(&one) {
            return Err(DegenerateValue);
        }
        let mut power = BoxedMontyForm::new(value, &self.field).pow(&self.exponent);
        let secret = Zeroizing::new(power.retrieve());
        power.as_montgomery_mut().zeroize();
        Ok(Zeroizing::new(secret.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2^b - 2^(b-64) + (⌊2^(b-130) e⌋ + x) 2^64 - 1, with the x that makes p and q prime (RFC 7919, Appendix A).
    fn formula(bits: u32, x: u32) -> BoxedUint {
        const GUARD_BITS: u32 = 128;
        let precision = bits + 2 * GUARD_BITS;
        let one = BoxedUint::one_with_precision(precision);
        // e = 1 + 1 + 1/2 + 1/6 + …, in units of 2^-(b - 130 + GUARD_BITS).
        let mut term = one.shl_vartime(bits - 130 + GUARD_BITS).unwrap();
        let mut e = term.clone();
        for k in 1_u32.. {
            let divisor = BoxedUint::from(k).resize(precision);
            term = term.wrapping_div(&divisor.to_nz().into_option().unwrap());
            if bool::from(term.is_zero()) {
                break;
            }
            e = e.wrapping_add(&term);
        }
        let middle = e.shr_vartime(GUARD_BITS).unwrap().wrapping_add(BoxedUint::from(x).resize(precision));
        let power = |exponent: u32| one.shl_vartime(exponent).unwrap();
        let modulus =
            power(bits).wrapping_sub(power(bits - 64)).wrapping_add(middle.shl_vartime(64).unwrap()).wrapping_sub(&one);
        modulus.resize(bits)
    }

    /// Fermat's test to the bases 3 and 5: for numbers that nobody chose to deceive it.
    fn is_probably_prime(n: &Odd<BoxedUint>) -> bool {
        let field = BoxedMontyParams::new_vartime(n.clone());
        let one = BoxedUint::one_with_precision(n.bits_precision());
        let exponent = n.as_ref().wrapping_sub(&one);
        [3_u8, 5].into_iter().all(|base| {
            BoxedMontyForm::new(BoxedUint::from(base).resize(n.bits_precision()), &field).pow(&exponent).retrieve()
                == one
        })
    }

    #[test]
    fn moduli_are_those_of_the_formula() {
        for (group, x) in [
            (DhGroup::Ffdhe2048, 560_316),
            (DhGroup::Ffdhe3072, 2_625_351),
            (DhGroup::Ffdhe4096, 5_736_041),
            (DhGroup::Ffdhe6144, 15_705_020),
            (DhGroup::Ffdhe8192, 10_965_728),
        ] {
            let bits = group.value_length() as u32 * 8;
            assert!(*group.modulus().unwrap().as_ref() == formula(bits, x), "{group}");
        }
        assert!(DhGroup::Null.modulus().is_none());
    }

    #[test]
    fn moduli_are_safe_primes() {
        for group in [DhGroup::Ffdhe2048, DhGroup::Ffdhe3072, DhGroup::Ffdhe4096] {
            let modulus = group.modulus().unwrap();
            let half = modulus.as_ref().shr_vartime(1).unwrap().into_odd().into_option().expect("q is odd");
            assert!(is_probably_prime(&modulus), "p of {group}");
            assert!(is_probably_prime(&half), "q of {group}");
        }
    }

    fn key(group: DhGroup, exponent: u8) -> DhKey {
        DhKey::new(BoxedMontyParams::new_vartime(group.modulus().unwrap()), &[exponent])
    }

    #[test]
    fn both_sides_arrive_at_the_same_secret_as_long_as_the_modulus() {
        for group in DhGroup::ALL.into_iter().filter(|&group| group != DhGroup::Null) {
            let (a, b) = (key(group, 3), key(group, 5));
            // 2^(3 * 5), worked out by hand.
            let mut expected = vec![0; group.value_length()];
            expected[group.value_length() - 2] = 0x80;
            assert_eq!(a.agree(b.public_value()).unwrap().to_vec(), expected);
            assert_eq!(b.agree(a.public_value()).unwrap().to_vec(), expected);
            assert_eq!(a.public_value().len(), group.value_length());
        }
    }

    #[test]
    fn leading_zeroes_of_a_value_may_be_left_out() {
        let (a, b) = (key(DhGroup::Ffdhe2048, 3), key(DhGroup::Ffdhe2048, 5));
        let whole = b.public_value();
        assert_eq!(a.agree(&whole[255..]).unwrap(), a.agree(whole).unwrap());
    }

    #[test]
    fn degenerate_values_are_refused() {
        let key = key(DhGroup::Ffdhe2048, 3);
        let modulus = key.field.modulus().as_ref().to_be_bytes();
        let below = |by: u8| {
            let mut value = modulus.to_vec();
            value[255] -= by;
            value
        };
        for value in [vec![], vec![0], vec![1], vec![0; 256], below(0), below(1), vec![0xFF; 256], vec![2; 257]] {
            assert_eq!(key.agree(&value).err(), Some(DegenerateValue), "{value:?}");
        }
        assert!(key.agree(&[2]).is_ok());
        assert!(key.agree(&below(2)).is_ok());
    }
}
