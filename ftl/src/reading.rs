//! Reading: a lookup in the map, and nothing else.
//!
//! A block is read from its frame if it is still buffered, from media if it is mapped, and as zeroes if it is not. What
//! the medium returns is trusted only if it says that it is that logical block and its CRC32C agrees; if not, it is read
//! once more before the host gets an error. What was good only with much correction, or only the second time, is refreshed.

use crate::block::{BlockFtl, Errand};
use crate::mapping::Place;
use crate::oob::{BlockKind, Oob};
use crate::tables::TableBlock;
use crate::target::{Done, IoError};
use crate::words::Care;
use openftl_core::{Frame, Frames, Nanos, Ppa, Time, VECTOR_BLOCKS_MAX};
use openftl_media::{Completion, Status};

const NONE: u32 = u32::MAX;

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

/// Reads under way, counted by epoch, so that a chunk is reset only when no read that may be of it is under way.
///
/// The epoch goes from e to e + 1 when no read that began in e − 1 is left. Whatever is under way when a chunk falls out
/// of the map has ended two epochs later. So a read costs two counts in one place, and nothing in the chunk's entry.
#[derive(Default)]
struct Epochs {
    epoch: u64,
    under_way: [u32; 2],
}

impl Epochs {
    fn begin(&mut self) -> u64 {
        self.under_way[(self.epoch & 1) as usize] += 1;
        self.epoch
    }

    fn end(&mut self, epoch: u64) {
        self.under_way[(epoch & 1) as usize] -= 1;
    }

    fn under_way(&self) -> u32 {
        self.under_way.iter().sum()
    }

    /// Moves on as far as needed towards `epoch` and possible. Returns whether it is reached.
    fn reach(&mut self, epoch: u64) -> bool {
        while self.epoch < epoch && self.under_way[((self.epoch + 1) & 1) as usize] == 0 {
            self.epoch += 1;
        }
        self.epoch >= epoch
    }
}

struct ReadCommand {
    request: u32,
    blocks: u32,
    epoch: u64,
    retried: bool,
    /// The number of the table that is read; `None`: the map.
    table: Option<u64>,
    places: [Ppa; VECTOR_BLOCKS_MAX],
    logical: [u32; VECTOR_BLOCKS_MAX],
    frames: [Frame; VECTOR_BLOCKS_MAX],
}

/// Host reads under way.
#[derive(Default)]
pub struct Reads {
    requests: Vec<Request>,
    free_requests: Vec<u32>,
    commands: Vec<ReadCommand>,
    free_commands: Vec<u32>,
    epochs: Epochs,
}

impl Reads {
    /// Whether no read of the host is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.len() == self.free_requests.len()
    }

    pub(crate) fn command(&self, index: u32) -> (&[Ppa], &[Frame]) {
        let command = &self.commands[index as usize];
        let blocks = command.blocks as usize;
        (&command.places[..blocks], &command.frames[..blocks])
    }

    /// A read of somebody else begins: no chunk is reset that was in use before, until it ends.
    pub(crate) fn begin(&mut self) -> u64 {
        self.epochs.begin()
    }

    /// The read that began in `epoch` has ended.
    pub(crate) fn end(&mut self, epoch: u64) {
        self.epochs.end(epoch);
    }

    /// Commands under way, of hosts and of the scrub.
    pub(crate) fn under_way(&self) -> u32 {
        self.epochs.under_way()
    }

    /// The epoch at which every read that is under way now has ended.
    pub(crate) fn grace(&self) -> u64 {
        self.epochs.epoch + 2
    }

    /// Whether every read that was under way when [`Reads::grace`] gave `epoch` has ended.
    pub(crate) fn have_ended(&mut self, epoch: u64) -> bool {
        self.epochs.reach(epoch)
    }

    /// Adds a block to a command. Returns whether that is full now.
    #[inline]
    fn add(&mut self, command: u32, ppa: Ppa, block: u32, frame: Frame) -> bool {
        let reading = &mut self.commands[command as usize];
        let at = reading.blocks as usize;
        (reading.places[at], reading.logical[at], reading.frames[at]) = (ppa, block, frame);
        reading.blocks += 1;
        reading.blocks as usize == VECTOR_BLOCKS_MAX
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

    fn begin_command(&mut self, request: u32, table: Option<u64>) -> u32 {
        self.requests[request as usize].commands += 1;
        let epoch = self.epochs.begin();
        if let Some(index) = self.free_commands.pop() {
            let command = &mut self.commands[index as usize];
            (command.request, command.blocks, command.epoch, command.retried) = (request, 0, epoch, false);
            command.table = table;
            return index;
        }
        self.commands.push(ReadCommand {
            request,
            blocks: 0,
            epoch,
            retried: false,
            table,
            places: [Ppa(0); VECTOR_BLOCKS_MAX],
            logical: [0; VECTOR_BLOCKS_MAX],
            frames: [Frame(0); VECTOR_BLOCKS_MAX],
        });
        self.commands.len() as u32 - 1
    }
}

