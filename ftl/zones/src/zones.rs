//! All zones of a drive: their states, their chunks, and what is on its way.

use crate::board::{AskedLimits, Board, Limits};
use crate::face::Face;
use crate::layout::Layout;
use crate::places::Places;
use crate::record::{NamedChunk, Record, RecordState, SavedTail};
use crate::refresh::Refresh;
use crate::state::ZoneState;
use crate::writer::{Stage, Writer, ZoneUnit};
use openftl_blocks::reading::BlockPlace;
use openftl_core::{ChunkId, Frame, FrameForm, Geometry, PuId};
use openftl_parts::flash::Flash;
use openftl_parts::flash::shares::TenantChunks;
use openftl_parts::flash::units::OpenId;
use openftl_parts::words::AREA_COPIES;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// No chunk, no writer.
pub(crate) const NONE: u32 = u32::MAX;

/// Frames for records, of those that are kept.
pub(crate) const RECORD_FRAMES: usize = 4 * AREA_COPIES as usize;

/// A tail that records on media still name.
pub(crate) const LEAVING: u32 = u32::MAX - 1;

/// A chunk that no zone has any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doomed {
    pub(crate) chunk: ChunkId,
    pub(crate) open: Option<OpenId>,
    /// The block of records that names it no more, and the write of that, once there is one.
    pub(crate) record_block: u32,
    pub(crate) write: Option<u64>,
}

/// What became of zones that the host did not ask for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct ZoneStatistics {
    /// Blocks appended by [`ZoneRequest::Append`](crate::request::ZoneRequest::Append).
    pub appended: u64,
    /// Zones that were reset and held something.
    pub resets: u64,
    /// Zones that were finished before their end.
    pub finishes: u64,
    /// Blocks of tails that flushes have saved.
    pub tail_blocks: u64,
    /// Blocks of records that were written.
    pub record_blocks: u64,
    /// Columns that had to move to another chunk, and their blocks.
    pub columns_moved: u64,
    /// See above.
    pub blocks_moved: u64,
    /// Flushes that the drive needed itself, to make room.
    pub own_flushes: u64,
    /// Zones that the host was recommended to finish or to reset, because something of them is weak and could not move.
    pub recommended: u64,
}

/// All zones. As a tenant of the flash they are `tenancy.rs`.
pub struct Zones {
    pub(crate) layout: Layout,
    pub(crate) face: Face,
    /// What is in frames of hosts. What the drive does by itself has frames for whole blocks.
    pub(crate) payload: FrameForm,
    pub(crate) board: Board,
    /// What limits a drive is to have that has not been read yet.
    pub(crate) asked: AskedLimits,
    /// Chunks of zones that nothing is on its way of, by zone and column.
    pub(crate) places: Places,
    /// The number that blocks of each zone say.
    pub(crate) numbers: Vec<u64>,
    pub(crate) next_number: u64,
    /// Zone descriptor extensions, one behind the other; zeroes where a zone has none.
    extensions: Vec<u8>,
    /// Slots of [`Zones::writers`], by zone; [`NONE`] where there is none.
    pub(crate) writer_of: Vec<u32>,
    pub(crate) writers: Vec<Option<Writer>>,
    pub(crate) free_writers: Vec<u32>,
    /// Lists of frames that units of zones had, to be used again.
    pub(crate) spare: Vec<Vec<Frame>>,
    /// Whose each tail is: a zone, [`NONE`], or [`LEAVING`].
    pub(crate) tail_of: Vec<u32>,
    /// Tails that are given back when these blocks of records are written.
    pub(crate) tails_leaving: Vec<(u32, u32)>,
    /// Blocks of records that say something else than the zones are.
    pub(crate) dirty: BTreeSet<u32>,
    pub(crate) doomed: Vec<Doomed>,
    /// No write before this one has to be durable for any of them to be released.
    pub(crate) doomed_due: u64,
    /// Chunks of zones that nothing more is written to, and that are not full.
    pub(crate) half_full: BTreeMap<ChunkId, OpenId>,
    /// Chunks that are of no zone yet, or no more.
    pub(crate) coming_and_going: TenantChunks,
    /// Parallel units, those of a zone one behind the other.
    pub(crate) order: Vec<PuId>,
    /// A column wants a chunk, and there is none.
    pub(crate) lacks_room: bool,
    /// [`Provisioning::tenant_gains`](openftl_parts::flash::provisioning::Provisioning::tenant_gains) at that time.
    pub(crate) gains_seen: u64,
    /// Something may be done by writers.
    pub(crate) is_stirred: bool,
    /// Frames for what the drive writes by itself, whatever hosts hold: a tail, a unit that is copied, records.
    pub(crate) kept_frames: Vec<Frame>,
    /// What stands for blocks of a window that nobody has written; `None`: no zone has a window.
    pub(crate) hole: Option<Frame>,
    /// Blocks that are being committed: kept for its memory.
    pub(crate) committing: Vec<Frame>,
    pub(crate) statistics: ZoneStatistics,
    /// Zones that have changed by themselves since somebody asked.
    pub(crate) changed: Vec<u32>,
    pub(crate) refresh: Refresh,
}

