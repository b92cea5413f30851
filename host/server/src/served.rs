//! What is served, while it is: a drive of blocks, a zoned drive, a store of pages, a key-value drive, or an Open-Channel device.
//!
//! Connections see them as one thing: requests are admitted, filled, started, and end with bytes to be looked at. Whoever
//! needs to know says which of them it means.

mod payload;

use std::collections::VecDeque;
use std::sync::Arc;

use openftl_blocks::BlockFtl;
use openftl_bytes::device::{DeviceFinished, DeviceRequest, DeviceRequests};
use openftl_bytes::zones::{ZoneAsk, ZoneFinished, ZoneRequests};
use openftl_bytes::{ByteRequest, ByteRequests, Finished, RequestId};
use openftl_core::{BLOCK_BYTES, FrameForm, Nanos, Time};
use openftl_media::Media;
use openftl_nvme::ControllerName;
use openftl_pages::{Ftl, PageFtl};
use openftl_parts::target::{Extent, Target};
use openftl_segments::{AsBlocks, SegmentFtl};
use openftl_values::{ValueDone, ValueFtl, ValueTarget};
use openftl_zones::{Face, ZoneFtl};

use crate::ServedDrive;
use crate::accounts::{Account, Accounts, Claim, REQUESTS_MAX};
use crate::ended::Ended;
use crate::other::{Device, Other};
use crate::page_request::{PageAsk, PageFinished, PageRequests, PageSessions};
use crate::recorder::{Line, Recorder};
use crate::served_drive::bytes_in_zones;
use crate::ticket::Ticket;
use crate::value_request::{ValueAsk, ValueFinished, ValueRequests};

/// What hosts see as blocks. Segments are in a box, since they are far larger than a reference.
type Blocks<'a, T> = AsBlocks<&'a mut T, Box<SegmentFtl<&'a mut ZoneFtl<<T as ServedDrive>::Device>>>>;

enum Behind<'a, T: ServedDrive> {
    Drive {
        target: Blocks<'a, T>,
        requests: ByteRequests<Ticket>,
        finished: Vec<Finished<Ticket>>,
    },
    Device {
        device: &'a mut Device<T::Device>,
        requests: DeviceRequests<Ticket>,
        finished: Vec<DeviceFinished<Ticket>>,
    },
    Zones {
        drive: &'a mut ZoneFtl<T::Device>,
        requests: ZoneRequests<Ticket>,
        finished: Vec<ZoneFinished<Ticket>>,
    },
    Pages {
        drive: &'a mut PageFtl<T::Device>,
        requests: PageRequests,
        sessions: PageSessions,
        finished: Vec<PageFinished>,
    },
    Values {
        drive: &'a mut ValueFtl<T::Device>,
        requests: ValueRequests,
        finished: Vec<ValueFinished>,
        /// The ends of what the operator has asked.
        of_operator: Vec<ValueDone>,
    },
}

/// The watch over a drive: whether anything ends while requests wait for it.
#[derive(Default)]
struct Watch {
    progress: u64,
    /// When it last looked; `None`: nothing waited then.
    looked: Option<Time>,
    /// How long nothing has ended.
    silent: Nanos,
    /// The drive has given up what waited for it; that is done once.
    is_over: bool,
}

/// How often the watch looks at a drive that requests wait for. Of a longer span, in which the process or the machine slept,
/// no more than this counts.
const WATCH_EVERY: Nanos = Nanos::from_millis(1_000);

/// What is served, and who waits for it.
pub(crate) struct Served<'a, T: ServedDrive> {
    behind: Behind<'a, T>,
    /// Connections that wait for frames or a place, the longest waiting first.
    waiters: VecDeque<u32>,
    /// The same of long requests.
    long_waiters: VecDeque<u32>,
    watch: Watch,
    /// What the requests of one connection may hold, in bytes of frames; a single request may hold more.
    pub share_bytes: u64,
    accounts: Accounts,
    /// Who writes down what is asked of it, and under which number.
    recording: Option<(Arc<Recorder>, usize)>,
}