impl BlockFtl {
    pub(crate) fn read(&mut self, tag: u64, first: u64, frames: &[Frame]) -> Result<(), IoError> {
        self.check_read_range(first, frames.len())?;
        self.statistics.host_blocks_read += frames.len() as u64;
        let (mut request, mut command, mut lost) = (NONE, NONE, None::<IoError>);
        self.refresh.earn(frames.len());
        for (index, frame) in frames.iter().enumerate() {
            let block = first as u32 + index as u32;
            match self.mapping.get(block).place() {
                Place::Unmapped => self.frames.zero(*frame),
                Place::Lost => _ = lost.get_or_insert(IoError::Unrecovered { block: u64::from(block) }),
                Place::Buffer(buffered) if self.buffer.slot(buffered).kind == BlockKind::Uncorrectable => {
                    _ = lost.get_or_insert(IoError::Uncorrectable { block: u64::from(block) });
                }
                Place::Buffer(buffered) => {
                    self.statistics.buffer_hits += 1;
                    self.frames.copy(buffered, *frame);
                }
                Place::Media(_) if self.is_deaf => {
                    _ = lost.get_or_insert(IoError::Unrecovered { block: u64::from(block) });
                }
                Place::Media(ppa) => {
                    if request == NONE {
                        request = self.reads.begin_request(tag, self.now);
                    }
                    if command == NONE {
                        command = self.reads.begin_command(request, None);
                    }
                    if self.reads.add(command, ppa, block, *frame) {
                        self.submit_errand(Errand::HostRead(command));
                        command = NONE;
                    }
                }
            }
        }
        self.submit_read(tag, request, command, lost);
        Ok(())
    }

    /// Reads blocks of a table from block `first` on: no more than it has.
    pub(crate) fn read_table(&mut self, tag: u64, slot: u32, number: u64, first: u32, frames: &[Frame]) {
        self.statistics.host_blocks_read += frames.len() as u64;
        self.refresh.earn(frames.len());
        let (mut request, mut command) = (NONE, NONE);
        for (block, frame) in (first..).zip(frames) {
            match self.table_block(slot, block) {
                TableBlock::Frame(buffered) => {
                    self.statistics.buffer_hits += 1;
                    self.frames.copy(buffered, *frame);
                }
                TableBlock::Media(ppa) => {
                    if request == NONE {
                        request = self.reads.begin_request(tag, self.now);
                    }
                    if command == NONE {
                        command = self.reads.begin_command(request, Some(number));
                    }
                    if self.reads.add(command, ppa, block, *frame) {
                        self.submit_errand(Errand::HostRead(command));
                        command = NONE;
                    }
                }
            }
        }
        self.submit_read(tag, request, command, None);
    }

    /// Submits the last command of a read, if it is not full, and ends a read that needs none.
    #[inline]
    fn submit_read(&mut self, tag: u64, request: u32, command: u32, lost: Option<IoError>) {
        if command != NONE {
            self.submit_errand(Errand::HostRead(command));
        }
        if request == NONE {
            self.statistics.read_latency.record(Nanos::ZERO);
            self.statistics.host_errors += u64::from(lost.is_some());
            self.done.push(Done { tag, result: lost.map_or(Ok(()), Err), at: self.now });
        } else {
            self.reads.requests[request as usize].error = lost;
        }
    }