impl Zones {
    pub(crate) fn new(geometry: &Geometry, layout: Layout, limits: Limits, face: Face, payload: FrameForm) -> Zones {
        let zones = layout.zones as usize;
        let format = geometry.format();
        let mut order: Vec<PuId> = geometry.pu_ids().collect();
        // A zone within one group has all of that; a wider one goes round the groups.
        if layout.width > geometry.pus_per_group {
            order.sort_by_key(|pu| (pu.0 & ((1 << format.pu_bits) - 1), format.group_of(*pu)));
        }
        Zones {
            board: Board::new(layout.zones, layout.capacity, limits).with_windows(layout.window_blocks),
            asked: limits.into(),
            places: Places::new(zones * layout.width as usize, layout.place_bytes),
            numbers: vec![0; zones],
            next_number: 1,
            extensions: vec![0; layout.extensions_bytes() as usize],
            writer_of: vec![NONE; zones],
            writers: Vec::new(),
            free_writers: Vec::new(),
            spare: Vec::new(),
            tail_of: vec![NONE; layout.tails as usize],
            tails_leaving: Vec::new(),
            dirty: BTreeSet::new(),
            doomed: Vec::new(),
            doomed_due: u64::MAX,
            half_full: BTreeMap::new(),
            coming_and_going: TenantChunks::default(),
            order,
            lacks_room: false,
            gains_seen: 0,
            is_stirred: false,
            kept_frames: Vec::new(),
            hole: None,
            committing: Vec::new(),
            statistics: ZoneStatistics::default(),
            changed: Vec::new(),
            refresh: Refresh::stopped(),
            layout,
            face,
            payload,
        }
    }

    pub(crate) fn writer(&mut self, slot: u32) -> &mut Writer {
        self.writers[slot as usize].as_mut().expect("a slot that is named has a writer")
    }

    /// The slot of the writer of `zone`, if it has one.
    pub(crate) fn slot_of(&self, zone: u32) -> Option<u32> {
        Some(self.writer_of[zone as usize]).filter(|slot| *slot != NONE)
    }

    pub(crate) fn writer_of(&self, zone: u32) -> Option<&Writer> {
        self.slot_of(zone).map(|slot| self.writers[slot as usize].as_ref().expect("it has one"))
    }

    pub(crate) fn add_writer(&mut self, mut writer: Writer) -> u32 {
        writer.wake_all();
        let zone = writer.zone as usize;
        let slot = match self.free_writers.pop() {
            Some(slot) => {
                self.writers[slot as usize] = Some(writer);
                slot
            }
            None => {
                self.writers.push(Some(writer));
                self.writers.len() as u32 - 1
            }
        };
        self.writer_of[zone] = slot;
        slot
    }

    /// The chunk of a zone's column, as far as it is known for good.
    pub(crate) fn chunk(&self, zone: u32, column: u32) -> Option<ChunkId> {
        self.places.get((zone * self.layout.width + column) as usize)
    }

