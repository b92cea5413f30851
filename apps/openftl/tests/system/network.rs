//! A network of its own for one test: a server, and cables on each of which a guest is the only other one.
//!
//! ```text
//!   ┌ network namespace ────────────────────────────────────────────────────────────────┐
//!   │                  ┌─ 192.168.77.1 ── tap device ── 192.168.77.2 ── a guest           │
//!   │  openftl serve ──┤                                                                │
//!   │                  └─ 192.168.78.1 ── tap device ── 192.168.78.2 ── another one       │
//!   └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Every test has the same addresses, so any number of them can run at a time.

use crate::program::{Running, wait_for};

/// The network as long as it lives: a process that does nothing in a namespace.
pub struct Network {
    holder: Running,
}

/// From the server to a guest.
pub struct Cable {
    /// Where the server is.
    pub server: &'static str,
    /// Where the guest is.
    pub guest: &'static str,
    /// The guest's end.
    pub tap: &'static str,
}

/// All that a network has.
pub const CABLES: [Cable; 2] = [
    Cable { server: "192.168.77.1", guest: "192.168.77.2", tap: "tap0" },
    Cable { server: "192.168.78.1", guest: "192.168.78.2", tap: "tap1" },
];

impl Network {
    /// A new one, ready to be used.
    pub fn new() -> Network {
        let cables = CABLES.iter().map(|Cable { server, tap, .. }| {
            format!("ip tuntap add {tap} mode tap && ip addr add {server}/24 dev {tap} && ip link set {tap} up && ")
        });
        let script = format!("ip link set lo up && {}echo ready && exec sleep infinity", cables.collect::<String>());
        let mut holder = Running::start("unshare", ["--net", "sh", "-c", &script]);
        wait_for("a network namespace", || {
            if let Some(ended) = holder.ended() {
                panic!("no network namespace: {ended}");
            }
            holder.stdout().contains("ready").then_some(())
        });
        Network { holder }
    }

    /// Starts `program` in it.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Running {
        let namespace = format!("--net=/proc/{}/ns/net", self.holder.child.id());
        // It becomes the program, so that the process is the program's.
        Running::start("nsenter", [&[namespace.as_str(), "--", program], arguments].concat())
    }
}
