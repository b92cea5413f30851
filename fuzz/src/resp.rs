//! `resp`: what a Redis client sends.

use openftl_redis::command::Command;
use openftl_redis::resp::{Parsed, parse};
use openftl_redis::{glob, name};

/// Bytes of a part, at most.
const PART_MAX: usize = 4096;

/// The same commands, however the bytes arrive, and every pattern ends.
pub fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(parsed) = parse(rest, PART_MAX) {
        let (parts, taken) = match &parsed {
            Parsed::Incomplete => break,
            Parsed::Command { parts, bytes } => {
                (parts.iter().map(|part| rest[part.clone()].to_vec()).collect(), *bytes)
            }
            Parsed::Line { parts, bytes } => (parts.clone(), *bytes),
        };
        let parts: Vec<Vec<u8>> = parts;
        assert!(taken > 0 && taken <= rest.len(), "a command has bytes");
        assert_eq!(parse(&rest[..taken], PART_MAX).as_ref(), Ok(&parsed), "what follows it changes nothing");
        for end in [taken - 1, taken / 2] {
            assert!(!matches!(parse(&rest[..end], PART_MAX), Ok(Parsed::Command { .. })), "no part of it is one");
        }
        let words: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        if !words.is_empty() {
            _ = Command::of(&words);
        }
        if let [pattern, key, ..] = &words[..] {
            assert!(
                glob::matches(b"*", key) && (!glob::matches(pattern, key) || !pattern.is_empty() || key.is_empty())
            );
            let name = name::Name::new(key);
            assert_eq!(name, name::Name::new(key));
        }
        rest = &rest[taken..];
    }
}
