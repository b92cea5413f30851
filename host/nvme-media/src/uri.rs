//! Where a drive of another process or machine is: `nvme-tcp://MACHINE[:PORT][/SUBSYSTEM][?namespace=ID]`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use openftl_nvme::Nqn;

/// The beginning of a URI.
const SCHEME: &str = "nvme-tcp://";

/// The port that IANA gave to NVMe over fabrics.
const PORT_DEFAULT: u16 = 4420;

/// The subsystem of a server that was not told another.
const SUBSYSTEM_DEFAULT: &str = "nqn.2026-11.org.openftl:drive";

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveUri {
    /// Machine and port.
    pub address: String,
    /// The subsystem.
    pub subsystem: Nqn,
    /// NSID.
    pub namespace: u32,
}

/// A text that is no such URI, or of which no machine is known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is no place of a served drive: {why}; write it like nvme-tcp://127.0.0.1:4420")]
pub struct UriError {
    text: String,
    why: String,
}

impl DriveUri {
    /// Whether a text is meant to be one.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// The address of the machine.
    ///
    /// # Errors
    /// If its name is not known.
    pub fn resolve(&self) -> Result<SocketAddr, UriError> {
        let error = |why: String| UriError { text: self.to_string(), why };
        let mut addresses = self.address.to_socket_addrs().map_err(|found| error(found.to_string()))?;
        addresses.next().ok_or_else(|| error("the machine has no address".to_owned()))
    }
}

impl FromStr for DriveUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<DriveUri, UriError> {
        let error = |why: &str| UriError { text: text.to_owned(), why: why.to_owned() };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| error("it does not begin with nvme-tcp://"))?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (machine, subsystem) = rest.split_once('/').unwrap_or((rest, ""));
        let namespace = match query.map(|query| query.strip_prefix("namespace=")) {
            None => 1,
            Some(id) => {
                let id = id.and_then(|id| id.parse().ok()).filter(|id| *id > 0);
                id.ok_or_else(|| error("behind ? there is no namespace=ID with a number from 1 on"))?
            }
        };
        // A number of IPv6 has colons of its own, and stands in brackets.
        let has_port = machine.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let is_bare = machine.is_empty() || machine.starts_with(':') || machine.contains([' ', '@']);
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        if is_bare || has_port && !machine.rsplit_once(':').is_some_and(|(_, port)| is_port(port)) {
            return Err(error("there is no machine, or no port"));
        }
        let address = if has_port { machine.to_owned() } else { format!("{machine}:{PORT_DEFAULT}") };
        let subsystem = if subsystem.is_empty() { SUBSYSTEM_DEFAULT } else { subsystem };
        let subsystem = Nqn::new(subsystem).map_err(|found| error(&found.to_string()))?;
        Ok(DriveUri { address, subsystem, namespace })
    }
}

impl fmt::Display for DriveUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.address)?;
        if self.subsystem.as_str() != SUBSYSTEM_DEFAULT {
            write!(f, "/{}", self.subsystem.as_str())?;
        }
        if self.namespace == 1 { Ok(()) } else { write!(f, "?namespace={}", self.namespace) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let other = "nqn.2024-01.org.example:pages";
        for (text, address, subsystem, namespace) in [
            ("nvme-tcp://127.0.0.1:4421", "127.0.0.1:4421", SUBSYSTEM_DEFAULT, 1),
            ("nvme-tcp://drive.example", "drive.example:4420", SUBSYSTEM_DEFAULT, 1),
            ("nvme-tcp://[::1]:8009/", "[::1]:8009", SUBSYSTEM_DEFAULT, 1),
            ("nvme-tcp://[::1]?namespace=3", "[::1]:4420", SUBSYSTEM_DEFAULT, 3),
            (&format!("nvme-tcp://a:1/{other}?namespace=2"), "a:1", other, 2),
        ] {
            let uri: DriveUri = text.parse().unwrap();
            assert_eq!((uri.address.as_str(), uri.subsystem.as_str(), uri.namespace), (address, subsystem, namespace));
            assert_eq!(uri.to_string().parse::<DriveUri>().unwrap(), uri, "{text}");
        }
        for text in [
            "127.0.0.1:4420",
            "nvme-tcp://",
            "nvme-tcp://:4420",
            "nvme-tcp://a:port",
            "nvme-tcp://a:70000",
            "nvme-tcp://a/nonsense",
            "nvme-tcp://a?namespace=0",
            "nvme-tcp://a?namespace=x",
            "nvme-tcp://a?timeout=1",
        ] {
            let error = text.parse::<DriveUri>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("nvme-tcp://127.0.0.1:4420"), "{error}");
        }
    }
}
