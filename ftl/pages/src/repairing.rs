//! Rebuilding the index of pages from what each page on the media says of itself.
//!
//! A page has its number and its version in the header before it, and a version is greater for what was put later, whatever the page. So the newest
//! version of each page is known without the index. What is not known from the pages alone is which of them were deleted, and which are of batches
//! that were never committed. What is left of the log says that of the pages that it names, as far as no group of it is missing behind
//! ([`crate::last_word`]).
//!
//! Where something behind the last group cannot be read, or another one shows that a group is lost ([`crate::seen_log`]), what the log says of a page
//! before that is in doubt. A repair that was cut off has gone on with numbers far behind the others: no group is missing there.
//!
//! # Seals
//! If the log is lost that says with which seal a chunk was opened, most of its blocks have one in common ([`openftl_parts::journal::repair`]).
//!
//! # What a power cut leaves
//! | step | cut off behind it |
//! |---|---|
//! | the superblock says that the index is being rebuilt | nothing else has changed: the repair begins anew |
//! | all chunks are read; those of data in which no newest version is are given back | the same |
//! | the new map is written, where the old one has no blocks as long as there are such, then sessions and an anchor | the drive is refused by all but a repair, which begins anew; where there are none, pages that only a block of the old map knew may be forgotten instead of lost |
//! | the blocks of the old map are trimmed, and an anchor is written behind that | the same |
//! | the superblock says it no more | the drive is as any other |
//! | the chunks of the old log are given back | the same |

use crate::area::{READ_BLOCKS, is_mapped, session_blocks};
use crate::error::expect_length;
use crate::finding::{live_chunks, take_chunks};
use crate::index::Index;
use crate::last_word::{AtPlace, Evidence, Fate, Said, Word};
use crate::layout::Anchor;
use crate::leaf::Leaf;
use crate::log::Log;
use crate::open_chunk::{OpenChunk, Stream};
use crate::pages::{PageChunk, Pages};
use crate::place::{Kind, Place, grains_of, possible};
use crate::placing::is_of;
use crate::reads::Carried;
use crate::record::{Put, Record, read_records};
use crate::replaying::{for_each_in, groups_in, read_chunk, read_window};
use crate::request::SessionId;
use crate::seen_log::{FoundBlock, FoundGroup, SeenLog};
use crate::session::Sessions;
use crate::sizing::capacity_grains;
use crate::stretches::{Stretch, drop_what_was_never_durable, first_group, is_skipped, stretches};
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{AddressFormat, BLOCK_BYTES, ChunkId, Clock};
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::shares::FoundChunk;
use openftl_parts::journal::repair::{IndexRepair, RepairReport, common_salt};
use openftl_parts::open_error::OpenError;
use openftl_parts::words::{Access, TenantNote};
use std::collections::{BTreeMap, BTreeSet};

/// Versions that a repair skips: what cannot be read may have had greater ones than all that can.
const VERSIONS_SKIPPED: u64 = 1 << 24;

/// Whether the superblock says that the index is being rebuilt.
pub(crate) fn is_rebuilding(ftl: &BlockFtl) -> bool {
    notes(ftl) & TenantNote::REBUILDING != 0
}

/// Whether it says that the directory of keys is.
pub(crate) fn is_rebuilding_keys(ftl: &BlockFtl) -> bool {
    notes(ftl) & TenantNote::REBUILDING_KEYS != 0
}

fn notes(ftl: &BlockFtl) -> u8 {
    ftl.journal.superblock.current().tenant.more
}

/// Has the superblock say what is being rebuilt, and waits for that: one of the notes for it, or 0 for nothing.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn mark(ftl: &mut BlockFtl, pages: &mut Pages, rebuilt: u8, clock: &mut dyn Clock) -> Result<(), OpenError> {
    let note = &mut ftl.journal.superblock.current_mut().tenant.more;
    *note = *note & !(TenantNote::REBUILDING | TenantNote::REBUILDING_KEYS) | rebuilt;
    let sequence = ftl.journal.request_superblock(&mut ftl.flash);
    let is_durable = |ftl: &BlockFtl| ftl.journal.superblock.durable() >= sequence;
    ftl.run(clock, pages, |ftl| is_durable(ftl) || !ftl.flash.may_program())?;
    match ftl.read_only_reason() {
        Some(reason) if !is_durable(ftl) => Err(OpenError::Unwritable(reason)),
        _ => Ok(()),
    }
}

