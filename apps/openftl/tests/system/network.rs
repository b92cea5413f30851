//! A network of its own for one test: the server has an address, and a cable on which a guest is the only other one.
//!
//! ```text
//!   ┌ network namespace ───────────────────────────────────────────────────────┐
//!   │  openftl serve ── 192.168.77.1 ── tap device ── 192.168.77.2 ── the guest │
//!   └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Every test has the same addresses, so any number of them can run at a time.

use crate::program::{Running, wait_for};

/// The network as long as it lives: a process that does nothing in a namespace.
pub struct Network {
    holder: Running,
}

/// Where the server is.
pub const SERVER: &str = "192.168.77.1";

/// Where the guest is.
pub const GUEST: &str = "192.168.77.2";

/// The guest's end of the cable.
pub const TAP: &str = "tap0";

impl Network {
    /// A new one, ready to be used.
    pub fn new() -> Network {
        let script = format!(
            "ip link set lo up && ip tuntap add {TAP} mode tap && ip addr add {SERVER}/24 dev {TAP} && \
             ip link set {TAP} up && echo ready && exec sleep infinity"
        );
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
