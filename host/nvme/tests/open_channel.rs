//! The conformance suite of devices, unchanged, through an Open-Channel namespace: every command is said in 64 bytes and
//! understood again, every completion comes back in 16, and reports are read as log pages.

use openftl_core::{ChunkId, Frame, Frames, Geometry, Nanos, Ppa, Time, VECTOR_BLOCKS_MAX};
use openftl_media::conformance::{Inject, suite_with_faults};
use openftl_media::{
    ChunkDescriptor, Command, Completion, EmulatedDevice, Media, MediaError, Notification, Profile, ProgramFailure,
    QueueFull, Store, Tag, Timing,
};
use openftl_nvme::command::open_channel::{answer_of, entry_of, scalar_blocks};
use openftl_nvme::command::{IoCommand, Refusal};
use openftl_nvme::wire::entry::SglDescriptor;
use openftl_nvme::wire::fabrics::{ANY_CONTROLLER, ConnectData};
use openftl_nvme::wire::open_channel::{ChunkInformation, ChunkNotification, GeometryData};
use openftl_nvme::wire::{U32, feature, log, opcode, zero_ended};
use openftl_nvme::{
    Answer, CommandId, CompletionEntry, Connection, Drives, Health, Namespace, NamespaceKind, NamespaceName, Nqn,
    Outcome, Queue, SubmissionEntry, SubsystemConfig, Target,
};
use openftl_parts::target::Durability;
use std::collections::HashMap;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const NSID: u32 = 1;
const NAME: &str = "nqn.2024-01.org.example:device";

/// The device as the controller knows it.
struct Behind(EmulatedDevice);

impl Drives for Behind {
    fn health(&mut self, _: Time, _: usize) -> Health {
        Health::default()
    }

    fn bytes_in_use(&mut self, _: NamespaceName) -> u64 {
        unreachable!("there is no block namespace")
    }

    fn chunk_report(
        &mut self,
        now: Time,
        _: NamespaceName,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        self.0.chunk_report(now, first, descriptors)
    }

    fn notifications(
        &mut self,
        now: Time,
        _: NamespaceName,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        self.0.notifications(now, after, notifications)
    }

    fn set_dulbe(&mut self, _: NamespaceName, dulbe: bool) {
        self.0.set_dulbe(dulbe);
    }
}

/// A device reached through a controller.
struct Reached {
    behind: Behind,
    target: Target,
    admin: Queue,
    io: Queue,
    namespace: Namespace,
    /// What the host learnt of the device.
    geometry: Geometry,
    /// The host's tags of the commands under way, and whether they are scalar.
    tags: HashMap<u16, (Tag, bool)>,
    next_id: u16,
    /// Commands that ended without the device.
    ended: Vec<Completion>,
}

fn command(opcode: u8, namespace: u32, dwords: [u32; 6]) -> SubmissionEntry {
    SubmissionEntry {
        opcode,
        flags: SubmissionEntry::PSDT_SGL,
        namespace: namespace.into(),
        data: SglDescriptor {
            length: (1 << 20).into(),
            identifier: SglDescriptor::TRANSPORT,
            ..SglDescriptor::default()
        },
        dwords_10_15: dwords.map(U32::new),
        ..SubmissionEntry::default()
    }
}

fn connected(target: &mut Target, queue: u32, controller: u16) -> Queue {
    let mut data = ConnectData::new_zeroed();
    data.controller_id = controller.into();
    data.subsystem_nqn = zero_ended(NAME);
    data.host_nqn = zero_ended("nqn.2024-01.org.example:host");
    let kind = u32::from(opcode::fabrics::CONNECT);
    let entry = command(opcode::FABRICS, kind, [queue << 16, 127, 0, 0, 0, 0]);
    match target.connect(Time::ZERO, &entry, Some(data.as_bytes())) {
        Connection::Made(queue, _) => queue,
        other => panic!("{other:?}"),
    }
}

impl Reached {
    fn new(device: EmulatedDevice) -> Reached {
        let geometry = *device.geometry();
        let mut target = Target::new("SN", "OpenFTL", "0.1.0");
        let subsystem = target.add_subsystem(SubsystemConfig::new(Nqn::new(NAME).unwrap(), "SN")).unwrap();
        let namespace = Namespace { id: NSID, uuid: [1; 16], kind: NamespaceKind::OpenChannel(geometry) };
        target.attach(subsystem, namespace.clone()).unwrap();
        let admin = connected(&mut target, 0, ANY_CONTROLLER);
        let mut behind = Behind(device);
        let enable = [0, 0x14, 6 << 16 | 4 << 20 | 1, 0, 0, 0];
        let enable = command(opcode::FABRICS, u32::from(opcode::fabrics::PROPERTY_SET), enable);
        let mut out = Vec::new();
        let _ = target.command(Time::ZERO, &admin, &enable, None, &mut behind, &mut out);
        let io = connected(&mut target, 1, admin.controller().id);
        let mut reached = Reached {
            behind,
            target,
            admin,
            io,
            namespace,
            geometry,
            tags: HashMap::new(),
            next_id: 0,
            ended: Vec::new(),
        };
        let said = reached.ask(Time::ZERO, command(opcode::admin::GEOMETRY, NSID, [0; 6]));
        let said = GeometryData::ref_from_bytes(&said).unwrap();
        reached.geometry = said.geometry(geometry.oob_bytes, geometry.volatile_cache);
        assert_eq!(reached.geometry, geometry, "the host learns the whole geometry");
        reached
    }

