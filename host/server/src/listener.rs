//! A place where connections come in.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use openftl_core::Time;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, sockopt};

use crate::Protocol;
use crate::endpoint::Endpoint;

/// Why a server cannot listen there.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Other machines could reach it.
    #[error("{0} can be reached from other machines, and NBD knows no passwords")]
    NotLocal(Endpoint),
    /// Another server listens there.
    #[error("{}: another server is listening there; stop it or choose another path", .0.display())]
    InUse(PathBuf),
    /// There is a file, and it is no socket.
    #[error("{}: there is a file which is no socket; remove it or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The system says no.
    #[error("cannot listen on {endpoint}: {error}")]
    System {
        /// Where.
        endpoint: Endpoint,
        /// What the system says.
        error: io::Error,
    },
}

/// Why a socket that this process was started with cannot be listened at.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The descriptor is closed, or a file, or the system does not tell about it.
    #[error("it is no socket ({0})")]
    NotASocket(io::Error),
    /// It has datagrams, or packets.
    #[error("it is no stream socket, and clients need a stream")]
    NotAStream,
    /// It is a connection, or nobody has called `listen`.
    #[error("it does not listen")]
    NotListening,
    /// A Unix socket without a path, or another family.
    #[error("it is neither a Unix socket with a path nor a TCP socket")]
    NoEndpoint,
    /// Other machines could reach it.
    #[error("{0} can be reached from other machines, and NBD knows no passwords")]
    NotLocal(Endpoint),
}

/// A socket that listens. The file of a Unix socket goes with it.
pub struct Listener {
    socket: OwnedFd,
    endpoint: Endpoint,
    /// What is spoken there.
    pub(crate) protocol: Protocol,
    /// Device and inode of the socket file that goes with it, to remove no other server's.
    file: Option<(u64, u64)>,
    /// Whether connections may be waiting, and it is worth a try to accept one.
    pub(crate) ready: bool,
    /// When to try again after the system refused to look for a connection.
    pub(crate) retry_at: Option<Time>,
}

impl Listener {
    /// Listens at `endpoint`. A socket file that nobody listens behind is replaced.
    ///
    /// # Errors
    /// If the endpoint is in use, is not a local one (and those are not allowed), or the system refuses it.
    pub fn new(endpoint: Endpoint, allow_remote: bool) -> Result<Listener, ListenError> {
        if !endpoint.is_local() && !allow_remote {
            return Err(ListenError::NotLocal(endpoint));
        }
        match &endpoint {
            Endpoint::Unix(path) => {
                let system = |error| ListenError::System { endpoint: endpoint.clone(), error };
                remove_stale(path).map_err(|error| error.unwrap_or_else(system))?;
                let listener = UnixListener::bind(path).map_err(system)?;
                listener.set_nonblocking(true).map_err(system)?;
                let file = fs::symlink_metadata(path).map_err(system)?;
                let file = Some((file.dev(), file.ino()));
                Ok(Listener {
                    socket: listener.into(),
                    endpoint,
                    file,
                    protocol: Protocol::Nbd,
                    ready: true,
                    retry_at: None,
                })
            }
            Endpoint::Tcp(address) => {
                let system = |error| ListenError::System { endpoint: endpoint.clone(), error };
                let listener = TcpListener::bind(address).map_err(system)?;
                listener.set_nonblocking(true).map_err(system)?;
                let endpoint = Endpoint::Tcp(listener.local_addr().map_err(system)?);
                Ok(Listener {
                    socket: listener.into(),
                    endpoint,
                    file: None,
                    protocol: Protocol::Nbd,
                    ready: true,
                    retry_at: None,
                })
            }
        }
    }

    /// Takes over a socket that another process, such as a service manager, has made to listen. Its file stays when it is closed.
    ///
    /// # Errors
    /// If it is no stream socket that listens, or not a local one (and those are not allowed).
    pub fn adopt(socket: OwnedFd, allow_remote: bool) -> Result<Listener, AdoptError> {
        let unknown = |error: rustix::io::Errno| AdoptError::NotASocket(error.into());
        if sockopt::socket_type(&socket).map_err(unknown)? != SocketType::STREAM {
            return Err(AdoptError::NotAStream);
        }
        if !sockopt::socket_acceptconn(&socket).map_err(unknown)? {
            return Err(AdoptError::NotListening);
        }
        let (socket, endpoint): (OwnedFd, Endpoint) = match sockopt::socket_domain(&socket).map_err(unknown)? {
            AddressFamily::UNIX => {
                let listener = UnixListener::from(socket);
                listener.set_nonblocking(true).map_err(AdoptError::NotASocket)?;
                let address = listener.local_addr().map_err(AdoptError::NotASocket)?;
                let path = address.as_pathname().ok_or(AdoptError::NoEndpoint)?.to_owned();
                (listener.into(), Endpoint::Unix(path))
            }
            AddressFamily::INET | AddressFamily::INET6 => {
                let listener = TcpListener::from(socket);
                listener.set_nonblocking(true).map_err(AdoptError::NotASocket)?;
                let address = listener.local_addr().map_err(AdoptError::NotASocket)?;
                (listener.into(), Endpoint::Tcp(address))
            }
            _ => return Err(AdoptError::NoEndpoint),
        };
        if !endpoint.is_local() && !allow_remote {
            return Err(AdoptError::NotLocal(endpoint));
        }
        Ok(Listener { socket, endpoint, file: None, protocol: Protocol::Nbd, ready: true, retry_at: None })
    }