impl<'a, T: ServedDrive> Served<'a, T> {
    pub fn drive(target: &'a mut T) -> Served<'a, T> {
        Served::blocks(AsBlocks::Blocks(target))
    }

    fn blocks(target: Blocks<'a, T>) -> Served<'a, T> {
        let accounts = Accounts::new(target.frames());
        let behind = Behind::Drive { target, requests: ByteRequests::new(REQUESTS_MAX), finished: Vec::new() };
        Served::new(behind, accounts)
    }

    pub fn device(device: &'a mut Device<T::Device>) -> Served<'a, T> {
        let accounts = Accounts::new(&device.frames);
        let behind = Behind::Device { device, requests: DeviceRequests::new(REQUESTS_MAX), finished: Vec::new() };
        Served::new(behind, accounts)
    }

    /// As hosts see it: zones, or blocks in segments.
    pub fn zones(drive: &'a mut ZoneFtl<T::Device>) -> Served<'a, T> {
        if drive.face() == Face::Segments {
            return Served::blocks(AsBlocks::Segments(Box::new(SegmentFtl::of(drive))));
        }
        let accounts = Accounts::new(drive.frames());
        let behind = Behind::Zones { drive, requests: ZoneRequests::new(REQUESTS_MAX), finished: Vec::new() };
        Served::new(behind, accounts)
    }

    /// A store of pages; `blocks` blocks of what hosts send may wait for it at a time.
    pub fn pages(drive: &'a mut PageFtl<T::Device>, blocks: usize) -> Served<'a, T> {
        let requests = PageRequests::new(REQUESTS_MAX, blocks);
        let accounts = Accounts::new(requests.pool(drive));
        let (sessions, finished) = (PageSessions::default(), Vec::new());
        Served::new(Behind::Pages { drive, requests, sessions, finished }, accounts)
    }

    /// A key-value drive; `blocks` blocks of values that hosts send may wait for it at a time.
    pub fn values(drive: &'a mut ValueFtl<T::Device>, blocks: usize) -> Served<'a, T> {
        drive.set_staging(blocks);
        let requests = ValueRequests::new(REQUESTS_MAX, 0);
        let accounts = Accounts::new(requests.pool(drive));
        let (finished, of_operator) = (Vec::new(), Vec::new());
        Served::new(Behind::Values { drive, requests, finished, of_operator }, accounts)
    }

    /// What is served beside drives of blocks.
    pub fn other(other: &'a mut Other<T::Device>, staging_blocks: usize) -> Served<'a, T> {
        match other {
            Other::Zones(drive) => Served::zones(drive),
            Other::Pages(drive) => Served::pages(drive, staging_blocks),
            Other::Values(drive) => Served::values(drive, staging_blocks),
            Other::Device(device) => Served::device(device),
        }
    }

    fn new(behind: Behind<'a, T>, accounts: Accounts) -> Served<'a, T> {
        let share_bytes = (accounts.share_frames * BLOCK_BYTES) as u64;
        let (waiters, long_waiters) = (VecDeque::new(), VecDeque::new());
        Served { behind, waiters, long_waiters, watch: Watch::default(), share_bytes, accounts, recording: None }
    }

    /// What is asked from here on is written down nowhere.
    pub fn stop_recording(&mut self) {
        self.recording = None;
    }

    /// Has what is asked of it written down, as asked of namespace `number`.
    pub fn record(&mut self, recorder: &Arc<Recorder>, number: usize) {
        self.recording = Some((Arc::clone(recorder), number));
    }

    /// The drive, if it is one.
    pub fn target_mut(&mut self) -> Option<&mut T> {
        match &mut self.behind {
            Behind::Drive { target: AsBlocks::Blocks(target), .. } => Some(target),
            _ => None,
        }
    }

    /// The device, if it is one.
    pub fn media_mut(&mut self) -> Option<&mut T::Device> {
        match &mut self.behind {
            Behind::Device { device, .. } => Some(&mut device.media),
            _ => None,
        }
    }

    /// The zoned drive, if it is one, however hosts see it.
    pub fn zones_mut(&mut self) -> Option<&mut ZoneFtl<T::Device>> {
        match &mut self.behind {
            Behind::Drive { target: AsBlocks::Segments(segments), .. } => Some(segments.zones_mut()),
            Behind::Zones { drive, .. } => Some(drive),
            _ => None,
        }
    }

    /// The store of pages, if it is one.
    pub fn pages_mut(&mut self) -> Option<&mut PageFtl<T::Device>> {
        match &mut self.behind {
            Behind::Pages { drive, .. } => Some(drive),
            _ => None,
        }
    }

    /// The key-value drive, if it is one, and the ends of what the operator has asked of it.
    pub fn values_mut(&mut self) -> Option<(&mut ValueFtl<T::Device>, &mut Vec<ValueDone>)> {
        match &mut self.behind {
            Behind::Values { drive, of_operator, .. } => Some((drive, of_operator)),
            _ => None,
        }
    }

    /// The block FTL of what is served beside drives of blocks; a device has none.
    pub fn block(&mut self) -> Option<&BlockFtl<T::Device>> {
        match &mut self.behind {
            Behind::Drive { target: AsBlocks::Segments(segments), .. } => Some(segments.zones_mut().block()),
            Behind::Zones { drive, .. } => Some(drive.block()),
            Behind::Pages { drive, .. } => Some(drive.block()),
            Behind::Values { drive, .. } => Some(drive.block()),
            Behind::Drive { .. } | Behind::Device { .. } => None,
        }
    }

    /// Bytes that are in use of what is served beside drives of blocks.
    pub fn bytes_in_use(&mut self) -> u64 {
        match &mut self.behind {
            Behind::Pages { drive, .. } => drive.used_bytes(),
            Behind::Values { drive, .. } => drive.info().used_bytes,
            _ => self.zones_mut().map_or(0, |drive| bytes_in_zones(drive)),
        }
    }

    /// The store of pages, and the sessions that are open there.
    pub fn sessions(&mut self) -> Option<(&mut PageFtl, &mut PageSessions)> {
        match &mut self.behind {
            Behind::Pages { drive, sessions, .. } => Some((drive, sessions)),
            _ => None,
        }
    }

    /// Controllers are gone but for those that are there: their sessions are closed.
    pub fn close_sessions(&mut self, now: Time, is_there: impl Fn(ControllerName) -> bool) {
        if let Some((drive, sessions)) = self.sessions() {
            sessions.close_others(now, is_there, drive);
        }
    }

    /// Whether hosts see it as blocks, which any number of bytes may be asked of.
    pub fn is_drive(&self) -> bool {
        matches!(self.behind, Behind::Drive { .. })
    }

    /// Whether hosts see it as zones.
    pub fn is_zoned(&self) -> bool {
        matches!(self.behind, Behind::Zones { .. })
    }

    /// Whether it is a store of pages.
    pub fn is_store(&self) -> bool {
        matches!(self.behind, Behind::Pages { .. })
    }

    /// Whether it is a key-value drive.
    pub fn is_values(&self) -> bool {
        matches!(self.behind, Behind::Values { .. })
    }

    /// Whether it is a device: hosts count on the order of their commands, and blocks travel with out-of-band bytes.
    pub fn is_device(&self) -> bool {
        matches!(self.behind, Behind::Device { .. })
    }

    /// Whether hosts count on the order in which they write.
    pub fn is_written_in_order(&self) -> bool {
        !matches!(&self.behind, Behind::Drive { target: AsBlocks::Blocks(_), .. } | Behind::Values { .. })
    }

    pub fn is_read_only(&self) -> bool {
        match &self.behind {
            Behind::Drive { target, .. } => target.is_read_only(),
            Behind::Device { .. } => false,
            Behind::Zones { drive, .. } => drive.is_read_only(),
            Behind::Pages { drive, .. } => drive.is_read_only(),
            Behind::Values { drive, .. } => drive.is_read_only(),
        }
    }

    /// Frames that are free.
    pub fn available(&self) -> usize {
        let frames = match &self.behind {
            Behind::Drive { target, .. } => target.frames(),
            Behind::Device { device, .. } => &device.frames,
            Behind::Zones { drive, .. } => drive.frames(),
            Behind::Pages { drive, requests, .. } => {
                return requests.pool(drive).available(FrameForm::Bytes) + drive.frames().available(FrameForm::Bytes);
            }
            Behind::Values { drive, .. } => {
                return drive.staging().available(FrameForm::Bytes) + drive.frames().available(FrameForm::Bytes);
            }
        };
        frames.available(FrameForm::Bytes)
    }

    pub fn next_due(&self) -> Option<Time> {
        match &self.behind {
            Behind::Drive { target, .. } => target.next_due(),
            Behind::Device { device, .. } => device.media.next_due(),
            Behind::Zones { drive, .. } => drive.next_due(),
            Behind::Pages { drive, .. } => drive.next_due(),
            Behind::Values { drive, .. } => drive.next_due(),
        }
    }

    /// Requests that are admitted.
    pub fn len(&self) -> usize {
        match &self.behind {
            Behind::Drive { requests, .. } => requests.len(),
            Behind::Device { requests, .. } => requests.len(),
            Behind::Zones { requests, .. } => requests.len(),
            Behind::Pages { requests, .. } => requests.len(),
            Behind::Values { requests, .. } => requests.len(),
        }
    }

    /// Whether a poll would bring something whatever the drive does.
    pub fn has_finished(&self) -> bool {
        match &self.behind {
            Behind::Drive { requests, .. } => requests.has_finished(),
            Behind::Device { .. } => false,
            Behind::Zones { requests, .. } => requests.has_finished(),
            Behind::Pages { requests, .. } => requests.has_finished(),
            Behind::Values { requests, .. } => requests.has_finished(),
        }
    }

    /// Gives a request a place and frames, or lets its connection wait for them.
    pub fn admit(&mut self, ticket: Ticket, claim: Claim, request: ByteRequest) -> Option<RequestId> {
        let (frames, available) = (request.frames_needed(), self.available());
        self.admit_as(ticket.slot, claim, (frames, available), |behind| {
            let Behind::Drive { target, requests, .. } = behind else {
                unreachable!("a device has commands of its own")
            };
            requests.admit(target.frames_mut(), ticket, request)
        })
    }

    /// The same for a command of a device.
    pub fn admit_command(&mut self, ticket: Ticket, claim: Claim, request: DeviceRequest<'_>) -> Option<RequestId> {
        let (frames, available) = (request.frames_needed(), self.available());
        self.admit_as(ticket.slot, claim, (frames, available), |behind| {
            let Behind::Device { device, requests, .. } = behind else {
                unreachable!("a drive has requests of its own")
            };
            requests.admit(&mut device.frames, ticket, request)
        })
    }

    /// The same for a request of a zoned drive.
    pub fn admit_zoned(&mut self, ticket: Ticket, claim: Claim, ask: ZoneAsk) -> Option<RequestId> {
        let (frames, available) = (ask.frames_needed(), self.available());
        self.admit_as(ticket.slot, claim, (frames, available), |behind| {
            let Behind::Zones { drive, requests, .. } = behind else {
                unreachable!("others have requests of their own")
            };
            requests.admit(drive.frames_mut(), ticket, ask)
        })
    }

    /// The same for a request of a store of pages.
    pub fn admit_page(&mut self, ticket: Ticket, claim: Claim, ask: PageAsk) -> Option<RequestId> {
        let Behind::Pages { drive, requests, .. } = &self.behind else {
            unreachable!("others have requests of their own")
        };
        let (frames, available) = (PageRequests::frames_needed(&ask), requests.available(drive, &ask));
        self.admit_as(ticket.slot, claim, (frames, available), |behind| {
            let Behind::Pages { drive, requests, .. } = behind else { unreachable!("it was just looked at") };
            requests.admit(drive, ticket, ask)
        })
    }

    /// The same for a request of a key-value drive; `ask` makes it.
    pub fn admit_value(
        &mut self,
        ticket: Ticket,
        claim: Claim,
        ask: impl FnOnce(&ValueFtl) -> ValueAsk,
    ) -> Option<RequestId> {
        let Behind::Values { drive, requests, .. } = &self.behind else {
            unreachable!("others have requests of their own")
        };
        let ask = ask(drive);
        let (frames, available) = (ValueRequests::frames_needed(&ask), requests.available(drive, &ask));
        self.admit_as(ticket.slot, claim, (frames, available), |behind| {
            let Behind::Values { drive, requests, .. } = behind else { unreachable!("it was just looked at") };
            requests.admit(drive, ticket, ask)
        })
    }

    /// Of a request that needs frames, with so many available.
    fn admit_as(
        &mut self,
        slot: u32,
        claim: Claim,
        (frames, available): (usize, usize),
        admit: impl FnOnce(&mut Behind<'a, T>) -> Option<RequestId>,
    ) -> Option<RequestId> {
        let account = self.accounts.account(frames, claim.is_modest());
        let line = if account == Account::Long { &self.long_waiters } else { &self.waiters };
        let is_first = line.front().is_none_or(|front| *front == slot);
        let is_next = is_first && (account != Account::Modest || self.long_waiters.is_empty());
        let requests = self.len();
        let has_room = self.accounts.has_room(account, frames, is_next, available, requests);
        let admitted = if has_room { admit(&mut self.behind) } else { None };
        let Some(id) = admitted else {
            let (line, other) = match account {
                Account::Long => (&mut self.long_waiters, &mut self.waiters),
                Account::Modest | Account::Usual => (&mut self.waiters, &mut self.long_waiters),
            };
            other.retain(|waiter| *waiter != slot);
            if !line.contains(&slot) {
                line.push_back(slot);
            }
            self.accounts.has_long_waiters = !self.long_waiters.is_empty();
            return None;
        };
        for line in [&mut self.waiters, &mut self.long_waiters] {
            if line.front() == Some(&slot) {
                line.pop_front();
            }
        }
        self.accounts.has_long_waiters = !self.long_waiters.is_empty();
        self.accounts.book(id, account, frames);
        Some(id)
    }

    /// Whether somebody waits for frames or a place.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.is_empty() || !self.long_waiters.is_empty()
    }

    /// The connections that have waited longest: for long requests, and for others.
    pub fn first_waiters(&self) -> [Option<u32>; 2] {
        [self.long_waiters.front().copied(), self.waiters.front().copied()]
    }

    /// A connection waits for nothing here.
    pub fn stop_waiting(&mut self, slot: u32) {
        self.waiters.retain(|waiter| *waiter != slot);
        self.long_waiters.retain(|waiter| *waiter != slot);
        self.accounts.has_long_waiters = !self.long_waiters.is_empty();
    }

    /// The first byte that an admitted request of a drive is about.
    pub fn offset(&self, id: RequestId) -> u64 {
        let Behind::Drive { requests, .. } = &self.behind else { unreachable!("a device has commands of its own") };
        requests.offset(id)
    }

    /// How many bytes an admitted request is about.
    pub fn length(&self, id: RequestId) -> u64 {
        match &self.behind {
            Behind::Drive { requests, .. } => requests.length(id),
            Behind::Device { device, requests, .. } => requests.length(&device.frames, id),
            Behind::Zones { requests, .. } => requests.length(id),
            Behind::Pages { requests, .. } => requests.length(id),
            Behind::Values { requests, .. } => requests.length(id),
        }
    }

    /// Says which blocks are the object of an admitted request.
    pub fn set_extents(&mut self, id: RequestId, extents: &[Extent]) {
        let Behind::Drive { requests, .. } = &mut self.behind else { unreachable!("only for drives") };
        requests.set_extents(id, extents);
    }

    /// Starts an admitted request, a write with all its bytes filled.
    pub fn start(&mut self, now: Time, id: RequestId) {
        let line = self.recording.as_ref().and_then(|_| match &self.behind {
            Behind::Drive { requests, .. } => Line::of_bytes(requests.request(id)),
            Behind::Zones { drive, requests, .. } => Line::of_zones(requests.ask(id), drive),
            Behind::Device { .. } | Behind::Pages { .. } | Behind::Values { .. } => None,
        });
        let mut is_accepted = true;
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.start(now, target, id),
            Behind::Device { device, requests, .. } => {
                requests.start(now, &mut device.media, &mut device.frames, id);
            }
            Behind::Zones { drive, requests, .. } => is_accepted = requests.start(now, drive, id),
            Behind::Pages { drive, requests, sessions, .. } => requests.start(now, drive, sessions, id),
            Behind::Values { drive, requests, .. } => requests.start(now, drive, &mut (), id),
        }
        if let (Some((recorder, number)), Some(line), true) = (&self.recording, line, is_accepted) {
            recorder.record(*number, now, line);
        }
    }

    /// Gives up an admitted request that was not started.
    pub fn abandon(&mut self, id: RequestId) {
        self.accounts.settle(id);
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.abandon(target.frames_mut(), id),
            Behind::Device { device, requests, .. } => requests.abandon(&mut device.frames, id),
            Behind::Zones { drive, requests, .. } => requests.abandon(drive.frames_mut(), id),
            Behind::Pages { drive, requests, .. } => requests.abandon(drive, id),
            Behind::Values { drive, requests, .. } => requests.abandon(drive, id),
        }
    }

    /// Gives back the place and the frames of a finished request.
    pub fn release(&mut self, id: RequestId) {
        self.accounts.settle(id);
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.release(target.frames_mut(), id),
            Behind::Device { device, requests, .. } => requests.release(&mut device.frames, id),
            Behind::Zones { drive, requests, .. } => requests.release(drive.frames_mut(), id),
            Behind::Pages { drive, requests, .. } => requests.release(drive, id),
            Behind::Values { drive, requests, .. } => requests.release(drive, id),
        }
    }

    /// Lets it work and appends what has finished.
    pub fn poll(&mut self, now: Time, ended: &mut Vec<Ended>) {
        match &mut self.behind {
            Behind::Drive { target, requests, finished } => {
                requests.poll(now, target, finished);
                ended.extend(finished.drain(..).map(Ended::Request));
            }
            Behind::Device { device, requests, finished } => {
                requests.poll(now, &mut device.media, &mut device.frames, finished);
                ended.extend(finished.drain(..).map(Ended::Command));
            }
            Behind::Zones { drive, requests, finished } => {
                requests.poll(now, drive, finished);
                ended.extend(finished.drain(..).map(Ended::Zone));
            }
            Behind::Pages { drive, requests, sessions, finished } => {
                requests.poll(now, drive, sessions, finished, &mut Vec::new());
                ended.extend(finished.drain(..).map(Ended::Page));
            }
            Behind::Values { drive, requests, finished, of_operator } => {
                requests.poll(now, drive, &mut (), finished, of_operator);
                ended.extend(finished.drain(..).map(Ended::Value));
            }
        }
    }

    /// Looks after a poll whether what waits for the drive will ever end. If not, the drive gives it up: the next poll ends it
    /// with errors. Returns the state that the drive was in.
    pub fn watch(&mut self, now: Time) -> Option<String> {
        let (waits, vitals) = match &self.behind {
            Behind::Drive { target, requests, .. } => (requests.waits_for_drive(), target.vitals()),
            Behind::Zones { drive, requests, .. } => (requests.waits_for_drive(), drive.vitals()),
            Behind::Pages { drive, requests, .. } => (requests.waits_for_drive(drive), drive.vitals()),
            Behind::Values { drive, requests, .. } => {
                (requests.waits_for_drive(drive) || drive.is_asked(), drive.vitals())
            }
            Behind::Device { .. } => return None,
        };
        if self.watch.is_over || !waits {
            self.watch.looked = None;
            return None;
        }
        let vitals = vitals?;
        let Watch { progress, looked, silent, is_over } = &mut self.watch;
        if looked.is_none() || *progress != vitals.progress {
            (*progress, *looked, *silent) = (vitals.progress, Some(now), Nanos::ZERO);
        }
        if !vitals.is_still {
            let since = now.since(looked.expect("it has just been set"));
            if since < WATCH_EVERY {
                return None;
            }
            (*looked, *silent) = (Some(now), *silent + since.min(WATCH_EVERY));
            if *silent < vitals.patience {
                return None;
            }
        }
        (*looked, *is_over) = (None, true);
        match &mut self.behind {
            Behind::Drive { target, .. } => Some(target.give_up(now)),
            Behind::Zones { drive, .. } => Some(drive.give_up(now)),
            Behind::Pages { drive, .. } => Some(drive.give_up(now)),
            Behind::Values { drive, .. } => Some(drive.give_up(now)),
            Behind::Device { .. } => None,
        }
    }

    /// When the watch looks again, while something waits for the drive.
    pub fn watch_due(&self) -> Option<Time> {
        self.watch.looked.map(|looked| looked + WATCH_EVERY)
    }

    /// Whether an exchange has been read, and not written.
    pub fn is_shown(&self, id: RequestId) -> bool {
        matches!(&self.behind, Behind::Drive { requests, .. } if requests.is_shown(id))
    }

    /// Writes what an exchange that was shown has been filled with.
    pub fn write(&mut self, now: Time, id: RequestId) {
        let Behind::Drive { target, requests, .. } = &mut self.behind else { unreachable!("only for drives") };
        if let Some(((recorder, number), line)) = self.recording.as_ref().zip(Line::of_exchange(requests.request(id))) {
            recorder.record(*number, now, line);
        }
        requests.write(now, target, id);
    }

    /// Asks for everything that has ended to be durable; `None` while there is no place for the request.
    pub fn flush(&mut self, ticket: Ticket) -> Option<RequestId> {
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.admit(target.frames_mut(), ticket, ByteRequest::Flush),
            Behind::Device { device, requests, .. } => requests.admit(&mut device.frames, ticket, DeviceRequest::Flush),
            Behind::Zones { drive, requests, .. } => requests.admit(drive.frames_mut(), ticket, ZoneAsk::Flush),
            Behind::Pages { drive, requests, .. } => requests.admit(drive, ticket, PageAsk::Sync),
            Behind::Values { drive, requests, .. } => requests.admit(drive, ticket, ValueAsk::Flush),
        }
    }
}
