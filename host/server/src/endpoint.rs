//! Where a server listens: a Unix socket or a TCP address; written one way on a command line, another way as a URI.

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens. Parses from `unix:/path/to/socket` and `127.0.0.1:10809`; displays as an NBD URI.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Endpoint {
    /// A Unix socket at this path.
    Unix(PathBuf),
    /// A TCP address; port 0 lets the system choose.
    Tcp(SocketAddr),
}

/// A text that names no endpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is no place to listen: {why}; write it like unix:/path/to/socket, 127.0.0.1:10809 or [::1]:10809")]
pub struct EndpointError {
    text: String,
    why: &'static str,
}

/// The longest path of a Unix socket (`sun_path` of unix(7), with its terminating zero).
const UNIX_PATH_BYTES_MAX: usize = 107;

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let error = |why| EndpointError { text: text.to_owned(), why };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(error("the path is missing")),
                1..=UNIX_PATH_BYTES_MAX => Ok(Endpoint::Unix(PathBuf::from(path))),
                _ => Err(error("a socket's path has at most 107 bytes")),
            };
        }
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        numeric.parse().map(Endpoint::Tcp).map_err(|_| error("neither unix: and a path nor an IP address and a port"))
    }
}

impl Endpoint {
    /// The NBD URI of an export here, as `nbdinfo`, `qemu-img` and fio's `uri=` take it.
    #[must_use]
    pub fn uri(&self, export: &str) -> String {
        match self {
            Endpoint::Unix(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!("nbd+unix:///{}?socket={}", escaped(export), escaped(&path.to_string_lossy()))
            }
            Endpoint::Tcp(address) => format!("nbd://{address}/{}", escaped(export)),
        }
    }

    /// Whether only this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Endpoint::Unix(_) => true,
            Endpoint::Tcp(address) => address.ip().is_loopback(),
        }
    }
}

impl fmt::Display for Endpoint {
    /// The URI of the default export.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri(""))
    }
}

/// Percent-encodes what has a meaning of its own in a URI.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => write!(escaped, "%{byte:02X}").expect("a string takes all that is written"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_written_on_command_lines_and_shown_as_uris() {
        let check = |text: &str, export: &str, uri: &str| {
            assert_eq!(text.parse::<Endpoint>().unwrap().uri(export), uri, "{text}");
        };
        check("unix:/run/a.sock", "", "nbd+unix:///?socket=/run/a.sock");
        check("unix:/run/a b?.sock", "disk 1", "nbd+unix:///disk%201?socket=/run/a%20b%3F.sock");
        check("127.0.0.1:10809", "disk", "nbd://127.0.0.1:10809/disk");
        check("localhost:10809", "", "nbd://127.0.0.1:10809/");
        check("[::1]:10809", "", "nbd://[::1]:10809/");
    }

    #[test]
    fn what_is_no_endpoint_says_how_to_write_one() {
        for text in ["", "unix:", "10809", "example.org:10809", "127.0.0.1", &format!("unix:/{}", "x".repeat(107))] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("write it like unix:/path"), "{error}");
        }
    }

    #[test]
    fn only_loopback_and_unix_are_local() {
        assert!("127.0.0.1:1".parse::<Endpoint>().unwrap().is_local());
        assert!("unix:/a".parse::<Endpoint>().unwrap().is_local());
        assert!(!"0.0.0.0:1".parse::<Endpoint>().unwrap().is_local());
    }
}
