//! The words that people choose from, and what they are told about another one.

/// Text that is none of the words for something. Enums whose words people write derive `strum::EnumString` with this as their error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is no {noun}: choose {}", one_of(words))]
pub struct UnknownWord {
    text: String,
    noun: &'static str,
    words: &'static [&'static str],
}

impl UnknownWord {
    /// `text` is none of `words`, each of which is a `noun`.
    #[must_use]
    pub fn new(text: &str, noun: &'static str, words: &'static [&'static str]) -> UnknownWord {
        UnknownWord { text: text.to_owned(), noun, words }
    }
}

/// Words of which one is to be chosen.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn one_of(words: &[&str]) -> String {
    match words.split_last().expect("there are some") {
        (last, []) => (*last).to_owned(),
        (last, others) => format!("{} or {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_are_told() {
        let told = |words| UnknownWord::new("mru", "policy", words).to_string();
        assert_eq!(told(&["clock", "lru", "2q"]), "\"mru\" is no policy: choose clock, lru or 2q");
        assert_eq!(told(&["clock"]), "\"mru\" is no policy: choose clock");
    }
}
