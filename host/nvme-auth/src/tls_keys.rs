//! The TLS keys of the hosts that a subsystem knows.
//!
//! ```text
//! # comment
//! nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-… NVMeTLSkey-1:01:…:
//! nqn.2026-11.org.example:backup             NVMeTLSkey-1:02:…:
//! ```

use crate::interchange::Form;
use crate::key_table::{KeyTable, SecretsError};
use crate::tls_key::{TlsKey, TlsPsk};

/// Whom a subsystem lets in over TLS, and with what.
#[derive(Clone, Debug, Default)]
pub struct TlsKeys {
    table: KeyTable<TlsKey>,
}

impl TlsKeys {
    /// What the bytes of a file say: in each line a host's name and its key. Empty lines, and lines that begin with `#`, say
    /// nothing.
    ///
    /// # Errors
    /// The first line that is none of these.
    pub fn read(bytes: &[u8]) -> Result<TlsKeys, SecretsError> {
        Ok(TlsKeys { table: KeyTable::read(bytes, Form::Tls)? })
    }

    /// The names of the hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.table.names()
    }

    /// The key of a host.
    #[must_use]
    pub fn of(&self, host_nqn: &str) -> Option<&TlsKey> {
        self.table.of(host_nqn)
    }

    /// The pre-shared keys of all hosts for a subsystem.
    pub fn psks(&self, subsystem_nqn: &str) -> impl Iterator<Item = TlsPsk> {
        self.table.hosts.iter().flat_map(move |(host, key)| key.psks(host, subsystem_nqn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    #[test]
    fn every_host_has_an_identity_of_each_version_for_a_subsystem() {
        let keys = TlsKeys::read(format!("# mine\nnqn.a {KEY}\nnqn.b {KEY}\n").as_bytes()).unwrap();
        assert!(keys.hosts().eq(["nqn.a", "nqn.b"]));
        assert!(keys.of("nqn.b").is_some() && keys.of("nqn.c").is_none());
        let starts: Vec<String> = keys.psks("nqn.s").map(|psk| psk.identity.text[..20].to_owned()).collect();
        assert_eq!(
            starts,
            ["NVMe1R01 nqn.a nqn.s", "NVMe0R01 nqn.a nqn.s", "NVMe1R01 nqn.b nqn.s", "NVMe0R01 nqn.b nqn.s"]
        );
    }

    #[test]
    fn a_controller_has_no_tls_key_and_other_wrong_lines_are_named() {
        let error = |text: String| TlsKeys::read(text.as_bytes()).unwrap_err();
        assert_eq!(error(format!("controller {KEY}")), SecretsError::Name { line: 1, form: Form::Tls });
        assert_eq!(error(format!("nqn.a {KEY}\n{KEY}")), SecretsError::Words { line: 2, words: 1, form: Form::Tls });
        assert_eq!(error("\n# nothing\n".to_owned()), SecretsError::Empty(Form::Tls));
        let said = error("nqn.a DHHC-1:00:2wKd3YDIcRMN/rCJa/k60E8xBQMw+2D9UnigSQ6YFkEHV3Yy:".to_owned()).to_string();
        assert!(said.contains("line 1") && said.contains("NVMeTLSkey-1:") && !said.contains("2wKd"), "{said}");
    }
}