    pub(crate) fn set_chunk(&mut self, zone: u32, column: u32, chunk: Option<ChunkId>) {
        self.places.set((zone * self.layout.width + column) as usize, chunk);
    }

    pub(crate) fn record_block_of(&self, zone: u32) -> u32 {
        zone / self.layout.records_per_block
    }

    /// The record of `zone` is not what is on media.
    pub(crate) fn mark_dirty(&mut self, zone: u32) {
        self.dirty.insert(self.record_block_of(zone));
    }

    /// What the record of `zone` has to say now: nothing of what a power cut could still take away.
    pub(crate) fn record(&self, zone: u32) -> Record {
        let width = self.layout.width;
        let shown = self.board.zone(zone);
        let (chunks, saved, is_settled) = match self.writer_of(zone) {
            Some(writer) => {
                let named = writer.columns.iter().map(|column| column.named()).collect();
                (named, writer.saved.clone(), writer.is_whole)
            }
            None => {
                let named = |column| self.chunk(zone, column).map(|chunk| NamedChunk { chunk, good: None });
                ((0..width).map(named).collect(), None, true)
            }
        };
        let state = match shown.state {
            ZoneState::Empty => RecordState::Empty,
            ZoneState::Offline => RecordState::Offline,
            ZoneState::ReadOnly => RecordState::ReadOnly,
            ZoneState::Full if is_settled => RecordState::Full,
            _ => RecordState::Active,
        };
        if state == RecordState::Empty {
            return Record { chunks: vec![None; width as usize], ..Record::default() };
        }
        let extension = shown.has_extension.then(|| self.extension(zone).to_vec());
        let number = self.numbers[zone as usize];
        let is_in_part = matches!(state, RecordState::Active | RecordState::ReadOnly);
        let being_written = self.writer_of(zone).filter(|writer| !writer.is_whole && is_in_part);
        let written = being_written.map_or(shown.written, |writer| writer.durable);
        // Of a zone that is full by now, or finished, a power cut may leave what its window had.
        let has_window = shown.has_window || saved.as_ref().is_some_and(SavedTail::has_window);
        Record { state, written, number, saved, has_window, chunks, extension }
    }

    /// Where the extension of `zone` is.
    fn extension_range(&self, zone: u32) -> Range<usize> {
        let bytes = self.layout.extension_bytes as usize;
        zone as usize * bytes..(zone as usize + 1) * bytes
    }

    /// The extension of `zone`; zeroes if it has none.
    pub(crate) fn extension(&self, zone: u32) -> &[u8] {
        &self.extensions[self.extension_range(zone)]
    }

    /// The extension of `zone` is this, or none.
    pub(crate) fn set_extension(&mut self, zone: u32, bytes: Option<&[u8]>) {
        let range = self.extension_range(zone);
        match bytes {
            Some(bytes) => self.extensions[range].copy_from_slice(bytes),
            None => self.extensions[range].fill(0),
        }
    }

    /// The record of `zone` has this extension.
    pub(crate) fn restore_extension(&mut self, zone: u32, bytes: &[u8]) {
        if self.board.restore_extension(zone) {
            self.set_extension(zone, Some(bytes));
        }
    }

    /// Frames that are kept for the drive itself.
    fn frames_to_keep(&self) -> usize {
        let Layout { tail_blocks, unit_blocks, .. } = self.layout;
        (AREA_COPIES * tail_blocks + unit_blocks + self.blocks_of_holes()) as usize + RECORD_FRAMES
    }

    /// Frames that are kept for blocks that nobody has written: those of a unit on its way to the medium.
    fn blocks_of_holes(&self) -> u32 {
        if self.layout.window_blocks > 0 { self.layout.unit_blocks } else { 0 }
    }

    /// Frames for what the drive writes by itself.
    pub(crate) fn own_frames_needed(&self) -> usize {
        let hole = usize::from(self.layout.window_blocks > 0);
        self.frames_to_keep() + hole
    }

