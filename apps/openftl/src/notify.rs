//! What a service manager is told of a server, by the protocol of sd_notify(3): `READY=1` when the drive is served, `STOPPING=1`
//! when it begins to close.

use crate::failure::Failure;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names the socket at which the service manager listens; a name that begins with `@` is an abstract one.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells that clients can connect.
pub fn ready() -> Result<(), Failure> {
    tell(std::env::var_os(VARIABLE).as_deref(), "READY=1\n")
}

/// Tells that the server ends. Nobody minds where it cannot be told: the end is seen as well.
pub fn stopping() {
    _ = tell(std::env::var_os(VARIABLE).as_deref(), "STOPPING=1\n");
}

fn tell(socket: Option<&OsStr>, state: &str) -> Result<(), Failure> {
    let Some(name) = socket else { return Ok(()) };
    let address = match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name),
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => Err(std::io::Error::other("it is neither a path nor an abstract name like @name")),
    };
    let send = |address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address);
    let sent = address.and_then(send);
    sent.map(drop).map_err(|error| {
        Failure::bad_input(format_args!("{VARIABLE}={}: {error}", name.to_string_lossy()))
            .fix("a service manager sets it (Type=notify); unset it to start a server by hand")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut text = [0; 64];
        let bytes = socket.recv(&mut text).unwrap();
        String::from_utf8(text[..bytes].to_vec()).unwrap()
    }

    #[test]
    fn states_reach_sockets_with_a_path_and_abstract_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        tell(Some(path.as_os_str()), "READY=1\n").unwrap();
        assert_eq!(heard(&socket), "READY=1\n");
        let name = format!("openftl-notify-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        tell(Some(OsStr::new(&format!("@{name}"))), "STOPPING=1\n").unwrap();
        assert_eq!(heard(&socket), "STOPPING=1\n");
    }

    #[test]
    fn a_service_manager_that_cannot_be_told_is_named() {
        tell(None, "READY=1\n").unwrap();
        for name in ["/nowhere/notify", "relative", "vsock:2:9"] {
            let failure = tell(Some(OsStr::new(name)), "READY=1\n").unwrap_err();
            assert!(failure.what().starts_with(&format!("NOTIFY_SOCKET={name}: ")), "{failure}");
        }
    }
}