    /// Where it listens, with the port that the system chose.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The next connection that waits, if any.
    pub(crate) fn accept(&mut self) -> rustix::io::Result<OwnedFd> {
        self.retry_at = None;
        let socket = accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        // Both only make things faster or tidier; a socket that refuses them serves as well.
        if let Endpoint::Tcp(_) = self.endpoint {
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            let _ = sockopt::set_socket_keepalive(&socket, true);
        }
        Ok(socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let (Endpoint::Unix(path), Some(ours)) = (&self.endpoint, self.file) else { return };
        if fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == ours) {
            // If it cannot be removed, the next server takes it for stale and replaces it.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket file that nobody listens behind. `Err(Err(…))` is the system's error.
fn remove_stale(path: &Path) -> Result<(), Result<ListenError, io::Error>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Err(error)),
        Ok(file) if !file.file_type().is_socket() => Err(Ok(ListenError::NotASocket(path.to_owned()))),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(Err),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            // A full backlog and everything else means that somebody is there, or that we may not know.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Err(error)),
            _ => Err(Ok(ListenError::InUse(path.to_owned()))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket_in(folder: &tempfile::TempDir) -> Endpoint {
        Endpoint::Unix(folder.path().join("socket"))
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = socket_in(&folder);
        let Endpoint::Unix(path) = &endpoint else { unreachable!("made above") };
        drop(UnixListener::bind(path).unwrap());
        assert!(path.exists(), "the standard library's listener leaves its file, as a killed server does");
        let _live = Listener::new(endpoint.clone(), false).unwrap();
        assert!(matches!(Listener::new(endpoint, false), Err(ListenError::InUse(_))));
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = socket_in(&folder);
        let Endpoint::Unix(path) = &endpoint else { unreachable!("made above") };
        fs::write(path, "precious").unwrap();
        assert!(matches!(Listener::new(endpoint.clone(), false), Err(ListenError::NotASocket(_))));
        assert_eq!(fs::read(path).unwrap(), b"precious");
    }

    #[test]
    fn the_socket_file_goes_with_its_listener_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = socket_in(&folder);
        let Endpoint::Unix(path) = &endpoint else { unreachable!("made above") };
        let first = Listener::new(endpoint.clone(), false).unwrap();
        fs::rename(path, folder.path().join("aside")).unwrap();
        let second = Listener::new(endpoint.clone(), false).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn an_address_that_others_can_reach_is_refused_unless_allowed() {
        let everywhere = Endpoint::Tcp("0.0.0.0:0".parse().unwrap());
        assert!(matches!(Listener::new(everywhere.clone(), false), Err(ListenError::NotLocal(_))));
        assert!(Listener::new(everywhere, true).is_ok());
    }

    #[test]
    fn a_socket_that_somebody_else_made_is_taken_over_with_its_address_and_its_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = socket_in(&folder);
        let Endpoint::Unix(path) = &endpoint else { unreachable!("made above") };
        let mut adopted = Listener::adopt(UnixListener::bind(path).unwrap().into(), false).unwrap();
        assert_eq!(adopted.endpoint(), &endpoint);
        assert_eq!(adopted.accept().unwrap_err(), rustix::io::Errno::AGAIN, "it does not block");
        let _client = UnixStream::connect(path).unwrap();
        adopted.accept().unwrap();
        drop(adopted);
        assert!(path.exists());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(Listener::adopt(listener.into(), false).unwrap().endpoint(), &Endpoint::Tcp(address));
    }

    #[test]
    fn what_nobody_can_listen_at_is_not_taken_over() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixDatagram};
        let refused = |socket: OwnedFd| Listener::adopt(socket, false).err().unwrap();
        assert!(matches!(refused(UnixDatagram::unbound().unwrap().into()), AdoptError::NotAStream));
        assert!(matches!(refused(UnixStream::pair().unwrap().0.into()), AdoptError::NotListening));
        assert!(matches!(refused(fs::File::open("/dev/null").unwrap().into()), AdoptError::NotASocket(_)));
        let name = format!("openftl-{}", std::process::id());
        let nameless = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        assert!(matches!(refused(nameless.into()), AdoptError::NoEndpoint));
        let everywhere = || TcpListener::bind("0.0.0.0:0").unwrap().into();
        assert!(matches!(refused(everywhere()), AdoptError::NotLocal(_)));
        assert!(Listener::adopt(everywhere(), true).is_ok());
    }

    #[test]
    fn port_zero_becomes_the_port_that_was_given() {
        let listener = Listener::new("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let Endpoint::Tcp(address) = listener.endpoint() else { unreachable!("made above") };
        assert_ne!(address.port(), 0);
    }
}
