//! Writing superblocks: to two places, each a pair of chunks written in turns.
//!
//! ```text
//!   place 0 (group 0)   [ s1 s3 s5 s7 … ]  [ free, then the next ones ]
//!   place 1 (group 1)   [ s1 s3 s5 s7 … ]  [ free, then the next ones ]
//! ```
//!
//! A superblock counts as durable when one place has it and the other has it or has failed. When a chunk is full, the
//! other of its pair takes over, and the full one is reset only after the first record in the other is on media.
//!
//! These chunks stay where they are, outside of wear levelling: an older superblock that is found in place of the newest
//! must never call a chunk its own that holds data by now. How fast they wear depends on how often a superblock is wanted:
//! for each checkpoint, and for chunks of the log, of which one superblock names several ahead where the log is long.
//!
//! ```text
//!   resets of such a chunk     superblocks a drive write       × WS_MIN
//!   ────────────────────── =   ──────────────────────────────────────────────
//!   resets of a data chunk     2 × blocks of a chunk × WAF / (1 + OP)
//! ```
//!
//! On the profile `cosmos` that is 2 % at 1 GiB and 16 % from 8 GiB on.

use crate::flash::chunk_table::ChunkUse;
use crate::flash::oob::{BlockKind, Oob};
use crate::flash::units::OpenId;
use crate::flash::{Errand, Flash};
use crate::journal::superblock::Superblock;
use crate::words::{Purpose, ReadOnlyReason};
use openftl_core::{BLOCK_BYTES, ChunkId, Frame, VECTOR_BLOCKS_MAX};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CopyState {
    Idle,
    /// Wants to write, and waits for its other chunk to be reset.
    Waiting,
    Writing,
    Written,
    /// Its chunks have gone bad.
    Lost,
}

struct Place {
    open: Option<OpenId>,
    /// The chunk of `open`, or the last one.
    active: Option<ChunkId>,
    /// Whether a record is in the active one.
    has_record: bool,
    /// The other one, ready to be written.
    spare: Option<ChunkId>,
    /// The other one, to be reset once a record is in the active one.
    full: Option<ChunkId>,
    resetting: Option<ChunkId>,
    state: CopyState,
}

/// The superblock and its places.
pub struct SuperblockWriter {
    current: Superblock,
    wanted: bool,
    writing: Option<u64>,
    durable: u64,
    /// Whether what it says was written since the drive was opened, and not only found.
    is_confirmed: bool,
    places: Vec<Place>,
    frames: Vec<Frame>,
    record_blocks: usize,
}

/// What is known of one place when a drive is opened.
pub struct PlaceState {
    /// The chunk to go on writing, and where; `None` if there is none.
    pub active: Option<(ChunkId, u32)>,
    /// Whether a record is in it.
    pub has_record: bool,
    /// The chunk to be written after it.
    pub spare: Option<ChunkId>,
    /// A chunk that is full of older records.
    pub full: Option<ChunkId>,
}

impl SuperblockWriter {
    /// A writer that goes on after `current`. `frames` are for one record.
    #[must_use]
    pub fn new(current: Superblock, frames: Vec<Frame>) -> SuperblockWriter {
        let durable = current.sequence;
        SuperblockWriter {
            current,
            wanted: false,
            writing: None,
            durable,
            is_confirmed: false,
            places: Vec::new(),
            frames,
            record_blocks: 0,
        }
    }

    /// What the next superblock says.
    #[must_use]
    pub fn current(&self) -> &Superblock {
        &self.current
    }

    /// What the next superblock is to say.
    pub fn current_mut(&mut self) -> &mut Superblock {
        &mut self.current
    }

    /// The newest superblock on media.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether the newest superblock will be found again. One that was only found may have been readable that one time.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Whatever superblock was found says nothing that is needed.
    pub fn confirm(&mut self) {
        self.is_confirmed = true;
    }

    /// Whether one is being written or wanted.
    #[inline]
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.writing.is_some() || self.wanted
    }

    /// Asks for a superblock that says what is known now, and returns its sequence.
    pub fn request(&mut self) -> u64 {
        if !self.wanted {
            self.wanted = true;
            self.current.sequence += 1;
        }
        self.current.sequence
    }

    /// A copy is on media.
    pub fn copy_written(&mut self, place: u64) {
        let place = &mut self.places[place as usize];
        (place.state, place.has_record) = (CopyState::Written, true);
    }

    /// A copy has to be written again.
    pub fn copy_failed(&mut self, place: u64) {
        self.places[place as usize].state = CopyState::Waiting;
    }

    /// Whether `chunk` is one of its chunks that is being reset.
    #[must_use]
    pub fn is_resetting(&self, chunk: ChunkId) -> bool {
        self.places.iter().any(|place| place.resetting == Some(chunk))
    }

    /// A reset of one of its chunks has ended. Returns whether it was one of its chunks.
    pub fn reset_ended(&mut self, chunk: ChunkId, success: bool) -> bool {
        let Some(place) = self.places.iter_mut().find(|place| place.resetting == Some(chunk)) else { return false };
        place.resetting = None;
        place.spare = success.then_some(chunk);
        true
    }

    /// Whether any place has another chunk to go on in when its present one is full.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        self.places.iter().any(|place| {
            place.spare.is_some() || place.resetting.is_some() || (place.full.is_some() && place.active.is_some())
        })
    }

    /// The chunks of both places.
    pub fn chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        self.places.iter().flat_map(|place| [place.active, place.spare, place.full, place.resetting]).flatten()
    }
}

