//! A key-value drive of another process or machine, reached over NVMe/TCP by the Key Value command set.
//!
//! ```text
//!   program ──▶ RemoteValues ── NVMe/TCP ──▶ a namespace of keys and values (CSI 01h)
//!                  │ admin queue: the limits of the drive; then it only shows that the host is there
//!                  └ I/O queue:   one command at a time, waited for
//! ```
//!
//! [`DriveUri`] says where a drive is: `nvme-tcp://127.0.0.1:4420`. Whoever does not answer within the limit of the connection (30 s unless said
//! otherwise) is cut; every call fails from then on, and whether the last command took effect is not known.
//!
//! Other drives than those of this project are reached as well: nothing here is outside of the command set.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

use std::net::TcpStream;
use std::time::Duration;

use openftl_nvme::command::ValueCommand;
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::values::ValuesNamespace;
use openftl_nvme::{Status, SubmissionEntry};
use openftl_nvme_media::ANSWER_MAX;
use openftl_nvme_media::association::Association;
pub use openftl_nvme_media::connect::ConnectError;
use openftl_nvme_media::connect::connect;
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_tcp::client::{Client, ClientError, Payload};
use openftl_nvme_tcp::nvm;
use openftl_parts::target::Durability;
use openftl_values::{Condition, Key, keys_of_list};
use zerocopy::{FromBytes, IntoBytes};

/// Who connects.
const HOST_NQN: &str = "nqn.2026-11.org.openftl:kv";

/// Entries of the I/O queue.
const ENTRIES: u16 = 16;

/// Bytes of a value that are asked for before its length is known.
const FIRST_RETRIEVE_BYTES: u32 = 64 << 10;

/// Bytes of a list that are asked for at a time.
const LIST_BYTES: u32 = 64 << 10;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// There is no such key.
    #[error("key does not exist")]
    NoKey,
    /// There is such a key.
    #[error("key exists")]
    KeyExists,
    /// The drive refused it otherwise.
    #[error("the drive says {0}")]
    Refused(Status),
    /// What came was damaged, or is no answer to the command.
    #[error("{0}")]
    Answer(&'static str),
    /// The connection failed.
    #[error("the connection to the drive is cut: {0}")]
    Cut(#[from] ClientError),
}

impl RemoteError {
    /// Whether the drive names this status.
    #[must_use]
    pub fn is(&self, status: Status) -> bool {
        matches!(self, RemoteError::Refused(found) if found.code() == status.code())
    }
}

/// What a drive says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteInfo {
    /// NSZE, bytes.
    pub capacity_bytes: u64,
    /// NUSE, bytes.
    pub used_bytes: u64,
    /// Bytes of a key, at most.
    pub key_max: u16,
    /// Bytes of a value, at most.
    pub value_max: u32,
    /// Keys that there may be; 0: the drive does not say it.
    pub keys_max: u32,
    /// Bytes of a command, at most (MDTS); `None`: there is no limit.
    pub transfer_max: Option<u64>,
}

/// See the module.
pub struct RemoteValues {
    io: Client<TcpStream>,
    association: Association,
    namespace: u32,
    info: RemoteInfo,
}

impl RemoteValues {
    /// Connects to the drive at `uri`.
    ///
    /// # Errors
    /// If nobody is there, the subsystem refuses, or the namespace is another kind.
    pub fn connect(uri: &DriveUri) -> Result<RemoteValues, ConnectError> {
        RemoteValues::connect_within(uri, ANSWER_MAX)
    }

    /// The same; whoever does not answer within `answer_max` is cut, now and later.
    ///
    /// # Errors
    /// As [`RemoteValues::connect`].
    pub fn connect_within(uri: &DriveUri, answer_max: Duration) -> Result<RemoteValues, ConnectError> {
        let mut association = connect(uri, HOST_NQN, 2, answer_max)?;
        let found = info_of(&mut association, uri.namespace)?;
        let info = found.ok_or_else(|| ConnectError::other_kind(uri, "has no keys and values"))?;
        let io = association.io_queue(ENTRIES)?;
        Ok(RemoteValues { io, association, namespace: uri.namespace, info })
    }

    /// What the drive said of itself when it was last asked.
    #[must_use]
    pub fn info(&self) -> RemoteInfo {
        self.info
    }

