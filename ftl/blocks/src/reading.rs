//! Reading: a lookup in the map, and nothing else.
//!
//! A block is read from its frame if it is still buffered, from media if it is mapped, and as zeroes if it is not. What
//! the medium returns is trusted only if it says that it is that logical block and its CRC32C agrees; if not, it is read
//! once more before the host gets an error. What was good only with much correction, or only the second time, is refreshed.

use crate::block_ftl::BlockFtl;
use crate::map_pages::Waiting;
use openftl_core::{Clock, Frame, FrameForm, Frames, Nanos, Ppa, Time, VECTOR_BLOCKS_MAX};
use openftl_media::{Completion, Status};
use openftl_parts::flash::Flash;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::reads::{ReadId, Reader};
use openftl_parts::map::demand::Looked;
use openftl_parts::map::{Entry, Map, Place};
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{Done, IoError};
use openftl_parts::tenant::Tenant;
use openftl_parts::words::Care;

#[derive(Clone, Copy)]
struct Request {
    tag: u64,
    began: Time,
    /// Commands under way for it.
    commands: u32,
    error: Option<IoError>,
}

impl Request {
    /// Blocks of it cannot be read; the host is told of the first.
    fn fail(&mut self, error: IoError) {
        self.error = Some(self.error.map_or(error, |other| other.or_earlier(error)));
    }
}

/// Where a block is that can be read.
pub enum BlockPlace {
    /// On media.
    Media(Ppa),
    /// In a frame, on its way to media.
    Frame(Frame),
}

/// What a command of a read asks for, beside where that is.
#[derive(Clone, Copy)]
struct ReadCommand {
    /// The number of the table that is read; `None`: the map.
    table: Option<u64>,
    logical: [u64; VECTOR_BLOCKS_MAX],
}

/// Host reads under way.
#[derive(Default)]
pub struct Reading {
    requests: Vec<Request>,
    free_requests: Vec<u32>,
    /// By [`ReadId`].
    commands: Vec<ReadCommand>,
}

impl Reading {
    /// Whether no read of the host is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.len() == self.free_requests.len()
    }

    fn begin_request(&mut self, tag: u64, began: Time) -> u32 {
        let request = Request { tag, began, commands: 0, error: None };
        if let Some(index) = self.free_requests.pop() {
            self.requests[index as usize] = request;
            return index;
        }
        self.requests.push(request);
        self.requests.len() as u32 - 1
    }

    /// One more command of `request`.
    fn begin_command(&mut self, request: u32, id: ReadId, table: Option<u64>) {
        self.requests[request as usize].commands += 1;
        let index = id.0 as usize;
        if index >= self.commands.len() {
            self.commands.resize(index + 1, ReadCommand { table: None, logical: [0; VECTOR_BLOCKS_MAX] });
        }
        self.commands[index].table = table;
    }
}

/// A read of the host as it is put together.
struct Gathered {
    tag: u64,
    table: Option<u64>,
    request: Option<u32>,
    /// The command that is not full yet.
    command: Option<ReadId>,
    lost: Option<IoError>,
}

impl Gathered {
    fn new(tag: u64, table: Option<u64>) -> Gathered {
        Gathered { tag, table, request: None, command: None, lost: None }
    }
}

