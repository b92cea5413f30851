//! What a contributor does.
fn main() {}
