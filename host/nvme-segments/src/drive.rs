//! The drive: requests become commands, and commands that end become requests that have.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

use openftl_core::{BLOCK_BYTES, Frame, FrameForm, Frames, Nanos, OOB_BYTES_MIN, Time};
use openftl_nvme::command::zoned::send_dword;
use openftl_nvme::wire::zoned::REPORT_OF_ALL;
use openftl_nvme::{Status, SubmissionEntry};
use openftl_nvme_media::ANSWER_MAX;
use openftl_nvme_media::connect::ConnectError;
use openftl_nvme_media::pipeline::Pipeline;
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_tcp::client::{Client, ClientError, Ended, Payload};
use openftl_nvme_tcp::nvm::{self, Blocks, ZonePlace};
use openftl_parts::target::{
    AppendError, BlockTarget, Done, Durability, IoError, Request as Asked, SegmentFacts, SegmentTarget, Target,
};
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use openftl_segments::Trims;
use openftl_zones::Action;

use crate::claim::{Claim, Held};
use crate::command::{BYTES_UNDER_WAY_MAX, COMMANDS_MAX, Command, Request, Waiting, What};
use crate::zone::{Found, Shape, Zone, find, report_bytes, zones_of};

/// Frames for the data of requests.
const FRAMES: usize = 4096;

/// Requests that have not ended, at most.
const REQUESTS_MAX: usize = openftl_parts::target::REQUESTS_MAX;

/// How long after a look at the connection the next one is due while commands are under way.
const LOOK_AFTER: Nanos = Nanos::from_micros(50);

/// Between two looks at the link so much time counts at most against the server: a host that was held up has not waited.
const LOOK_MAX: Nanos = Nanos::from_millis(1_000);

/// How a read ends whose blocks the medium does not have any more. However else it ends, they may be there.
const MEDIUM_HAS_LOST: [Status; 3] = [Status::UNRECOVERED_READ, Status::DEALLOCATED_BLOCK, Status::ZONE_OFFLINE];

type Block = Box<[u8; BLOCK_BYTES]>;

/// See the crate.
pub struct RemoteSegments {
    namespace: u32,
    shape: Shape,
    zones: Vec<Zone>,
    trims: Trims,
    frames: Frames,
    pipeline: Pipeline<Command>,
    /// Keeps the controller.
    _admin: Client<TcpStream>,
    /// The right to write that was claimed.
    claim: Option<Held>,
    waiting: Waiting,
    requests: BTreeMap<u64, Request>,
    next_request: u64,
    bytes_under_way: usize,
    /// Blocks that the drive did not take, because the medium of their zone has failed.
    kept: BTreeMap<u64, Block>,
    done: Vec<Done>,
    now: Time,
    /// Time that was spent with the link: while nobody looked at it, for longer than [`LOOK_MAX`], nothing could come.
    attended: Time,
    looked: Time,
    /// Of the commands under way none was sent before, in that time.
    sent_since: Time,
    answer_max: Duration,
    trouble: Option<String>,
}

impl RemoteSegments {
    /// Connects to the drive at `uri`, and claims nothing.
    ///
    /// # Errors
    /// If nobody is there, the subsystem refuses, or the namespace is another kind.
    pub fn connect(uri: &DriveUri) -> Result<RemoteSegments, ConnectError> {
        RemoteSegments::connect_within(uri, Claim::None, ANSWER_MAX)
    }

    /// Connects to the drive at `uri`, and claims it.
    ///
    /// # Errors
    /// As [`RemoteSegments::connect`], and if another host has reserved it.
    pub fn claim(uri: &DriveUri, claim: Claim) -> Result<RemoteSegments, ConnectError> {
        RemoteSegments::connect_within(uri, claim, ANSWER_MAX)
    }

