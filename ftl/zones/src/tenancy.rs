//! What the block FTL asks of zones, and tells them.

use crate::board::{ACTIVE_MAX, Limits};
use crate::face::Face;
use crate::layout::{EXTENSION_UNIT_BYTES, Layout, RECORD_COLUMN_BYTES, RECORD_HEAD_BYTES, WINDOW_BLOCKS_MAX};
use crate::refresh::CHECK;
use crate::state::ZoneState;
use crate::zones::Zones;
use openftl_core::{BLOCK_BYTES, ChunkId, FrameForm, Geometry};
use openftl_media::Completion;
use openftl_parts::config::Config;
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::reads::ReadId;
use openftl_parts::flash::shares::TenantChunks;
use openftl_parts::flash::units::UnitId;
use openftl_parts::journal::Journal;
use openftl_parts::open_error::OpenError;
use openftl_parts::tenant::Tenant;
use openftl_parts::words::{AREA_COPIES, Phase, TenantNote};
use std::ops::Range;

/// The tenants that a superblock names for zones, for zones that are seen as segments, and for zones with windows.
const KINDS: [(Face, bool, u8); 3] = [(Face::Zones, false, 1), (Face::Segments, false, 2), (Face::Zones, true, 3)];

/// Bits of the width of zones, and of their number, in what a superblock says; behind them comes how many can be open, less one.
const WIDTH_BITS: u32 = 10;
/// See above.
const ZONES_BITS: u32 = 28;

/// In the kind of tenant, behind the bits that tell tenants apart: units of the extension of a zone.
const EXTENSION_SHIFT: u32 = TenantNote::FAMILY_BITS;

/// In what else a superblock says: the area has two copies. A drive of before that is refused.
const TWO_COPIES: u8 = 1 << 7;

/// Units of the longest extension that fits into a block with what else a record has.
const EXTENSION_UNITS_MAX: usize =
    (BLOCK_BYTES - RECORD_HEAD_BYTES - RECORD_COLUMN_BYTES) / EXTENSION_UNIT_BYTES as usize;

const _: () = assert!(EXTENSION_UNITS_MAX < 1 << (u8::BITS - EXTENSION_SHIFT), "they fit behind those bits");
const _: () = assert!(WIDTH_BITS + ZONES_BITS + (ACTIVE_MAX - 1).ilog2() < 48, "three words of 16 bits");

/// What a superblock says of a drive with this layout, of whose zones so many can be open.
pub(crate) fn note(layout: &Layout, max_open: u32, face: Face) -> TenantNote {
    let fields = [(layout.width, 0), (layout.zones, WIDTH_BITS), (max_open - 1, WIDTH_BITS + ZONES_BITS)];
    let bits = fields.into_iter().fold(0, |bits, (field, shift)| bits | u64::from(field) << shift);
    let has_windows = layout.window_blocks > 0;
    let known = KINDS.into_iter().find(|(of, with, _)| (*of, *with) == (face, has_windows));
    let (_, _, kind) = known.expect("every face has a number, and segments have no windows");
    let kind = kind | ((layout.extension_bytes / EXTENSION_UNIT_BYTES) << EXTENSION_SHIFT) as u8;
    let more = TWO_COPIES | if has_windows { layout.window_blocks.ilog2() as u8 } else { 0 };
    TenantNote { kind, words: [bits as u16, (bits >> 16) as u16, (bits >> 32) as u16], more }
}

/// What a drive was formatted for: parallel units of a zone, how many zones, and how many of them can be open.
fn described(note: TenantNote) -> (u32, u32, u32) {
    let bits = note.words.iter().rev().fold(0, |bits, word| bits << 16 | u64::from(*word));
    let field = |shift: u32, width: u32| (bits >> shift & ((1 << width) - 1)) as u32;
    let max_open = field(WIDTH_BITS + ZONES_BITS, 48 - WIDTH_BITS - ZONES_BITS) + 1;
    (field(0, WIDTH_BITS), field(WIDTH_BITS, ZONES_BITS), max_open)
}

impl Tenant for Zones {
    fn find_drive(&mut self, geometry: &Geometry, config: &Config) -> Result<(), OpenError> {
        let known = KINDS.into_iter().find(|(_, _, kind)| *kind == config.tenant.family());
        let extension_bytes = u32::from(config.tenant.kind >> EXTENSION_SHIFT) * EXTENSION_UNIT_BYTES;
        let (face, has_windows, _) = known.expect("the drive is known to have zones");
        let (width, zones, max_open) = described(config.tenant);
        let refuse = |text: String| Err(OpenError::Tenant { text, is_lost: false });
        let columns = u64::from(width) * u64::from(zones);
        if width == 0 || zones == 0 || width > geometry.pus() || columns > geometry.chunks() {
            return refuse(format!("{zones} zones of {width} parallel units cannot be on this device"));
        }
        if config.tenant.more & TWO_COPIES == 0 {
            let noun = face.noun();
            return refuse(format!(
                "an older version has made this drive of {noun}, with one copy of its records: that version can open it, and \
                 `openftl create` makes a new one"
            ));
        }
        let window_bits = u32::from(config.tenant.more & !TWO_COPIES);
        if window_bits > WINDOW_BLOCKS_MAX.ilog2() {
            return refuse(format!("random write areas of 2^{window_bits} blocks cannot be"));
        }
        let window_blocks = if has_windows { 1 << window_bits } else { 0 };
        let one = Layout::new(geometry, width, zones, 1).with_extension(extension_bytes).with_windows(window_blocks);
        if one.records_per_block == 0 {
            return refuse(format!("no record says where a zone of {width} parallel units is"));
        }
        let tails = (config.catalog_blocks / AREA_COPIES).saturating_sub(one.record_blocks) / one.tail_blocks;
        let most = tails / one.tails;
        if most == 0 || config.catalog_blocks < one.area_blocks() {
            return refuse(format!("the area for {zones} zones has {} blocks, too few", config.catalog_blocks));
        }
        let max_active = self.asked.max_active.unwrap_or(most);
        if max_active > most {
            return Err(OpenError::Limits(format!(
                "{} = {max_active}: the drive was created for {most} at most",
                face.limit_field()
            )));
        }
        let max_open = self.asked.max_open.unwrap_or(max_open.min(max_active));
        let limits = Limits { max_open, max_active };
        face.expect_usable(limits)?;
        let layout = Layout { tails, ..one };
        *self = Zones::new(geometry, layout, limits, face, self.payload);
        Ok(())
    }