    /// Asks the drive again what it says of itself.
    ///
    /// # Errors
    /// If the connection failed, or the namespace is no longer one of keys and values.
    pub fn ask_info(&mut self) -> Result<RemoteInfo, RemoteError> {
        let found = info_of(&mut self.association, self.namespace)?;
        self.info = found.ok_or(RemoteError::Answer("the namespace has no keys and values any more"))?;
        Ok(self.info)
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`RemoteError::NoKey`] and [`RemoteError::KeyExists`] where the condition does not hold, and what else the drive says.
    pub fn store(&mut self, key: Key, value: Vec<u8>, condition: Condition) -> Result<(), RemoteError> {
        // A longer one than 32 bits can say is one that no drive takes.
        let bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
        if bytes > self.info.value_max {
            return Err(RemoteError::Refused(Status::INVALID_VALUE_SIZE));
        }
        let command = ValueCommand::Store { key, bytes, condition, durability: Durability::Volatile };
        let payload = if value.is_empty() { Payload::None } else { Payload::ToController(value) };
        self.run(command, payload).map(drop)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`RemoteError::NoKey`], and what else the drive says.
    pub fn retrieve(&mut self, key: Key) -> Result<Vec<u8>, RemoteError> {
        let mut room = FIRST_RETRIEVE_BYTES.min(self.info.value_max);
        loop {
            let payload = if room == 0 { Payload::None } else { Payload::ToHost(vec![0; room as usize]) };
            let (result, value) = self.run(ValueCommand::Retrieve { key, bytes: room }, payload)?;
            let all = u32::try_from(result).ok().filter(|all| *all <= self.info.value_max);
            let all = all.ok_or(RemoteError::Answer("the drive names a longer value than it takes"))?;
            // It may have become longer meanwhile.
            if all > room {
                room = all;
                continue;
            }
            let is_whole = value.len() == all as usize;
            return is_whole.then_some(value).ok_or(RemoteError::Answer("the drive sent less of a value than it has"));
        }
    }

    /// Bytes of the value of a key.
    ///
    /// # Errors
    /// [`RemoteError::NoKey`], and what else the drive says.
    pub fn bytes_of(&mut self, key: Key) -> Result<u32, RemoteError> {
        let (result, _) = self.run(ValueCommand::Retrieve { key, bytes: 0 }, Payload::None)?;
        u32::try_from(result).map_err(|_| RemoteError::Answer("the drive names a longer value than there can be"))
    }

    /// Whether there is a key.
    ///
    /// # Errors
    /// What the drive says, but that there is none.
    pub fn exist(&mut self, key: Key) -> Result<bool, RemoteError> {
        match self.run(ValueCommand::Exist { key }, Payload::None) {
            Err(RemoteError::NoKey) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// What the drive says: [`RemoteError::NoKey`] only where feature 20h says so.
    pub fn delete(&mut self, key: Key) -> Result<(), RemoteError> {
        let command = ValueCommand::Delete { key, needs_key: false, durability: Durability::Volatile };
        self.run(command, Payload::None).map(drop)
    }

    /// Keys in the order of the drive: from `from` on, which is the first if it is there, as many as fit into a command. A list goes on with the last
    /// key that it brought.
    ///
    /// # Errors
    /// What the drive says.
    pub fn list(&mut self, from: Option<Key>) -> Result<Vec<Key>, RemoteError> {
        let command = ValueCommand::List { from, bytes: LIST_BYTES };
        let (_, list) = self.run(command, Payload::ToHost(vec![0; LIST_BYTES as usize]))?;
        keys_of_list(&list).ok_or(RemoteError::Answer("what the drive sent is no list of keys"))
    }

    /// Waits until all that was stored and deleted is durable.
    ///
    /// # Errors
    /// What the drive says.
    pub fn flush(&mut self) -> Result<(), RemoteError> {
        self.call(SubmissionEntry::of(&nvm::flush(self.namespace)), Payload::None).map(drop)
    }

    fn run(&mut self, command: ValueCommand, payload: Payload) -> Result<(u64, Vec<u8>), RemoteError> {
        self.call(&command.entry(self.namespace), payload)
    }

    fn call(&mut self, entry: &SubmissionEntry, payload: Payload) -> Result<(u64, Vec<u8>), RemoteError> {
        self.io.submit(0, entry.as_bytes().try_into().expect("an entry has 64 bytes"), payload);
        let ended = self.io.wait()?;
        let status = Status::from_field(ended.status());
        match status.code() {
            0 if !ended.intact => Err(RemoteError::Answer("the data were damaged on the way: their digest is wrong")),
            0 => {
                let mut data = ended.data;
                data.truncate(ended.received);
                Ok((ended.completion.specific.get(), data))
            }
            code if code == Status::KEY_NOT_FOUND.code() => Err(RemoteError::NoKey),
            code if code == Status::KEY_EXISTS.code() => Err(RemoteError::KeyExists),
            _ => Err(RemoteError::Refused(status)),
        }
    }
}

/// What the namespace says of itself. `None`: it has no keys and values.
fn info_of(association: &mut Association, namespace: u32) -> Result<Option<RemoteInfo>, ClientError> {
    let found = association.admin.identify_of_set(cns::COMMAND_SET_NAMESPACE, namespace, csi::VALUES);
    let found = match found {
        Ok(found) => ValuesNamespace::read_from_bytes(&found).expect("4096 bytes"),
        Err(ClientError::Refused { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let transfer_max = match association.controller.transfer_pages_max_log2 {
        0 => None,
        // Of the smallest memory page, which is one of 4 KiB over fabrics.
        log2 => 4096_u64.checked_shl(log2.into()),
    };
    Ok(found.current_format().map(|format| RemoteInfo {
        capacity_bytes: found.size.get(),
        used_bytes: found.utilization.get(),
        key_max: format.key_max.get(),
        value_max: format.value_max.get(),
        keys_max: format.keys_max.get(),
        transfer_max,
    }))
}
