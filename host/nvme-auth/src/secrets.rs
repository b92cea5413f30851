//! The secrets of a subsystem: those of the hosts that may connect, and its own.
//!
//! ```text
//! # comment
//! nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-… DHHC-1:01:…:      what this host shows
//! nqn.2026-11.org.example:backup             DHHC-1:00:…:
//! controller                                 DHHC-1:00:…:      what the controller shows to hosts that ask; may be left out
//! ```

use crate::credentials::Credentials;
use crate::interchange::Form;
use crate::key_table::{KeyTable, SecretsError};
use crate::secret::Secret;

/// Whom a subsystem lets in, and what shows who it is itself.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    table: KeyTable<Secret>,
}

impl Secrets {
    /// What the bytes of a file say: in each line a host's name and its secret, or `controller` and the controller's. Empty
    /// lines, and lines that begin with `#`, say nothing.
    ///
    /// # Errors
    /// The first line that is none of these.
    pub fn read(bytes: &[u8]) -> Result<Secrets, SecretsError> {
        Ok(Secrets { table: KeyTable::read(bytes, Form::Dhchap)? })
    }

    /// The names of the hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.table.names()
    }

    /// The secret of a host.
    #[must_use]
    pub fn of(&self, host_nqn: &str) -> Option<&Secret> {
        self.table.of(host_nqn)
    }

    /// What a host and the subsystem `subsystem_nqn` have to agree on; `None` for a host without a secret.
    #[must_use]
    pub fn credentials(&self, host_nqn: &str, subsystem_nqn: &str) -> Option<Credentials> {
        let secret = self.of(host_nqn)?;
        Some(Credentials::new(host_nqn, subsystem_nqn, secret, self.table.controller.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interchange::SecretError;
    use crate::key_table::HOSTS_MAX;

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
        check(String::new(), SecretsError::Empty(Form::Dhchap));
        check(format!("controller {SECRET}"), SecretsError::Empty(Form::Dhchap));
        check(format!("{good}{SECRET}"), SecretsError::Words { line: 2, words: 1, form: Form::Dhchap });
        check(format!("{good}nqn.b {SECRET} x"), SecretsError::Words { line: 2, words: 3, form: Form::Dhchap });
        check(format!("host {SECRET}"), SecretsError::Name { line: 1, form: Form::Dhchap });
        check(format!("nqn.{} {SECRET}", "x".repeat(220)), SecretsError::Name { line: 1, form: Form::Dhchap });
        check(format!("{good}{good}"), SecretsError::Twice { line: 2, name: "nqn.a".to_owned() });
        let controller = format!("controller {SECRET}\n");
        check(format!("{controller}{controller}"), SecretsError::Twice { line: 2, name: "controller".to_owned() });
        check(
            "nqn.a DHHC-1:07:x:".to_owned(),
            SecretsError::Secret { line: 1, error: SecretError::HashFunction(Form::Dhchap) },
        );
        let many: String = (0..=HOSTS_MAX).map(|host| format!("nqn.{host} {SECRET}\n")).collect();
        check(many, SecretsError::TooMany { line: HOSTS_MAX + 1 });
        assert_eq!(Secrets::read(b"#\n\xff\xfe").unwrap_err(), SecretsError::NotText { line: 2 });
    }
}