impl SuperblockWriter {
    /// Gives it its places.
    pub fn put_in_place(&mut self, flash: &mut Flash, states: Vec<PlaceState>) {
        for state in states {
            let open = state.active.map(|(chunk, next)| flash.units.open(chunk, next));
            for chunk in [state.active.map(|(chunk, _)| chunk), state.spare, state.full].into_iter().flatten() {
                flash.chunks.set_usage(chunk, ChunkUse::Metadata);
            }
            self.places.push(Place {
                open,
                active: state.active.map(|(chunk, _)| chunk),
                has_record: state.has_record,
                spare: state.spare,
                full: state.full,
                resetting: None,
                state: CopyState::Idle,
            });
        }
    }

    /// Writes the superblock that is wanted, and says when it is durable.
    #[inline]
    pub fn advance(&mut self, flash: &mut Flash, durable_below: u64) {
        if self.is_writing() {
            self.go_on(flash, durable_below);
        }
    }

    fn go_on(&mut self, flash: &mut Flash, durable_below: u64) {
        if self.writing.is_none() && self.wanted && flash.may_program() {
            self.begin(flash, durable_below);
        }
        let Some(sequence) = self.writing else { return };
        for index in 0..self.places.len() {
            if self.places[index].state == CopyState::Waiting {
                self.write_copy(flash, index);
            }
            if self.places[index].state == CopyState::Writing
                && flash.geometry.mw_cunits > 0
                && let Some(open) = self.places[index].open
                && flash.units.wants_padding(open)
            {
                flash.pad(open);
            }
        }
        let is = |state: CopyState| self.places.iter().any(|place| place.state == state);
        if is(CopyState::Waiting) || is(CopyState::Writing) {
            return;
        }
        self.writing = None;
        if !is(CopyState::Written) {
            flash.turn_read_only(ReadOnlyReason::NoSuperblock);
            return;
        }
        (self.durable, self.is_confirmed) = (sequence, true);
        flash.stirred = true;
        for index in 0..self.places.len() {
            let place = &mut self.places[index];
            if place.state == CopyState::Written {
                place.state = CopyState::Idle;
                if let Some(full) = place.full.take() {
                    place.resetting = Some(full);
                    flash.submit(Errand::Reset(full));
                }
            }
        }
    }

    fn begin(&mut self, flash: &mut Flash, durable_below: u64) {
        self.current.durable_below = durable_below;
        self.current.life = flash.life();
        let bytes = self.current.encode();
        let sequence = self.current.sequence;
        let blocks = (bytes.len() / BLOCK_BYTES).next_multiple_of(flash.geometry.ws_min as usize);
        assert!(blocks <= self.frames.len(), "the plan admits only drives whose superblock fits a record");
        for (index, frame) in self.frames[..blocks].iter().enumerate() {
            let block = flash.frames.bytes_anew(*frame);
            match bytes.get(index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES) {
                Some(bytes) => block.copy_from_slice(bytes),
                None => block.fill(0),
            }
            let oob = Oob { kind: BlockKind::Superblock, address: index as u64, sequence };
            oob.seal(&mut flash.frames, *frame);
        }
        self.record_blocks = blocks;
        self.wanted = false;
        self.writing = Some(sequence);
        for place in &mut self.places {
            if place.state != CopyState::Lost {
                place.state = CopyState::Waiting;
            }
        }
    }

    fn write_copy(&mut self, flash: &mut Flash, index: usize) {
        let blocks = self.record_blocks;
        let place = &mut self.places[index];
        if let Some(open) = place.open {
            let room = flash.units.room(open);
            if room as usize >= blocks {
                place.state = CopyState::Writing;
                let mut unit = [flash.padding; VECTOR_BLOCKS_MAX];
                unit[..blocks].copy_from_slice(&self.frames[..blocks]);
                flash.write_unit(open, Purpose::Superblock, index as u64, &unit[..blocks], blocks as u32);
                return;
            }
            // Only a closed chunk can be reset: fill what is too short for a record.
            place.open = None;
            let ended = place.active.take();
            // Where it failed before it took a record, what is in the other is still needed, and this one tries again.
            let again = match place.full {
                Some(_) if !place.has_record => ended,
                older => {
                    place.full = ended;
                    older
                }
            };
            let mut left = room;
            while left > 0 {
                let count = left.min(VECTOR_BLOCKS_MAX as u32 / flash.geometry.ws_min * flash.geometry.ws_min);
                let unit = [flash.padding; VECTOR_BLOCKS_MAX];
                flash.write_unit(open, Purpose::Padding, 0, &unit[..count as usize], 0);
                left -= count;
            }
            if let Some(chunk) = again {
                self.places[index].resetting = Some(chunk);
                flash.submit(Errand::Reset(chunk));
            }
        }
        let place = &mut self.places[index];
        if let Some(chunk) = place.spare.take() {
            (place.active, place.has_record) = (Some(chunk), false);
            place.open = Some(flash.units.open(chunk, 0));
            self.write_copy(flash, index);
        } else if place.resetting.is_none() {
            place.state = CopyState::Lost;
        }
    }
}