    /// Ends every read with an error. What the device still has of them must never come back: their frames are the host's.
    pub(crate) fn give_up_reads(&mut self) {
        let free = std::mem::take(&mut self.reads.free_commands);
        let waits = |(index, _): &(usize, &ReadCommand)| !free.contains(&(*index as u32));
        let mut given_up: Vec<(u32, u32)> = self
            .reads
            .commands
            .iter()
            .enumerate()
            .filter(waits)
            .map(|(_, one)| (one.request, one.logical[0]))
            .collect();
        given_up.sort_unstable();
        given_up.dedup_by_key(|(request, _)| *request);
        for (request, block) in given_up {
            let reading = &mut self.reads.requests[request as usize];
            reading.fail(IoError::Unrecovered { block: u64::from(block) });
            let (tag, error) = (reading.tag, reading.error.expect("it has just failed"));
            self.reads.free_requests.push(request);
            self.statistics.read_failures += 1;
            self.end_with(tag, Err(error));
        }
        // Their commands never end; nothing is reset any more that waits for them.
        self.reads.commands.clear();
    }

    pub(crate) fn host_read_ended(&mut self, index: u32, completion: Completion) {
        if completion.status != Status::Success {
            self.refresh_what_was_read(index, completion);
        }
        let command = &mut self.reads.commands[index as usize];
        let request = command.request;
        let mut error = None;
        let mut failed = 0;
        for at in 0..command.blocks as usize {
            let block = command.logical[at];
            let lost = !completion.status.data_is_good() && completion.failed >> at & 1 != 0;
            let found = match lost {
                true => Err(IoError::Unrecovered { block: u64::from(block) }),
                false => {
                    verdict(&self.frames, command.frames[at], command.table, u64::from(block), self.config.verify_reads)
                }
            };
            // What the host wants to be an error is one at once, and no failure of the medium.
            if let Err(marked @ IoError::Uncorrectable { .. }) = found {
                self.reads.requests[request as usize].fail(marked);
            } else if let Err(found) = found {
                error.get_or_insert(found);
                // What failed moves to the front, to be read once more.
                (command.places[failed], command.logical[failed]) = (command.places[at], block);
                command.frames.swap(failed, at);
                failed += 1;
            }
        }
        if error.is_some() && !command.retried {
            (command.retried, command.blocks) = (true, failed as u32);
            self.submit_errand(Errand::HostRead(index));
            return;
        }
        self.reads.epochs.end(command.epoch);
        self.reads.free_commands.push(index);
        let reading = &mut self.reads.requests[request as usize];
        reading.commands -= 1;
        if let Some(error) = error {
            self.statistics.read_failures += 1;
            reading.fail(error);
        }
        if reading.commands == 0 {
            let Request { tag, began, error, .. } = *reading;
            self.statistics.read_latency.record(completion.at.since(began));
            self.reads.free_requests.push(request);
            self.statistics.host_errors += u64::from(error.is_some());
            self.done.push(Done { tag, result: error.map_or(Ok(()), Err), at: completion.at });
        }
    }
}

/// Whether `frame` holds logical block `block`, or that block of a table.
#[inline]
fn verdict(frames: &Frames, frame: Frame, table: Option<u64>, block: u64, verify: bool) -> Result<(), IoError> {
    let oob = if verify { Oob::verify(frames, frame) } else { Oob::peek(frames, frame) };
    match oob {
        Ok(Oob { kind: BlockKind::Table, address, sequence }) if address == block && table == Some(sequence) => Ok(()),
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
    fn refresh_what_was_read(&mut self, index: u32, completion: Completion) {
        let command = &self.reads.commands[index as usize];
        let (places, blocks) = (command.places, command.blocks as usize);
        for place in places[..blocks].iter().enumerate().filter(|(at, _)| completion.failed >> at & 1 != 0) {
            self.weak_block(*place.1, Care::HostRead);
        }
        self.refresh.ask();
        self.stirred = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_ends_when_the_reads_before_it_have_and_no_sooner() {
        let mut epochs = Epochs::default();
        let before = epochs.begin();
        let grace = epochs.epoch + 2;
        assert!(!epochs.reach(grace));
        let after = epochs.begin();
        assert!(!epochs.reach(grace));
        epochs.end(before);
        assert!(epochs.reach(grace), "a read that began later need not have ended");
        epochs.end(after);
        let grace = epochs.epoch + 2;
        assert!(epochs.reach(grace), "with no read under way it passes at once");
    }
}
