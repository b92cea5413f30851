//! An Open-Channel device of another machine, as [`Media`]: the FTL runs here, the flash is there.
//!
//! ```text
//!   FTL ── Media ──▶ FabricDevice ── NVMe/TCP ──▶ a server's Open-Channel namespace ──▶ its device
//!                       │ admin queue: geometry, chunk report, notifications, DULBE; one at a time, waited for
//!                       └ I/O queue:   reads, writes, resets, copies, flushes; in the order of submission
//! ```
//!
//! Lists of addresses go in the capsule of their command, and each block travels with its out-of-band bytes behind it.
//!
//! # Time
//! When a command of another machine ends cannot be known before. [`Media::next_due`] says "at once" while commands are under
//! way, and [`Media::poll`] then waits for one of them or, with [`Waiting::Never`], looks and returns.
//!
//! # When the link is cut
//! Commands under way end with [`Status::WriteFault`], reads with [`Status::UnrecoveredRead`], and so does everything from
//! then on: an FTL turns read-only and keeps what it has in memory. Whether a command whose answer was lost was carried out,
//! nobody knows: as after a power cut, the drive is opened again over a new connection, and recovers.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod association;
pub mod connect;
pub mod pipeline;
pub mod uri;

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use association::{Association, AssociationError};
use openftl_core::{BLOCK_BYTES, ChunkId, Frame, Frames, Geometry, Nanos, Payload, PayloadMut, Stamp, Time};
use openftl_media::{
    Blocks, ChunkDescriptor, Command, Completion, Media, MediaError, Notification, QueueFull, Status, Tag,
};
use openftl_nvme::SubmissionEntry;
use openftl_nvme::command::open_channel::entry_of;
use openftl_nvme::wire::identify::IdentifyNamespace;
use openftl_nvme::wire::open_channel::{ChunkInformation, ChunkNotification, GeometryData};
use openftl_nvme::wire::{U32, feature, log, opcode};
use openftl_nvme_tcp::SUBMISSION_BYTES;
use openftl_nvme_tcp::client::{Client, ClientError, Ended, Payload as Data};
use openftl_nvme_tcp::fabrics::Identity;
use openftl_nvme_tcp::nvm::LogPart;
use pipeline::Pipeline;
use zerocopy::{FromBytes, IntoBytes};

/// The most entries of the I/O queue that are asked for.
pub const IO_ENTRIES_MAX: u16 = 256;

/// How long the other side may take to answer before the link counts as cut.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Bytes of a log page that are asked for at a time.
const LOG_PIECE_BYTES: usize = 64 << 10;

/// Notifications that a device keeps (log page D0h).
const NOTIFICATIONS: usize = 256;

/// VWC bit 0: there is a volatile write cache.
const VOLATILE_WRITE_CACHE: u8 = 1;

/// What [`Media::poll`] does while commands are under way and none has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Waits for one: whoever polls has nothing else to do.
    ForOne,
    /// Looks and returns: whoever polls has others to serve.
    Never,
}

/// Where a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Of the server.
    pub address: SocketAddr,
    /// Who connects, and to which subsystem.
    pub identity: Identity,
    /// NSID of the Open-Channel namespace.
    pub namespace: u32,
}

/// Why a device cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// No connection, or the controller refuses.
    #[error("{0}")]
    Association(#[from] AssociationError),
    /// The connection failed, or the controller refused something.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// Not an Open-Channel namespace.
    #[error("namespace {namespace} is no Open-Channel namespace: {why}; `openftl nvme identify` shows which are")]
    NotOpenChannel {
        /// NSID.
        namespace: u32,
        /// What it lacks.
        why: String,
    },
}

/// A command under way.
struct Op {
    tag: Tag,
    is_scalar: bool,
    /// Where the data of a read go; empty for other commands.
    frames: Vec<Frame>,
    is_read: bool,
}

