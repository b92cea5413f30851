//! A fault makes a block or a chunk of the device fail, or a drive lie about flush, because an operator asks for it.

use super::refusal::{not_now, out_of_range, store_refusal};
use crate::assembly::Drive;
use openftl_control::{Answer, Refusal};
use openftl_core::{ChunkId, ChunkName, Ppa};
use openftl_media::{EmulatedDevice, Media, ProgramFailure};
use openftl_parts::BlockTarget;
use openftl_parts::map::Place;
use openftl_serving::flash::Flash;

pub(super) fn fail_read(drive: &mut Drive, block: u64) -> Result<Answer, Refusal> {
    let ppa = place(drive, block)?;
    let at = drive.media().on_device(ppa);
    operate(drive.media_mut(), |device| device.inject_read_failure(at))?.map_err(store_refusal)?;
    let place = shown(drive.media(), ppa);
    let message = format!("Logical block {block}, at {place}, cannot be read until it is overwritten or trimmed.");
    Ok(Answer::new(message).with("block", block).with("place", place))
}

pub(super) fn corrupt(drive: &mut Drive, block: u64) -> Result<Answer, Refusal> {
    let ppa = place(drive, block)?;
    let at = drive.media().on_device(ppa);
    operate(drive.media_mut(), |device| device.corrupt(at))?.map_err(store_refusal)?;
    let place = shown(drive.media(), ppa);
    let message = format!("One bit of logical block {block}, at {place}, is turned. The device does not notice.");
    Ok(Answer::new(message).with("block", block).with("place", place))
}

pub(super) fn fail_program(flash: &mut Flash, name: ChunkName, close: bool) -> Result<Answer, Refusal> {
    let (failure, how) = failure_of(close);
    let chunk = flash.chunk_on_device(chunk(flash, name)?);
    operate(flash, |device| device.inject_program_failure(chunk, failure))?;
    let message = format!("The next program operation on chunk {name} fails{how}.");
    Ok(Answer::new(message).with("chunk", name).with("close", close))
}

pub(super) fn fail_next_program(flash: &mut Flash, close: bool) -> Result<Answer, Refusal> {
    let (failure, how) = failure_of(close);
    operate(flash, |device| device.inject_next_program_failure(failure))?;
    let message = format!("The next program operation on the device fails{how}.");
    Ok(Answer::new(message).with("chunk", None::<ChunkName>).with("close", close))
}

pub(super) fn wear(flash: &mut Flash, name: ChunkName, resets: u32) -> Result<Answer, Refusal> {
    let chunk = flash.chunk_on_device(chunk(flash, name)?);
    let (worn, endurance) = operate(flash, |device| (device.set_wear(chunk, resets), device.endurance()))?;
    worn.map_err(store_refusal)?;
    let message = format!("Chunk {name} counts as erased {resets} times; it stands {endurance}.");
    Ok(Answer::new(message).with("chunk", name).with("resets", resets).with("endurance", endurance))
}

/// The answer of a drive that lies about flushes from now on, or no longer.
pub(super) fn lies_about_flush(on: bool) -> Answer {
    let message = match on {
        true => "Flushes and durable writes are acknowledged at once from now on, and make nothing durable.",
        false => "Flushes and durable writes keep their promise again.",
    };
    Answer::new(message).with("lies_about_flush", on)
}

/// Where a logical block is on the medium.
fn place(drive: &Drive, block: u64) -> Result<Ppa, Refusal> {
    let blocks = drive.blocks();
    if block >= blocks {
        return Err(out_of_range(format_args!("logical block {block} is not on this drive of {blocks} blocks"))
            .fix("blocks are 4 KiB and counted from 0"));
    }
    match drive.place(block) {
        None => {
            Err(not_now(format_args!("the map page of logical block {block} is not in memory"))
                .fix("read the block first"))
        }
        Some(Place::Media(ppa)) => Ok(ppa),
        Some(Place::Unmapped) => Err(not_now(format_args!("logical block {block} was never written, or trimmed"))
            .fix("write it first, and flush")),
        Some(Place::Lost) => {
            Err(not_now(format_args!("logical block {block} is lost already")).fix("write it again, and flush"))
        }
        Some(Place::Buffer(_)) => Err(not_now(format_args!("logical block {block} is still in the write buffer"))
            .fix("flush and turn the power off and on (openftl ctl DRIVE power-cycle), or write more behind it")),
    }
}

/// A chunk of some flash, as it counts them.
fn chunk(flash: &Flash, name: ChunkName) -> Result<ChunkId, Refusal> {
    let geometry = flash.geometry();
    geometry.chunk_named(name).ok_or_else(|| {
        out_of_range(format_args!(
            "chunk {name} is not on this drive: it has {} groups of {} parallel units of {} chunks, counted from 0",
            geometry.groups, geometry.pus_per_group, geometry.chunks_per_pu
        ))
        .fix("`openftl inspect` shows a drive's chunks")
    })
}

/// Operates the device behind some flash, if it is here.
fn operate<R>(flash: &mut Flash, deed: impl FnOnce(&mut EmulatedDevice) -> R) -> Result<R, Refusal> {
    flash.operate(deed).ok_or_else(|| not_now("the flash is on another machine").fix("ask the server that has it"))
}

fn shown(flash: &Flash, ppa: Ppa) -> String {
    flash.geometry().format().unpack(ppa).to_string()
}

fn failure_of(close: bool) -> (ProgramFailure, &'static str) {
    if close { (ProgramFailure::ChunkClosed, " and closes its chunk") } else { (ProgramFailure::NextUnit, "") }
}