/// What is left of the area.
struct LeftInArea {
    anchor: Option<Anchor>,
    sessions: Sessions,
    /// Blocks for leaves that have one: of a repair that was cut off some are old and some are new.
    slots: BTreeSet<u32>,
    /// Pages that any of them has.
    pages: BTreeSet<u64>,
}

/// Reads a block of the area, if it can be read.
fn read_one(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    block: u64,
    clock: &mut dyn Clock,
    take: &mut dyn FnMut(u64, &[u8; BLOCK_BYTES]),
) -> Result<(), OpenError> {
    for frame in ftl.read_blocks(&[block], clock, pages)?.unwrap_or_default() {
        take(block, ftl.flash.frames.bytes(frame));
        ftl.flash.frames.release(frame);
    }
    Ok(())
}

fn read_some(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    wanted: &[u64],
    clock: &mut dyn Clock,
    mut take: impl FnMut(u64, &[u8; BLOCK_BYTES]),
) -> Result<(), OpenError> {
    for wanted in wanted.chunks(READ_BLOCKS) {
        let Ok(frames) = ftl.read_blocks(wanted, clock, pages)? else {
            wanted.iter().try_for_each(|block| read_one(ftl, pages, *block, clock, &mut take))?;
            continue;
        };
        for (block, frame) in wanted.iter().zip(frames) {
            take(*block, ftl.flash.frames.bytes(frame));
            ftl.flash.frames.release(frame);
        }
    }
    Ok(())
}

impl LeftInArea {
    fn read(ftl: &mut BlockFtl, pages: &mut Pages, clock: &mut dyn Clock) -> Result<LeftInArea, OpenError> {
        let mapped = |ftl: &BlockFtl, blocks: &mut dyn Iterator<Item = u64>| -> Vec<u64> {
            blocks.filter(|block| is_mapped(ftl, *block)).collect()
        };
        let mut anchor = None;
        let first = mapped(ftl, &mut (0..1));
        read_some(ftl, pages, &first, clock, |_, block| anchor = Anchor::read(block).map(|(anchor, _)| anchor))?;
        let mut sessions = Sessions::new(crate::layout::SESSION_BLOCKS);
        let blocks = mapped(ftl, &mut session_blocks());
        read_some(ftl, pages, &blocks, clock, |block, bytes| sessions.read(block as u32 - 1, bytes))?;
        let (slots, first) = (pages.layout.slots, pages.layout.slot_block(0));
        let blocks = mapped(ftl, &mut (first..first + u64::from(slots)));
        let taken = blocks.iter().map(|block| (block - first) as u32).collect();
        let mut found = BTreeSet::new();
        read_some(ftl, pages, &blocks, clock, |_, bytes| {
            found
                .extend(Leaf::read(bytes, usize::MAX).iter().flat_map(|leaf| leaf.pages_from(0)).map(|(lpid, _)| lpid));
        })?;
        Ok(LeftInArea { anchor, sessions, slots: taken, pages: found })
    }
}

/// Changes of batches of which the end has not come, by session, number and digest.
type Parts = BTreeMap<(SessionId, u64, u32), Vec<(u64, Put)>>;

/// What is left of the log.
#[derive(Default)]
struct LeftOfLog {
    chunks: BTreeMap<ChunkId, FoundChunk>,
    said: BTreeMap<u64, Said>,
    /// Pages that it has with their bytes, where that is not the last word.
    carried: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Sessions, with their last batches and what tells these from others, in the order of the log; `None`: the session was forgotten.
    batches: Vec<(SessionId, Option<(u64, u32)>)>,
    last_group: u64,
    last_version: u64,
}