/// A device that is reached over NVMe/TCP.
pub struct FabricDevice {
    admin: Client<TcpStream>,
    io: Pipeline<Op>,
    namespace: u32,
    geometry: Geometry,
    waiting: Waiting,
    /// Commands that have ended without the device.
    ended: Vec<Completion>,
    /// Lists of commands that have ended.
    lists: Vec<Vec<Frame>>,
    list: Vec<u8>,
    polled: Time,
}

impl FabricDevice {
    /// Connects to the device at `place` and learns its shape.
    ///
    /// # Errors
    /// If nobody is there, the subsystem refuses, or the namespace is another kind.
    pub fn reach(place: &Place, waiting: Waiting) -> Result<FabricDevice, ReachError> {
        let mut association = Association::make(place.address, &place.identity, ANSWER_MAX)?;
        let refused = |why: String| ReachError::NotOpenChannel { namespace: place.namespace, why };
        let is_cached = association.controller.volatile_write_cache & VOLATILE_WRITE_CACHE != 0;
        let admin = &mut association.admin;
        let namespace = admin.identify(0, place.namespace)?;
        let namespace = IdentifyNamespace::ref_from_bytes(&namespace).expect("4096 bytes");
        let format = namespace.lba_formats[usize::from(namespace.format & 0xf)];
        if 1 << format.block_bytes_log2 != BLOCK_BYTES {
            return Err(refused("its blocks have not 4 KiB".to_owned()));
        }
        let geometry = admin.geometry(place.namespace).map_err(|error| refused(error.to_string()))?;
        let geometry = GeometryData::ref_from_bytes(&geometry).expect("4096 bytes");
        let geometry = geometry.geometry(format.metadata_bytes.get().into(), is_cached);
        geometry.validate().map_err(|error| refused(error.to_string()))?;

        let io = Pipeline::new(association.io_queue(IO_ENTRIES_MAX)?)?;
        Ok(FabricDevice {
            admin: association.admin,
            io,
            namespace: place.namespace,
            geometry,
            waiting,
            ended: Vec::new(),
            lists: Vec::new(),
            list: Vec::new(),
            polled: Time::ZERO,
        })
    }

    /// Why there is no link any more, if there is none.
    #[must_use]
    pub fn cut(&self) -> Option<&str> {
        self.io.cut()
    }

    /// Bytes of a block as it travels.
    fn block_bytes(&self) -> usize {
        BLOCK_BYTES + self.geometry.oob_bytes as usize
    }

    fn link_cut(&mut self, why: &ClientError) {
        for op in self.io.cut_link(why) {
            let status = if op.is_read { Status::UnrecoveredRead } else { Status::WriteFault };
            self.ended.push(Completion { tag: op.tag, status, failed: u64::MAX, at: self.polled });
        }
    }

    /// Takes what has come. Returns how many commands have ended.
    fn receive(
        &mut self,
        now: Time,
        frames: &mut Frames,
        completions: &mut Vec<Completion>,
    ) -> Result<usize, ClientError> {
        let mut count = 0;
        while let Some((op, ended)) = self.io.try_end()? {
            completions.push(self.completion(now, frames, op, ended));
            count += 1;
        }
        Ok(count)
    }

