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

/// What a reader of TOML or JSON says of a value of another type than the field has, in words that are no program's. All else
/// that it says is left as it is.
#[must_use]
pub fn plainly(message: &str) -> String {
    let told = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = told.and_then(|told| told.rsplit_once(", expected ")) else {
        return message.to_owned();
    };
    let (expected, place) = match expected.find(" at line ") {
        Some(at) => expected.split_at(at),
        None => (expected, ""),
    };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255 belongs",
        "u16" => "a whole number from 0 to 65535 belongs",
        "u32" => "a whole number from 0 to 4294967295 belongs",
        "u64" | "usize" => "a whole number from 0 on belongs",
        "i8" | "i16" | "i32" | "i64" => "a whole number belongs",
        "f32" | "f64" => "a number belongs",
        "a boolean" => "true or false belongs",
        "a string" | "a borrowed string" | "string" => "text in quotes belongs",
        "a sequence" => "a list belongs",
        "a map" => "an object belongs",
        table if table.starts_with("struct ") => "a table belongs",
        other => return format!("{found} stands where {other} is expected{place}"),
    };
    let found = match found.split_once(' ') {
        Some(("integer" | "floating", number)) => {
            format!("the number {}", number.trim_start_matches("point ").replace('`', ""))
        }
        Some(("string", text)) => format!("the text {text}"),
        Some(("boolean", value)) => value.replace('`', ""),
        None if found == "sequence" => "a list".to_owned(),
        None if found == "map" => "a table".to_owned(),
        None if found == "null" => "nothing".to_owned(),
        _ => found.to_owned(),
    };
    format!("{found} stands where {expected}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_type_is_told_without_the_types_of_a_program() {
        let pairs = [
            (
                "invalid type: string \"eight\", expected u32",
                "the text \"eight\" stands where a whole number from 0 to 4294967295 belongs",
            ),
            (
                "invalid value: integer `-1`, expected u64",
                "the number -1 stands where a whole number from 0 on belongs",
            ),
            (
                "invalid type: floating point `1.5`, expected u8",
                "the number 1.5 stands where a whole number from 0 to 255 belongs",
            ),
            ("invalid type: integer `3`, expected a boolean", "the number 3 stands where true or false belongs"),
            ("invalid type: boolean `true`, expected f64", "true stands where a number belongs"),
            ("invalid type: integer `5`, expected struct MediaSection", "the number 5 stands where a table belongs"),
            (
                "invalid type: sequence, expected a map at line 1 column 0",
                "a list stands where an object belongs at line 1 column 0",
            ),
            ("invalid type: map, expected a sequence", "a table stands where a list belongs"),
            ("invalid type: null, expected a string", "nothing stands where text in quotes belongs"),
            (
                "invalid type: string \"a, expected b\", expected i64",
                "the text \"a, expected b\" stands where a whole number belongs",
            ),
            ("invalid type: string \"x\", expected a date", "string \"x\" stands where a date is expected"),
            ("unknown field `gruops`, expected `groups`", "unknown field `gruops`, expected `groups`"),
        ];
        for (message, told) in pairs {
            assert_eq!(plainly(message), told);
        }
    }

    #[test]
    fn all_words_are_told() {
        let told = |words| UnknownWord::new("mru", "policy", words).to_string();
        assert_eq!(told(&["clock", "lru", "2q"]), "\"mru\" is no policy: choose clock, lru or 2q");
        assert_eq!(told(&["clock"]), "\"mru\" is no policy: choose clock");
    }
}
