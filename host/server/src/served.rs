//! What is served, while it is: a drive of blocks, or an Open-Channel device.
//!
//! Connections see both as one thing: requests are admitted, filled, started, and end with bytes to be looked at. Whoever
//! needs to know says which of the two it means.
//!
//! ```text
//!   frames   ├── long requests: at most half ──┤· · · · · ·│ share of one connection: 1/8 │··│ reserved: 1/8 │
//!   places   ├───────────────── any request ──────────────────────────────────────────────│ reserved: 1/8 │
//! ```
//!
//! Requests wait for frames and places in the order in which their connections came. *Modest* requests wait behind nobody as
//! long as the reserve has room for them: those that are small and come from a connection that holds little. So a read of
//! 4 KiB does not wait for 32 MiB of somebody else's payload. All others leave the reserve alone. *Long* requests, of more
//! than a connection's share, hold at most half of the pool together.

use std::collections::VecDeque;

use openftl_bytes::device::{DeviceFinished, DeviceRequest, DeviceRequests};
use openftl_bytes::{ByteRequest, ByteRequests, Finished, RequestId};
use openftl_core::{BLOCK_BYTES, FrameForm, Frames, Geometry, Time};
use openftl_ftl::target::Extent;
use openftl_media::Media;

use crate::{POOL_SHARES, ServedDrive, Ticket};

/// Requests that are admitted to one drive at a time, of all connections: four connections with all that one may have. More
/// wait as for frames. What a write in part compares itself with is no more than these.
pub(crate) const REQUESTS_MAX: usize = 4096;

/// The reserve of modest requests: this part of the frames and of the places.
const RESERVE_SHARES: usize = 8;

/// What a connection holds at most with a modest request.
const MODEST_REQUESTS: usize = 32;
const MODEST_BYTES: u64 = 128 << 10;

/// What a connection holds of a drive, and what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// Requests that it has admitted.
    pub requests: usize,
    /// Bytes of frames that it holds.
    pub bytes: u64,
    /// Bytes of frames that it wants, more or less.
    pub payload: u64,
}

impl Claim {
    fn is_modest(&self) -> bool {
        self.requests < MODEST_REQUESTS && self.bytes + self.payload <= MODEST_BYTES
    }
}

/// On which account an admitted request holds its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Account {
    Modest,
    Usual,
    Long,
}

/// What modest and long requests hold of a drive, and what there is.
struct Accounts {
    /// Frames of the pool when nobody held any for a host.
    pool_frames: usize,
    share_frames: usize,
    /// Each admitted request's account and frames, by its place.
    held: Vec<(Account, u32)>,
    modest_requests: usize,
    modest_frames: usize,
    long_frames: usize,
}

impl Accounts {
    fn new(frames: &Frames) -> Accounts {
        Accounts {
            pool_frames: frames.available(FrameForm::Bytes),
            share_frames: frames.len() / POOL_SHARES,
            held: Vec::new(),
            modest_requests: 0,
            modest_frames: 0,
            long_frames: 0,
        }
    }

    /// The account for a request that wants `frames`, if there is room for it. `is_next`: it waits behind nobody.
    fn account(
        &self,
        frames: usize,
        is_modest: bool,
        is_next: bool,
        available: usize,
        requests: usize,
    ) -> Option<Account> {
        let (reserved_frames, reserved_places) = (self.pool_frames / RESERVE_SHARES, REQUESTS_MAX / RESERVE_SHARES);
        if is_modest {
            let is_in_reserve =
                self.modest_frames + frames <= reserved_frames && self.modest_requests < reserved_places;
            return (frames <= available && (is_next || is_in_reserve)).then_some(Account::Modest);
        }
        // A drive that nobody else uses may be used up to its last frame.
        let is_alone = requests == 0;
        let left_frames = reserved_frames.saturating_sub(self.modest_frames);
        let left_places = reserved_places.saturating_sub(self.modest_requests);
        let fits = is_alone || (frames + left_frames <= available && requests + left_places < REQUESTS_MAX);
        let is_long = frames > self.share_frames;
        let is_too_long = is_long && self.long_frames > 0 && self.long_frames + frames > self.pool_frames / 2;
        let account = if is_long { Account::Long } else { Account::Usual };
        (is_next && fits && frames <= available && !is_too_long).then_some(account)
    }

    fn book(&mut self, id: RequestId, account: Account, frames: usize) {
        if self.held.len() <= id.index() {
            self.held.resize(id.index() + 1, (Account::Usual, 0));
        }
        self.held[id.index()] = (account, frames as u32);
        match account {
            Account::Modest => {
                self.modest_requests += 1;
                self.modest_frames += frames;
            }
            Account::Long => self.long_frames += frames,
            Account::Usual => {}
        }
    }