impl LeftOfLog {
    fn read(
        ftl: &mut BlockFtl,
        pages: &mut Pages,
        anchor: Anchor,
        clock: &mut dyn Clock,
    ) -> Result<LeftOfLog, OpenError> {
        let found: Vec<(ChunkId, FoundChunk)> = pages.coming_and_going.found().collect();
        let format = ftl.flash.format;
        let (mut left, mut seen) = (LeftOfLog::default(), SeenLog::new(&ftl.flash.geometry));
        let mut groups: BTreeMap<u64, FoundGroup> = BTreeMap::new();
        for (chunk, found) in found {
            let Some(blocks) = read_chunk(ftl, pages, chunk, found.write_pointer, clock)? else { continue };
            left.chunks.insert(chunk, found);
            let of_chunk = groups_in(&ftl.flash, chunk, &blocks);
            seen.add(format, chunk, &blocks, &of_chunk);
            for group in of_chunk {
                let is_newer = groups
                    .get(&group.number)
                    .is_none_or(|other| (other.version, other.sequence) < (group.version, group.sequence));
                left.last_version = left.last_version.max(group.version.max(group.sequence));
                if is_newer {
                    groups.insert(group.number, group);
                }
            }
        }
        left.last_group = groups.last_key_value().map_or(0, |(number, _)| *number);
        let mut parts = Parts::new();
        let mut last = 0;
        for (follows, mut groups) in stretches(groups) {
            if !follows {
                left.doubt();
            }
            let is_in_doubt = drop_what_was_never_durable(format, &mut groups, &seen, anchor.durable);
            left.take_stretch(&groups, anchor.group, &mut parts);
            if is_in_doubt {
                left.doubt();
            }
            last = groups.last_key_value().map_or(last, |(number, _)| *number);
        }
        if anchor.group > last + 1 && !is_skipped(anchor.group - last) {
            // Groups before that one were needed no more, and are not there any longer: what they say, the index had that is lost.
            left.doubt();
        }
        Ok(left)
    }

    /// Something that was said later may be missing.
    fn doubt(&mut self) {
        self.said.values_mut().for_each(|said| said.is_in_doubt = true);
    }

    /// Takes groups. What they say of sessions is in the area if they are before group `anchor`.
    fn take_stretch(&mut self, groups: &Stretch, anchor: u64, parts: &mut Parts) {
        let Some((last, _)) = groups.last_key_value() else { return };
        // Behind the last group that is missing.
        let mut first = *last;
        while groups.contains_key(&(first - 1)) {
            first -= 1;
        }
        if groups.keys().next() != Some(&first) {
            // What was said before that is not the last word.
            for (lpid, Said { word, .. }) in std::mem::take(&mut self.said) {
                self.take_bytes(lpid, word);
            }
        }
        for (number, group) in groups {
            for record in read_records(&group.records).unwrap_or_default() {
                let is_of_session = matches!(record, Record::Changes { .. } | Record::Forgotten(_));
                if is_of_session && *number >= anchor {
                    self.take_session(&record);
                }
                self.take(record, group.version, *number >= first, parts);
            }
        }
    }

    /// Bytes that a part of the log has behind which something is missing are a version as those on media are.
    fn take_bytes(&mut self, lpid: u64, word: Word) {
        if let Word::Carried(version, bytes) = word {
            self.carried.insert(lpid, (version, bytes));
        }
    }

    fn take_session(&mut self, record: &Record) {
        match record {
            Record::Changes { session, wsn, digest, is_last: true, .. } => {
                self.batches.push((*session, Some((*wsn, *digest))));
            }
            Record::Forgotten(session) => self.batches.push((*session, None)),
            _ => {}
        }
    }

    /// A record of a group with this version. What it says of pages is the last word only if it `counts`.
    fn take(&mut self, record: Record, version: u64, counts: bool, parts: &mut Parts) {
        match record {
            Record::Changes { session, wsn, digest, is_last, puts } => {
                let known = parts.entry((session, wsn, digest)).or_default();
                known.extend(puts);
                if !is_last {
                    return;
                }
                for (lpid, put) in parts.remove(&(session, wsn, digest)).expect("it was just added to") {
                    let word = match put {
                        Put::At(place) => Word::At(place),
                        Put::Deleted => Word::Deleted,
                        Put::Carried { version, bytes } => Word::Carried(version, bytes),
                    };
                    if counts {
                        self.said.insert(lpid, Said { word, version, is_in_doubt: false });
                    } else {
                        self.take_bytes(lpid, word);
                    }
                }
            }
            Record::Moved { lpid, from, to } if counts => self.change(lpid, from, Word::At(to)),
            Record::Lost { lpid, from } if counts => self.change(lpid, from, Word::Lost),
            Record::Moved { .. }
            | Record::Lost { .. }
            | Record::Forgotten(_)
            | Record::Opened { .. }
            | Record::Begins { .. } => {}
        }
    }