impl BlockFtl {
    /// Whether reads of the host are under way.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        !self.reading.is_idle()
    }

    pub(crate) fn read(&mut self, tag: u64, first: u64, frames: &[Frame]) -> Result<(), IoError> {
        self.check_read_range(first, frames.len())?;
        // What a tenant has in the area is its own, and not the host's.
        if first >= self.config.catalog_blocks.into() {
            self.flash.statistics.host_blocks_read += frames.len() as u64;
        }
        let mut gathered = Gathered::new(tag, None);
        self.flash.allowance.earn(frames.len());
        if matches!(self.map, Map::Paged(_)) {
            self.gather_paged(&mut gathered, first, frames, None);
            self.submit_gathered(gathered);
            return Ok(());
        }
        for (index, frame) in frames.iter().enumerate() {
            let block = first + index as u64;
            let entry = self.map.whole().get(block);
            self.gather_entry(&mut gathered, entry, block, *frame);
        }
        self.submit_gathered(gathered);
        Ok(())
    }

    /// Adds a block that is where `entry` says to a read.
    #[inline]
    fn gather_entry(&mut self, gathered: &mut Gathered, entry: Entry, block: u64, frame: Frame) {
        match entry.place() {
            Place::Unmapped => self.flash.frames.zero(frame),
            Place::Lost => _ = gathered.lost.get_or_insert(IoError::Unrecovered { block }),
            Place::Buffer(buffered) if self.buffer.slot(buffered).kind == BlockKind::Uncorrectable => {
                _ = gathered.lost.get_or_insert(IoError::Uncorrectable { block });
            }
            Place::Buffer(buffered) => {
                self.flash.statistics.buffer_hits += 1;
                self.flash.frames.copy(buffered, frame);
            }
            Place::Media(_) if self.flash.is_deaf => {
                _ = gathered.lost.get_or_insert(IoError::Unrecovered { block });
            }
            Place::Media(ppa) => self.gather(gathered, ppa, block, frame),
        }
    }

    /// Adds blocks of a map on media to a read. Of what the map has to be asked for, those of one page wait for it together, but for
    /// what is in `page`, which somebody has waited for.
    fn gather_paged(&mut self, gathered: &mut Gathered, first: u64, frames: &[Frame], page: Option<Frame>) {
        let mut waits: Option<(u32, u64, Vec<Frame>)> = None;
        for (block, frame) in (first..).zip(frames) {
            let Map::Paged(map) = &mut self.map else { unreachable!("the map is on media") };
            let looked = match (map.buffered(block), page) {
                (Some(buffered), _) => Looked::Entry(Entry::buffer(buffered)),
                (None, Some(page)) => Looked::Entry(map.look_in(block, self.flash.frames.bytes(page))),
                (None, None) => map.look(block),
            };
            match (looked, &mut waits) {
                (Looked::Entry(entry), _) => self.gather_entry(gathered, entry, block, *frame),
                // Blocks of a page need not follow each other.
                (Looked::Page(page), Some((waited, from, list)))
                    if *waited == page && *from + list.len() as u64 == block =>
                {
                    list.push(*frame);
                }
                (Looked::Page(page), _) => {
                    let before = waits.replace((page, block, vec![*frame]));
                    self.await_page(gathered, before);
                }
            }
        }
        self.await_page(gathered, waits);
    }

    /// Blocks of a read wait for their page: it has one command more that has not ended.
    fn await_page(&mut self, gathered: &mut Gathered, waits: Option<(u32, u64, Vec<Frame>)>) {
        let Some((page, first, frames)) = waits else { return };
        let request = *gathered.request.get_or_insert_with(|| self.reading.begin_request(gathered.tag, self.flash.now));
        self.reading.requests[request as usize].commands += 1;
        self.wait_for_page(page, Waiting { request, first, frames });
    }

    /// The page that blocks of a read waited for is in `page`, or nowhere.
    pub(crate) fn read_with_page(&mut self, request: u32, first: u64, frames: &[Frame], page: Option<Frame>) {
        let Request { tag, .. } = self.reading.requests[request as usize];
        let mut gathered = Gathered { request: Some(request), ..Gathered::new(tag, None) };
        self.gather_paged(&mut gathered, first, frames, page);
        if let Some(command) = gathered.command {
            self.flash.submit_read(command);
        }
        if let Some(lost) = gathered.lost {
            self.reading.requests[request as usize].fail(lost);
        }
        self.command_ended(request, self.flash.now);
    }

    /// The page that blocks of a read waited for is lost. What is known without it is read.
    pub(crate) fn read_without_page(&mut self, request: u32, first: u64, frames: &[Frame]) {
        let Request { tag, .. } = self.reading.requests[request as usize];
        let mut gathered = Gathered { request: Some(request), ..Gathered::new(tag, None) };
        for (block, frame) in (first..).zip(frames) {
            let Map::Paged(map) = &mut self.map else { unreachable!("the map is on media") };
            let entry = match (map.buffered(block), map.look(block)) {
                (Some(buffered), _) => Entry::buffer(buffered),
                (None, Looked::Entry(entry)) => entry,
                (None, Looked::Page(_)) => Entry::LOST,
            };
            self.gather_entry(&mut gathered, entry, block, *frame);
        }
        if let Some(command) = gathered.command {
            self.flash.submit_read(command);
        }
        if let Some(lost) = gathered.lost {
            self.reading.requests[request as usize].fail(lost);
        }
        self.command_ended(request, self.flash.now);
    }

    /// Reads these blocks, and waits for that: what a tenant has in the area, when the drive is opened. Gives a frame for each, or why the
    /// first of them that cannot be read cannot.
    ///
    /// # Errors
    /// If the device stops completing commands, or there are fewer frames.
    pub fn read_blocks(
        &mut self,
        wanted: &[u64],
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
    ) -> Result<Result<Vec<Frame>, IoError>, OpenError> {
        let mut frames = Vec::new();
        if !self.flash.frames.acquire_many(FrameForm::Bytes, wanted.len(), &mut frames) {
            let text = format!("{} blocks of the area are to be read, and there are fewer frames", wanted.len());
            return Err(OpenError::Tenant { text, is_lost: false });
        }
        let begun = wanted.iter().zip(&frames).try_for_each(|(block, frame)| {
            self.flash.now = self.flash.now.max(clock.now());
            self.read(*block, *block, &[*frame])
        });
        // Also of those before one that could not begin: their frames are in use.
        let result = self.wait_for_reads(clock, tenant)?.and(begun);
        if result.is_err() {
            frames.drain(..).for_each(|frame| self.flash.frames.release(frame));
        }
        Ok(result.map(|()| frames))
    }

    /// Reads what blocks of the area, those that `is_wanted`, said before what is in doubt of the log: a power cut may bring that back.
    /// `None`: it cannot be read.
    ///
    /// # Errors
    /// As of [`BlockFtl::read_blocks`].
    pub fn read_left(
        &mut self,
        is_wanted: impl Fn(u32) -> bool,
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
    ) -> Result<Option<Vec<(u32, Frame)>>, OpenError> {
        let left = std::mem::take(&mut self.left_in_area).into_iter().filter(|(block, _)| is_wanted(*block));
        let (left, mut frames): (Vec<(u32, Ppa)>, _) = (left.collect(), Vec::new());
        if !self.flash.frames.acquire_many(FrameForm::Bytes, left.len(), &mut frames) {
            return Ok(None);
        }
        for ((block, ppa), frame) in left.iter().zip(&frames) {
            let mut gathered = Gathered::new(u64::from(*block), None);
            self.gather(&mut gathered, *ppa, u64::from(*block), *frame);
            self.submit_gathered(gathered);
        }
        if self.wait_for_reads(clock, tenant)?.is_err() {
            frames.into_iter().for_each(|frame| self.flash.frames.release(frame));
            return Ok(None);
        }
        Ok(Some(left.into_iter().map(|(block, _)| block).zip(frames).collect()))
    }

    /// Waits until nothing is being read.
    ///
    /// # Errors
    /// As of [`BlockFtl::read_blocks`].
    pub fn wait_for_reads(
        &mut self,
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
    ) -> Result<Result<(), IoError>, OpenError> {
        self.hand_over();
        self.run(clock, tenant, |ftl| !ftl.is_reading())?;
        let mut done = Vec::new();
        self.poll_beside(clock.now(), &mut done, tenant);
        Ok(done.into_iter().try_for_each(|done| done.result))
    }

    /// Reads blocks of table `number` from block `first` on, each from where `place` says.
    pub fn read_elsewhere(
        &mut self,
        tag: u64,
        number: u64,
        first: u32,
        frames: &[Frame],
        place: impl Fn(&Flash, u32) -> BlockPlace,
    ) {
        self.flash.statistics.host_blocks_read += frames.len() as u64;
        self.flash.allowance.earn(frames.len());
        let mut gathered = Gathered::new(tag, Some(number));
        for (block, frame) in (first..).zip(frames) {
            match place(&self.flash, block) {
                BlockPlace::Frame(buffered) => {
                    self.flash.statistics.buffer_hits += 1;
                    self.flash.frames.copy(buffered, *frame);
                }
                BlockPlace::Media(ppa) => self.gather(&mut gathered, ppa, block.into(), *frame),
            }
        }
        self.submit_gathered(gathered);
        self.hand_over();
    }

    /// Adds a block to a read, and submits what is full of it.
    #[inline]
    fn gather(&mut self, gathered: &mut Gathered, ppa: Ppa, block: u64, frame: Frame) {
        let request = *gathered.request.get_or_insert_with(|| self.reading.begin_request(gathered.tag, self.flash.now));
        let id = *gathered.command.get_or_insert_with(|| {
            let id = self.flash.reads.begin(Reader::Host, u64::from(request));
            self.reading.begin_command(request, id, gathered.table);
            id
        });
        let read = self.flash.reads.get_mut(id);
        self.reading.commands[id.0 as usize].logical[read.places().len()] = block;
        if read.add(ppa, frame) {
            self.flash.submit_read(id);
            gathered.command = None;
        }
    }

    /// Submits the last command of a read, if it is not full, and ends a read that needs none.
    #[inline]
    fn submit_gathered(&mut self, Gathered { tag, request, command, lost, .. }: Gathered) {
        if let Some(command) = command {
            self.flash.submit_read(command);
        }
        match request {
            None => {
                self.flash.statistics.read_latency.record(Nanos::ZERO);
                self.flash.statistics.host_errors += u64::from(lost.is_some());
                self.done.push(Done { tag, result: lost.map_or(Ok(()), Err), at: self.flash.now });
            }
            Some(request) => self.reading.requests[request as usize].error = lost,
        }
    }

    /// Ends every read with an error. What the device still has of them must never come back: their frames are the host's. So
    /// their commands never end, and nothing is reset any more that waits for them.
    pub(crate) fn give_up_reads(&mut self) {
        let of_host = self.flash.reads.of(Reader::Host);
        let first_of = |id: ReadId| {
            let request = self.flash.reads.get(id).owner as u32;
            (request, self.reading.commands[id.0 as usize].logical[0])
        };
        let mut given_up: Vec<(u32, u64)> = of_host.map(first_of).collect();
        if let Some(pages) = &mut self.map_pages {
            given_up.extend(pages.give_up());
        }
        given_up.sort_unstable();
        given_up.dedup_by_key(|(request, _)| *request);
        for (request, block) in given_up {
            let reading = &mut self.reading.requests[request as usize];
            reading.fail(IoError::Unrecovered { block });
            let (tag, error) = (reading.tag, reading.error.expect("it has just failed"));
            self.reading.free_requests.push(request);
            self.flash.statistics.read_failures += 1;
            self.end_with(tag, Err(error));
        }
    }

    pub(crate) fn host_read_ended(&mut self, id: ReadId, completion: Completion) {
        if completion.status != Status::Success {
            self.refresh_what_was_read(id, completion);
        }
        let (read, command) = (self.flash.reads.get(id), &mut self.reading.commands[id.0 as usize]);
        let (request, is_again) = (read.owner as u32, read.is_again);
        let (mut error, mut again, mut failed) = (None, 0u64, 0);
        for (at, frame) in read.frames().iter().enumerate() {
            let block = command.logical[at];
            let lost = !completion.status.data_is_good() && completion.failed >> at & 1 != 0;
            let found = match lost {
                true => Err(IoError::Unrecovered { block }),
                false => verdict(&self.flash.frames, *frame, command.table, block, self.config.verify_reads),
            };
            // What the host wants to be an error is one at once, and no failure of the medium.
            if let Err(marked @ IoError::Uncorrectable { .. }) = found {
                self.reading.requests[request as usize].fail(marked);
            } else if let Err(found) = found {
                error.get_or_insert(found);
                command.logical[failed] = block;
                again |= 1 << at;
                failed += 1;
            }
        }
        if error.is_some() && !is_again {
            self.flash.read_again(id, again);
            return;
        }
        self.flash.reads.end(id);
        if let Some(error) = error {
            self.flash.statistics.read_failures += 1;
            self.reading.requests[request as usize].fail(error);
        }
        self.command_ended(request, completion.at);
    }

    /// A command of a read has ended; with the last one the read does.
    #[inline]
    fn command_ended(&mut self, request: u32, at: Time) {
        let reading = &mut self.reading.requests[request as usize];
        reading.commands -= 1;
        if reading.commands == 0 {
            let Request { tag, began, error, .. } = *reading;
            self.flash.statistics.read_latency.record(at.since(began));
            self.reading.free_requests.push(request);
            self.flash.statistics.host_errors += u64::from(error.is_some());
            self.done.push(Done { tag, result: error.map_or(Ok(()), Err), at });
        }
    }
}