    fn settle(&mut self, id: RequestId) {
        let Some(held) = self.held.get_mut(id.index()) else { return };
        match std::mem::replace(held, (Account::Usual, 0)) {
            (Account::Modest, frames) => {
                self.modest_requests -= 1;
                self.modest_frames -= frames as usize;
            }
            (Account::Long, frames) => self.long_frames -= frames as usize,
            (Account::Usual, _) => {}
        }
    }
}

/// An Open-Channel device under an NVMe namespace, with the memory that payload travels in.
pub struct Device<M> {
    pub(crate) media: M,
    pub(crate) frames: Frames,
}

impl<M: Media> Device<M> {
    /// `blocks` blocks of payload may be under way at a time, at least those of two of the longest commands.
    #[must_use]
    pub fn new(media: M, blocks: usize) -> Device<M> {
        let blocks = blocks.max(2 * openftl_media::SCALAR_BLOCKS_MAX as usize);
        let frames = Frames::new(blocks, 0, media.geometry().oob_bytes as usize);
        Device { media, frames }
    }

    /// The device.
    #[must_use]
    pub fn media(&self) -> &M {
        &self.media
    }

    /// The device, to be operated.
    pub fn media_mut(&mut self) -> &mut M {
        &mut self.media
    }

    /// The device again, when it is served no more.
    #[must_use]
    pub fn into_media(self) -> M {
        self.media
    }
}

/// What has ended.
#[derive(Clone, Copy)]
pub(crate) enum Ended {
    Request(Finished<Ticket>),
    Command(DeviceFinished<Ticket>),
}

impl Ended {
    pub fn id(&self) -> RequestId {
        match self {
            Ended::Request(finished) => finished.id,
            Ended::Command(finished) => finished.id,
        }
    }

    pub fn is_success(&self) -> bool {
        match self {
            Ended::Request(finished) => finished.result.is_ok(),
            Ended::Command(finished) => finished.completion.status == openftl_media::Status::Success,
        }
    }

    pub fn ticket(&self) -> Ticket {
        match self {
            Ended::Request(finished) => finished.ticket,
            Ended::Command(finished) => finished.ticket,
        }
    }
}

enum Behind<'a, T: ServedDrive> {
    Drive {
        target: &'a mut T,
        requests: ByteRequests<Ticket>,
        finished: Vec<Finished<Ticket>>,
    },
    Device {
        device: &'a mut Device<T::Device>,
        requests: DeviceRequests<Ticket>,
        finished: Vec<DeviceFinished<Ticket>>,
    },
}

/// What is served, and who waits for it.
pub(crate) struct Served<'a, T: ServedDrive> {
    behind: Behind<'a, T>,
    /// Connections that wait for frames or a place, the longest waiting first.
    pub waiters: VecDeque<u32>,
    /// What the requests of one connection may hold, in bytes of frames; a single request may hold more.
    pub share_bytes: u64,
    accounts: Accounts,
}

