//! Which NVMe hosts a served drive lets in, and the secrets that they have to know.
//!
//! | named with `--allow-host` | `--dhchap-key` | on loopback | elsewhere |
//! |---|---|---|---|
//! | some | none | those | those |
//! | some | a file | those, with their secrets | the same |
//! | none | a file | the hosts of the file, with their secrets | the same |
//! | none | none | any | none, or any with `--allow-any-host` |
//!
//! With `--tls-key` hosts also have to know a key, all of them, or with `--tls allowed` those of the file. Where all have to,
//! the file names the hosts as that of `--dhchap-key` does.

use crate::cli;
use crate::failure::Failure;
use crate::small_file;
use openftl_drive::description::{HostSection, Tls};
use openftl_nvme::{HostsAllowed, Nqn};
use openftl_nvme_auth::{Policy, Secrets, SecretsError, TlsKeys};
use openftl_nvme_tls::TlsError;
use openftl_server::TlsPolicy;
use std::net::SocketAddr;
use std::path::Path;

/// Who may connect, and what with.
#[derive(Debug)]
pub struct HostAccess {
    /// Which hosts.
    pub hosts: HostsAllowed,
    /// What they and the controller have to know, if anything.
    pub secrets: Option<Secrets>,
    /// How they show that they know it.
    pub policy: Policy,
    /// What encrypts their connections, if anything.
    pub tls: Option<Encryption>,
}

/// What encrypts connections.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// The keys of hosts.
    pub keys: TlsKeys,
    /// Who has to.
    pub policy: TlsPolicy,
}

impl HostAccess {
    /// What command line and drive description say. Files are read, and what does not fit together is refused, before anything is
    /// opened.
    pub fn of(addresses: &[SocketAddr], arguments: &cli::Serve, file: &HostSection) -> Result<HostAccess, Failure> {
        if let (Some(keys), true) = (&file.dhchap_key, arguments.allow_any_host) {
            return Err(Failure::bad_input(format_args!(
                "--allow-any-host: the drive description lets in those with a secret in {}",
                keys.display()
            ))
            .fix("leave one of the two away"));
        }
        let keys = arguments.dhchap_key.as_ref().or(file.dhchap_key.as_ref());
        let secrets = keys.map(|keys| read("--dhchap-key", keys, Secrets::read)).transpose()?;
        let tls = Encryption::of(arguments, file)?;
        let named = if arguments.allow_host.is_empty() { &file.allow_host } else { &arguments.allow_host };
        let named = if arguments.allow_any_host { &[][..] } else { named };
        let policy = match &file.dhchap_groups[..] {
            [] => Policy::default(),
            groups => Policy::with_groups(groups.to_vec()),
        };
        Ok(HostAccess { policy, ..HostAccess::new(addresses, named, arguments.allow_any_host, secrets, tls)? })
    }

    fn new(
        addresses: &[SocketAddr],
        named: &[Nqn],
        is_any_allowed: bool,
        secrets: Option<Secrets>,
        tls: Option<Encryption>,
    ) -> Result<HostAccess, Failure> {
        let required = tls.as_ref().filter(|tls| tls.policy == TlsPolicy::Required).map(|tls| &tls.keys);
        let lacks_secret = |host: &str| secrets.as_ref().is_some_and(|secrets| secrets.of(host).is_none());
        let lacks_key = |host: &str| required.is_some_and(|keys| keys.of(host).is_none());
        let mut hosts = named.to_vec();
        if named.is_empty() {
            let with_secret = secrets.iter().flat_map(Secrets::hosts);
            for host in with_secret.chain(required.into_iter().flat_map(TlsKeys::hosts)) {
                let host = Nqn::new(host).map_err(Failure::bad_input)?;
                if !hosts.contains(&host) {
                    hosts.push(host);
                }
            }
        }
        if let Some(host) = hosts.iter().find(|host| lacks_secret(host.as_str())) {
            return Err(Failure::bad_input(format_args!("host {host} has no secret in --dhchap-key"))
                .fix("add a line to the file, `HOSTNQN DHHC-1:…:`, or leave the host out"));
        }
        if let Some(host) = hosts.iter().find(|host| lacks_key(host.as_str())) {
            return Err(Failure::bad_input(format_args!("host {host} has no key in --tls-key"))
                .fix("add a line to the file, `HOSTNQN NVMeTLSkey-1:…:`, leave the host out, or say --tls allowed"));
        }
        if hosts.is_empty() {
            let remote = addresses.iter().find(|address| !address.ip().is_loopback());
            if let (Some(address), false) = (remote, is_any_allowed) {
                return Err(Failure::bad_input(format_args!(
                    "--nvme-tcp {address}: other machines can reach it, and nothing says which hosts may connect"
                ))
                .fix(
                    "name them with --allow-host HOSTNQN, give them secrets with --dhchap-key FILE or keys with --tls-key FILE, \
                     or let in any with --allow-any-host",
                ));
            }
        }
        let hosts = if hosts.is_empty() { HostsAllowed::Any } else { HostsAllowed::Listed(hosts) };
        Ok(HostAccess { hosts, secrets, policy: Policy::default(), tls })
    }
}