    /// A page that is at `from` is not there any more.
    fn change(&mut self, lpid: u64, from: Place, word: Word) {
        if let Some(said) = self.said.get_mut(&lpid).filter(|said| said.word == Word::At(from)) {
            said.word = word;
        }
    }

    /// Places that it has the last word on, by their chunks.
    fn places(&self, format: AddressFormat) -> BTreeMap<ChunkId, Vec<(u64, Place)>> {
        let mut places: BTreeMap<ChunkId, Vec<(u64, Place)>> = BTreeMap::new();
        for (lpid, said) in &self.said {
            if let Word::At(place) = said.word {
                places.entry(place.chunk(format)).or_default().push((*lpid, place));
            }
        }
        places
    }
}

/// What the pages on the media say.
#[derive(Default)]
struct Versions {
    /// The newest version of each page, and where it is.
    newest: BTreeMap<u64, (u64, Place)>,
    /// What is at places that the log says.
    at_places: BTreeMap<u64, AtPlace>,
    unreadable: u64,
    last_version: u64,
}

impl Versions {
    fn read(
        ftl: &mut BlockFtl,
        pages: &mut Pages,
        log: &LeftOfLog,
        clock: &mut dyn Clock,
    ) -> Result<Versions, OpenError> {
        let mut versions = Versions::default();
        let places = log.places(ftl.flash.format);
        let found: Vec<(ChunkId, FoundChunk)> = pages.coming_and_going.found().collect();
        for (chunk, found) in found.into_iter().filter(|(chunk, _)| !log.chunks.contains_key(chunk)) {
            let blocks = read_sealed(ftl, pages, chunk, found.write_pointer, clock)?;
            let format = ftl.flash.format;
            // One of which not a single block can be read was being erased.
            let of_log = places.get(&chunk).map_or(&[][..], Vec::as_slice);
            if blocks.iter().any(|known| known.bytes.is_some()) {
                versions.unreadable += blocks.iter().filter(|known| known.bytes.is_none()).count() as u64;
                let is_lost = |block: u32| blocks.get(block as usize).is_some_and(|known| known.bytes.is_none());
                let damaged = of_log.iter().filter(|(_, place)| place.blocks(format).any(is_lost));
                versions.at_places.extend(damaged.map(|(lpid, _)| (*lpid, AtPlace::Damaged)));
            }
            let sequences = blocks.iter().map(|known| known.sequence);
            versions.last_version = sequences.fold(versions.last_version, u64::max);
            for_each_in(&blocks, Kind::Page, |header, grain, _| {
                let place = Place::new(format, chunk, grain, header.bytes);
                versions.last_version = versions.last_version.max(header.version);
                if of_log.binary_search(&(header.lpid, place)).is_ok() {
                    versions.at_places.insert(header.lpid, AtPlace::Confirmed(header.version));
                }
                let newest = versions.newest.entry(header.lpid).or_insert((header.version, place));
                if header.version > newest.0 {
                    *newest = (header.version, place);
                }
            });
        }
        // A chunk that is gone is not one that was emptied.
        for (chunk, places) in places {
            if ftl.flash.geometry.has_chunk(chunk) && ftl.flash.chunks.is_offline(chunk) {
                versions.at_places.extend(places.into_iter().map(|(lpid, _)| (lpid, AtPlace::Damaged)));
            }
        }
        Ok(versions)
    }
}