impl<'a, T: ServedDrive> Served<'a, T> {
    pub fn drive(target: &'a mut T) -> Served<'a, T> {
        let accounts = Accounts::new(target.frames());
        let behind = Behind::Drive { target, requests: ByteRequests::new(REQUESTS_MAX), finished: Vec::new() };
        Served::new(behind, accounts)
    }

    pub fn device(device: &'a mut Device<T::Device>) -> Served<'a, T> {
        let accounts = Accounts::new(&device.frames);
        let behind = Behind::Device { device, requests: DeviceRequests::new(REQUESTS_MAX), finished: Vec::new() };
        Served::new(behind, accounts)
    }

    fn new(behind: Behind<'a, T>, accounts: Accounts) -> Served<'a, T> {
        let share_bytes = (accounts.share_frames * BLOCK_BYTES) as u64;
        Served { behind, waiters: VecDeque::new(), share_bytes, accounts }
    }

    /// The drive, if it is one.
    pub fn target_mut(&mut self) -> Option<&mut T> {
        match &mut self.behind {
            Behind::Drive { target, .. } => Some(target),
            Behind::Device { .. } => None,
        }
    }

    /// The device, if it is one.
    pub fn media_mut(&mut self) -> Option<&mut T::Device> {
        match &mut self.behind {
            Behind::Drive { .. } => None,
            Behind::Device { device, .. } => Some(&mut device.media),
        }
    }

    /// Whether it is a device: hosts count on the order of their commands.
    pub fn is_device(&self) -> bool {
        matches!(self.behind, Behind::Device { .. })
    }

    pub fn is_read_only(&self) -> bool {
        match &self.behind {
            Behind::Drive { target, .. } => target.is_read_only(),
            Behind::Device { .. } => false,
        }
    }

    fn frames(&self) -> &Frames {
        match &self.behind {
            Behind::Drive { target, .. } => target.frames(),
            Behind::Device { device, .. } => &device.frames,
        }
    }

    /// Frames that are free.
    pub fn available(&self) -> usize {
        self.frames().available(FrameForm::Bytes)
    }

    pub fn next_due(&self) -> Option<Time> {
        match &self.behind {
            Behind::Drive { target, .. } => target.next_due(),
            Behind::Device { device, .. } => device.media.next_due(),
        }
    }

    /// Requests that are admitted.
    pub fn len(&self) -> usize {
        match &self.behind {
            Behind::Drive { requests, .. } => requests.len(),
            Behind::Device { requests, .. } => requests.len(),
        }
    }

    /// Whether a poll would bring something whatever the drive does.
    pub fn has_finished(&self) -> bool {
        match &self.behind {
            Behind::Drive { requests, .. } => requests.has_finished(),
            Behind::Device { .. } => false,
        }
    }

    /// Gives a request a place and frames, or lets its connection wait for them.
    pub fn admit(&mut self, ticket: Ticket, claim: Claim, request: ByteRequest) -> Option<RequestId> {
        let frames = request.frames_needed();
        self.admit_as(ticket.slot, claim, frames, |behind| {
            let Behind::Drive { target, requests, .. } = behind else {
                unreachable!("a device has commands of its own")
            };
            requests.admit(target.frames_mut(), ticket, request)
        })
    }

    /// The same for a command of a device.
    pub fn admit_command(&mut self, ticket: Ticket, claim: Claim, request: DeviceRequest<'_>) -> Option<RequestId> {
        let frames = request.frames_needed();
        self.admit_as(ticket.slot, claim, frames, |behind| {
            let Behind::Device { device, requests, .. } = behind else {
                unreachable!("a drive has requests of its own")
            };
            requests.admit(&mut device.frames, ticket, request)
        })
    }

    fn admit_as(
        &mut self,
        slot: u32,
        claim: Claim,
        frames: usize,
        admit: impl FnOnce(&mut Behind<'a, T>) -> Option<RequestId>,
    ) -> Option<RequestId> {
        let is_next = self.waiters.front().is_none_or(|front| *front == slot);
        let (available, requests) = (self.available(), self.len());
        let account = self.accounts.account(frames, claim.is_modest(), is_next, available, requests);
        let admitted = account.and_then(|account| Some((account, admit(&mut self.behind)?)));
        let Some((account, id)) = admitted else {
            if !self.waiters.contains(&slot) {
                self.waiters.push_back(slot);
            }
            return None;
        };
        if self.waiters.front() == Some(&slot) {
            self.waiters.pop_front();
        }
        self.accounts.book(id, account, frames);
        Some(id)
    }

    /// A connection waits for nothing here.
    pub fn stop_waiting(&mut self, slot: u32) {
        self.waiters.retain(|waiter| *waiter != slot);
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
        }
    }

    /// The bytes of a finished read from byte `from` on, as far as they lie together.
    #[inline]
    pub fn slice(&self, id: RequestId, from: u64) -> &[u8] {
        match &self.behind {
            Behind::Drive { target, requests, .. } => requests.slice(target.frames(), id, from),
            Behind::Device { device, requests, .. } => requests.slice(&device.frames, id, from),
        }
    }

    /// Where the bytes of an admitted write go from byte `from` on, as far as they lie together.
    #[inline]
    pub fn slice_mut(&mut self, id: RequestId, from: u64) -> &mut [u8] {
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.slice_mut(target.frames_mut(), id, from),
            Behind::Device { device, requests, .. } => requests.slice_mut(&mut device.frames, id, from),
        }
    }

    /// Puts `bytes` where those of an admitted write go from byte `from` on.
    pub fn fill(&mut self, id: RequestId, mut from: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.slice_mut(id, from);
            let (now, rest) = bytes.split_at(room.len().min(bytes.len()));
            room[..now.len()].copy_from_slice(now);
            (from, bytes) = (from + now.len() as u64, rest);
        }
    }

    /// Says which blocks are the object of an admitted request.
    pub fn set_extents(&mut self, id: RequestId, extents: &[Extent]) {
        let Behind::Drive { requests, .. } = &mut self.behind else { unreachable!("only for drives") };
        requests.set_extents(id, extents);
    }

    /// The memory of a write to a drive from byte `from` on, in pieces, for one vectored system call.
    pub fn room<const PIECES: usize>(&mut self, id: RequestId, from: u64) -> ([&mut [u8]; PIECES], usize) {
        let Behind::Drive { target, requests, .. } = &mut self.behind else { unreachable!("only for drives") };
        let mut at = from;
        let mut ranges: [_; PIECES] = std::array::from_fn(|_| 0..0);
        let frames = std::array::from_fn(|index| {
            let (frame, range) = requests.place(id, at);
            at += range.len() as u64;
            ranges[index] = range;
            frame
        });
        let mut ranges = ranges.into_iter();
        let pieces = target.frames_mut().bytes_disjoint_mut::<PIECES>(frames);
        let pieces = pieces.map(|bytes| &mut bytes[ranges.next().expect("as many ranges as frames")]);
        (pieces, (at - from) as usize)
    }

    /// Starts an admitted request, a write with all its bytes filled.
    pub fn start(&mut self, now: Time, id: RequestId) {
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.start(now, *target, id),
            Behind::Device { device, requests, .. } => {
                requests.start(now, &mut device.media, &mut device.frames, id);
            }
        }
    }

