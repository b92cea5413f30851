//! Instructions of x86: CRC32C of eight bytes, and products without carries, of which folding is made.

use crate::polynomial::fold_by;
use std::arch::x86_64::*;

/// Eight bytes at a time.
#[target_feature(enable = "sse4.2")]
pub(crate) fn words(state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let state = words.iter().fold(u64::from(state), |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
    rest.iter().fold(state as u32, |state, byte| _mm_crc32_u8(state, *byte))
}

const BY_16: [u64; 2] = fold_by(16);
const BY_32: [u64; 2] = fold_by(32);
const BY_64: [u64; 2] = fold_by(64);
const BY_128: [u64; 2] = fold_by(128);
const BY_256: [u64; 2] = fold_by(256);

#[target_feature(enable = "sse4.2")]
fn constant([first, second]: [u64; 2]) -> __m128i {
    _mm_set_epi64x(second as i64, first as i64)
}

#[target_feature(enable = "sse4.2")]
fn load_128(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 bytes, which need no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// `next`, and what stands in front of it at the distance of the constant.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn fold_into_128(before: __m128i, by: __m128i, next: __m128i) -> __m128i {
    let (first, second) = (_mm_clmulepi64_si128::<0x00>(before, by), _mm_clmulepi64_si128::<0x11>(before, by));
    _mm_xor_si128(_mm_xor_si128(first, second), next)
}

/// The state behind 16 bytes that have the remainder of all, and `rest`.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn finish(mut folded: __m128i, rest: &[u8]) -> u32 {
    let by_16 = constant(BY_16);
    let (vectors, rest) = rest.as_chunks::<16>();
    for vector in vectors {
        folded = fold_into_128(folded, by_16, load_128(vector));
    }
    let state = _mm_crc32_u64(0, _mm_extract_epi64::<0>(folded) as u64);
    words(_mm_crc32_u64(state, _mm_extract_epi64::<1>(folded) as u64) as u32, rest)
}

/// Four vectors of 16 bytes at a time.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) fn fold_128(state: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let Some((first, blocks)) = blocks.split_first() else { return words(state, bytes) };
    let load = |block: &[u8; 64]| {
        let vectors = block.as_chunks::<16>().0;
        [load_128(&vectors[0]), load_128(&vectors[1]), load_128(&vectors[2]), load_128(&vectors[3])]
    };
    let mut folded = load(first);
    folded[0] = _mm_xor_si128(folded[0], _mm_cvtsi32_si128(state as i32));
    let by_64 = constant(BY_64);
    for block in blocks {
        let next = load(block);
        for (folded, next) in folded.iter_mut().zip(next) {
            *folded = fold_into_128(*folded, by_64, next);
        }
    }
    let [mut all, others @ ..] = folded;
    for other in others {
        all = fold_into_128(all, constant(BY_16), other);
    }
    finish(all, rest)
}

#[target_feature(enable = "avx2")]
fn load_256(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes, which need no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold_into_256(before: __m256i, by: __m256i, next: __m256i) -> __m256i {
    let (first, second) = (_mm256_clmulepi64_epi128::<0x00>(before, by), _mm256_clmulepi64_epi128::<0x11>(before, by));
    _mm256_xor_si256(_mm256_xor_si256(first, second), next)
}

/// Four vectors of 32 bytes at a time.
#[target_feature(enable = "sse4.2,pclmulqdq,avx2,vpclmulqdq")]
pub(crate) fn fold_256(state: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<128>();
    let Some((first, blocks)) = blocks.split_first() else { return fold_128(state, bytes) };
    let load = |block: &[u8; 128]| {
        let vectors = block.as_chunks::<32>().0;
        [load_256(&vectors[0]), load_256(&vectors[1]), load_256(&vectors[2]), load_256(&vectors[3])]
    };
    let mut folded = load(first);
    folded[0] = _mm256_xor_si256(folded[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128(state as i32)));
    let by_128 = _mm256_broadcastsi128_si256(constant(BY_128));
    for block in blocks {
        let next = load(block);
        for (folded, next) in folded.iter_mut().zip(next) {
            *folded = fold_into_256(*folded, by_128, next);
        }
    }
    let by_32 = _mm256_broadcastsi128_si256(constant(BY_32));
    let [mut all, others @ ..] = folded;
    for other in others {
        all = fold_into_256(all, by_32, other);
    }
    let (first, second) = (_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
    finish(fold_into_128(first, constant(BY_16), second), rest)
}

#[target_feature(enable = "avx512f")]
fn load_512(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes, which need no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold_into_512(before: __m512i, by: __m512i, next: __m512i) -> __m512i {
    /// The truth table of the exclusive or of three.
    const XOR: i32 = 0x96;
    let (first, second) = (_mm512_clmulepi64_epi128::<0x00>(before, by), _mm512_clmulepi64_epi128::<0x11>(before, by));
    _mm512_ternarylogic_epi64::<XOR>(first, second, next)
}

/// Four vectors of 64 bytes at a time.
#[target_feature(enable = "sse4.2,pclmulqdq,avx2,vpclmulqdq,avx512f,avx512vl")]
pub(crate) fn fold_512(state: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<256>();
    let Some((first, blocks)) = blocks.split_first() else { return fold_128(state, bytes) };
    let load = |block: &[u8; 256]| {
        let vectors = block.as_chunks::<64>().0;
        [load_512(&vectors[0]), load_512(&vectors[1]), load_512(&vectors[2]), load_512(&vectors[3])]
    };
    let mut folded = load(first);
    folded[0] = _mm512_xor_si512(folded[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(state as i32)));
    let by_256 = _mm512_broadcast_i32x4(constant(BY_256));
    for block in blocks {
        let next = load(block);
        for (folded, next) in folded.iter_mut().zip(next) {
            *folded = fold_into_512(*folded, by_256, next);
        }
    }
    let by_64 = _mm512_broadcast_i32x4(constant(BY_64));
    let [mut all, others @ ..] = folded;
    for other in others {
        all = fold_into_512(all, by_64, other);
    }
    let (vectors, rest) = rest.as_chunks::<64>();
    for vector in vectors {
        all = fold_into_512(all, by_64, load_512(vector));
    }
    let parts = [
        _mm512_extracti32x4_epi32::<0>(all),
        _mm512_extracti32x4_epi32::<1>(all),
        _mm512_extracti32x4_epi32::<2>(all),
        _mm512_extracti32x4_epi32::<3>(all),
    ];
    let [mut all, others @ ..] = parts;
    for other in others {
        all = fold_into_128(all, constant(BY_16), other);
    }
    finish(all, rest)
}
