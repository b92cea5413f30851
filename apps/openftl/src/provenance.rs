//! What made a result: version, commit and command line, so that whoever finds the file can make it again.

use serde::Serialize;

/// The version, and the commit where it is known.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("OPENFTL_COMMIT"), ")");

/// What made a result.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Provenance {
    /// Of `openftl`.
    version: &'static str,
    /// That it was built from; `unknown` where it was built from no git repository.
    commit: &'static str,
    /// As a shell understands it.
    command: String,
}

impl Provenance {
    /// Of this process.
    pub fn of_this_run() -> Provenance {
        let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
        let command = std::iter::once("openftl".to_owned()).chain(words).collect::<Vec<_>>().join(" ");
        Provenance { version: env!("CARGO_PKG_VERSION"), commit: env!("OPENFTL_COMMIT"), command }
    }

    /// Columns of a CSV for it.
    pub const COLUMNS: [&'static str; 3] = ["version", "commit", "command"];

    /// What stands in them.
    pub fn cells(&self) -> [&str; 3] {
        [self.version, self.commit, &self.command]
    }

    /// The command line.
    pub fn command(&self) -> &str {
        &self.command
    }
}

/// `word` as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "_-./:=,%@+*".contains(character);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_or_change_them() {
        let check = |word: &str, read: &str| assert_eq!(quoted(word), read);
        check("--capacity=8GiB", "--capacity=8GiB");
        check("w0+1 f x4", "'w0+1 f x4'");
        check("it's", r"'it'\''s'");
        check("", "''");
    }
}
