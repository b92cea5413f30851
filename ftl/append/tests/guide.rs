//! `docs/write-an-ftl.md` has all of the crate, in its order.

const GUIDE: &str = include_str!("../../../docs/write-an-ftl.md");
const SOURCE: &str = include_str!("../src/lib.rs");

/// Lines that are not blank.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim().is_empty())
}

#[test]
fn the_guide_shows_every_line_of_the_crate() {
    let blocks = GUIDE.split("```rust\n").skip(1).map(|block| block.split("```").next().unwrap_or(block));
    let shown: Vec<&str> = blocks.flat_map(lines).collect();
    let begin = SOURCE.find("/// What a superblock says").expect("the first item");
    let written: Vec<&str> = lines(&SOURCE[begin..]).collect();
    for (shown, written) in shown.iter().zip(&written) {
        assert_eq!(shown, written);
    }
    assert_eq!(shown.len(), written.len());
}
