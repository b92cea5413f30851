//! Sockets that a service manager has made and passes to a server, by the protocol of sd_listen_fds(3):
//!
//! ```text
//!   LISTEN_PID=4711                     whom they are for
//!   LISTEN_FDS=2                        descriptors 3 and 4
//!   LISTEN_FDNAMES=nbd:nvme-tcp         what is spoken there: FileDescriptorName= of each .socket unit
//! ```

use crate::failure::Failure;
use openftl_server::{AdoptError, Endpoint, Listener};
use rustix::io::{FdFlags, fcntl_setfd};
use std::ffi::OsString;
use std::fs::symlink_metadata;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The first of them (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// More than any drive needs.
const SOCKETS_MAX: usize = 64;

/// The variables, which no child of ours is to take for its own.
pub const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// What there is to say where a socket cannot be used.
const NAMES: &str = "nbd, nvme-tcp, control or files";

/// Sockets that listen, by what is spoken there.
#[derive(Default)]
pub struct Passed {
    /// NBD.
    pub nbd: Vec<Listener>,
    /// NVMe over TCP.
    pub nvme_tcp: Vec<Listener>,
    /// `openftl ctl`.
    pub control: Option<Listener>,
    /// Files of a table drive.
    pub files: Vec<Listener>,
}

/// A descriptor, and its name.
type Named = (RawFd, String);

impl Passed {
    /// Takes what was passed to this process. To be called before it opens anything, and once: the descriptors are the caller's
    /// from then on.
    ///
    /// # Errors
    /// If one of them is not what its name says, or has no name that is known here.
    pub fn take(allow_remote: bool) -> Result<Passed, Failure> {
        let [pid, count, names] = VARIABLES.map(std::env::var_os);
        let mut passed = Passed::default();
        for (descriptor, name) in announced(std::process::id(), pid, count, names)? {
            passed
                .add(&name, take_descriptor(descriptor)?, allow_remote)
                .map_err(|failure| failure.about(format_args!("LISTEN_FDS: socket {descriptor}, named {name}")))?;
        }
        Ok(passed)
    }

    /// The addresses for NVMe hosts.
    pub fn nvme_addresses(&self) -> Vec<std::net::SocketAddr> {
        let tcp = |listener: &Listener| match listener.endpoint() {
            Endpoint::Tcp(address) => Some(*address),
            Endpoint::Unix(_) => None,
        };
        self.nvme_tcp.iter().filter_map(tcp).collect()
    }

    /// Refuses flags that say where to listen for what was passed.
    pub fn refuse_flags(&self, nbd: bool, nvme_tcp: bool, control: bool) -> Result<(), Failure> {
        for (is_passed, is_given, flag) in [
            (!self.nbd.is_empty(), nbd, "--nbd"),
            (!self.nvme_tcp.is_empty(), nvme_tcp, "--nvme-tcp"),
            (self.control.is_some(), control, "--control"),
        ] {
            if is_passed && is_given {
                let name = flag.trim_start_matches('-');
                return Err(Failure::bad_input(format_args!(
                    "{flag} is given, and the service manager passes a socket named {name} as well (LISTEN_FDS)"
                ))
                .fix(format_args!("leave {flag} away, or disable the .socket unit with FileDescriptorName={name}")));
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, socket: OwnedFd, allow_remote: bool) -> Result<(), Failure> {
        if !["nbd", "nvme-tcp", "control", "files"].contains(&name) {
            return Err(Failure::bad_input("nothing here is served by that name")
                .fix(format_args!("write FileDescriptorName={NAMES} in the .socket unit")));
        }
        // Which NVMe hosts may connect is said by their names; the others know no passwords.
        let may_be_remote = name == "nvme-tcp" || (name == "nbd" && allow_remote);
        let listener = Listener::adopt(socket, may_be_remote).map_err(|error| unusable(&error))?;
        match (name, listener.endpoint()) {
            ("nbd", _) => self.nbd.push(listener),
            ("nvme-tcp", Endpoint::Tcp(_)) => self.nvme_tcp.push(listener),
            ("nvme-tcp", Endpoint::Unix(path)) => {
                return Err(Failure::bad_input(format_args!(
                    "NVMe over TCP has no Unix sockets, and it is {}",
                    path.display()
                ))
                .fix("write ListenStream=127.0.0.1:4420 in the .socket unit"));
            }
            ("control", Endpoint::Tcp(address)) => {
                return Err(Failure::bad_input(format_args!(
                    "{address} is no Unix socket, and who reaches it can do anything to the drive"
                ))
                .fix("write ListenStream=/run/openftl/NAME.ctl in the .socket unit"));
            }
            ("control", Endpoint::Unix(_)) if self.control.is_some() => {
                return Err(Failure::bad_input("it is the second of that name, and a drive has one").fix("pass one"));
            }
            ("control", Endpoint::Unix(_)) => self.control = Some(listener),
            _ => self.files.push(listener),
        }
        Ok(())
    }
}

/// The descriptors that are for the process `own`, with their names.
fn announced(
    own: u32,
    pid: Option<OsString>,
    count: Option<OsString>,
    names: Option<OsString>,
) -> Result<Vec<Named>, Failure> {
    let (Some(pid), Some(count)) = (pid, count) else { return Ok(Vec::new()) };
    let number = |variable: &str, text: &OsString| {
        let number = text.to_str().and_then(|text| text.parse::<usize>().ok());
        number.ok_or_else(|| {
            Failure::bad_input(format_args!("{variable}={} is no number", text.to_string_lossy()))
                .fix("a service manager sets it; unset it to start a server by hand")
        })
    };
    // A process in between may have left them to others.
    if number("LISTEN_PID", &pid)? != own as usize {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS", &count)?;
    if count > SOCKETS_MAX {
        return Err(
            Failure::bad_input(format_args!("LISTEN_FDS={count} is more than {SOCKETS_MAX} sockets")).fix("pass fewer")
        );
    }
    let names = match &names {
        Some(names) => names.to_string_lossy().split(':').map(str::to_owned).collect(),
        None => Vec::new(),
    };
    if count > 0 && names.len() != count {
        return Err(Failure::bad_input(format_args!(
            "LISTEN_FDS={count} sockets were passed, and LISTEN_FDNAMES has {} names",
            names.len()
        ))
        .fix(format_args!("write FileDescriptorName={NAMES} in each .socket unit")));
    }
    Ok((FIRST..).zip(names).take(count).collect())
}

/// Takes one of the descriptors that this process was started with.
fn take_descriptor(descriptor: RawFd) -> Result<OwnedFd, Failure> {
    if symlink_metadata(format!("/proc/self/fd/{descriptor}")).is_err() {
        return Err(Failure::bad_input(format_args!("LISTEN_FDS: descriptor {descriptor} is not open"))
            .fix("a service manager sets LISTEN_FDS; unset it to start a server by hand"));
    }
    // SAFETY: it is open, as was just seen, and whoever started this process has made it over: LISTEN_PID and LISTEN_FDS say so.
    // `Passed::take` is called before anything is opened and takes each number once, so nothing else here owns it.
    #[expect(unsafe_code, reason = "descriptors that come from outside are bare numbers")]
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // A command that is run beside the server has no part in it.
    fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(Failure::failed)?;
    Ok(socket)
}

fn unusable(error: &AdoptError) -> Failure {
    let failure = Failure::bad_input(error);
    match error {
        AdoptError::NotLocal(_) => failure.fix("listen on 127.0.0.1 or at a Unix socket, or say --allow-remote"),
        AdoptError::NotListening => {
            failure.fix("write Accept=no in the .socket unit: one server serves all connections")
        }
        AdoptError::NotASocket(_) | AdoptError::NotAStream | AdoptError::NoEndpoint => {
            failure.fix("write ListenStream= with a path or an address like 127.0.0.1:10809 in the .socket unit")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn announced_to_7(pid: &str, count: &str, names: Option<&str>) -> Result<Vec<Named>, Failure> {
        announced(7, Some(pid.into()), Some(count.into()), names.map(OsString::from))
    }

    #[test]
    fn descriptors_are_counted_from_three_and_named_in_their_order() {
        let named = announced_to_7("7", "2", Some("nbd:nvme-tcp")).unwrap();
        assert_eq!(named, [(3, "nbd".to_owned()), (4, "nvme-tcp".to_owned())]);
        assert_eq!(announced_to_7("7", "0", Some("")).unwrap(), []);
        assert_eq!(announced(7, None, None, None).unwrap(), []);
    }

    #[test]
    fn what_is_for_another_process_is_not_touched() {
        assert_eq!(announced_to_7("8", "2", Some("nbd:nvme-tcp")).unwrap(), []);
        assert_eq!(announced_to_7("8", "many", None).unwrap(), []);
    }

    #[test]
    fn variables_that_say_nothing_sensible_are_named_with_their_values() {
        let check = |pid: &str, count: &str, names: Option<&str>, words: &str| {
            let failure = announced_to_7(pid, count, names).unwrap_err();
            assert!(failure.what().contains(words) && failure.what_to_do().is_some(), "{failure}");
        };
        check("x", "1", Some("nbd"), "LISTEN_PID=x");
        check("7", "-1", Some("nbd"), "LISTEN_FDS=-1");
        check("7", "65", None, "LISTEN_FDS=65");
        check("7", "1", None, "LISTEN_FDNAMES has 0 names");
        check("7", "2", Some("nbd"), "LISTEN_FDNAMES has 1 names");
    }

    #[test]
    fn each_name_takes_the_sockets_that_it_can_serve() {
        let folder = tempfile::tempdir().unwrap();
        let unix = |name: &str| OwnedFd::from(UnixListener::bind(folder.path().join(name)).unwrap());
        let tcp = |at: &str| OwnedFd::from(TcpListener::bind(at).unwrap());
        let mut passed = Passed::default();
        passed.add("nbd", unix("a"), false).unwrap();
        passed.add("nbd", tcp("127.0.0.1:0"), false).unwrap();
        passed.add("nvme-tcp", tcp("0.0.0.0:0"), false).unwrap();
        passed.add("control", unix("b"), false).unwrap();
        passed.add("files", unix("c"), false).unwrap();
        let lengths = [passed.nbd.len(), passed.nvme_tcp.len(), passed.files.len(), passed.nvme_addresses().len()];
        assert_eq!(lengths, [2, 1, 1, 1]);
        let mut refused = |name: &str, socket: OwnedFd, words: &str| {
            let failure = passed.add(name, socket, false).unwrap_err();
            assert!(failure.to_string().contains(words), "{failure}");
            assert!(failure.what_to_do().is_some(), "{failure}");
        };
        refused("nvme-tcp", unix("d"), "no Unix sockets");
        refused("control", tcp("127.0.0.1:0"), "is no Unix socket");
        refused("control", unix("e"), "the second");
        refused("nbd", tcp("0.0.0.0:0"), "--allow-remote");
        refused("files", tcp("0.0.0.0:0"), "other machines");
        refused("openftl.socket", unix("f"), "FileDescriptorName=nbd, nvme-tcp, control or files");
    }
}
