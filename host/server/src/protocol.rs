//! A connection speaks one protocol: NBD or NVMe over TCP.

use std::fmt;

/// What is spoken on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// NBD.
    Nbd,
    /// NVMe over TCP.
    NvmeTcp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Nbd => "nbd",
            Protocol::NvmeTcp => "nvme-tcp",
        })
    }
}