    /// The same; whoever does not answer within `answer_max` is cut, now and later.
    ///
    /// # Errors
    /// As [`RemoteSegments::claim`].
    pub fn connect_within(uri: &DriveUri, claim: Claim, answer_max: Duration) -> Result<RemoteSegments, ConnectError> {
        let Found { association, claim, shape, zones } = find(uri, claim, answer_max)?;
        let pipeline = Pipeline::new(association.io_queue(COMMANDS_MAX + 1)?)?;
        Ok(RemoteSegments {
            namespace: uri.namespace,
            shape,
            zones,
            trims: Trims::new(shape.capacity),
            frames: Frames::new(FRAMES, 0, OOB_BYTES_MIN),
            pipeline,
            _admin: association.admin,
            claim,
            waiting: Waiting::default(),
            requests: BTreeMap::new(),
            next_request: 0,
            bytes_under_way: 0,
            kept: BTreeMap::new(),
            done: Vec::new(),
            now: Time::ZERO,
            attended: Time::ZERO,
            looked: Time::ZERO,
            sent_since: Time::ZERO,
            answer_max,
            trouble: None,
        })
    }

    /// Why the drive takes no more changes, if it takes none.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn expect_inside(&self, first: u64, blocks: u64) -> Result<(), IoError> {
        let capacity = self.shape.blocks();
        let is_inside = blocks > 0 && first.checked_add(blocks).is_some_and(|end| end <= capacity);
        if is_inside { Ok(()) } else { Err(IoError::OutOfRange { first, blocks, capacity }) }
    }

    fn expect_changes(&self) -> Result<(), IoError> {
        if self.trouble.is_some() { Err(IoError::ReadOnly) } else { Ok(()) }
    }

    /// A request of these commands begins.
    fn begin(&mut self, tag: u64, commands: Vec<(What, usize)>) {
        let request = self.next_request;
        self.next_request += 1;
        self.requests.insert(request, Request { tag, left: commands.len() as u32, result: Ok(()) });
        for (what, bytes) in commands {
            self.waiting.push(request, what, bytes);
        }
    }

    fn read(&mut self, tag: u64, first: u64, frames: &[Frame]) -> Result<(), IoError> {
        self.expect_inside(first, frames.len() as u64)?;
        if self.pipeline.cut().is_some() {
            return Err(IoError::Unrecovered { block: first });
        }
        let (mut at, mut rest, mut commands) = (first, frames, Vec::new());
        while !rest.is_empty() {
            let (zone, within) = self.shape.place_of(at);
            let known = &self.zones[zone as usize];
            if known.is_offline && known.written == 0 {
                return Err(IoError::Unrecovered { block: at });
            }
            let here = (self.shape.capacity - within).min(self.shape.transfer_max) as usize;
            let (now, behind) = rest.split_at(here.min(rest.len()));
            commands.push((What::Read { first: at, frames: now.to_vec() }, now.len() * BLOCK_BYTES));
            (at, rest) = (at + now.len() as u64, behind);
        }
        self.begin(tag, commands);
        Ok(())
    }

    fn write(&mut self, tag: u64, first: u64, frames: &[Frame], durability: Durability) -> Result<(), IoError> {
        let blocks = frames.len() as u64;
        self.expect_inside(first, blocks)?;
        self.expect_changes()?;
        if frames.len() > TRANSACTION_BLOCKS_MAX {
            return Err(IoError::OutOfRange { first, blocks, capacity: self.shape.blocks() });
        }
        let (index, within) = self.shape.place_of(first);
        let zone = &self.zones[index as usize];
        let begins = first - u64::from(within);
        let (boundary, expected) = (begins + u64::from(self.shape.capacity), begins + u64::from(zone.written));
        if !zone.is_writable {
            return Err(AppendError::SegmentReadOnly { boundary }.into());
        }
        if first != expected {
            let error = if first < expected {
                AppendError::Overwrite { first, expected }
            } else {
                AppendError::Gap { first, expected }
            };
            return Err(error.into());
        }
        if first + blocks > boundary {
            return Err(AppendError::Crossing { first, end: first + blocks, boundary }.into());
        }
        let limit = self.shape.active_max;
        if !zone.is_active(&self.shape)
            && self.zones.iter().filter(|zone| zone.is_active(&self.shape)).count() >= limit as usize
        {
            return Err(AppendError::TooManyOpen { limit }.into());
        }
        let is_durable = durability == Durability::Durable;
        let pieces = frames.chunks(self.shape.transfer_max as usize);
        let firsts = (first..).step_by(self.shape.transfer_max as usize);
        let commands: Vec<(What, usize)> = firsts
            .zip(pieces)
            .map(|(first, frames)| {
                (What::Write { first, frames: frames.to_vec(), is_durable }, frames.len() * BLOCK_BYTES)
            })
            .collect();
        let zone = &mut self.zones[index as usize];
        zone.written += frames.len() as u32;
        zone.changes += commands.len() as u32;
        self.begin(tag, commands);
        Ok(())
    }

    fn trim(&mut self, tag: u64, first: u64, blocks: u64, durability: Durability) -> Result<(), IoError> {
        self.expect_inside(first, blocks)?;
        self.expect_changes()?;
        let (capacity, end) = (u64::from(self.shape.capacity), first + blocks);
        let mut commands = Vec::new();
        for index in first / capacity..=(end - 1) / capacity {
            let (begins, number) = (index * capacity, index as u32);
            let (from, to) = (first.max(begins) - begins, end.min(begins + capacity) - begins);
            let zone = &mut self.zones[number as usize];
            let is_there = zone.written > 0 || zone.is_opened || !zone.is_writable && !zone.is_offline;
            if !is_there || !self.trims.trim(number, from as u32, to as u32, zone.written) {
                continue;
            }
            // A segment whose medium has failed is never written again: what the drive has of it is given back.
            let action = if zone.is_writable { Action::Reset } else { Action::Offline };
            zone.is_offline |= action == Action::Offline;
            (zone.written, zone.settled, zone.is_opened) = (0, 0, false);
            zone.changes += 1;
            self.trims.forget(number);
            self.kept.retain(|block, _| !(begins..begins + capacity).contains(block));
            commands.push((What::Act { zone: number, action }, 0));
        }
        match durability {
            Durability::Durable => commands.push((What::Flush, 0)),
            Durability::Volatile if commands.is_empty() => {
                self.done.push(Done { tag, result: Ok(()), at: self.now });
                return Ok(());
            }
            Durability::Volatile => {}
        }
        self.begin(tag, commands);
        Ok(())
    }

    /// Sends what may be sent.
    fn send(&mut self) {
        while self.pipeline.cut().is_none() && self.pipeline.has_room() {
            let (zones, shape) = (&self.zones, self.shape);
            let is_readable = |first: u64, blocks: usize| {
                let (zone, within) = shape.place_of(first);
                let zone = &zones[zone as usize];
                zone.changes == 0 || u64::from(within) + blocks as u64 <= zone.settled.into()
            };
            let Some(mut command) = self.waiting.next(is_readable) else { return };
            if self.bytes_under_way > 0 && self.bytes_under_way + command.bytes > BYTES_UNDER_WAY_MAX {
                return self.waiting.put_back(command);
            }
            if self.pipeline.under_way() == 0 {
                self.sent_since = self.attended;
            }
            command.sent = self.attended;
            let mut data = self.pipeline.buffer();
            let namespace = self.namespace;
            let (entry, payload) = match &mut command.what {
                What::Write { first, frames, is_durable } => {
                    let count = frames.len() as u32;
                    for frame in frames.drain(..) {
                        data.extend_from_slice(self.frames.bytes(frame));
                        self.frames.release(frame);
                    }
                    let blocks = Blocks { namespace, first: shape.address_of(*first), count };
                    let entry = if *is_durable { nvm::durable_write(blocks) } else { nvm::write(blocks) };
                    (entry, Payload::ToController(data))
                }
                What::Read { first, frames } => {
                    let blocks = Blocks { namespace, first: shape.address_of(*first), count: frames.len() as u32 };
                    data.resize(command.bytes, 0);
                    (nvm::read(blocks), Payload::ToHost(data))
                }
                What::Act { zone, action } => {
                    let place = ZonePlace { namespace, first: shape.first_of(*zone) };
                    (nvm::zone_send(place, send_dword(*action, false)), Payload::None)
                }
                What::Flush => (nvm::flush(namespace), Payload::None),
                What::Report { number } => {
                    let place = ZonePlace { namespace, first: shape.first_of(*number) };
                    let bytes = report_bytes(&shape, *number);
                    data.resize(bytes as usize, 0);
                    (nvm::zone_receive(place, REPORT_OF_ALL, bytes), Payload::ToHost(data))
                }
            };
            self.bytes_under_way += command.bytes;
            self.pipeline.submit(command, SubmissionEntry::of(&entry), &[], payload);
        }
    }

    /// Takes what has come.
    fn receive(&mut self) {
        self.attended += self.now.since(std::mem::replace(&mut self.looked, self.now)).min(LOOK_MAX);
        loop {
            match self.pipeline.try_end() {
                Ok(Some((command, ended))) => {
                    self.bytes_under_way -= command.bytes;
                    self.ended(command, ended);
                }
                Ok(None) => break,
                Err(error) => return self.cut_link(&error),
            }
        }
        if self.is_overdue() {
            self.sent_since = self.pipeline.notes().map(|command| command.sent).min().unwrap_or(self.attended);
        }
        // Whoever answers others, and this one never, is as good as silent.
        if self.is_overdue() {
            self.cut_link(&ClientError::Stream(io::ErrorKind::TimedOut.into()));
        }
    }

    /// Whether a command may have been under way for too long.
    fn is_overdue(&self) -> bool {
        let waited = Duration::from_nanos(self.attended.since(self.sent_since).0);
        self.pipeline.under_way() > 0 && waited > self.answer_max
    }

    fn ended(&mut self, command: Command, ended: Ended) {
        let Command { request, order, what, .. } = command;
        let status = Status::from_field(ended.status());
        let is_zone_lost =
            [Status::ZONE_READ_ONLY, Status::ZONE_OFFLINE].iter().any(|lost| lost.code() == status.code());
        let result = match what {
            What::Write { first, .. } => {
                self.waiting.settle(order);
                let blocks = (ended.data.len() / BLOCK_BYTES) as u32;
                let (zone, within) = self.shape.place_of(first);
                let zone = &mut self.zones[zone as usize];
                zone.changes -= 1;
                if status.is_success() && within == zone.settled {
                    zone.settled += blocks;
                }
                if status.is_success() && zone.changes == 0 {
                    zone.settled = zone.written;
                }
                if is_zone_lost {
                    zone.is_writable = false;
                    if zone.changes == 0 {
                        zone.settled = zone.written;
                    }
                    // What was trimmed meanwhile is of no use.
                    if within + blocks <= zone.written {
                        let (blocks, _) = ended.data.as_chunks::<BLOCK_BYTES>();
                        self.kept.extend((first..).zip(blocks.iter().map(|block| Box::new(*block))));
                    }
                    Ok(())
                } else {
                    if !status.is_success() {
                        zone.refuse(within);
                    }
                    self.expect_success("write", status)
                }
            }
            What::Act { zone, action: Action::Reset }
                if status.code() == Status::ZONE_INVALID_TRANSITION.code() && self.trouble.is_none() =>
            {
                // Its medium has failed, which nobody has told: it is given up, in the place of the reset.
                let known = &mut self.zones[zone as usize];
                (known.is_writable, known.is_offline) = (false, true);
                let what = What::Act { zone, action: Action::Offline };
                self.waiting.put_back(Command { request, order, what, bytes: 0, sent: Time::ZERO });
                self.pipeline.give_back(ended.data);
                return;
            }
            What::Act { zone, .. } => {
                self.waiting.settle(order);
                self.zones[zone as usize].changes -= 1;
                self.expect_success("reset", status)
            }
            What::Read { first, frames } => self.take_data(first, &frames, &ended),
            What::Flush if is_zone_lost => {
                // It is refused when the states of zones are known.
                self.waiting.push(request, What::Report { number: 0 }, 0);
                self.pipeline.give_back(ended.data);
                return;
            }
            What::Flush if status.is_success() && self.trouble.is_some() => Err(IoError::ReadOnly),
            What::Flush if status.is_success() && !self.kept.is_empty() => Err(self.refusal()),
            What::Flush => self.expect_success("flush", status),
            What::Report { number } => return self.take_report(request, number, status, ended),
        };
        self.pipeline.give_back(ended.data);
        self.command_ended(request, result);
    }

    /// A command that is only refused if the drive is not what it was.
    fn expect_success(&mut self, what: &str, status: Status) -> Result<(), IoError> {
        if status.is_success() {
            return Ok(());
        }
        let is = |other: Status| status.code() == other.code();
        let why = if is(Status::ZONE_INVALID_WRITE) {
            ": another host has written to the zone, and may have mounted the drive"
        } else if is(Status::RESERVATION_CONFLICT) || is(Status::ABORTED_PREEMPTED) {
            ": another host has reserved the drive, and writes to it now"
        } else {
            ""
        };
        self.give_up(format!("the drive refuses a {what}: {status}{why}"));
        Err(IoError::ReadOnly)
    }

    /// The drive is not what it was: from now on nothing is changed, and nothing becomes durable.
    fn give_up(&mut self, why: String) {
        if self.trouble.is_none() {
            self.trouble = Some(why);
            self.waiting.take_changes().into_iter().for_each(|command| self.refuse(command));
        }
    }

    /// This command ends without the drive.
    fn refuse(&mut self, Command { request, order, what, .. }: Command) {
        let error = match what {
            What::Read { first, .. } => IoError::Unrecovered { block: first },
            What::Write { first, frames, .. } => {
                frames.into_iter().for_each(|frame| self.frames.release(frame));
                let (zone, within) = self.shape.place_of(first);
                let zone = &mut self.zones[zone as usize];
                zone.changes -= 1;
                zone.refuse(within);
                self.waiting.settle(order);
                IoError::ReadOnly
            }
            What::Act { zone, .. } => {
                self.zones[zone as usize].changes -= 1;
                self.waiting.settle(order);
                IoError::ReadOnly
            }
            What::Flush | What::Report { .. } => IoError::ReadOnly,
        };
        self.command_ended(request, Err(error));
    }

    /// Why a flush is refused, because of a segment whose medium has failed. There is one, or the drive is not what it was.
    fn refusal(&mut self) -> IoError {
        let capacity = u64::from(self.shape.capacity);
        let first = self.kept.first_key_value().map(|(block, _)| self.shape.place_of(*block).0);
        let lost = (0..).zip(&self.zones).find(|(_, zone)| !zone.is_writable && !zone.is_offline);
        let Some(segment) = first.or(lost.map(|(number, _)| number)) else {
            self.give_up(
                "the drive refuses a flush because of a zone that has failed, and has no such zone".to_owned(),
            );
            return IoError::ReadOnly;
        };
        if self.trouble.is_some() {
            return IoError::ReadOnly;
        }
        AppendError::SegmentReadOnly { boundary: (u64::from(segment) + 1) * capacity }.into()
    }

    /// Data of a read go to their frames.
    fn take_data(&mut self, first: u64, frames: &[Frame], ended: &Ended) -> Result<(), IoError> {
        let (zone, within) = self.shape.place_of(first);
        let refused = self.zones[zone as usize].refused.filter(|refused| *refused < within + frames.len() as u32);
        if let Some(refused) = refused {
            return Err(IoError::Unrecovered { block: first + u64::from(refused.saturating_sub(within)) });
        }
        let status = Status::from_field(ended.status());
        // Blocks that are kept are not the drive's to read: their zone may be offline.
        let missing = (first..).take(frames.len()).find(|block| !self.kept.contains_key(block));
        if let Some(block) = missing {
            if !status.is_success() {
                if !MEDIUM_HAS_LOST.iter().any(|lost| lost.code() == status.code()) {
                    self.give_up(format!("the drive refuses a read: {status}"));
                }
                return Err(IoError::Unrecovered { block });
            }
            if ended.received < ended.data.len() {
                let (received, wanted) = (ended.received, ended.data.len());
                self.give_up(format!("the drive brings {received} bytes of {wanted} that are read"));
                return Err(IoError::Unrecovered { block });
            }
            if !ended.intact {
                return Err(IoError::WrongBlock { block });
            }
        }
        let (blocks, _) = ended.data.as_chunks::<BLOCK_BYTES>();
        for ((frame, bytes), block) in frames.iter().zip(blocks).zip(first..) {
            let bytes = self.kept.get(&block).map_or(bytes, |kept| &**kept);
            self.frames.bytes_anew(*frame).copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Zones have failed: which ones, says the report.
    fn take_report(&mut self, request: u64, number: u32, status: Status, ended: Ended) {
        let mut shape = self.shape;
        let zones = match self.expect_success("report of zones", status) {
            Ok(()) => zones_of(&ended.data, number, &mut shape),
            Err(_) => Err("has no report of zones".to_owned()),
        };
        self.pipeline.give_back(ended.data);
        let next = match zones {
            Ok(zones) => {
                for (known, found) in self.zones[number as usize..].iter_mut().zip(&zones) {
                    known.is_writable &= found.is_writable;
                }
                number + zones.len() as u32
            }
            Err(why) => {
                self.give_up(format!("the drive {why}"));
                self.shape.zones
            }
        };
        if next < self.shape.zones {
            self.waiting.push(request, What::Report { number: next }, 0);
            return;
        }
        let result = self.refusal();
        self.command_ended(request, Err(result));
    }

    fn command_ended(&mut self, number: u64, result: Result<(), IoError>) {
        let request = self.requests.get_mut(&number).expect("a command is of a request");
        if let Err(error) = result {
            request.fail(error);
        }
        request.left -= 1;
        if request.left == 0 {
            let Request { tag, result, .. } = self.requests.remove(&number).expect("it was just there");
            self.done.push(Done { tag, result, at: self.now });
        }
    }

    /// There is no connection any more.
    fn cut_link(&mut self, why: &ClientError) {
        self.give_up(format!("the connection to the drive is cut: {why}"));
        self.bytes_under_way = 0;
        let commands: Vec<Command> = self.pipeline.cut_link(why).into_iter().chain(self.waiting.take_all()).collect();
        commands.into_iter().for_each(|command| self.refuse(command));
    }
}

impl Drop for RemoteSegments {
    fn drop(&mut self) {
        if let (Some(claim), Some(queue)) = (self.claim.take(), self.pipeline.quiet()) {
            claim.give_back(queue, self.namespace);
        }
    }
}

impl Target for RemoteSegments {
    type Done = Done;

    fn frames(&self) -> &Frames {
        &self.frames
    }

    fn frames_mut(&mut self) -> &mut Frames {
        &mut self.frames
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        self.now = self.now.max(now);
        self.send();
        self.receive();
        self.send();
        done.append(&mut self.done);
    }

    fn next_due(&self) -> Option<Time> {
        if !self.done.is_empty() {
            return Some(Time::ZERO);
        }
        let is_at_work = self.pipeline.under_way() > 0 || !self.waiting.is_empty();
        is_at_work.then_some(self.now + LOOK_AFTER)
    }

    fn is_read_only(&self) -> bool {
        self.trouble.is_some()
    }
}

impl BlockTarget for RemoteSegments {
    fn blocks(&self) -> u64 {
        self.shape.blocks()
    }

    fn payload_form(&self) -> FrameForm {
        FrameForm::Bytes
    }

    fn submit(&mut self, now: Time, tag: u64, request: Asked<'_>) -> Result<(), IoError> {
        self.now = self.now.max(now);
        if self.requests.len() >= REQUESTS_MAX {
            return Err(IoError::QueueFull);
        }
        match request {
            Asked::Read { first, frames } => self.read(tag, first, frames)?,
            Asked::Write { first, frames, durability, .. } => self.write(tag, first, frames, durability)?,
            Asked::Trim { first, blocks, durability } => self.trim(tag, first, blocks, durability)?,
            Asked::Flush => {
                self.expect_changes()?;
                self.begin(tag, vec![(What::Flush, 0)]);
            }
            Asked::WriteUncorrectable { .. } | Asked::FlashAlloc { .. } => {
                return Err(AppendError::NoSuchRequest.into());
            }
        }
        self.send();
        Ok(())
    }

    fn segment_blocks(&self) -> Option<u64> {
        Some(self.shape.capacity.into())
    }
}

impl SegmentTarget for RemoteSegments {
    fn segment(&self, segment: u32) -> SegmentFacts {
        let zone = &self.zones[segment as usize];
        SegmentFacts { written: zone.written, is_writable: zone.is_writable }
    }

    fn segments_in_part_max(&self) -> u32 {
        self.shape.active_max
    }
}