    fn completion(&mut self, now: Time, frames: &mut Frames, mut op: Op, ended: Ended) -> Completion {
        let answer = openftl_nvme::Status::from_field(ended.status());
        // What the device did not say, its controller said: it is for nothing that an FTL could do otherwise.
        let mut status = if answer.is_success() { Some(Status::Success) } else { answer.of_medium() };
        if !ended.intact {
            status = Some(Status::UnrecoveredRead);
        }
        let status = status.unwrap_or(if op.is_read { Status::UnrecoveredRead } else { Status::WriteFault });
        let is_marked = !matches!(status, Status::Success | Status::InvalidField);
        let mut failed = if op.is_scalar { u64::from(is_marked) } else { ended.completion.specific.get() };
        let mut status = status;
        if ended.received == ended.data.len() {
            for (index, (frame, bytes)) in op.frames.iter().zip(ended.data.chunks(self.block_bytes())).enumerate() {
                let (payload, oob) = bytes.split_at(BLOCK_BYTES);
                frames.oob_mut(*frame).copy_from_slice(oob);
                match frames.payload_mut(*frame) {
                    PayloadMut::Bytes(room) => room.copy_from_slice(payload),
                    PayloadMut::Stamp(stamp) => {
                        match Stamp::recognise(payload.try_into().expect("a block")) {
                            Some(found) => *stamp = found,
                            // Bytes that are no stamp's have no room in one.
                            None if status.data_is_good() => {
                                status = Status::UnrecoveredRead;
                                failed |= if op.is_scalar { 1 } else { 1 << index };
                            }
                            None => {}
                        }
                    }
                }
            }
        }
        op.frames.clear();
        self.lists.push(op.frames);
        self.io.give_back(ended.data);
        Completion { tag: op.tag, status, failed, at: now }
    }

    fn log_page(&mut self, page: u8, offset: usize, bytes: usize) -> Result<Vec<u8>, MediaError> {
        let mut log = Vec::with_capacity(bytes);
        while log.len() < bytes {
            let part = LogPart { page, namespace: self.namespace, offset: (offset + log.len()) as u64 };
            let room = vec![0; (bytes - log.len()).min(LOG_PIECE_BYTES)];
            log.extend(self.ask(|admin| admin.log_page(part, room))?);
        }
        Ok(log)
    }

    /// One command of the admin queue. If its link is cut, so is the device's.
    fn ask<R>(&mut self, what: impl FnOnce(&mut Client<TcpStream>) -> Result<R, ClientError>) -> Result<R, MediaError> {
        if let Some(why) = self.io.cut() {
            return Err(MediaError::Unavailable(why.to_owned()));
        }
        what(&mut self.admin).map_err(|error| {
            if !matches!(error, ClientError::Refused { .. } | ClientError::Damaged { .. } | ClientError::Short { .. }) {
                self.link_cut(&error);
            }
            MediaError::Unavailable(error.to_string())
        })
    }
}

fn is_scalar(command: &Command<'_>) -> bool {
    use Blocks::Scalar;
    matches!(
        command,
        Command::Read { blocks: Scalar { .. }, .. }
            | Command::Write { blocks: Scalar { .. }, .. }
            | Command::Reset { blocks: Scalar { .. } }
            | Command::Flush
    )
}

