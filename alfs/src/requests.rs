//! Requests to a drive that no volume has, or that go past the one that has it: each is run to its end.

use crate::block::Bytes;
use crate::mounting::MountError;
use openftl_core::{Clock, Frame, FrameForm};
use openftl_parts::target::{Done, IoError, Request, SegmentTarget};

/// Blocks that are read at a time.
const READ_BLOCKS: u32 = 64;

/// How often a block is read that cannot be read, before it counts as lost.
const READ_ATTEMPTS: u32 = 4;

/// Runs one request to its end.
pub(crate) fn run(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    request: Request<'_>,
) -> Result<(), MountError> {
    const TAG: u64 = 0;
    target.submit(clock.now(), TAG, request)?;
    let mut done = Vec::new();
    loop {
        target.poll(clock.now(), &mut done);
        // What the host before this one has begun ends, too.
        if let Some(done) = done.drain(..).find(|done| done.tag == TAG) {
            return Ok(done.result?);
        }
        match target.next_due() {
            Some(due) => _ = clock.wait_until(due),
            None => return Err(MountError::Stopped("the drive has nothing to do, and a request to it has not ended")),
        }
    }
}

/// Reads `count` blocks from `first` on.
pub(crate) fn read_blocks(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    first: u32,
    count: u32,
) -> Result<Vec<Box<Bytes>>, MountError> {
    let mut blocks = Vec::with_capacity(count as usize);
    let mut frames: Vec<Frame> = Vec::new();
    while (blocks.len() as u32) < count {
        let now = (count - blocks.len() as u32).min(READ_BLOCKS) as usize;
        if !target.frames_mut().acquire_many(FrameForm::Bytes, now, &mut frames) {
            return Err(MountError::Stopped("the drive has no frame left"));
        }
        let request = Request::Read { first: u64::from(first) + blocks.len() as u64, frames: &frames };
        let result = run(target, clock, request);
        for frame in frames.drain(..) {
            blocks.push(Box::new(*target.frames().bytes(frame)));
            target.frames_mut().release(frame);
        }
        result?;
    }
    Ok(blocks)
}

/// Reads blocks one behind the other; `None` is one that cannot be read.
pub(crate) fn read_each(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    first: u32,
    count: u32,
    each: &mut dyn FnMut(u32, Option<&Bytes>),
) -> Result<(), MountError> {
    let end = first + count;
    let mut at = first;
    while at < end {
        let now = READ_BLOCKS.min(end - at);
        match read_blocks(target, clock, at, now) {
            Ok(blocks) => (at..).zip(&blocks).for_each(|(address, block)| each(address, Some(block))),
            Err(MountError::Drive(_)) => {
                for address in at..at + now {
                    each(address, read_again(target, clock, address)?.as_deref());
                }
            }
            Err(error) => return Err(error),
        }
        at += now;
    }
    Ok(())
}

/// Reads one block, several times if it cannot be read; `None`: it cannot be.
pub(crate) fn read_again(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    address: u32,
) -> Result<Option<Box<Bytes>>, MountError> {
    for _ in 0..READ_ATTEMPTS {
        match read_blocks(target, clock, address, 1) {
            Ok(blocks) => return Ok(blocks.into_iter().next()),
            Err(MountError::Drive(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Reads blocks wherever they are, several at once; `None` is one that cannot be read.
pub(crate) fn read_scattered(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    addresses: &[u32],
) -> Result<Vec<Option<Box<Bytes>>>, MountError> {
    /// Beyond the tags of the host before this one.
    const TAGS: u64 = 1 << 59;
    let mut blocks = Vec::with_capacity(addresses.len());
    for addresses in addresses.chunks(READ_BLOCKS as usize) {
        let (mut frames, mut done) = (Vec::new(), Vec::new());
        if !target.frames_mut().acquire_many(FrameForm::Bytes, addresses.len(), &mut frames) {
            return Err(MountError::Stopped("the drive has no frame left"));
        }
        let mut results: Vec<Option<bool>> = vec![None; addresses.len()];
        let mut begun = 0;
        while results.contains(&None) {
            while begun < addresses.len() {
                let read = Request::Read { first: addresses[begun].into(), frames: &frames[begun..=begun] };
                match target.submit(clock.now(), TAGS + begun as u64, read) {
                    Ok(()) => {}
                    Err(IoError::QueueFull) => break,
                    Err(_) => results[begun] = Some(false),
                }
                begun += 1;
            }
            target.poll(clock.now(), &mut done);
            let has_ended = !done.is_empty();
            for Done { tag, result, .. } in done.drain(..).filter(|done| done.tag >= TAGS) {
                results[(tag - TAGS) as usize] = Some(result.is_ok());
            }
            if has_ended || !results.contains(&None) {
                continue;
            }
            match target.next_due() {
                Some(due) => _ = clock.wait_until(due),
                None => {
                    return Err(MountError::Stopped("the drive has nothing to do, and a read of it has not ended"));
                }
            }
        }
        let first = blocks.len();
        for (frame, result) in frames.into_iter().zip(results) {
            blocks.push((result == Some(true)).then(|| Box::new(*target.frames().bytes(frame))));
            target.frames_mut().release(frame);
        }
        for (block, address) in blocks[first..].iter_mut().zip(addresses) {
            if block.is_none() {
                *block = read_again(target, clock, *address)?;
            }
        }
    }
    Ok(blocks)
}