    fn payload_frames(&self, geometry: &Geometry) -> Option<(FrameForm, usize)> {
        let Layout { unit_blocks, width, .. } = self.layout;
        let column = geometry.mw_cunits + unit_blocks;
        let zone = unit_blocks + width * column;
        let Limits { max_open, max_active } = self.board.limits();
        Some((self.payload, (max_active * zone + max_open * self.layout.window_blocks) as usize))
    }

    fn frames_needed(&self, _geometry: &Geometry) -> usize {
        self.own_frames_needed()
    }

    fn chunks(&self) -> Option<&TenantChunks> {
        Some(&self.coming_and_going)
    }

    fn chunks_mut(&mut self) -> Option<&mut TenantChunks> {
        Some(&mut self.coming_and_going)
    }

    /// What a crash left of zones that were reset, or not flushed.
    fn release_found(&mut self, flash: &mut Flash) {
        self.coming_and_going.release_rest(flash);
        self.is_stirred = true;
    }

    fn advance(&mut self, flash: &mut Flash, journal: &mut Journal) {
        if flash.phase == Phase::Recovering {
            return;
        }
        self.advance_refresh(flash);
        self.go_on(flash);
        // Chunks that wait for the log would wait for ever where nothing else is written.
        if self.lacks_room && flash.resets.waiting_for_log(journal.log.durable()) > 0 && journal.log.is_idle() {
            journal.force_log(flash);
        }
    }

    fn unit_programmed(&mut self, flash: &mut Flash, unit: UnitId) {
        self.programmed(flash, unit);
    }

    fn unit_readable(&mut self, flash: &mut Flash, unit: UnitId) {
        self.readable(flash, unit);
    }

    fn unit_failed(&mut self, flash: &mut Flash, unit: UnitId) {
        Zones::unit_failed(self, flash, unit);
    }

    fn read_ended(&mut self, flash: &mut Flash, read: ReadId, completion: Completion) {
        match flash.reads.get(read).owner {
            CHECK => self.checked(flash, read, completion),
            _ => self.unit_read(flash, read, completion),
        }
    }

    fn chunk_closed(&mut self, flash: &mut Flash, chunk: ChunkId) {
        self.coming_and_going.closed(flash, chunk);
        // A column may have waited for it to leave it.
        self.is_stirred = true;
        self.refresh.try_again(flash);
    }

    fn leave(&mut self, flash: &mut Flash, chunk: ChunkId) {
        if self.coming_and_going.left(flash, chunk) {
            // Whoever waits for a chunk looks again.
            self.is_stirred = true;
            flash.stirred = true;
            self.refresh.try_again(flash);
        }
    }

    fn queue_weak(&mut self, flash: &mut Flash, chunk: ChunkId) {
        self.refresh_chunk(flash, chunk);
    }

    fn blocks_in(&self, flash: &Flash, chunk: ChunkId) -> Option<(Option<u64>, Vec<Range<u32>>)> {
        let (zone, column) = self.owner_of(chunk)?;
        if self.board.zone(zone).state == ZoneState::Offline || flash.chunks.usage(chunk) != ChunkUse::Tenant {
            return None;
        }
        let blocks = self.readable_in(zone, column);
        (!blocks.is_empty()).then(|| (Some(self.numbers[zone as usize]), vec![blocks]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_blocks::kind::DriveKind;

    #[test]
    fn a_superblock_says_the_extension_in_bits_that_were_zero_before_there_was_one() {
        let layout = Layout::new(&Geometry::tiny(), 3, 500, 2);
        let made = [
            (0, 0, Face::Zones, 1, 0),
            (0, 0, Face::Segments, 2, 0),
            (128, 0, Face::Zones, 0b1001, 0),
            (128, 16, Face::Zones, 0b1011, 4),
        ];
        for (bytes, window_blocks, face, kind, more) in made {
            let found = note(&layout.with_extension(bytes).with_windows(window_blocks), 7, face);
            assert_eq!((found.kind, found.more), (kind, more | TWO_COPIES));
            assert_eq!(described(found), (3, 500, 7));
            assert!(DriveKind::of(5, found).has_zones());
        }
        let newer = TenantNote { kind: 4 << TenantNote::FAMILY_BITS, ..TenantNote::default() };
        assert_eq!(DriveKind::of(5, newer), DriveKind::Newer);
    }
}
