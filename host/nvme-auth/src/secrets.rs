//! The secrets of a subsystem: those of the hosts that may connect, and its own.
//!
//! ```text
//! # comment
//! nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-… DHHC-1:01:…:      what this host shows
//! nqn.2026-11.org.example:backup             DHHC-1:00:…:
//! controller                                 DHHC-1:00:…:      what the controller shows to hosts that ask; may be left out
//! ```

use std::str::from_utf8;

use crate::credentials::Credentials;
use crate::secret::{Secret, SecretError};

/// Most hosts of one subsystem.
pub const HOSTS_MAX: usize = 1024;

/// What stands in the place of a host's name in front of the controller's secret.
const CONTROLLER: &str = "controller";

/// How every qualified name begins (Base, "NVMe Qualified Names").
const NQN_PREFIX: &str = "nqn.";

/// The longest qualified name, in bytes.
const NQN_BYTES_MAX: usize = 223;

/// Whom a subsystem lets in, and what shows who it is itself.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    hosts: Vec<(String, Secret)>,
    controller: Option<Secret>,
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
    #[error(
        "line {line} has {words} words; write the name of a host, or `controller`, and a secret: HOSTNQN DHHC-1:…:"
    )]
    Words {
        /// Counted from 1.
        line: usize,
        /// How many.
        words: usize,
    },
    /// The first word is no name.
    #[error("line {line} does not begin with the name of a host (nqn.…) or `controller`")]
    Name {
        /// Counted from 1.
        line: usize,
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
    #[error("there is no host in it; write in each line the name of a host and its secret: HOSTNQN DHHC-1:…:")]
    Empty,
    /// Too much in it.
    #[error("line {line}: there are at most {HOSTS_MAX} hosts")]
    TooMany {
        /// The line with the first host too many.
        line: usize,
    },
}

impl Secrets {
    /// What the bytes of a file say: in each line a host's name and its secret, or `controller` and the controller's. Empty
    /// lines, and lines that begin with `#`, say nothing.
    ///
    /// # Errors
    /// The first line that is none of these.
    pub fn read(bytes: &[u8]) -> Result<Secrets, SecretsError> {
        let mut secrets = Secrets::default();
        for (text, line) in bytes.split(|&byte| byte == b'\n').zip(1..) {
            let text = from_utf8(text).map_err(|_| SecretsError::NotText { line })?.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = text.split_whitespace().collect();
            let [name, secret] = words[..] else { return Err(SecretsError::Words { line, words: words.len() }) };
            let is_host = name.starts_with(NQN_PREFIX) && name.len() <= NQN_BYTES_MAX;
            if name != CONTROLLER && !is_host {
                return Err(SecretsError::Name { line });
            }
            let secret: Secret = secret.parse().map_err(|error| SecretsError::Secret { line, error })?;
            let is_taken = if is_host { secrets.of(name).is_some() } else { secrets.controller.is_some() };
            if is_taken {
                return Err(SecretsError::Twice { line, name: name.to_owned() });
            }
            if !is_host {
                secrets.controller = Some(secret);
            } else if secrets.hosts.len() < HOSTS_MAX {
                secrets.hosts.push((name.to_owned(), secret));
            } else {
                return Err(SecretsError::TooMany { line });
            }
        }
        if secrets.hosts.is_empty() { Err(SecretsError::Empty) } else { Ok(secrets) }
    }

    /// The names of the hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|(name, _)| name.as_str())
    }

    /// The secret of a host.
    #[must_use]
    pub fn of(&self, host_nqn: &str) -> Option<&Secret> {
        self.hosts.iter().find(|(name, _)| name == host_nqn).map(|(_, secret)| secret)
    }

    /// What a host and the subsystem `subsystem_nqn` have to agree on; `None` for a host without a secret.
    #[must_use]
    pub fn credentials(&self, host_nqn: &str, subsystem_nqn: &str) -> Option<Credentials> {
        let secret = self.of(host_nqn)?;
        Some(Credentials::new(host_nqn, subsystem_nqn, secret, self.controller.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From nvme-cli's own documentation ("Authentication" in its wiki).
    const SECRET: &str = "DHHC-1:00:2wKd3YDIcRMN/rCJa/k60E8xBQMw+2D9UnigSQ6YFkEHV3Yy:";

    #[test]
    fn hosts_and_the_controller_have_a_line_each() {
        let text = format!("# a comment\n\nnqn.a  {SECRET}\r\n\tnqn.b {SECRET}\ncontroller {SECRET}");
        let secrets = Secrets::read(text.as_bytes()).unwrap();
        assert!(secrets.hosts().eq(["nqn.a", "nqn.b"]));
        assert!(secrets.of("nqn.a").is_some() && secrets.of("controller").is_none() && secrets.of("nqn.c").is_none());
        assert!(secrets.credentials("nqn.b", "nqn.s").unwrap().are_mutual());
        assert!(secrets.credentials("nqn.c", "nqn.s").is_none());
        let one_way = Secrets::read(format!("nqn.a {SECRET}").as_bytes()).unwrap();
        assert!(!one_way.credentials("nqn.a", "nqn.s").unwrap().are_mutual());
    }

    #[test]
    fn each_wrong_line_has_its_error() {
        let check = |text: String, wanted: SecretsError| {
            let error = Secrets::read(text.as_bytes()).unwrap_err();
            assert_eq!(error, wanted, "{text}");
            assert!(!error.to_string().contains("2wKd"), "{error}");
        };
        let good = format!("nqn.a {SECRET}\n");
        check(String::new(), SecretsError::Empty);
        check(format!("controller {SECRET}"), SecretsError::Empty);
        check(format!("{good}{SECRET}"), SecretsError::Words { line: 2, words: 1 });
        check(format!("{good}nqn.b {SECRET} x"), SecretsError::Words { line: 2, words: 3 });
        check(format!("host {SECRET}"), SecretsError::Name { line: 1 });
        check(format!("nqn.{} {SECRET}", "x".repeat(220)), SecretsError::Name { line: 1 });
        check(format!("{good}{good}"), SecretsError::Twice { line: 2, name: "nqn.a".to_owned() });
        let controller = format!("controller {SECRET}\n");
        check(format!("{controller}{controller}"), SecretsError::Twice { line: 2, name: "controller".to_owned() });
        check("nqn.a DHHC-1:07:x:".to_owned(), SecretsError::Secret { line: 1, error: SecretError::HashFunction });
        let many: String = (0..=HOSTS_MAX).map(|host| format!("nqn.{host} {SECRET}\n")).collect();
        check(many, SecretsError::TooMany { line: HOSTS_MAX + 1 });
        assert_eq!(Secrets::read(b"#\n\xff\xfe").unwrap_err(), SecretsError::NotText { line: 2 });
    }
}