impl Media for FabricDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        if self.io.cut().is_some() {
            let is_read = matches!(command, Command::Read { .. });
            let status = if is_read { Status::UnrecoveredRead } else { Status::WriteFault };
            self.ended.push(Completion { tag, status, failed: u64::MAX, at: now });
            return Ok(());
        }
        if !self.io.has_room() {
            return Err(QueueFull);
        }
        self.list.clear();
        let block_bytes = self.block_bytes();
        let list = match command {
            Command::Read { frames, .. } | Command::Write { frames, .. } => frames,
            _ => &[],
        };
        let fits = list.iter().all(|frame| frames.oob(*frame).len() == self.geometry.oob_bytes as usize);
        let entry = entry_of(&command, self.namespace, block_bytes as u32, &mut self.list).filter(|_| fits);
        let Some(entry) = entry else {
            self.ended.push(Completion { tag, status: Status::InvalidField, failed: 0, at: now });
            return Ok(());
        };
        let mut data = self.io.buffer();
        let mut op =
            Op { tag, is_scalar: is_scalar(&command), frames: self.lists.pop().unwrap_or_default(), is_read: false };
        let payload = match command {
            Command::Read { frames: list, .. } => {
                op.is_read = true;
                op.frames.extend_from_slice(list);
                data.resize(list.len() * block_bytes, 0);
                Data::ToHost(data)
            }
            Command::Write { frames: list, .. } => {
                for frame in list {
                    match frames.payload(*frame) {
                        Payload::Bytes(bytes) => data.extend_from_slice(bytes),
                        Payload::Stamp(stamp) => {
                            let mut bytes = [0; BLOCK_BYTES];
                            stamp.expand(&mut bytes);
                            data.extend_from_slice(&bytes);
                        }
                    }
                    data.extend_from_slice(frames.oob(*frame));
                }
                Data::ToController(data)
            }
            // A scalar reset is a range that is sent.
            Command::Reset { blocks: Blocks::Scalar { .. } } => {
                Data::ToController(std::mem::replace(&mut self.list, data))
            }
            Command::Reset { .. } | Command::Copy { .. } | Command::Flush => Data::None,
        };
        if matches!(command, Command::Reset { blocks: Blocks::Scalar { .. } }) {
            self.list.clear();
        }
        self.io.submit(op, &entry, &self.list, payload);
        Ok(())
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        if now < self.polled {
            return;
        }
        self.polled = now;
        let before = completions.len();
        while self.io.under_way() > 0 {
            let received = self.receive(now, frames, completions).and_then(|count| {
                let is_enough = count > 0 || !self.ended.is_empty() || self.waiting == Waiting::Never;
                if is_enough || self.io.under_way() == 0 { Ok(false) } else { self.io.wait(ANSWER_MAX).map(|()| true) }
            });
            match received {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.link_cut(&error),
            }
        }
        completions.append(&mut self.ended);
        // The next look is at a later time, so that time goes on for whoever waits for one.
        if completions.len() > before || self.io.under_way() > 0 {
            self.polled = Time(now.0 + 1);
        }
    }

    fn next_due(&self) -> Option<Time> {
        (self.io.under_way() > 0 || !self.ended.is_empty()).then_some(self.polled)
    }

    fn chunk_report(&mut self, _: Time, first: ChunkId, descriptors: &mut [ChunkDescriptor]) -> Result<(), MediaError> {
        let index = self.geometry.chunk_ids().position(|chunk| chunk == first);
        let index = index.filter(|index| index + descriptors.len() <= self.geometry.chunks() as usize);
        let index = index.ok_or(MediaError::NoSuchChunk(first))?;
        let entry_bytes = size_of::<ChunkInformation>();
        let log = self.log_page(log::id::CHUNKS, entry_bytes * index, entry_bytes * descriptors.len())?;
        let chunks = <[ChunkInformation]>::ref_from_bytes(&log).expect("whole entries");
        for (descriptor, chunk) in descriptors.iter_mut().zip(chunks) {
            let said = chunk.descriptor(self.geometry.format());
            *descriptor = said.ok_or_else(|| {
                MediaError::Unavailable(format!("the chunk log says state {:#x}, which there is not", chunk.state))
            })?;
        }
        Ok(())
    }

    fn notifications(&mut self, _: Time, after: u64, notifications: &mut Vec<Notification>) -> Result<(), MediaError> {
        let log = self.log_page(log::id::CHUNK_NOTIFICATIONS, 0, NOTIFICATIONS * size_of::<ChunkNotification>())?;
        let entries = <[ChunkNotification]>::ref_from_bytes(&log).expect("whole entries");
        let known = entries.iter().map_while(ChunkNotification::notification);
        notifications.extend(known.filter(|notification| notification.count > after));
        Ok(())
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        let value = if dulbe { feature::DEALLOCATED_ERROR } else { 0 };
        let dwords = [u32::from(feature::id::ERROR_RECOVERY), value, 0, 0, 0, 0];
        let entry = SubmissionEntry {
            opcode: opcode::admin::SET_FEATURES,
            namespace: self.namespace.into(),
            dwords_10_15: dwords.map(U32::new),
            ..SubmissionEntry::default()
        };
        let bytes: &[u8; SUBMISSION_BYTES] = entry.as_bytes().try_into().expect("an entry has 64 bytes");
        // There is nobody to tell; a link that is cut says so with the next command.
        let _ = self.ask(|admin| admin.call("Set Features", bytes, Data::None));
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        Vec::new()
    }
}
