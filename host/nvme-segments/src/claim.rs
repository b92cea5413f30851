//! The right to write to a drive, which its server keeps from all other hosts: a reservation of the type Write Exclusive.
//!
//! ```text
//!   register ─▶ acquire ─▶ it is ours
//!                  └ another host holds it ─▶ it has a controller ─▶ refused, with its name, unless it is to be preempted
//!                                          └ it has none any more ─▶ preempt, abort what it has under way ─▶ it is ours
//! ```
//!
//! Each connection is a host of its own with a key of its own, so that no two mounts can take each other for one. Where the server has no
//! reservations, nothing is reserved.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use openftl_nvme::command::reservation::{Acquire, Register, ReservationCommand};
use openftl_nvme::wire::identify::controller;
use openftl_nvme::wire::identify::{IdentifyController, IdentifyNamespace};
use openftl_nvme::wire::reservation::RegisteredController;
use openftl_nvme::{ReservationType, Status};
use openftl_nvme_media::connect::ConnectError;
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_tcp::SUBMISSION_BYTES;
use openftl_nvme_tcp::client::{Client, ClientError, Payload};
use zerocopy::IntoBytes;

/// How long a holder that seems to be there may take to go: a server notices the end of a process a moment later.
const LEAVING_MAX: Duration = Duration::from_secs(2);

/// How long to wait before another look at it.
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// How long the server may take to hear that a claim ends.
const PARTING_MAX: Duration = Duration::from_secs(5);

/// Bytes of a report: as many registrants as a namespace of this project has, each with one controller.
const REPORT_BYTES: u32 = 64 + 128 * 64;

const KIND: ReservationType = ReservationType::WriteExclusive;

/// What a host wants of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It only reads, or others may write beside it.
    None,
    /// It is to be the only one that writes, if no other host is.
    IfFree,
    /// It is to be the only one that writes, and if another host is, that one does not from now on.
    Preempt,
}

/// A claim that holds.
#[derive(Debug)]
pub(crate) struct Held {
    key: u64,
}

/// Whether a namespace has such reservations.
pub(crate) fn can_be_claimed(controller: &IdentifyController, namespace: &IdentifyNamespace) -> bool {
    controller.optional_io_commands.get() & controller::RESERVATIONS != 0
        && namespace.reservations & 1 << KIND.code() != 0
}

/// Claims the namespace for the host of this queue, with a key that nobody else has.
pub(crate) fn claim(
    queue: &mut Client<TcpStream>,
    uri: &DriveUri,
    claim: Claim,
    key: u64,
) -> Result<Option<Held>, ConnectError> {
    if claim == Claim::None {
        return Ok(None);
    }
    let mut claimant = Claimant { queue, namespace: uri.namespace, key };
    claimant.register(Register::Register, 0)?;
    let began = Instant::now();
    let taken = loop {
        if claimant.acquire(Acquire::Acquire, 0)? {
            return Ok(Some(Held { key }));
        }
        // None: it was released just now.
        let holder = claimant.holder()?;
        if let Some(Holder { key: other, is_gone, .. }) = holder
            && (is_gone || claim == Claim::Preempt)
            && claimant.acquire(Acquire::PreemptAndAbort, other)?
        {
            return Ok(Some(Held { key }));
        }
        if began.elapsed() > LEAVING_MAX {
            break holder;
        }
        std::thread::sleep(LOOK_AFTER);
    };
    claimant.register(Register::Unregister, key)?;
    let (host, controller) = taken.map_or(([0; 16], RegisteredController::NONE), |it| (it.host, it.controller));
    Err(ConnectError::Taken { uri: uri.to_string(), host: hexadecimal(&host), controller })
}

impl Held {
    /// Gives the right back. A server that does not answer notices by itself that the host is gone.
    pub fn give_back(self, queue: &mut Client<TcpStream>, namespace: u32) {
        let in_time = queue.stream().set_read_timeout(Some(PARTING_MAX));
        if in_time.is_ok() {
            let mut claimant = Claimant { queue, namespace, key: self.key };
            // Another host may have taken it meanwhile.
            let _ = claimant.register(Register::Unregister, self.key);
        }
    }
}

/// Who holds the reservation that is in the way.
struct Holder {
    host: [u8; 16],
    controller: u16,
    /// What it is preempted by.
    key: u64,
    is_gone: bool,
}

struct Claimant<'a> {
    queue: &'a mut Client<TcpStream>,
    namespace: u32,
    key: u64,
}

impl Claimant<'_> {
    fn register(&mut self, action: Register, current: u64) -> Result<(), ClientError> {
        let command = ReservationCommand::Register { action, ignores_key: false };
        self.send("Reservation Register", command, [current, self.key]).map(drop)
    }

    /// False: another host holds it.
    fn acquire(&mut self, action: Acquire, other: u64) -> Result<bool, ClientError> {
        let command = ReservationCommand::Acquire { action, kind: KIND };
        match self.send("Reservation Acquire", command, [self.key, other]) {
            Ok(_) => Ok(true),
            Err(ClientError::Refused { status, .. })
                if Status::from_field(status).code() == Status::RESERVATION_CONFLICT.code() =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn holder(&mut self) -> Result<Option<Holder>, ClientError> {
        let command = ReservationCommand::Report { bytes: REPORT_BYTES };
        let room = Payload::ToHost(vec![0; REPORT_BYTES as usize]);
        let report = self.queue.call("Reservation Report", &said(command, self.namespace), room)?.data;
        let Some((head, listed)) = RegisteredController::listed(&report) else { return Ok(None) };
        let is_of_all = matches!(
            ReservationType::of(head.kind),
            Some(ReservationType::WriteExclusiveAllRegistrants | ReservationType::ExclusiveAccessAllRegistrants)
        );
        let of_others = || listed.iter().filter(|entry| entry.is_holder() && entry.key.get() != self.key);
        let Some(first) = of_others().next() else { return Ok(None) };
        Ok(Some(Holder {
            host: first.host,
            controller: first.controller.get(),
            // Zero stands for all, where all registrants hold it.
            key: if is_of_all { 0 } else { first.key.get() },
            is_gone: of_others().all(|entry| entry.controller.get() == RegisteredController::NONE),
        }))
    }

    fn send(&mut self, what: &'static str, command: ReservationCommand, keys: [u64; 2]) -> Result<(), ClientError> {
        let data = keys.map(u64::to_le_bytes).concat();
        self.queue.call(what, &said(command, self.namespace), Payload::ToController(data)).map(drop)
    }
}

fn said(command: ReservationCommand, namespace: u32) -> [u8; SUBMISSION_BYTES] {
    command.entry(namespace).as_bytes().try_into().expect("an entry has 64 bytes")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
