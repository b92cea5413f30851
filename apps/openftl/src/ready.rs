//! Where a drive is served, for the programs that wait for it: a line of JSON, or the environment of a command.

use crate::failure::Failure;
use openftl_drive::table_drive::written;
use openftl_server::{Endpoint, Listener};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;

/// Where a drive is served.
#[derive(Serialize, Clone, PartialEq, Eq, Default, Debug)]
pub struct Ready {
    ready: bool,
    pid: u32,
    /// URIs for NBD clients.
    nbd: Vec<String>,
    /// Addresses for NVMe hosts.
    nvme_tcp: Vec<String>,
    #[serde(flatten)]
    uris: Uris,
    /// The URI for programs that use a table drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<String>,
    /// Addresses for Redis clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    redis: Vec<String>,
    /// The control socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<String>,
    /// The first Unix socket of an NBD server.
    #[serde(skip)]
    socket: Option<String>,
}

/// Where programs find what NVMe hosts alone can see.
#[derive(Serialize, Clone, PartialEq, Eq, Default, Debug)]
pub struct Uris {
    /// URIs for programs that use stores of pages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<String>,
    /// URIs for programs that use key-value drives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Ready {
    /// Block drives with these `names` for NBD clients, what NVMe hosts reach and the URIs of drives among that, and the addresses for Redis
    /// clients.
    pub fn drives(
        nbd: &[Endpoint],
        names: &[&str],
        nvme_tcp: &[Endpoint],
        uris: Uris,
        redis: &[SocketAddr],
        control: Option<&Listener>,
    ) -> Ready {
        let socket = nbd.iter().find_map(|endpoint| match endpoint {
            Endpoint::Unix(path) => Some(path.display().to_string()),
            Endpoint::Tcp(_) => None,
        });
        Ready {
            nbd: names.iter().flat_map(|name| nbd.iter().map(|endpoint| endpoint.uri(name))).collect(),
            nvme_tcp: nvme_tcp.iter().map(written).collect(),
            uris,
            redis: redis.iter().map(SocketAddr::to_string).collect(),
            socket,
            ..Ready::new(control.map(Listener::endpoint))
        }
    }

    /// A table drive, named by its URI.
    pub fn tables(uri: String, control: Option<&Endpoint>) -> Ready {
        Ready { files: Some(uri), ..Ready::new(control) }
    }

    fn new(control: Option<&Endpoint>) -> Ready {
        let control = control.map(written);
        Ready { ready: true, pid: std::process::id(), control, ..Ready::default() }
    }

    /// Writes itself as a line to a file descriptor that this process was started with.
    pub fn tell(&self, descriptor: u32) -> Result<(), Failure> {
        let line = serde_json::to_string(self).map_err(Failure::failed)? + "\n";
        File::options()
            .write(true)
            .open(format!("/proc/self/fd/{descriptor}"))
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|error| {
                Failure::bad_input(format_args!("--ready-fd {descriptor}: {error}")).fix(
                    "name a descriptor that is open for writing, like 3 in `openftl serve … --ready-fd 3 3> ready`",
                )
            })
    }

    /// Environment variables for a command.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, &String)> {
        [
            (
                "OPENFTL_URI",
                self.nbd.first().or(self.uris.pages.first()).or(self.uris.values.first()).or(self.files.as_ref()),
            ),
            ("OPENFTL_SOCKET", self.socket.as_ref()),
            ("OPENFTL_NVME_TCP", self.nvme_tcp.first()),
            ("OPENFTL_REDIS", self.redis.first()),
            ("OPENFTL_CONTROL", self.control.as_ref()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_is_not_open_is_named() {
        let failure = Ready::default().tell(971).unwrap_err();
        assert!(failure.what().starts_with("--ready-fd 971: "), "{failure}");
    }
}