    /// Takes back frames that are kept, before a host can.
    pub(crate) fn keep_frames(&mut self, flash: &mut Flash) {
        if self.hole.is_none() && self.layout.window_blocks > 0 {
            self.hole = flash.frames.acquire(FrameForm::Bytes);
            self.hole.iter().for_each(|frame| flash.frames.zero(*frame));
        }
        let lacking = self.frames_to_keep().saturating_sub(self.kept_frames.len());
        for _ in 0..lacking {
            let Some(frame) = flash.frames.acquire(FrameForm::Bytes) else { break };
            self.kept_frames.push(frame);
        }
    }

    /// Frames for what the drive does by itself. Where there are none, something that has them is under way.
    pub(crate) fn own_frames(&mut self, flash: &mut Flash, count: usize) -> Option<Vec<Frame>> {
        if flash.frames.available(FrameForm::Bytes) + self.kept_frames.len() < count {
            return None;
        }
        let mut frames = Vec::with_capacity(count);
        while frames.len() < count {
            let frame = flash.frames.acquire(FrameForm::Bytes).or_else(|| self.kept_frames.pop());
            frames.push(frame.expect("they were counted"));
        }
        Some(frames)
    }

    /// Zones of which a column wants a chunk.
    pub(crate) fn without_chunk(&self) -> Vec<u32> {
        let waits = |writer: &&Writer| {
            let mut columns = (0..).zip(&writer.columns);
            let is_waiting =
                columns.any(|(at, column)| column.stage == Stage::WithoutChunk && writer.first_waiting(at).is_some());
            !writer.is_orphan && is_waiting
        };
        let zones = self.writers.iter().flatten().filter(waits).map(|writer| writer.zone);
        zones.filter(|zone| self.board.zone(*zone).state != ZoneState::ReadOnly).collect()
    }

    /// Frames with what zones without a medium were told.
    pub(crate) fn frames_of_failed(&self) -> usize {
        let writers = self.writers.iter().flatten();
        let failed = writers.filter(|writer| self.board.zone(writer.zone).state == ZoneState::ReadOnly);
        failed.flat_map(|writer| &writer.units).map(|unit| unit.frames.len()).sum()
    }

    /// Where block `block` of `zone` is, which has been written, or lies before one of the window that has.
    pub(crate) fn block(&self, flash: &Flash, zone: u32, block: u32) -> BlockPlace {
        let (column, at) = self.layout.place(block);
        if let Some(window) = self.writer_of(zone).and_then(|writer| writer.window.as_ref())
            && block >= self.board.zone(zone).written
        {
            return BlockPlace::Frame(window.frame(block).unwrap_or_else(|| self.hole()));
        }
        let Some(writer) = self.writer_of(zone) else {
            let chunk = self.chunk(zone, column).expect("a block that was written is in a chunk");
            return BlockPlace::Media(flash.format.ppa(chunk, at));
        };
        let (unit, within) = (block / self.layout.unit_blocks, block % self.layout.unit_blocks);
        if let Some(ZoneUnit { skip, frames, .. }) = writer.unit(unit)
            && let Some(frame) = within.checked_sub(*skip).and_then(|index| frames.get(index as usize))
        {
            return BlockPlace::Frame(*frame);
        }
        let chunk = writer.columns[column as usize].chunk_with(at).expect("a block without a frame is in a chunk");
        BlockPlace::Media(flash.format.ppa(chunk, at))
    }

    /// `chunk` was of a zone, and its record is to name it no more.
    pub(crate) fn doom(&mut self, zone: u32, chunk: ChunkId, open: Option<OpenId>) {
        let open = self.half_full.remove(&chunk).or(open);
        self.mark_dirty(zone);
        self.doomed.push(Doomed { chunk, open, record_block: self.record_block_of(zone), write: None });
    }

    /// Nothing needs `chunk` any more.
    pub(crate) fn release_chunk(&mut self, flash: &mut Flash, chunk: ChunkId, open: Option<OpenId>) {
        self.is_stirred |= self.coming_and_going.release(flash, chunk, open);
    }
}