/// Reads the blocks of a chunk with pages, and finds out its seal if that is not known.
fn read_sealed(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    chunk: ChunkId,
    end: u32,
    clock: &mut dyn Clock,
) -> Result<Vec<FoundBlock>, OpenError> {
    let (mut found, mut salts) = (Vec::new(), Vec::new());
    let mut is_known = false;
    for first in (0..end).step_by(READ_BLOCKS) {
        let count = (READ_BLOCKS as u32).min(end - first);
        let (frames, lost) = read_window(ftl, pages, chunk, (first, count), clock)?;
        for ((block, frame), is_lost) in (first..).zip(frames).zip(lost) {
            let oob = Oob::peek(&ftl.flash.frames, frame).ok();
            let is_of_page = oob.is_some_and(|oob| is_of(oob, block) == Some(false));
            let is_padding = oob.is_some_and(|oob| oob.kind == BlockKind::Padding);
            is_known |= is_of_page && !is_lost;
            salts.push(if is_lost && is_of_page { Oob::salts_left(&ftl.flash.frames, frame) } else { [None; 2] });
            let is_there = is_of_page || (is_padding && !is_lost);
            found.push(FoundBlock {
                bytes: is_there.then(|| Box::new(*ftl.flash.frames.bytes(frame))),
                sequence: oob.filter(|_| is_of_page && !is_lost).map_or(0, |oob| possible(oob.sequence)),
                head: if is_of_page { Pages::head_of(&ftl.flash, frame) } else { None },
            });
            ftl.flash.frames.release(frame);
        }
        pages.keep_frames(&mut ftl.flash);
    }
    let common = common_salt(salts.iter().flatten().flatten().copied()).map(|(salt, _)| salt);
    // What a page says is verified by its own CRC32C, so one block alone may say what the seal is.
    let common = common.filter(|_| !is_known);
    if let Some(salt) = common {
        let seal = ftl.flash.seals.get(chunk) ^ salt;
        ftl.flash.seals.restore(chunk, seal);
    }
    for (known, salts) in found.iter_mut().zip(salts) {
        let has_other = salts.iter().any(Option::is_some);
        if has_other && (common.is_none() || !salts.contains(&common)) {
            (known.bytes, known.head) = (None, None);
        }
    }
    Ok(found)
}

/// Rebuilds the index, which cannot be trusted because of `damage`. Nothing but the superblock is written.
///
/// # Errors
/// If the device stops answering, or more pages came back than there is room for.
pub(crate) fn rebuild(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    damage: &OpenError,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    if ftl.read_only_reason().is_none() && !is_rebuilding(ftl) {
        mark(ftl, pages, TenantNote::REBUILDING, clock)?;
    }
    let area = LeftInArea::read(ftl, pages, clock)?;
    let anchor = area.anchor.unwrap_or_default();
    let mut log = LeftOfLog::read(ftl, pages, anchor, clock)?;
    let versions = Versions::read(ftl, pages, &log, clock)?;
    let report = compose(pages, &mut log, &area, &versions)?;
    pages.sessions = area.sessions;
    for (session, batch) in std::mem::take(&mut log.batches) {
        match batch {
            None => pages.sessions.forget(session),
            // One for which there is no room was forgotten, and that is lost.
            Some((wsn, digest)) => {
                let number = pages.sessions.find(session).ok();
                let state = number.and_then(|number| pages.sessions.get_mut(number));
                state.into_iter().for_each(|state| state.found(wsn, digest));
            }
        }
    }
    let chunks: u32 = (0..ftl.flash.geometry.groups).map(|group| ftl.flash.provisioning.tenant_share(group)).sum();
    let share = ftl.config().over_provisioning;
    pages.capacity_grains = match anchor.capacity_grains {
        0 => capacity_grains(&ftl.flash.geometry, &pages.layout, chunks, share),
        grains => grains,
    };
    pages.next_version = versions.last_version.max(log.last_version).max(anchor.version) + VERSIONS_SKIPPED;
    pages.log = Log::new(pages.layout.log_blocks, pages.page_bytes_max);
    pages.log.next_group = first_group(log.last_group, anchor);
    // Until all is written that the new index is made of, sessions of the area lack what the old log says since the old anchor, and it says of
    // which groups none may be missing.
    pages.anchor = Anchor { version: pages.next_version, capacity_grains: pages.capacity_grains, ..anchor };
    let live = live_chunks(ftl, pages)?;
    take_chunks(ftl, pages, live, Access::Repair, clock)?;
    keep_old_log(ftl, pages, &log.chunks);
    pages.is_rebuilt = true;
    ftl.hand_over();
    let of_drive = ftl
        .repair_report_mut()
        .get_or_insert_with(|| RepairReport { damage: damage.to_string(), ..RepairReport::default() });
    of_drive.media_blocks_unreadable += versions.unreadable;
    of_drive.index = Some(report);
    Ok(())
}

