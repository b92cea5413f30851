//! A range of bytes seen in blocks: which it touches, which it covers, and the edges in between.

use std::ops::Range;

use openftl_core::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Head and tail.
pub(super) const EDGES_MAX: usize = 2;

/// A range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub offset: u64,
    pub length: u64,
}

/// A block that is touched but not covered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    pub block: u64,
    /// The bytes of the block that are touched.
    pub changed: Range<usize>,
}

impl Span {
    fn end(&self) -> u64 {
        self.offset + self.length
    }

    pub fn first_block(&self) -> u64 {
        self.offset / BLOCK
    }

    /// Blocks touched.
    pub fn blocks(&self) -> u64 {
        self.end().div_ceil(BLOCK) - self.first_block()
    }

    /// Blocks covered.
    pub fn whole_blocks(&self) -> Range<u64> {
        let start = self.offset.div_ceil(BLOCK);
        start..start.max(self.end() / BLOCK)
    }

    pub fn shares_a_block_with(&self, other: &Span) -> bool {
        let ends = |span: &Span| span.first_block() + span.blocks();
        self.first_block() < ends(other) && other.first_block() < ends(self)
    }

    pub fn edges(&self) -> impl Iterator<Item = Edge> + use<> {
        let (first, last) = (self.first_block(), self.end().saturating_sub(1) / BLOCK);
        let (start, end) = ((self.offset % BLOCK) as usize, ((self.end() - 1) % BLOCK) as usize + 1);
        let (head, tail) =
            if first == last { (start..end, BLOCK_BYTES..BLOCK_BYTES) } else { (start..BLOCK_BYTES, 0..end) };
        [Edge { block: first, changed: head }, Edge { block: last, changed: tail }]
            .into_iter()
            .filter(|edge| !edge.changed.is_empty() && edge.changed.len() < BLOCK_BYTES)
    }

    /// In which of the touched blocks byte `from` of the range lies, and the range's bytes of that block from there on.
    pub fn place(&self, from: u64) -> (usize, Range<usize>) {
        let byte = self.offset + from;
        let start = (byte % BLOCK) as usize;
        let end = (BLOCK_BYTES as u64).min(start as u64 + self.length - from) as usize;
        ((byte / BLOCK - self.first_block()) as usize, start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(offset: u64, length: u64, blocks: u64, whole: Range<u64>, edges: &[(u64, Range<usize>)]) {
        let span = Span { offset, length };
        assert_eq!(span.blocks(), blocks, "{span:?}");
        assert_eq!(span.whole_blocks(), whole, "{span:?}");
        let found: Vec<_> = span.edges().map(|edge| (edge.block, edge.changed)).collect();
        assert_eq!(found, edges, "{span:?}");
    }

    #[test]
    fn edges_are_the_blocks_touched_but_not_covered() {
        check(0, 4096, 1, 0..1, &[]);
        check(8192, 3 * 4096, 3, 2..5, &[]);
        check(0, 1, 1, 0..0, &[(0, 0..1)]);
        check(4095, 2, 2, 1..1, &[(0, 4095..4096), (1, 0..1)]);
        check(100, 8192, 3, 1..2, &[(0, 100..4096), (2, 0..100)]);
        check(4096, 4097, 2, 1..2, &[(2, 0..1)]);
        check(4097, 4095, 1, 2..2, &[(1, 1..4096)]);
    }
}
