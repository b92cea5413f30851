//! Reads of files, under way from the drive to the host.

use crate::inode::{Fields, inline};
use crate::operation::{Data, FileTime, Inode, PAYLOAD_BYTES_MAX, Refusal, Reply, SeekFor, Ticket};
use crate::volume::{Io, Step, Stop, Volume};
use openftl_core::{BLOCK_BYTES, Frame};
use openftl_parts::target::{Request, SegmentTarget};

/// Seconds after which a file that is read says so again.
const ACCESS_SECONDS: i64 = 24 * 60 * 60;

const BLOCK: u64 = BLOCK_BYTES as u64;

static ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// A read.
#[derive(Default, Debug)]
pub(crate) struct Reading {
    /// Its blocks; `None`: zeroes.
    blocks: Vec<Option<Frame>>,
    /// Bytes of the first block before those that were asked for.
    skip: usize,
    bytes: usize,
    /// Requests to the drive that have not ended.
    under_way: u32,
    /// Of those, what the drive had no room for: the place of the first block, its address, and how many there are.
    waiting: Vec<(usize, u32, u32)>,
    has_failed: bool,
    is_abandoned: bool,
}

impl<T: SegmentTarget> Volume<T> {
    pub(crate) fn read(&mut self, ticket: Ticket, inode: Inode, offset: u64, bytes: u32) -> Step<Reply> {
        if self.reads.get(&ticket).is_some_and(|reading| !reading.waiting.is_empty()) {
            self.start_waiting(ticket);
        }
        if let Some(reading) = self.reads.get(&ticket) {
            return match reading {
                Reading { under_way: 1.., .. } => Err(Stop::Wait),
                Reading { has_failed: true, .. } => {
                    self.forget_read(ticket);
                    Err(Stop::DAMAGED)
                }
                Reading { bytes, .. } => Ok(Reply::Data(Data { ticket, bytes: *bytes as u32 })),
            };
        }
        let fields = self.pin_regular(inode)?;
        let bytes = u64::from(bytes.min(PAYLOAD_BYTES_MAX as u32)).min(fields.size.get().saturating_sub(offset));
        let mut reading = Reading { skip: (offset % BLOCK) as usize, bytes: bytes as usize, ..Reading::default() };
        if bytes == 0 {
            self.reads.insert(ticket, reading);
            self.access(inode, &fields);
            return Ok(Reply::Data(Data { ticket, bytes: 0 }));
        }
        if fields.is_inline() {
            let frame = self.frame()?;
            let contents = inline(&self.cache.node(inode.0).bytes);
            self.target.frames_mut().bytes_mut(frame)[..contents.len()].copy_from_slice(contents);
            reading.blocks.push(Some(frame));
            self.reads.insert(ticket, reading);
            self.access(inode, &fields);
            return Ok(Reply::Data(Data { ticket, bytes: bytes as u32 }));
        }
        let (first, last) = (offset / BLOCK, (offset + bytes - 1) / BLOCK);
        let mut addresses = Vec::with_capacity((last - first + 1) as usize);
        for index in first..=last {
            addresses.push(match self.cache.page((inode.0, index as u32)) {
                Some(_) => Source::Memory,
                None => match self.address_of(inode.0, index)? {
                    0 => Source::Hole,
                    address if self.kept.contains_key(&address) => Source::Kept(address),
                    address => Source::Media(address),
                },
            });
        }
        let needed = addresses.iter().filter(|source| !matches!(source, Source::Hole)).count();
        self.expect_frames(ticket, needed)?;
        for (index, source) in (first..).zip(&addresses) {
            reading.blocks.push(match source {
                Source::Hole => None,
                Source::Media(_) => Some(self.frame()?),
                Source::Kept(address) => {
                    let frame = self.frame()?;
                    self.target.frames_mut().bytes_mut(frame).copy_from_slice(&self.kept[address][..]);
                    Some(frame)
                }
                Source::Memory => {
                    let frame = self.frame()?;
                    let page = self.cache.page((inode.0, index as u32)).expect("it was there");
                    self.target.frames_mut().bytes_mut(frame).copy_from_slice(&page.bytes[..]);
                    Some(frame)
                }
            });
        }
        reading.waiting = runs(&addresses);
        // The last is taken first.
        reading.waiting.reverse();
        reading.under_way = reading.waiting.len() as u32;
        for (_, address, blocks) in &reading.waiting {
            (0..*blocks).for_each(|block| self.segments.count_read(address + block, true));
        }
        self.reads.insert(ticket, reading);
        self.access(inode, &fields);
        self.read(ticket, inode, offset, bytes as u32)
    }