impl Encryption {
    fn of(arguments: &cli::Serve, file: &HostSection) -> Result<Option<Encryption>, Failure> {
        let policy = arguments.tls.or(file.tls);
        let Some(path) = arguments.tls_key.as_ref().or(file.tls_key.as_ref()) else {
            return match policy {
                None => Ok(None),
                Some(_) => Err(Failure::bad_input("tls: there are no keys that hosts could use")
                    .fix("name a file with them: --tls-key FILE, or tls_key in the drive description")),
            };
        };
        let policy = match policy.unwrap_or(Tls::Required) {
            Tls::Required => TlsPolicy::Required,
            Tls::Allowed => TlsPolicy::Allowed,
        };
        let keys = path.display();
        if !openftl_nvme_tls::IS_BUILT {
            return Err(Failure::bad_input(format_args!("--tls-key {keys}: {}", TlsError::NotBuilt)));
        }
        if policy == TlsPolicy::Required && arguments.allow_any_host {
            return Err(Failure::bad_input(format_args!("--allow-any-host: only the hosts of {keys} know a TLS key"))
                .fix("leave one of the two away, or say --tls allowed: then hosts without a key connect without TLS"));
        }
        Ok(Some(Encryption { keys: read("--tls-key", path, TlsKeys::read)?, policy }))
    }
}

