//! What only some zoned drives take: windows that are written in any order, and descriptor extensions. And reads of what may be lost.

use crate::played::Played;
use crate::zone_model::{IN_ORDER, Life};
use crate::zone_world::{EXTENSION, Errand, ZoneWorld, stamp};
use openftl_core::{Clock, Frame, Stamp};
use openftl_parts::{Durability, Target};
use openftl_zones::{ZoneError, ZoneRequest};

impl ZoneWorld {
    /// Writes blocks of a zone that has a window, so many blocks behind its write pointer.
    ///
    /// # Errors
    /// Why the drive refuses it.
    pub fn write_window(
        &mut self,
        zone: u32,
        behind: u32,
        blocks: u32,
        durability: Durability,
    ) -> Result<(), ZoneError> {
        let Life { number, written, .. } = *self.model.now(zone);
        let at = written + behind;
        self.version += 1;
        let version = self.version;
        let frames = self.stamped(zone, number, at, blocks, version);
        let (now, tag) = (self.clock.now(), self.next_tag());
        let (before, shown) = (self.model.clone(), self.ftl().board().zone(zone));
        let committed = (at + blocks).saturating_sub(written + self.layout().window_blocks);
        self.model().write_window(zone, at, blocks, version);
        self.model().commit(zone, committed);
        let request = ZoneRequest::Write { first: self.address(zone, at), frames: &frames, durability };
        let result = self.ftl().submit(now, tag, request);
        if let Err(error) = result {
            self.model = before;
            frames.iter().for_each(|frame| self.ftl().frames_mut().release(*frame));
            assert_eq!(self.ftl().board().zone(zone), shown, "what is refused changes nothing");
            return Err(error);
        }
        assert_eq!(self.ftl().board().zone(zone).written, written + committed, "no more is committed than has to be");
        let errand = match durability {
            Durability::Durable => Errand::Flush { snapshot: self.model.snapshot() },
            Durability::Volatile => Errand::Other,
        };
        self.under_way.push((tag, errand));
        self.note_crash_points();
        Ok(())
    }

    /// Opens a zone with a window.
    ///
    /// # Errors
    /// Why the drive refuses it.
    pub fn open_with_window(&mut self, zone: u32) -> Result<(), ZoneError> {
        let (now, tag, address) = (self.clock.now(), self.next_tag(), self.address(zone, 0));
        self.ftl().submit(now, tag, ZoneRequest::OpenWithWindow { zone: address })?;
        self.under_way.push((tag, Errand::Other));
        self.note_crash_points();
        Ok(())
    }

    /// Commits so many blocks of the window of a zone, none of the next one.
    ///
    /// # Errors
    /// Why the drive refuses it.
    pub fn commit(&mut self, zone: u32, blocks: u32) -> Result<(), ZoneError> {
        let (now, tag) = (self.clock.now(), self.next_tag());
        let written = self.written(zone);
        let size = self.layout().size as u32;
        let blocks = blocks.clamp(1, (size - written).max(1));
        let last = self.address(zone, (written + blocks).min(size) - 1);
        let before = self.model.clone();
        self.model().commit(zone, blocks);
        if let Err(error) = self.ftl().submit(now, tag, ZoneRequest::Commit { last }) {
            self.model = before;
            return Err(error);
        }
        self.under_way.push((tag, Errand::Other));
        self.note_crash_points();
        Ok(())
    }

    /// Sets the extension of a zone.
    ///
    /// # Errors
    /// Why the drive refuses it.
    pub fn extend(&mut self, zone: u32) -> Result<(), ZoneError> {
        let frame = self.frames(1)[0];
        let life = self.model.now(zone).number;
        let (now, tag, address) = (self.clock.now(), self.next_tag(), self.address(zone, 0));
        let before = self.model.clone();
        let word = stamp(zone, life, EXTENSION, IN_ORDER).0.to_le_bytes();
        self.ftl().frames_mut().bytes_mut(frame).as_chunks_mut().0.fill(word);
        self.model().extend(zone);
        let result = self.ftl().submit(now, tag, ZoneRequest::Extend { zone: address, frame });
        self.ftl().frames_mut().release(frame);
        if let Err(error) = result {
            self.model = before;
            return Err(error);
        }
        self.under_way.push((tag, Errand::Other));
        self.note_crash_points();
        Ok(())
    }

    /// What blocks say; of one that may be lost, and cannot be read, nothing.
    pub(crate) fn read_raw(&mut self, zone: u32, first: u32, count: u32) -> Vec<Option<Stamp>> {
        match self.try_to_read(zone, first, count) {
            Ok(stamps) => stamps.into_iter().map(Some).collect(),
            Err(error) => {
                assert!(self.model.is_hurt(), "blocks {first} to {} of zone {zone}: {error}", first + count);
                let alone = |block: u32| self.read_alone(zone, block).ok();
                (first..first + count).map(alone).collect()
            }
        }
    }

    /// Reads one block, whatever it says.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read_alone(&mut self, zone: u32, block: u32) -> Result<Stamp, ZoneError> {
        self.try_to_read(zone, block, 1).map(|stamps| stamps[0])
    }

    fn try_to_read(&mut self, zone: u32, first: u32, count: u32) -> Result<Vec<Stamp>, ZoneError> {
        let frames = self.frames(count.into());
        let (now, tag, at) = (self.clock.now(), self.next_tag(), self.address(zone, first));
        self.ftl().submit(now, tag, ZoneRequest::Read { first: at, frames: &frames }).expect("it can be read");
        let mut done = Vec::new();
        while done.is_empty() {
            let now = self.clock.now();
            self.ftl().poll(now, &mut done);
            if done.is_empty() {
                let due = self.ftl().next_due().expect("the read is under way");
                self.clock.wait_until(due);
            }
        }
        let ended = done.remove(0);
        let pool = self.ftl().frames_mut();
        let stamp_of = |frame: &Frame| Stamp::recognise(pool.bytes(*frame)).expect("all blocks are stamps");
        let stamps = ended.result.map(|()| frames.iter().map(stamp_of).collect());
        frames.into_iter().for_each(|frame| pool.release(frame));
        stamps
    }
}