    /// What an admin command returns.
    fn ask(&mut self, now: Time, entry: SubmissionEntry) -> Vec<u8> {
        let mut out = Vec::new();
        let outcome = self.target.command(now, &self.admin, &entry, None, &mut self.behind, &mut out);
        assert!(
            matches!(outcome, Outcome::Done(answer) | Outcome::DonePadded(answer, _) if answer.status.is_success()),
            "{outcome:?}"
        );
        out
    }

    /// Reads `bytes` bytes of a log page, in pieces that a transfer can hold.
    fn log_page(&mut self, now: Time, page: u8, offset: usize, bytes: usize) -> Vec<u8> {
        let mut log = Vec::new();
        while log.len() < bytes {
            let at = offset + log.len();
            let piece = (bytes - log.len()).min(4096);
            let dwords = [u32::from(page) | (piece as u32 / 4 - 1) << 16, 0, at as u32, 0, 0, 0];
            log.extend(self.ask(now, command(opcode::admin::GET_LOG_PAGE, NSID, dwords)));
        }
        log
    }

    /// What the server does with a command: parse, read its lists, and have the device do it.
    fn serve(
        &mut self,
        now: Time,
        frames: &mut Frames,
        (entry, capsule, list): (&SubmissionEntry, &[u8], &[Frame]),
    ) -> Result<Result<(), QueueFull>, Answer> {
        let tag = u64::from(entry.command_id.get());
        let refused = |refusal: Refusal| Answer::from(refusal.status);
        let io = self.target.io(now, &self.io, entry)?;
        let device = &mut self.behind.0;
        let mut lists = [[Ppa(0); VECTOR_BLOCKS_MAX]; 2];
        let fua = |durability| durability == Durability::Durable;
        Ok(match io.command {
            IoCommand::Flush => device.submit(now, frames, tag, Command::Flush),
            IoCommand::Read(span) => {
                device.submit(now, frames, tag, Command::Read { blocks: scalar_blocks(span), frames: list })
            }
            IoCommand::Write { span, durability, .. } => {
                let (blocks, fua) = (scalar_blocks(span), fua(durability));
                device.submit(now, frames, tag, Command::Write { blocks, frames: list, fua })
            }
            IoCommand::DatasetManagement { ranges, deallocate: true } => {
                let data = &capsule[entry.data.address.get() as usize..];
                let mut spans = self.namespace.deallocated(ranges, data).map_err(refused)?;
                let blocks = scalar_blocks(spans.next().expect("this host says one range"));
                device.submit(now, frames, tag, Command::Reset { blocks })
            }
            IoCommand::OpenChannel(command) => {
                let [at, to] = &mut lists;
                let at = command.at.read(command.blocks, capsule, at).map_err(refused)?;
                let to = command.to.read(command.blocks, capsule, to).map_err(refused)?;
                device.submit(now, frames, tag, command.for_device(at, to, list))
            }
            other => panic!("{other:?}"),
        })
    }

    /// What the host makes of a completion.
    fn understood(&mut self, entry: &CompletionEntry, at: Time) -> Completion {
        let bytes: [u8; 16] = entry.as_bytes().try_into().expect("sixteen");
        let entry = CompletionEntry::read_from_bytes(&bytes).expect("sixteen");
        let (tag, is_scalar) = self.tags.remove(&entry.command_id.get()).expect("a command of ours");
        let status = entry.status().of_medium().expect("a status that a device gives");
        // A scalar command has one status for all of its blocks; one that was not understood, none for any.
        let is_marked = !matches!(status, openftl_media::Status::Success | openftl_media::Status::InvalidField);
        let failed = if is_scalar { u64::from(is_marked) } else { entry.result.get() };
        Completion { tag, status, failed, at }
    }
}

