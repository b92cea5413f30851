//! A served drive: started, killed, stopped.

use crate::client::Client;
use crate::drive::openftl;
use crate::network::Network;
use crate::program::{Ended, Running, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;

/// A running `openftl serve`. Dropped, it is killed.
pub struct Server {
    running: Running,
    socket: PathBuf,
}

impl Server {
    /// Starts `openftl` with `arguments` and an NBD server at `socket`; returns when it listens.
    pub fn start(arguments: &[&str], socket: &Path) -> Server {
        Server::started(socket, |endpoint| Running::start(&openftl(), [arguments, endpoint].concat()))
    }

    /// Starts it in a network of its own; the NBD server is reached from everywhere all the same.
    pub fn start_in(network: &Network, arguments: &[&str], socket: &Path) -> Server {
        Server::started(socket, |endpoint| network.start(&openftl(), &[arguments, endpoint].concat()))
    }

    fn started(socket: &Path, start: impl FnOnce(&[&str]) -> Running) -> Server {
        let endpoint = format!("unix:{}", socket.display());
        let running = start(&["--nbd", &endpoint]);
        let mut server = Server { running, socket: socket.to_owned() };
        wait_for("the server to listen", || {
            if let Some(ended) = server.running.ended() {
                panic!("the server ended before it listened: {ended}");
            }
            UnixStream::connect(&server.socket).ok()
        });
        server
    }

    /// Starts `openftl` with `arguments`, which serve NVMe hosts alone; returns when they can connect.
    pub fn start_for_nvme(arguments: &[&str]) -> Server {
        Server::started_for_nvme(Running::start(&openftl(), arguments.iter().copied()))
    }

    /// Starts it in a network of its own.
    pub fn start_for_nvme_in(network: &Network, arguments: &[&str]) -> Server {
        Server::started_for_nvme(network.start(&openftl(), arguments))
    }

    fn started_for_nvme(running: Running) -> Server {
        let mut server = Server { running, socket: PathBuf::new() };
        wait_for("the server to listen", || {
            if let Some(ended) = server.running.ended() {
                panic!("the server ended before it listened: {ended}");
            }
            server.running.stdout().contains("nvme connect").then_some(())
        });
        server
    }

    /// Where clients find the drive.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Where NVMe hosts find the drive, if it is served to them.
    pub fn nvme_address(&self) -> String {
        let said = self.says("nvme connect");
        let port = said.lines().find_map(|line| line.split_once("-s ")?.1.split(' ').next().map(str::to_owned));
        format!("127.0.0.1:{}", port.expect("the line to type names the port"))
    }

    /// A raw connection, before any handshake.
    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).expect("the server listens")
    }

    /// A connection ready for requests.
    pub fn client(&self) -> Client {
        Client::new(self.connect())
    }

    /// A connection to the export of this name, ready for requests.
    pub fn client_of(&self, export: &str) -> Client {
        Client::named(self.connect(), export)
    }

    /// Its process.
    pub fn child(&self) -> &Child {
        &self.running.child
    }

    /// Ends it as `kill -9` does: nothing is written any more.
    pub fn kill(mut self) {
        self.running.kill();
    }

    /// Ends it as Ctrl-C does, and expects that it leaves a clean drive.
    pub fn stop(self) -> Ended {
        self.interrupt().succeeded()
    }

    /// Ends it as Ctrl-C does, however that comes out.
    pub fn interrupt(self) -> Ended {
        kill_process(Pid::from_child(&self.running.child), Signal::INT).expect("our own child takes a signal");
        self.running.wait()
    }

    /// Asserts that whoever connects is turned away without a word.
    pub fn turns_clients_away(&self) {
        let mut said = Vec::new();
        // Closed while something waits to be read, a socket ends with an error.
        let _ = self.connect().read_to_end(&mut said);
        assert!(said.is_empty(), "a client was greeted: {said:?}");
    }

    /// What it has printed, once `words` are in it.
    pub fn says(&self, words: &str) -> String {
        let said = || Some(self.running.stdout()).filter(|said| said.contains(words));
        wait_for(words, said)
    }

    /// Asserts that it has not ended.
    pub fn stays_alive(&mut self) {
        if let Some(ended) = self.running.ended() {
            panic!("the server ended: {ended}");
        }
    }
}