/// Says of each page where it is.
fn compose(
    pages: &mut Pages,
    log: &mut LeftOfLog,
    old: &LeftInArea,
    versions: &Versions,
) -> Result<IndexRepair, OpenError> {
    (pages.index, pages.carried) =
        (Index::new_beside(pages.layout.slots, pages.leaf_pages, &old.slots), BTreeMap::new());
    let mut report = IndexRepair::default();
    let named: BTreeSet<u64> = versions
        .newest
        .keys()
        .chain(log.said.keys())
        .chain(log.carried.keys())
        .copied()
        .chain(old.pages.iter().copied())
        .collect();
    for lpid in named {
        let said = log.said.remove(&lpid);
        let evidence = Evidence {
            said: said.as_ref(),
            at_place: versions.at_places.get(&lpid).copied().unwrap_or_default(),
            newest: versions.newest.get(&lpid).copied(),
            carried: log.carried.get(&lpid).map(|(version, _)| *version),
        };
        let fate = evidence.fate();
        match fate {
            Fate::Known(_) | Fate::KnownBytes => report.pages_known += 1,
            Fate::Rebuilt(_) | Fate::RebuiltBytes => report.pages_rebuilt += 1,
            Fate::Lost => report.pages_lost += 1,
            Fate::Gone => {}
        }
        let is_rebuilt = matches!(fate, Fate::Rebuilt(_) | Fate::RebuiltBytes);
        report.pages_returned += u64::from(is_rebuilt && said.is_none() && !old.pages.contains(&lpid));
        match (fate, said.map(|said| said.word)) {
            (Fate::Known(place) | Fate::Rebuilt(place), _) => _ = pages.index.set(lpid, Some(place)),
            (Fate::Lost, _) => _ = pages.index.set(lpid, Some(Place::LOST)),
            (Fate::Gone, _) => {}
            (Fate::KnownBytes, Some(Word::Carried(version, bytes))) => pages.carry_found(lpid, version, bytes),
            (Fate::KnownBytes | Fate::RebuiltBytes, _) => {
                let (version, bytes) = log.carried.remove(&lpid).expect("the log has its bytes");
                pages.carry_found(lpid, version, bytes);
            }
        }
    }
    // Pages whose bytes the log has are put somewhere, and may split leaves then.
    let carried: Vec<u64> = pages.carried.keys().copied().collect();
    carried.iter().for_each(|lpid| _ = pages.index.set(*lpid, Some(Place::LOST)));
    let fits = pages.index.fits();
    carried.iter().for_each(|lpid| _ = pages.index.set(*lpid, None));
    if !fits {
        let text = format!(
            "{} pages were found, deleted ones among them, and the index has no room for so many: copy what can be read to a larger store",
            pages.index.pages()
        );
        return Err(OpenError::Tenant { text, is_lost: false });
    }
    Ok(report)
}

impl Pages {
    /// The log has this page with its bytes.
    fn carry_found(&mut self, lpid: u64, version: u64, bytes: Vec<u8>) {
        // What no page of this drive can be is none.
        if let Ok(length) = expect_length(lpid, bytes.len(), self.page_bytes_max) {
            self.live_grains += u64::from(grains_of(length));
            self.carried.insert(lpid, Carried { version, bytes });
        }
    }
}