/// Whether `frame` holds logical block `block`, or that block of a table.
#[inline]
fn verdict(frames: &Frames, frame: Frame, table: Option<u64>, block: u64, verify: bool) -> Result<(), IoError> {
    let oob = if verify { Oob::verify(frames, frame) } else { Oob::peek(frames, frame) };
    match oob {
        Ok(Oob { kind: BlockKind::Tenant, address, sequence }) if address == block && table == Some(sequence) => Ok(()),
        Ok(Oob { kind: BlockKind::Lost, address, sequence }) if address == block && table == Some(sequence) => {
            Err(IoError::Unrecovered { block })
        }
        _ if table.is_some() => Err(IoError::WrongBlock { block }),
        Ok(Oob { kind: BlockKind::Data, address, .. }) if address == block => Ok(()),
        Ok(Oob { kind: BlockKind::Lost, address, .. }) if address == block => Err(IoError::Unrecovered { block }),
        Ok(Oob { kind: BlockKind::Uncorrectable, address, .. }) if address == block => {
            Err(IoError::Uncorrectable { block })
        }
        _ => Err(IoError::WrongBlock { block }),
    }
}

impl BlockFtl {
    /// Blocks that could not be read this time, or with much correction only, are to move.
    #[cold]
    fn refresh_what_was_read(&mut self, id: ReadId, completion: Completion) {
        let mut places = [Ppa(0); VECTOR_BLOCKS_MAX];
        let blocks = self.flash.reads.get(id).places().len();
        places[..blocks].copy_from_slice(self.flash.reads.get(id).places());
        for place in places[..blocks].iter().enumerate().filter(|(at, _)| completion.failed >> at & 1 != 0) {
            self.weak_block(*place.1, Care::HostRead);
        }
        self.flash.is_unusual = true;
        self.flash.stirred = true;
    }
}
