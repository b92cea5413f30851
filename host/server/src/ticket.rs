//! A ticket names the connection that asked for a request, and the purpose of the request.

use openftl_nbd::protocol::Command;
use openftl_nvme::ControllerName;
use openftl_nvme_tcp::target::Slot as CommandSlot;

/// Who asked for a request, and what for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub slot: u32,
    pub generation: u32,
    pub what: What,
}

/// What a request was made for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A request of an NBD client, and its name for it.
    Nbd { cookie: u64, command: Command },
    /// A command of an NVMe host.
    Nvme(CommandSlot),
    /// The flush before a controller is shut down.
    Shutdown(ControllerName),
    /// The last flush.
    Stop,
}