/// Chunks of the old log stay until the new index is on media: what they say of pages is needed if the repair is cut off.
fn keep_old_log(ftl: &mut BlockFtl, pages: &mut Pages, chunks: &BTreeMap<ChunkId, FoundChunk>) {
    for (chunk, found) in chunks {
        if pages.coming_and_going.take(&mut ftl.flash, *chunk).is_none() {
            continue;
        }
        pages.log_chunks += 1;
        // What holds it is the repair.
        pages.chunks.insert(*chunk, PageChunk { live: 1, is_log: true, ..PageChunk::default() });
        pages.old_log.push(*chunk);
        if found.is_open && ftl.read_only_reason().is_none() {
            let open = ftl.flash.units.open(*chunk, found.write_pointer);
            let slot = pages.add_open(OpenChunk::new(*chunk, open, Stream::Log, found.write_pointer));
            pages.fill_up(&mut ftl.flash, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{begin_changes, end_changes, push, push_change};
    use crate::seen_log::GROUPS_SKIPPED;
    use openftl_core::Geometry;

    const SESSION: SessionId = SessionId([3; 16]);

    fn group(number: u64, version: u64, records: Vec<u8>) -> (u64, FoundGroup) {
        let format = Geometry::tiny().format();
        let place = Place::new(format, format.chunk_id(format.pu_id(0, 0), 1), 0, 100);
        (number, FoundGroup { number, version, sequence: version, place, records })
    }

    /// A batch that deletes these pages.
    fn deletes(wsn: u64, lpids: &[u64]) -> Vec<u8> {
        let mut records = Vec::new();
        let at = begin_changes(&mut records, SESSION, wsn, 7, true);
        lpids.iter().for_each(|lpid| push_change(&mut records, *lpid, None));
        end_changes(&mut records, at, lpids.len() as u32);
        records
    }

    fn left_of(groups: Vec<(u64, FoundGroup)>, anchor: u64) -> LeftOfLog {
        let mut left = LeftOfLog::default();
        let mut parts = Parts::new();
        for (follows, groups) in stretches(groups.into_iter().collect()) {
            if !follows {
                left.doubt();
            }
            left.take_stretch(&groups, anchor, &mut parts);
        }
        left
    }

    #[test]
    fn numbers_that_a_repair_has_skipped_are_no_gap_and_others_are_one() {
        let far = 2 + GROUPS_SKIPPED;
        let groups = |second| vec![group(2, 20, deletes(1, &[1, 2])), group(second, 1000, deletes(2, &[3]))];
        let said = |second| left_of(groups(second), 0).said.into_keys().collect::<Vec<_>>();
        assert_eq!((said(3), said(far)), (vec![1, 2, 3], vec![1, 2, 3]));
        assert_eq!((said(4), said(far - 1)), (vec![3], vec![3]));
        // Versions that do not grow are of groups that a power cut has left.
        let stale = vec![group(2, 20, deletes(1, &[1])), group(3, 19, deletes(2, &[2]))];
        assert_eq!(left_of(stale, 0).said.into_keys().collect::<Vec<_>>(), [1]);
    }

    /// The first groups of a repair that was cut off may have been forgotten in a checkpoint of it, or lost.
    #[test]
    fn what_stands_before_a_repair_of_which_the_first_groups_are_missing_is_in_doubt() {
        let doubts = |second, anchor| {
            let groups = vec![group(2, 20, deletes(1, &[1])), group(second, 1000, deletes(2, &[3]))];
            left_of(groups, anchor).said.into_values().map(|said| said.is_in_doubt).collect::<Vec<_>>()
        };
        let far = 2 + GROUPS_SKIPPED;
        assert_eq!(
            (doubts(far, 0), doubts(far + 1, 0), doubts(far + 1, far)),
            (vec![false; 2], vec![true, false], vec![true, false])
        );
        // A repair that had written nothing was followed by another one.
        let anchor = Anchor { group: far, ..Anchor::default() };
        let again = first_group(2, anchor);
        assert_eq!((first_group(2, Anchor { group: 3, ..anchor }), again), (far, far + GROUPS_SKIPPED - 1));
        assert_eq!((doubts(again, far), doubts(again + 1, far)), (vec![false; 2], vec![true, false]));
    }

    #[test]
    fn what_the_log_says_of_sessions_before_its_anchor_is_in_the_area_already() {
        let mut forgotten = Vec::new();
        push(&mut forgotten, &Record::Forgotten(SESSION));
        let groups =
            || vec![group(2, 20, deletes(5, &[1])), group(3, 21, forgotten.clone()), group(4, 22, deletes(1, &[2]))];
        assert_eq!(left_of(groups(), 4).batches, [(SESSION, Some((1, 7)))]);
        assert_eq!(left_of(groups(), 5).batches, []);
        assert_eq!(left_of(groups(), 0).batches.len(), 3);
        // Of pages it is the last word, wherever the anchor is.
        assert_eq!(left_of(groups(), 5).said.len(), 2);
    }
}
