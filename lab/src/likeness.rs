//! The word that was probably meant.

/// Likeness, from 0 to 1, above which another word may have been meant.
const LIKENESS_MIN: f64 = 0.8;

/// The one of `names` that `word` is most like, whatever their case, if it is like one.
#[must_use]
pub fn nearest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let word = word.to_lowercase();
    let all = names.into_iter().map(|name| (strsim::jaro_winkler(&word, &name.to_lowercase()), name));
    let (likeness, name) = all.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (likeness > LIKENESS_MIN).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_suggested_only_if_it_is_like_what_was_written() {
        let names = ["uniform", "zipf", "parallel unit"];
        assert_eq!(nearest("unifrom", names), Some("uniform"));
        assert_eq!(nearest("Paralel Unit", names), Some("parallel unit"));
        assert_eq!(nearest("xyzzy", names), None);
        assert_eq!(nearest("zipf", []), None);
    }
}
