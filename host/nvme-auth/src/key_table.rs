//! A file of secrets, each beside the name of the host that knows it: what a server knows.
//!
//! ```text
//! # comment
//! HOSTNQN     DHHC-1:01:…:
//! HOSTNQN     DHHC-1:00:…:
//! controller  DHHC-1:00:…:     only where a controller has one too
//! ```

use std::str::FromStr;

use crate::interchange::{Form, SecretError};
use crate::key_file::lines;

/// Most hosts of one subsystem.
pub const HOSTS_MAX: usize = 1024;

/// What stands in the place of a host's name in front of the controller's secret.
const CONTROLLER: &str = "controller";

/// How every qualified name begins (Base, "NVMe Qualified Names").
const NQN_PREFIX: &str = "nqn.";

/// The longest qualified name, in bytes.
const NQN_BYTES_MAX: usize = 223;

/// The secrets of hosts, by name, and the controller's.
#[derive(Clone, Debug)]
pub(crate) struct KeyTable<K> {
    pub hosts: Vec<(String, K)>,
    pub controller: Option<K>,
}

impl<K> Default for KeyTable<K> {
    fn default() -> KeyTable<K> {
        KeyTable { hosts: Vec::new(), controller: None }
    }
}

/// Why a text is no list of secrets. None of them tells what stands where a secret should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretsError {
    /// A line is not even text.
    #[error("line {line} is not text; write in each line the name of a host and its secret")]
    NotText {
        /// Counted from 1.
        line: usize,
    },
    /// One word, or more than two.
    #[error("line {line} has {words} words; write {whose} and a {form}: HOSTNQN {prefix}…:", whose = whose(*.form), prefix = .form.prefix())]
    Words {
        /// Counted from 1.
        line: usize,
        /// How many.
        words: usize,
        /// What the file holds.
        form: Form,
    },
    /// The first word is no name.
    #[error("line {line} does not begin with {whose} (nqn.…)", whose = whose(*.form))]
    Name {
        /// Counted from 1.
        line: usize,
        /// What the file holds.
        form: Form,
    },
    /// The second word is no secret.
    #[error("line {line}: {error}")]
    Secret {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        error: SecretError,
    },
    /// There is one already.
    #[error("line {line}: {name} has a secret in a line before; remove one of the two")]
    Twice {
        /// Counted from 1.
        line: usize,
        /// Whose.
        name: String,
    },
    /// Nobody could connect.
    #[error("there is no host in it; write in each line the name of a host and its {0}: HOSTNQN {prefix}…:", prefix = .0.prefix())]
    Empty(Form),
    /// Too much in it.
    #[error("line {line}: there are at most {HOSTS_MAX} hosts")]
    TooMany {
        /// The line with the first host too many.
        line: usize,
    },
}

/// Who may have a line.
fn whose(form: Form) -> &'static str {
    match form {
        Form::Dhchap => "the name of a host, or `controller`,",
        Form::Tls => "the name of a host",
    }
}

impl<K: FromStr<Err = SecretError>> KeyTable<K> {
    /// What the bytes of a file say. Empty lines, and lines that begin with `#`, say nothing.
    pub fn read(bytes: &[u8], form: Form) -> Result<KeyTable<K>, SecretsError> {
        let mut table = KeyTable::default();
        for (line, text) in lines(bytes) {
            let text = text.ok_or(SecretsError::NotText { line })?;
            let words: Vec<&str> = text.split_whitespace().collect();
            let [name, secret] = words[..] else { return Err(SecretsError::Words { line, words: words.len(), form }) };
            let is_host = name.starts_with(NQN_PREFIX) && name.len() <= NQN_BYTES_MAX;
            let is_controller = name == CONTROLLER && form == Form::Dhchap;
            if !is_controller && !is_host {
                return Err(SecretsError::Name { line, form });
            }
            let secret: K = secret.parse().map_err(|error| SecretsError::Secret { line, error })?;
            let is_taken = if is_host { table.of(name).is_some() } else { table.controller.is_some() };
            if is_taken {
                return Err(SecretsError::Twice { line, name: name.to_owned() });
            }
            if is_controller {
                table.controller = Some(secret);
            } else if table.hosts.len() < HOSTS_MAX {
                table.hosts.push((name.to_owned(), secret));
            } else {
                return Err(SecretsError::TooMany { line });
            }
        }
        if table.hosts.is_empty() { Err(SecretsError::Empty(form)) } else { Ok(table) }
    }

    /// The secret of a host.
    pub fn of(&self, host_nqn: &str) -> Option<&K> {
        self.hosts.iter().find(|(name, _)| name == host_nqn).map(|(_, secret)| secret)
    }

    /// The names of the hosts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|(name, _)| name.as_str())
    }
}
