//! The area of a tenant that keeps it twice: bringing the second copy up to the first one.
//!
//! A write goes to the first copy and then to the second, so a power cut may leave the first ahead. Whoever opens the drive believes the
//! first, and gives back what only the second names; so before that the second has to be as the first is, for good.

use crate::block_ftl::BlockFtl;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm};
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{BlockTarget, Durability, IoError, Request};
use openftl_parts::tenant::Tenant;
use openftl_parts::words::Handle;

/// Second copies that are read at a time, while the first ones are in frames.
const READ_BLOCKS: usize = 16;

/// Blocks that are written at a time: there are as many frames on any drive.
const WRITE_BLOCKS: usize = 4;

/// A block of the area, and what is to be there.
pub type AreaBlock = (u64, Box<[u8; BLOCK_BYTES]>);

impl BlockFtl {
    /// Of blocks that were read, with their frames and the places of their second copies, those whose second copy is something else, or cannot
    /// be read.
    ///
    /// # Errors
    /// As of [`BlockFtl::read_blocks`].
    pub fn behind(
        &mut self,
        first: &[(Frame, u64)],
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
    ) -> Result<Vec<AreaBlock>, OpenError> {
        let mut behind = Vec::new();
        for first in first.chunks(READ_BLOCKS) {
            let places: Vec<u64> = first.iter().map(|(_, second)| *second).collect();
            let together = self.read_blocks(&places, clock, tenant)?;
            for (index, (frame, second)) in first.iter().enumerate() {
                let read = match &together {
                    Ok(frames) => Some(frames[index]),
                    Err(_) => self.read_blocks(&[*second], clock, tenant)?.ok().map(|frames| frames[0]),
                };
                let bytes = self.flash.frames.bytes(*frame);
                if read.is_none_or(|read| self.flash.frames.bytes(read) != bytes) {
                    behind.push((*second, Box::new(*bytes)));
                }
                read.into_iter().for_each(|read| self.flash.frames.release(read));
            }
        }
        Ok(behind)
    }

    /// Writes blocks of copy `copy`, and makes them durable. Nothing else is asked of the drive meanwhile. The inner error is that the drive
    /// takes no writes.
    ///
    /// # Errors
    /// If the device stops answering.
    pub fn bring_up(
        &mut self,
        behind: &[AreaBlock],
        copy: u32,
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
    ) -> Result<Result<(), IoError>, OpenError> {
        if behind.is_empty() {
            return Ok(Ok(()));
        }
        let handle = Handle::of_copy(copy);
        for blocks in behind.chunks(WRITE_BLOCKS) {
            for (place, bytes) in blocks {
                let Some(frame) = self.flash.frames.acquire(FrameForm::Bytes) else {
                    let text = "a copy of the area is to be written, and there are no frames".to_owned();
                    return Err(OpenError::Tenant { text, is_lost: false });
                };
                self.flash.frames.bytes_mut(frame).copy_from_slice(&bytes[..]);
                let (durability, frames) = (Durability::Volatile, &[frame]);
                let write = Request::Write { first: *place, frames, durability, handle };
                if let Err(error) = self.submit(clock.now(), *place, write) {
                    self.flash.frames.release(frame);
                    return Ok(self.wait_for(clock, tenant)?.and(Err(error)));
                }
            }
            let flushed = match self.submit(clock.now(), 0, Request::Flush) {
                Ok(()) => self.wait_for(clock, tenant)?,
                Err(error) => self.wait_for(clock, tenant)?.and(Err(error)),
            };
            if flushed.is_err() {
                return Ok(flushed);
            }
        }
        Ok(Ok(()))
    }

    /// Waits until all requests have ended.
    fn wait_for(&mut self, clock: &mut dyn Clock, tenant: &mut dyn Tenant) -> Result<Result<(), IoError>, OpenError> {
        self.run(clock, tenant, |ftl| ftl.transactions.is_idle())?;
        let mut done = Vec::new();
        self.poll_beside(clock.now(), &mut done, tenant);
        Ok(done.into_iter().try_for_each(|done| done.result))
    }
}
