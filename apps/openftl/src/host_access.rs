//! Which NVMe hosts a served drive lets in, and the secrets that they have to know.
//!
//! | named with `--allow-host` | `--dhchap-key` | on loopback | elsewhere |
//! |---|---|---|---|
//! | some | none | those | those |
//! | some | a file | those, with their secrets | the same |
//! | none | a file | the hosts of the file, with their secrets | the same |
//! | none | none | any | none, or any with `--allow-any-host` |

use crate::cli;
use crate::drive_file::HostSection;
use crate::failure::Failure;
use openftl_nvme::{HostsAllowed, Nqn};
use openftl_nvme_auth::Secrets;
use std::net::SocketAddr;
use std::path::Path;

/// Who may connect, and what with.
#[derive(Debug)]
pub struct HostAccess {
    /// Which hosts.
    pub hosts: HostsAllowed,
    /// What they and the controller have to know, if anything.
    pub secrets: Option<Secrets>,
}

impl HostAccess {
    /// What command line and drive file say. Files are read, and what does not fit together is refused, before anything is
    /// opened.
    pub fn of(addresses: &[SocketAddr], arguments: &cli::Serve, file: &HostSection) -> Result<HostAccess, Failure> {
        if let (Some(keys), true) = (&file.dhchap_key, arguments.allow_any_host) {
            return Err(Failure::bad_input(format_args!(
                "--allow-any-host: the drive file lets in those with a secret in {}",
                keys.display()
            ))
            .fix("leave one of the two away"));
        }
        let keys = arguments.dhchap_key.as_ref().or(file.dhchap_key.as_ref());
        let secrets = keys.map(|keys| read(keys)).transpose()?;
        let named = if arguments.allow_host.is_empty() { &file.allow_host } else { &arguments.allow_host };
        let named = if arguments.allow_any_host { &[][..] } else { named };
        HostAccess::new(addresses, named, arguments.allow_any_host, secrets)
    }

    fn new(
        addresses: &[SocketAddr],
        named: &[Nqn],
        is_any_allowed: bool,
        secrets: Option<Secrets>,
    ) -> Result<HostAccess, Failure> {
        let hosts = match (&secrets, named) {
            (Some(secrets), []) => HostsAllowed::Listed(
                secrets.hosts().map(Nqn::new).collect::<Result<_, _>>().map_err(Failure::bad_input)?,
            ),
            (None, []) => {
                let remote = addresses.iter().find(|address| !address.ip().is_loopback());
                if let (Some(address), false) = (remote, is_any_allowed) {
                    return Err(Failure::bad_input(format_args!(
                        "--nvme-tcp {address}: other machines can reach it, and nothing says which hosts may connect"
                    ))
                    .fix(
                        "name them with --allow-host HOSTNQN, give them secrets with --dhchap-key FILE, or let in any with \
                         --allow-any-host",
                    ));
                }
                HostsAllowed::Any
            }
            (Some(secrets), named) => {
                if let Some(host) = named.iter().find(|host| secrets.of(host.as_str()).is_none()) {
                    return Err(Failure::bad_input(format_args!(
                        "--allow-host {host}: it has no secret in --dhchap-key"
                    ))
                    .fix("add a line to the file, `HOSTNQN DHHC-1:…:`, or leave the host out"));
                }
                HostsAllowed::Listed(named.to_vec())
            }
            (None, named) => HostsAllowed::Listed(named.to_vec()),
        };
        Ok(HostAccess { hosts, secrets })
    }
}

fn read(path: &Path) -> Result<Secrets, Failure> {
    let file = path.display();
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::bad_input(format_args!("--dhchap-key {file}: {error}")).fix("name a file with secrets")
    })?;
    Secrets::read(&bytes).map_err(|error| {
        Failure::bad_input(format_args!("--dhchap-key {file}: {error}"))
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
        let access = HostAccess::new(&[address.parse().unwrap()], &named, any, secrets);
        access.map(|access| access.hosts).map_err(|failure| failure.to_string())
    }

    fn listed(names: &[&str]) -> HostsAllowed {
        HostsAllowed::Listed(names.iter().map(|name| Nqn::new(name).unwrap()).collect())
    }

    #[test]
    fn secrets_in_a_drive_file_are_not_passed_over_for_any_host() {
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
        let error = read(Path::new("/nowhere/keys")).unwrap_err().to_string();
        assert!(error.contains("--dhchap-key /nowhere/keys"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("nqn.a {SECRET}\nnqn.b nothing\n")).unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