impl Media for Reached {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, asked: Command<'_>) -> Result<(), QueueFull> {
        let mut capsule = Vec::new();
        let block_bytes = 4096 + self.geometry.oob_bytes;
        let Some(mut entry) = entry_of(&asked, NSID, block_bytes, &mut capsule) else {
            let status = openftl_media::Status::InvalidField;
            self.ended.push(Completion { tag, status, failed: 0, at: now });
            return Ok(());
        };
        self.next_id = self.next_id.wrapping_add(1);
        entry.command_id = self.next_id.into();
        let bytes: [u8; 64] = entry.as_bytes().try_into().expect("sixty-four");
        let entry = SubmissionEntry::of(&bytes);
        let id = CommandId(self.next_id);
        if self.io.begin(id).is_err() {
            return Err(QueueFull);
        }
        let list = match asked {
            Command::Read { frames, .. } | Command::Write { frames, .. } => frames,
            _ => &[],
        };
        self.tags.insert(id.0, (tag, is_scalar(&asked)));
        match self.serve(now, frames, (entry, &capsule, list)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(full)) => {
                let _ = self.io.complete(id, Answer::of(0));
                self.tags.remove(&id.0);
                Err(full)
            }
            Err(answer) => {
                let entry = self.io.complete(id, answer);
                let completion = self.understood(&entry, now);
                self.ended.push(completion);
                Ok(())
            }
        }
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        completions.append(&mut self.ended);
        let mut done = Vec::new();
        self.behind.0.poll(now, frames, &mut done);
        for completion in done {
            let entry = self.io.complete(CommandId(completion.tag as u16), answer_of(&completion));
            let understood = self.understood(&entry, completion.at);
            completions.push(understood);
        }
    }

    fn next_due(&self) -> Option<Time> {
        if self.ended.is_empty() { self.behind.0.next_due() } else { Some(Time::ZERO) }
    }

    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        let index = self.geometry.chunk_ids().position(|chunk| chunk == first);
        let index = index.ok_or(MediaError::NoSuchChunk(first))?;
        let log = self.log_page(now, log::id::CHUNKS, 32 * index, 32 * descriptors.len());
        let chunks = <[ChunkInformation]>::ref_from_bytes(&log).expect("whole entries");
        for (descriptor, chunk) in descriptors.iter_mut().zip(chunks) {
            *descriptor = chunk.descriptor(self.geometry.format()).expect("a state of a chunk");
        }
        Ok(())
    }

    fn notifications(
        &mut self,
        now: Time,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        let log = self.log_page(now, log::id::CHUNK_NOTIFICATIONS, 0, 256 * 64);
        let entries = <[ChunkNotification]>::ref_from_bytes(&log).expect("whole entries");
        let known = entries.iter().map_while(ChunkNotification::notification);
        notifications.extend(known.filter(|notification| notification.count > after));
        Ok(())
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        let value = if dulbe { feature::DEALLOCATED_ERROR } else { 0 };
        let dwords = [u32::from(feature::id::ERROR_RECOVERY), value, 0, 0, 0, 0];
        self.ask(Time::ZERO, command(opcode::admin::SET_FEATURES, NSID, dwords));
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        Vec::new()
    }
}

impl Inject for Reached {
    fn lose(&mut self, ppa: Ppa) {
        self.behind.0.lose(ppa);
    }

    fn fail_reads(&mut self, ppa: Ppa, times: u32) {
        self.behind.0.fail_reads(ppa, times);
    }

    fn weaken(&mut self, ppa: Ppa) {
        self.behind.0.weaken(ppa);
    }

    fn misdirect(&mut self, one: Ppa, other: Ppa) {
        Inject::misdirect(&mut self.behind.0, one, other);
    }

    fn fail_program(&mut self, chunk: ChunkId, failure: ProgramFailure) {
        self.behind.0.fail_program(chunk, failure);
    }

    fn take_offline(&mut self, chunk: ChunkId) {
        Inject::take_offline(&mut self.behind.0, chunk);
    }

    fn wear_out(&mut self, chunk: ChunkId, resets: u32) {
        self.behind.0.wear_out(chunk, resets);
    }

    fn endurance(&self) -> u32 {
        Inject::endurance(&self.behind.0)
    }
}

fn is_scalar(command: &Command<'_>) -> bool {
    use openftl_media::Blocks::Scalar;
    matches!(
        command,
        Command::Read { blocks: Scalar { .. }, .. }
            | Command::Write { blocks: Scalar { .. }, .. }
            | Command::Reset { blocks: Scalar { .. } }
            | Command::Flush
    )
}

#[test]
fn a_device_reached_through_a_controller_conforms() {
    let tiny = Profile::builtin("tiny").unwrap();
    let mut volatile = tiny.clone();
    volatile.cache.power_loss_protection = false;
    volatile.vector_copy = false;
    volatile.reset_of_free = true;
    volatile.oob_bytes = 64;
    volatile.groups = 3;
    for profile in [tiny, volatile] {
        for timing in [Timing::Modelled, Timing::Instant] {
            suite_with_faults(|| Reached::new(EmulatedDevice::new(profile.clone(), 6, Store::Ram, timing, 5).unwrap()));
        }
    }
}
