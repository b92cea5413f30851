//! What is served, while it is: a drive of blocks, or an Open-Channel device.
//!
//! Connections see both as one thing: requests are admitted, filled, started, and end with bytes to be looked at. Whoever
//! needs to know says which of the two it means.

use std::collections::VecDeque;

use openftl_bytes::device::{DeviceFinished, DeviceRequest, DeviceRequests};
use openftl_bytes::{ByteRequest, ByteRequests, Finished, RequestId};
use openftl_core::{BLOCK_BYTES, FrameForm, Frames, Geometry, Nanos, Time};
use openftl_ftl::target::Extent;
use openftl_media::Media;

use crate::{POOL_SHARES, ServedDrive, Ticket};

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
    pub waiters: VecDeque<u32>,
    watch: Watch,
    /// What the requests of one connection may hold, in bytes of frames; a single request may hold more.
    pub share_bytes: u64,
}

impl<'a, T: ServedDrive> Served<'a, T> {
    pub fn drive(target: &'a mut T, requests_max: usize) -> Served<'a, T> {
        let share_bytes = (target.frames().len() / POOL_SHARES * BLOCK_BYTES) as u64;
        let behind = Behind::Drive { target, requests: ByteRequests::new(requests_max), finished: Vec::new() };
        Served { behind, waiters: VecDeque::new(), watch: Watch::default(), share_bytes }
    }

    pub fn device(device: &'a mut Device<T::Device>, requests_max: usize) -> Served<'a, T> {
        let share_bytes = (device.frames.len() / POOL_SHARES * BLOCK_BYTES) as u64;
        let behind = Behind::Device { device, requests: DeviceRequests::new(requests_max), finished: Vec::new() };
        Served { behind, waiters: VecDeque::new(), watch: Watch::default(), share_bytes }
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

    /// Gives a request a place and frames, or `None` while there are not enough of either.
    pub fn admit(&mut self, ticket: Ticket, request: ByteRequest) -> Option<RequestId> {
        let Behind::Drive { target, requests, .. } = &mut self.behind else {
            unreachable!("a device has commands of its own")
        };
        requests.admit(target.frames_mut(), ticket, request)
    }

    /// The same for a command of a device.
    pub fn admit_command(&mut self, ticket: Ticket, request: DeviceRequest<'_>) -> Option<RequestId> {
        let Behind::Device { device, requests, .. } = &mut self.behind else {
            unreachable!("a drive has requests of its own")
        };
        requests.admit(&mut device.frames, ticket, request)
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
        match &mut self.behind {
            Behind::Drive { target, requests, .. } => requests.abandon(target.frames_mut(), id),
            Behind::Device { device, requests, .. } => requests.abandon(&mut device.frames, id),
        }
    }

    /// Gives back the place and the frames of a finished request.
    pub fn release(&mut self, id: RequestId) {
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

    /// Looks after a poll whether what waits for the drive will ever end. If not, the drive gives it up: the next poll ends it
    /// with errors. Returns the state that the drive was in.
    pub fn watch(&mut self, now: Time) -> Option<String> {
        let Behind::Drive { target, requests, .. } = &mut self.behind else { return None };
        if self.watch.is_over || !requests.waits_for_drive() {
            self.watch.looked = None;
            return None;
        }
        let vitals = target.vitals()?;
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
        Some(target.give_up(now))
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
        requests.write(now, *target, id);
    }

    /// Asks for everything that has ended to be durable; `None` while there is no place for the request.
    pub fn flush(&mut self, ticket: Ticket) -> Option<RequestId> {
        match &self.behind {
            Behind::Drive { .. } => self.admit(ticket, ByteRequest::Flush),
            Behind::Device { .. } => self.admit_command(ticket, DeviceRequest::Flush),
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
