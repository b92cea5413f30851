//! Pieces of files on their way between a caller's buffer and frames of the drive, whichever FTL it has.
//!
//! A read is cut into pieces that the drive does at a time. All of them are asked for before the first is waited for, as far as there
//! are frames.

use crate::{FileError, ReadRequest};
use openftl_core::{BLOCK_BYTES, Frame, FrameForm};
use openftl_dispatch::{Dispatcher, Outcome, Owned, Owner, Shareable, Until};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks of one request to the drive, at most: 256 KiB.
pub(crate) const PIECE_BLOCKS_MAX: usize = 64;

/// How a request of a drive ended, as users of files are told.
pub(crate) trait Told {
    fn told(self) -> Result<(), FileError>;
}

impl<E> Told for Result<(), E>
where
    FileError: From<E>,
{
    fn told(self) -> Result<(), FileError> {
        self.map_err(FileError::from)
    }
}

/// A part of a read that the drive does at a time.
struct Piece {
    request: usize,
    /// Where in the request's buffer it goes, and how many bytes.
    at: usize,
    bytes: usize,
    /// Where in its first block it begins.
    within: usize,
    tag: u64,
    frames: Vec<Frame>,
}

/// How much of a request there is in a file of `bytes`.
pub(crate) fn available(bytes: u64, request: &ReadRequest<'_>) -> usize {
    bytes.saturating_sub(request.offset).min(request.buffer.len() as u64) as usize
}

/// Waits until `count` frames are free, and takes them.
pub(crate) fn take_frames<'a, T: Shareable>(
    dispatcher: &'a Dispatcher<T>,
    owner: Owner<'a, T>,
    count: usize,
    frames: &mut Vec<Frame>,
) -> (Owner<'a, T>, Result<(), FileError>) {
    let acquire = |owned: &mut Owned<T>| match owned.drive.frames_mut().acquire_many(FrameForm::Bytes, count, frames) {
        true => Until::Found(()),
        false => owned.is_there_none(),
    };
    let (owner, acquired) = dispatcher.wait_until(owner, 0, acquire);
    (owner, acquired.map_err(FileError::from))
}

/// Reads what there is of all requests in the first `bytes` bytes of a file. `locate` says where a block is, and how many of the
/// wanted ones follow it there; `submit` begins the read of as many blocks as there are frames.
pub(crate) fn read_pieces<T: Shareable, P>(
    dispatcher: &Dispatcher<T>,
    requests: &mut [ReadRequest<'_>],
    bytes: u64,
    locate: impl Fn(u64, usize) -> (P, usize),
    submit: impl Fn(&mut Owned<T>, u64, P, &[Frame]) -> Result<(), FileError>,
) where
    Outcome<T>: Told,
{
    let mut owner = match dispatcher.own() {
        Ok(owner) => owner,
        Err(stopped) => {
            return requests.iter_mut().for_each(|request| request.result = Err(stopped.clone().into()));
        }
    };
    let mut pieces: Vec<Piece> = Vec::new();
    for index in 0..requests.len() {
        let length = available(bytes, &requests[index]);
        requests[index].result = Ok(length);
        let mut at = 0;
        while at < length {
            let offset = requests[index].offset + at as u64;
            let (block, within) = (offset / BLOCK, (offset % BLOCK) as usize);
            let wanted = (within + length - at).div_ceil(BLOCK_BYTES).min(PIECE_BLOCKS_MAX);
            let (place, count) = locate(block, wanted);
            let mut frames = Vec::with_capacity(count);
            if !matches!(owner.lend(count, &mut frames), Until::Found(())) {
                // What this thread has read already gives frames back.
                for piece in pieces.drain(..) {
                    owner = finish(dispatcher, owner, piece, requests);
                }
                let lend = |owned: &mut Owned<T>| owned.lend(count, &mut frames);
                let (after, lent) = dispatcher.wait_until(owner, 0, lend);
                owner = after;
                if let Err(stopped) = lent {
                    // Nothing of those behind it was read, either.
                    let error = FileError::from(stopped);
                    return requests[index..].iter_mut().for_each(|request| request.result = Err(error.clone()));
                }
            }
            let tag = owner.tag();
            let read = (count * BLOCK_BYTES - within).min(length - at);
            if let Err(error) = submit(&mut owner, tag, place, &frames) {
                owner.give_back(&frames);
                requests[index].result = Err(error);
                break;
            }
            pieces.push(Piece { request: index, at, bytes: read, within, tag, frames });
            at += read;
        }
    }
    for piece in pieces {
        owner = finish(dispatcher, owner, piece, requests);
    }
}

/// Waits for a piece and copies it to where it is wanted.
fn finish<'a, T: Shareable>(
    dispatcher: &'a Dispatcher<T>,
    owner: Owner<'a, T>,
    piece: Piece,
    requests: &mut [ReadRequest<'_>],
) -> Owner<'a, T>
where
    Outcome<T>: Told,
{
    let (mut owner, ended) = dispatcher.wait(owner, piece.tag);
    let request = &mut requests[piece.request];
    match ended.map_err(FileError::from).and_then(Told::told) {
        Err(error) => request.result = Err(error),
        Ok(()) => {
            let (mut to, mut within) = (&mut request.buffer[piece.at..piece.at + piece.bytes], piece.within);
            for frame in &piece.frames {
                let count = (BLOCK_BYTES - within).min(to.len());
                let (here, rest) = to.split_at_mut(count);
                here.copy_from_slice(&owner.drive.frames().bytes(*frame)[within..within + count]);
                (to, within) = (rest, 0);
            }
        }
    }
    owner.give_back(&piece.frames);
    owner
}