fn read<K>(flag: &str, path: &Path, understood: impl Fn(&[u8]) -> Result<K, SecretsError>) -> Result<K, Failure> {
    let file = path.display();
    let bytes = small_file::read(path).map_err(|error| {
        Failure::bad_input(format_args!("{flag} {file}: {error}")).fix("name a file with secrets of hosts")
    })?;
    understood(&bytes).map_err(|error| {
        Failure::bad_input(format_args!("{flag} {file}: {error}"))
            .fix("`openftl serve --help` shows what the file has to say")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "DHHC-1:00:2wKd3YDIcRMN/rCJa/k60E8xBQMw+2D9UnigSQ6YFkEHV3Yy:";

    fn access(address: &str, named: &[&str], any: bool, file: Option<&str>) -> Result<HostsAllowed, String> {
        let named: Vec<Nqn> = named.iter().map(|name| Nqn::new(name).unwrap()).collect();
        let secrets = file.map(|file| Secrets::read(file.as_bytes()).unwrap());
        let access = HostAccess::new(&[address.parse().unwrap()], &named, any, secrets, None);
        access.map(|access| access.hosts).map_err(|failure| failure.to_string())
    }

    fn listed(names: &[&str]) -> HostsAllowed {
        HostsAllowed::Listed(names.iter().map(|name| Nqn::new(name).unwrap()).collect())
    }

    #[test]
    fn secrets_in_a_drive_description_are_not_passed_over_for_any_host() {
        use clap::Parser;
        let words = ["openftl", "serve", "--memory", "--nvme-tcp", "127.0.0.1:0", "--allow-any-host"];
        let cli::Command::Serve(arguments) = cli::Cli::parse_from(words).command else { unreachable!("it is serve") };
        let file = HostSection { dhchap_key: Some("hosts.keys".into()), ..HostSection::default() };
        let refused = HostAccess::of(&arguments.nvme_tcp, &arguments, &file).unwrap_err();
        assert!(refused.to_string().contains("hosts.keys"), "{refused}");
        let access = HostAccess::of(&arguments.nvme_tcp, &arguments, &HostSection::default()).unwrap();
        assert_eq!(access.hosts, HostsAllowed::Any);
    }

    #[test]
    fn any_host_may_connect_on_loopback_and_elsewhere_only_if_that_was_said() {
        for loopback in ["127.0.0.1:4420", "127.0.0.9:1", "[::1]:4420"] {
            assert_eq!(access(loopback, &[], false, None), Ok(HostsAllowed::Any));
        }
        for remote in ["0.0.0.0:4420", "192.0.2.1:4420", "[::]:4420"] {
            let error = access(remote, &[], false, None).unwrap_err();
            assert!(error.contains(remote) && error.contains("--allow-any-host"), "{error}");
            assert_eq!(access(remote, &[], true, None), Ok(HostsAllowed::Any));
            assert_eq!(access(remote, &["nqn.a"], false, None), Ok(listed(&["nqn.a"])));
        }
    }

    #[test]
    fn a_file_of_secrets_names_the_hosts_and_those_named_beside_it_have_to_be_in_it() {
        let file = format!("nqn.a {SECRET}\nnqn.b {SECRET}");
        assert_eq!(access("0.0.0.0:4420", &[], false, Some(&file)), Ok(listed(&["nqn.a", "nqn.b"])));
        assert_eq!(access("127.0.0.1:1", &["nqn.b"], false, Some(&file)), Ok(listed(&["nqn.b"])));
        let error = access("127.0.0.1:1", &["nqn.c"], false, Some(&file)).unwrap_err();
        assert!(error.contains("nqn.c"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_the_line() {
        let error = read("--dhchap-key", Path::new("/nowhere/keys"), Secrets::read).unwrap_err().to_string();
        assert!(error.contains("--dhchap-key /nowhere/keys"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("nqn.a {SECRET}\nnqn.b nothing\n")).unwrap();
        let error = read("--dhchap-key", file.path(), Secrets::read).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn keys_of_tls_name_the_hosts_where_all_have_to_use_it() {
        let keys = |hosts: &[&str]| {
            let key = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
            let lines: String = hosts.iter().map(|host| format!("{host} {key}\n")).collect();
            TlsKeys::read(lines.as_bytes()).unwrap()
        };
        let access = |address: &str, named: &[&str], secrets: &[&str], policy| {
            let named: Vec<Nqn> = named.iter().map(|name| Nqn::new(name).unwrap()).collect();
            let lines: String = secrets.iter().map(|host| format!("{host} {SECRET}\n")).collect();
            let secrets = (!secrets.is_empty()).then(|| Secrets::read(lines.as_bytes()).unwrap());
            let tls = Some(Encryption { keys: keys(&["nqn.a", "nqn.b"]), policy });
            let access = HostAccess::new(&[address.parse().unwrap()], &named, false, secrets, tls);
            access.map(|access| access.hosts).map_err(|failure| failure.to_string())
        };
        let (remote, loopback) = ("0.0.0.0:4420", "127.0.0.1:4420");
        assert_eq!(access(remote, &[], &[], TlsPolicy::Required), Ok(listed(&["nqn.a", "nqn.b"])));
        assert_eq!(access(remote, &["nqn.b"], &[], TlsPolicy::Required), Ok(listed(&["nqn.b"])));
        assert_eq!(access(remote, &[], &["nqn.b", "nqn.a"], TlsPolicy::Required), Ok(listed(&["nqn.b", "nqn.a"])));
        // Where it is allowed, others come without.
        assert_eq!(access(loopback, &[], &[], TlsPolicy::Allowed), Ok(HostsAllowed::Any));
        assert_eq!(access(remote, &["nqn.c"], &[], TlsPolicy::Allowed), Ok(listed(&["nqn.c"])));
        assert!(access(remote, &[], &[], TlsPolicy::Allowed).unwrap_err().contains("--allow-any-host"));
        // Who could never get in is not passed over in silence.
        for (named, secrets, host, lacks) in [
            (&["nqn.c"][..], &[][..], "nqn.c", "no key in --tls-key"),
            (&[], &["nqn.a", "nqn.b", "nqn.c"], "nqn.c", "no key in --tls-key"),
            (&[], &["nqn.a"], "nqn.b", "no secret in --dhchap-key"),
        ] {
            let error = access(remote, named, secrets, TlsPolicy::Required).unwrap_err();
            assert!(error.contains(host) && error.contains(lacks) && error.contains("fix:"), "{error}");
        }
    }
}
