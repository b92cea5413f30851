//! Ranges of Dataset Management and Copy.

use super::*;
use crate::namespace::BlockFormat;

fn namespace() -> Namespace {
    let kind = NamespaceKind::Block { format: BlockFormat::FourKib, bytes: 4096 * 1000, hints: Hints::None };
    Namespace { id: 1, uuid: [1; 16], kind }
}

fn range(first: u64, blocks: u32) -> DatasetRange {
    DatasetRange { attributes: 0.into(), blocks: blocks.into(), first: first.into() }
}

fn source(first: u64, blocks: u32) -> CopySource {
    CopySource { reserved: [0; 8], first: first.into(), last: ((blocks - 1) as u16).into(), tags: [0; 14] }
}

#[test]
fn ranges_are_deallocated_all_or_none() {
    let good = [range(0, 1), range(7, 0), range(990, 10)];
    let spans: Vec<Span> = namespace().deallocated(3, good.as_bytes()).unwrap().collect();
    assert_eq!(spans, [Span { offset: 0, length: 4096 }, Span { offset: 990 << 12, length: 10 << 12 }]);
    for wrong in [range(991, 10), range(u64::MAX, 2), range(1001, 0)] {
        let refused = namespace().deallocated(2, [range(0, 1), wrong].as_bytes()).err();
        assert_eq!(refused, Some(Status::LBA_OUT_OF_RANGE.at(40)), "{wrong:?}");
    }
    let short = namespace().deallocated(4, good.as_bytes()).err();
    assert_eq!(short, Some(Status::DATA_SGL_LENGTH_INVALID.at(32)));
}

#[test]
fn an_access_frequency_says_how_blocks_are_used_and_nothing_else_does() {
    let with = |attributes: u32, first, blocks| DatasetRange { attributes: attributes.into(), ..range(first, blocks) };
    let said = |range: DatasetRange| namespace().expected_uses(1, range.as_bytes()).unwrap();
    for (frequency, expected) in [
        (0, None),
        (1, Some(ExpectedUse::Ordinary)),
        (2, Some(ExpectedUse::Ordinary)),
        (3, Some(ExpectedUse::Frequent)),
        (4, Some(ExpectedUse::Frequent)),
        (5, Some(ExpectedUse::Frequent)),
        (6, None),
        (15, None),
    ] {
        // Access size, latency, sequential reads and writes beside it.
        let hints = said(with(0x0800_0730 | frequency, 7, 9));
        let expected: Vec<_> = expected.map(|it| (Extent { first: 7, blocks: 9 }, it)).into_iter().collect();
        assert_eq!(hints, expected, "{frequency}");
    }
    for wrong in [with(5, 991, 10), with(5, u64::MAX, 2), with(5, 7, 0)] {
        assert!(said(wrong).is_empty(), "{wrong:?}");
    }
    let short = namespace().expected_uses(2, range(0, 1).as_bytes()).err();
    assert_eq!(short, Some(Status::DATA_SGL_LENGTH_INVALID.at(32)));
}

#[test]
fn a_copy_names_its_sources_and_where_they_go() {
    let sources = [source(0, 1), source(10, 2)];
    let plan = namespace().copy_plan(100, 2, sources.as_bytes()).unwrap();
    assert_eq!(plan.to, Span { offset: 100 << 12, length: 3 << 12 });
    let from: Vec<Span> = plan.from().collect();
    assert_eq!(from, [Span { offset: 0, length: 4096 }, Span { offset: 10 << 12, length: 2 << 12 }]);
    let most = [source(0, 200), source(300, 56)];
    assert_eq!(namespace().copy_plan(0, 2, most.as_bytes()).unwrap().to.length, COPY_BYTES_MAX);
}

#[test]
fn a_copy_beyond_the_end_or_the_limit_is_refused() {
    let check = |first, sources: &[CopySource], status: Status| {
        let refused = namespace().copy_plan(first, sources.len() as u16, sources.as_bytes()).err();
        assert_eq!(refused.map(|refusal| refusal.status), Some(status));
    };
    check(998, &[source(0, 3)], Status::LBA_OUT_OF_RANGE);
    check(0, &[source(998, 3)], Status::LBA_OUT_OF_RANGE);
    check(0, &[source(u64::MAX, 3)], Status::LBA_OUT_OF_RANGE);
    check(0, &[source(0, 257)], Status::COMMAND_SIZE_EXCEEDED);
    check(0, &[source(0, 200), source(0, 57)], Status::COMMAND_SIZE_EXCEEDED);
}