    /// Hands the requests of a read to the drive, as many as it takes now.
    fn start_waiting(&mut self, ticket: Ticket) {
        let reading = self.reads.get_mut(&ticket).expect("it is under way");
        let mut waiting = std::mem::take(&mut reading.waiting);
        let frames: Vec<Frame> = reading.blocks.iter().map(|frame| frame.unwrap_or(Frame(0))).collect();
        while let Some(&(at, address, blocks)) = waiting.last() {
            let request = Request::Read { first: address.into(), frames: &frames[at..at + blocks as usize] };
            if !self.start(Io::Read { ticket, address, blocks }, request) {
                break;
            }
            waiting.pop();
        }
        self.reads.get_mut(&ticket).expect("it is under way").waiting = waiting;
    }

    /// Whether a read has the frames that it needs. The first that has not is the next to get them: later ones leave it as many.
    fn expect_frames(&mut self, ticket: Ticket, needed: usize) -> Step<()> {
        let before = self.waiting_read.filter(|(first, _)| *first != ticket).map_or(0, |(_, frames)| frames);
        if self.has_frames(needed + before) {
            self.waiting_read = self.waiting_read.filter(|(first, _)| *first != ticket);
            return Ok(());
        }
        self.waiting_read.get_or_insert((ticket, needed));
        Err(Stop::Wait)
    }

    /// Requests of a read have ended.
    pub(crate) fn read_ended(&mut self, ticket: Ticket, is_fine: bool) {
        let reading = self.reads.get_mut(&ticket).expect("a read has requests under way");
        reading.under_way -= 1;
        reading.has_failed |= !is_fine;
        if reading.under_way == 0 && reading.is_abandoned {
            self.forget_read(ticket);
        }
    }

    /// Nobody wants the bytes of a read any more.
    pub(crate) fn forget_read(&mut self, ticket: Ticket) {
        self.waiting_read = self.waiting_read.filter(|(first, _)| *first != ticket);
        let Some(reading) = self.reads.get_mut(&ticket) else { return };
        let waiting = std::mem::take(&mut reading.waiting);
        reading.under_way -= waiting.len() as u32;
        for (_, address, blocks) in waiting {
            (0..blocks).for_each(|block| self.segments.count_read(address + block, false));
        }
        if reading.under_way > 0 {
            reading.is_abandoned = true;
            return;
        }
        let reading = self.reads.remove(&ticket).expect("it was just there");
        reading.blocks.into_iter().flatten().for_each(|frame| self.target.frames_mut().release(frame));
        // Somebody may wait for them.
        self.is_stirred = true;
    }

    pub(crate) fn visit(&self, data: &Data, piece: &mut dyn FnMut(&[u8])) {
        let reading = self.reads.get(&data.ticket).expect("the bytes were not given back");
        let (mut skip, mut left) = (reading.skip, reading.bytes);
        for block in &reading.blocks {
            let bytes = block.map_or(&ZEROES, |frame| self.target.frames().bytes(frame));
            let now = left.min(BLOCK_BYTES - skip);
            piece(&bytes[skip..skip + now]);
            (skip, left) = (0, left - now);
        }
    }

    /// A file has been read. That is worth a change only now and then.
    pub(crate) fn access(&mut self, inode: Inode, fields: &Fields) {
        let (now, accessed) = (self.time_of_day, FileTime::from(fields.accessed));
        let is_old = now.seconds.saturating_sub(accessed.seconds) >= ACCESS_SECONDS;
        let is_news = accessed <= fields.modified.into() || accessed <= fields.changed.into() || is_old;
        if is_news && now > accessed && self.expect_change(0).is_ok() {
            self.fields_mut(inode).accessed = now.into();
            self.changed();
        }
    }

    pub(crate) fn seek(&mut self, inode: Inode, offset: u64, target: SeekFor) -> Step<Reply> {
        let fields = self.pin_regular(inode)?;
        let size = fields.size.get();
        if offset >= size {
            return Err(Refusal::NoSuchOffset.into());
        }
        if fields.is_inline() {
            return Ok(Reply::Offset(if target == SeekFor::Data { offset } else { size }));
        }
        let blocks = size.div_ceil(BLOCK);
        let mut index = offset / BLOCK;
        let found = match target {
            SeekFor::Data => self.next_data(inode.0, index, blocks)?.ok_or(Refusal::NoSuchOffset)?,
            SeekFor::Hole => {
                while index < blocks && self.next_data(inode.0, index, index + 1)?.is_some() {
                    index += 1;
                }
                index
            }
        };
        Ok(Reply::Offset((found * BLOCK).clamp(offset, size)))
    }
}

/// Where a block of a read comes from.
enum Source {
    Hole,
    Memory,
    /// A block that no segment took.
    Kept(u32),
    Media(u32),
}

/// Blocks with addresses that follow each other: which is the first, its address, and how many.
fn runs(sources: &[Source]) -> Vec<(usize, u32, u32)> {
    let mut runs: Vec<(usize, u32, u32)> = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        let Source::Media(address) = source else { continue };
        match runs.last_mut() {
            Some((first, begins, blocks)) if *first + *blocks as usize == at && *begins + *blocks == *address => {
                *blocks += 1;
            }
            _ => runs.push((at, *address, 1)),
        }
    }
    runs
}
