//! Cleaning: used blocks on their way out of a zone that is mostly dead, when no zone is empty.
//!
//! 1. The victim is the zone with the fewest used blocks. *Power cut: nothing has happened.*
//! 2. Its used blocks are copied to another zone, and the files that have them are recorded anew. *Nothing that counts.*
//! 3. A sync makes both durable. *Files have their blocks in either place.*
//! 4. The victim has no used block any more, and is reset. *It is reset when the drive is opened.*
//!
//! A zone with blocks of a file that has no name any more and is still used is no victim: no record says where they went. One of which a
//! block cannot be read stays as it is, and what has moved of it has moved.

use super::allocation::{Lease, PlaceLifetime};
use super::node::{Node, Presence, push, replace};
use super::record::ZoneExtent;
use super::shared::Shared;
use crate::{FileError, ReadRequest};
use openftl_core::BLOCK_BYTES;
use openftl_media::Media;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Zones of which something moves in vain, at a time.
pub const VICTIMS_MAX: usize = 8;

/// Blocks that move at a time: 1 MiB.
const MOVE_BLOCKS: u32 = 256;

/// What became of a victim.
enum Moved {
    /// All of it has moved.
    All,
    /// Something could not be read or written.
    InPart,
    /// Nothing: it cannot move as a whole.
    Nothing,
}

impl<M: Media> Shared<M> {
    /// Makes room for files, and says whether there may be some. Nobody who has a lock of this drive calls this, but the one of a file that
    /// is written.
    pub(super) fn make_room(&self) -> Result<bool, FileError> {
        let _cleaning = self.cleaning.lock().unwrap_or_else(PoisonError::into_inner);
        // What was deleted is given back by a sync; or another thread has made room meanwhile.
        self.sync()?;
        self.reset_dead()?;
        if self.zones().has_room() {
            return Ok(true);
        }
        let victims = self.zones().victims();
        let mut in_vain = 0;
        for victim in victims {
            match self.move_out(victim)? {
                Moved::All => {
                    self.sync()?;
                    self.zones_cleaned.fetch_add(1, Ordering::Relaxed);
                    return Ok(true);
                }
                Moved::InPart => in_vain += 1,
                Moved::Nothing => {}
            }
            if in_vain == VICTIMS_MAX {
                break;
            }
        }
        // Another thread may have made room meanwhile.
        self.reset_dead()?;
        Ok(self.zones().has_room())
    }

    /// Moves every used block out of a zone, if all of them are of files that have names.
    fn move_out(&self, victim: u32) -> Result<Moved, FileError> {
        let nodes: Vec<Arc<Node>> = self.names().nodes().map(Arc::clone).collect();
        let in_victim = |node: &Node| -> Vec<ZoneExtent> {
            let contents = node.read();
            if contents.presence != Presence::There {
                return Vec::new();
            }
            contents.extents.iter().filter(|extent| extent.zone == victim).copied().collect()
        };
        let moving: Vec<(Arc<Node>, Vec<ZoneExtent>)> = nodes
            .into_iter()
            .map(|node| {
                let extents = in_victim(&node);
                (node, extents)
            })
            .filter(|(_, extents)| !extents.is_empty())
            .collect();
        let blocks: u32 = moving.iter().flat_map(|(_, extents)| extents).map(|extent| extent.blocks).sum();
        let room = {
            let zones = self.zones();
            if blocks != zones.used(victim) || u64::from(blocks) > zones.room_for_cleaning() {
                return Ok(Moved::Nothing);
            }
            zones.room_for_cleaning()
        };
        // What moves in part takes room and gives none: where too little would be left for another victim, all is read first.
        let is_tight = room < 2 * u64::from(blocks);
        let read_first = moving.iter().flat_map(|(_, extents)| extents).filter(|_| is_tight);
        if let Err(FileError::Io(_) | FileError::Corruption(_)) =
            read_first.flat_map(|extent| pieces_of(*extent)).try_for_each(|piece| self.read_piece(piece).map(|_| ()))
        {
            return Ok(Moved::InPart);
        }
        let mut lease: Lease = None;
        let moved = moving.iter().try_for_each(|(node, extents)| {
            let pieces = extents.iter().flat_map(|extent| pieces_of(*extent));
            pieces.into_iter().try_for_each(|piece| self.move_piece(node, piece, &mut lease))
        });
        self.zones().leave(&mut lease);
        match moved {
            Ok(()) => Ok(Moved::All),
            // What the medium has lost stays lost where it is; another zone may be read.
            Err(FileError::Io(_) | FileError::Corruption(_) | FileError::NoSpace(_)) => Ok(Moved::InPart),
            Err(error) => Err(error),
        }
    }

    fn read_piece(&self, piece: ZoneExtent) -> Result<Vec<u8>, FileError> {
        let mut data = vec![0; piece.blocks as usize * BLOCK_BYTES];
        let bytes = data.len() as u64;
        let mut requests = [ReadRequest { offset: 0, buffer: &mut data, result: Ok(0) }];
        self.read_pieces(&mut requests, bytes, &[piece]);
        let [ReadRequest { result, .. }] = requests;
        result.inspect_err(|_| self.zones().could_not_read(piece.zone))?;
        Ok(data)
    }

    fn move_piece(&self, node: &Node, piece: ZoneExtent, lease: &mut Lease) -> Result<(), FileError> {
        let data = self.read_piece(piece)?;
        let mut new = Vec::new();
        if let Err(error) = self.write(PlaceLifetime::OF_MOVED, lease, &data, true, |extent| push(&mut new, extent)) {
            self.free(new);
            return Err(error);
        }
        self.blocks_cleaned.fetch_add(piece.blocks.into(), Ordering::Relaxed);
        let mut contents = node.write();
        // It may have been deleted or cut meanwhile.
        if contents.presence != Presence::There || !replace(&mut contents.extents, piece, &new) {
            drop(contents);
            self.free(new);
            return Ok(());
        }
        let change = contents.is_noted.then(|| node.note_again(&contents));
        self.change_blocks(change, [piece]);
        Ok(())
    }
}

/// An extent in parts that move at a time.
fn pieces_of(extent: ZoneExtent) -> impl Iterator<Item = ZoneExtent> {
    (0..extent.blocks).step_by(MOVE_BLOCKS as usize).map(move |at| ZoneExtent {
        zone: extent.zone,
        first: extent.first + at,
        blocks: MOVE_BLOCKS.min(extent.blocks - at),
    })
}
