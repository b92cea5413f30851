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
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        Provenance { version: env!("CARGO_PKG_VERSION"), commit: env!("OPENFTL_COMMIT"), command: command(words) }
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

/// A command line without the secrets of hosts: results are shown around.
fn command(words: impl IntoIterator<Item = String>) -> String {
    let mut command = "openftl".to_owned();
    let mut is_secret = false;
    for word in words {
        command.push(' ');
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (Some(flag), value),
            _ => (None, &*word),
        };
        let is_hidden = is_secret || flag == Some(SECRET_FLAG) || looks_secret(value);
        match (is_hidden, flag) {
            (false, _) => command += &quoted(&word),
            (true, Some(flag)) => command += &format!("{flag}=…"),
            (true, None) => command.push('…'),
        }
        is_secret = word == SECRET_FLAG;
    }
    command
}

/// Its value is a secret, in digits.
const SECRET_FLAG: &str = "--secret";

/// Whether `value` is written as secrets of NVMe hosts are.
fn looks_secret(value: &str) -> bool {
    ["DHHC-1:", "NVMeTLSkey-1:"].iter().any(|prefix| value.starts_with(prefix))
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
    fn secrets_are_left_out_of_a_command_line() {
        let check = |line: &str, shown: &str| {
            assert_eq!(command(line.split(' ').map(str::to_owned)), format!("openftl {shown}"));
        };
        check("nvme bench --dhchap-key DHHC-1:00:abc: --json", "nvme bench --dhchap-key … --json");
        check("nvme read --tls-key=NVMeTLSkey-1:01:abc: --json", "nvme read --tls-key=… --json");
        check("nvme gen-key --secret 00ff", "nvme gen-key --secret …");
        check("nvme gen-key --secret=00ff", "nvme gen-key --secret=…");
        check("nvme read --tls-key @host.tls", "nvme read --tls-key @host.tls");
        check("nvme read DHHC-1:00:abc:", "nvme read …");
        check("bench --workload=zipf --seed 3", "bench --workload=zipf --seed 3");
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_or_change_them() {
        let check = |word: &str, read: &str| assert_eq!(quoted(word), read);
        check("--capacity=8GiB", "--capacity=8GiB");
        check("w0+1 f x4", "'w0+1 f x4'");
        check("it's", r"'it'\''s'");
        check("", "''");
    }
}