    /// Gives up an admitted request that was not started.
    pub fn abandon(&mut self, id: RequestId) {
        self.accounts.settle(id);
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.abandon(target.frames_mut(), id),
            Behind::Device { device, requests, .. } => requests.abandon(&mut device.frames, id),
        }
    }

    /// Gives back the place and the frames of a finished request.
    pub fn release(&mut self, id: RequestId) {
        self.accounts.settle(id);
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.release(target.frames_mut(), id),
            Behind::Device { device, requests, .. } => requests.release(&mut device.frames, id),
        }
    }

    /// Lets it work and appends what has finished.
    pub fn poll(&mut self, now: Time, ended: &mut Vec<Ended>) {
        match &mut self.behind {
            Behind::Drive { target, requests, finished } => {
                requests.poll(now, *target, finished);
                ended.extend(finished.drain(..).map(Ended::Request));
            }
            Behind::Device { device, requests, finished } => {
                requests.poll(now, &mut device.media, &mut device.frames, finished);
                ended.extend(finished.drain(..).map(Ended::Command));
            }
        }
    }

    /// Asks for everything that has ended to be durable; `None` while there is no place for the request.
    pub fn flush(&mut self, ticket: Ticket) -> Option<RequestId> {
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.admit(target.frames_mut(), ticket, ByteRequest::Flush),
            Behind::Device { device, requests, .. } => requests.admit(&mut device.frames, ticket, DeviceRequest::Flush),
        }
    }
}

/// The shape of a device.
impl<M: Media> Device<M> {
    /// As hosts learn it.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        *self.media.geometry()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(frames: usize) -> Accounts {
        Accounts::new(&Frames::new(frames, 0, 16))
    }

    #[test]
    fn a_modest_request_passes_those_that_wait_while_the_reserve_has_room() {
        let mut accounts = accounts(1024);
        let modest = |accounts: &Accounts, available| accounts.account(1, true, false, available, 10);
        for _ in 0..128 {
            let account = modest(&accounts, 128).expect("an eighth of the pool is reserved");
            accounts.modest_frames += 1;
            assert_eq!(account, Account::Modest);
        }
        assert_eq!(modest(&accounts, 500), None, "the reserve is used up, and others wait");
        assert_eq!(accounts.account(1, true, true, 500, 10), Some(Account::Modest), "nobody waits");
    }

    #[test]
    fn nobody_else_takes_frames_or_places_of_the_reserve() {
        let mut accounts = accounts(1024);
        let usual = |accounts: &Accounts, frames, available, requests| {
            accounts.account(frames, false, true, available, requests)
        };
        assert_eq!(usual(&accounts, 64, 191, 1), None);
        assert_eq!(usual(&accounts, 64, 192, 1), Some(Account::Usual));
        assert_eq!(usual(&accounts, 64, 1024, REQUESTS_MAX - REQUESTS_MAX / RESERVE_SHARES), None);
        accounts.modest_frames = 28;
        assert_eq!(usual(&accounts, 64, 164, 1), Some(Account::Usual), "what modest requests hold is not kept twice");
    }

    #[test]
    fn long_requests_hold_half_of_the_pool_together_and_one_always_fits() {
        let mut accounts = accounts(1024);
        let long = |accounts: &Accounts, frames| accounts.account(frames, false, true, 1024, 1);
        assert_eq!(long(&accounts, 512), Some(Account::Long));
        accounts.long_frames = 129;
        assert_eq!(long(&accounts, 512), None);
        assert_eq!(long(&accounts, 383), Some(Account::Long));
        assert_eq!(long(&accounts, 128), Some(Account::Usual), "a share is not long");
        let alone = accounts.account(1024, false, true, 1024, 0);
        assert_eq!(alone, None, "half is half, also of an idle drive");
        accounts.long_frames = 0;
        assert_eq!(accounts.account(1024, false, true, 1024, 0), Some(Account::Long));
    }
}
