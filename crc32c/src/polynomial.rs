//! Polynomials over two elements, modulo that of CRC32C.
//!
//! A number of 32 bits is a polynomial of degree 31 at most, its *highest* bit the coefficient of x^0: the order in which CRC32C takes the bits of a
//! byte.

/// x^32, modulo the polynomial.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// x^0.
const ONE: u32 = 1 << 31;

/// `a`·x.
pub(crate) const fn times_x(a: u32) -> u32 {
    a >> 1 ^ if a & 1 == 0 { 0 } else { POLYNOMIAL }
}

/// `a`·`b`.
pub(crate) const fn times(mut a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut at = 32;
    // From x^0 of `b` on: `a` grows by x each time.
    while at > 0 {
        at -= 1;
        if b >> at & 1 != 0 {
            product ^= a;
        }
        a = times_x(a);
    }
    product
}

/// x^`n`.
pub(crate) const fn x_to_the(mut n: u64) -> u32 {
    let (mut power, mut square) = (ONE, times_x(ONE));
    while n > 0 {
        if n & 1 != 0 {
            power = times(power, square);
        }
        square = times(square, square);
        n >>= 1;
    }
    power
}

/// What the two halves of 128 bits are multiplied by, so that they move by `bytes` bytes: the one that comes first, and the other. Both are
/// polynomials of degree 63 in the order of bits above, and a carry-less product of two such numbers is one x short.
#[cfg(target_arch = "x86_64")]
pub(crate) const fn fold_by(bytes: u64) -> [u64; 2] {
    [(x_to_the(8 * bytes + 63) as u64) << 32, (x_to_the(8 * bytes - 1) as u64) << 32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_x_are_products_of_x() {
        let mut power = ONE;
        for n in 0..200 {
            assert_eq!(x_to_the(n), power, "x^{n}");
            power = times_x(power);
        }
        assert_eq!(x_to_the(32), POLYNOMIAL);
        assert_eq!(times(x_to_the(1000), x_to_the(2345)), x_to_the(3345));
    }
}
