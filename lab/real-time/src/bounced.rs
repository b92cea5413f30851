//! A device whose driver copies what it is to write once more, as one does whose hardware reaches some memory only.

use openftl_core::page::PagePool;
use openftl_core::{BLOCK_BYTES, ChunkId, Frames, Geometry, Nanos, Payload, Time};
use openftl_media::{ChunkDescriptor, Command, Completion, Media, MediaError, Notification, QueueFull, Tag};

/// A device behind a bounce buffer, which is used or not.
pub struct Bounced<M> {
    device: M,
    /// Where a block is copied to on its way to the device; as long as a queue of write units, so that it does not stay in
    /// the nearest cache.
    buffer: Box<[u8]>,
    next: usize,
    copied: u64,
    is_copying: bool,
}

/// Bytes of the bounce buffer.
const BUFFER_BYTES: usize = 8 << 20;

impl<M: Media> Bounced<M> {
    pub fn new(device: M) -> Bounced<M> {
        Bounced { device, buffer: vec![0; BUFFER_BYTES].into(), next: 0, copied: 0, is_copying: false }
    }

    /// Whether what is written is copied from now on.
    pub fn set_copying(&mut self, is_copying: bool) {
        self.is_copying = is_copying;
    }

    /// Bytes that were copied so far.
    pub fn copied(&self) -> u64 {
        self.copied
    }
}

impl<M: Media> Media for Bounced<M> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn page_pool(&self) -> PagePool {
        self.device.page_pool()
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        if let (Command::Write { frames: sources, .. }, true) = (&command, self.is_copying) {
            for frame in *sources {
                if let Payload::Bytes(bytes) = frames.payload(*frame) {
                    self.buffer[self.next..][..BLOCK_BYTES].copy_from_slice(bytes);
                    self.next = (self.next + BLOCK_BYTES) % BUFFER_BYTES;
                    self.copied += BLOCK_BYTES as u64;
                }
            }
            // It is as if the device took it from there.
            std::hint::black_box(&mut self.buffer);
        }
        self.device.submit(now, frames, tag, command)
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        self.device.poll(now, frames, completions);
    }

    fn next_due(&self) -> Option<Time> {
        self.device.next_due()
    }

    fn needs_flush(&self) -> bool {
        self.device.needs_flush()
    }

    fn forgets_writes(&self) -> bool {
        self.device.forgets_writes()
    }

    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        self.device.chunk_report(now, first, descriptors)
    }

    fn notifications(
        &mut self,
        now: Time,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        self.device.notifications(now, after, notifications)
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        self.device.set_dulbe(dulbe);
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        self.device.pu_busy()
    }
}
