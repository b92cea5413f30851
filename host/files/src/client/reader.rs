//! A reader of a served file asks for parts of it, as many in a message as fit.

use super::session::Shared;
use crate::wire::{Answer, DATA_BYTES_MAX, PARTS_MAX, Part, Request};
use crate::{FileError, FileKind, ReadRequest};
use std::sync::Arc;

/// A file that can be read; see [`FileReader`](crate::FileReader).
pub struct ClientReader {
    pub(super) shared: Arc<Shared>,
    pub(super) file: u32,
    pub(super) kind: FileKind,
}

/// A part of a read, and whose it is.
struct Piece {
    request: usize,
    /// Where in its buffer it goes.
    at: usize,
    part: Part,
}

impl ClientReader {
    fn state(&self) -> Result<(u64, u64), FileError> {
        self.shared.settle();
        self.shared.ask(&Request::ReaderState { file: self.file }, |answer| match answer {
            Answer::State { bytes, id } => Some(Ok((bytes, id))),
            _ => None,
        })
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Bytes of the file; 0 if the connection is broken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state().map_or(0, |(bytes, _)| bytes)
    }

    /// A number that differs from that of every other file that the drive has had; 0 if the connection is broken.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.state().map_or(0, |(_, id)| id)
    }

    /// Reads from `offset` on, as much as fits into `buffer`; less only at the end of the file.
    ///
    /// # Errors
    /// If the medium has lost it, or the connection breaks.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let mut requests = [ReadRequest { offset, buffer, result: Ok(0) }];
        self.read_many(&mut requests);
        let [request] = requests;
        request.result
    }

    /// Reads all of them at a time.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        if self.kind == FileKind::Log {
            self.shared.settle();
        }
        let mut pieces: Vec<Piece> = Vec::with_capacity(requests.len());
        for (request, ReadRequest { offset, buffer, result }) in requests.iter_mut().enumerate() {
            *result = Ok(0);
            for at in (0..buffer.len()).step_by(DATA_BYTES_MAX) {
                let Some(offset) = offset.checked_add(at as u64) else { break };
                let bytes = (buffer.len() - at).min(DATA_BYTES_MAX) as u32;
                pieces.push(Piece { request, at, part: Part { offset, bytes } });
            }
        }
        let mut rest = &pieces[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take(PARTS_MAX).take_while(|piece| {
                bytes += piece.part.bytes as usize;
                bytes <= DATA_BYTES_MAX
            });
            let (message, after) = rest.split_at(fitting.count());
            if let Err(error) = self.read_pieces(message, requests) {
                requests.iter_mut().for_each(|request| request.result = Err(error.clone()));
                return;
            }
            rest = after;
        }
    }

    fn read_pieces(&self, pieces: &[Piece], requests: &mut [ReadRequest<'_>]) -> Result<(), FileError> {
        let parts = pieces.iter().map(|piece| piece.part).collect();
        self.shared.ask(&Request::Read { file: self.file, parts }, |answer| {
            let Answer::Data(parts) = answer else { return None };
            let fits = |(part, piece): (&Result<&[u8], FileError>, &Piece)| {
                part.as_ref().map_or(true, |data| data.len() <= piece.part.bytes as usize)
            };
            if parts.len() != pieces.len() || !parts.iter().zip(pieces).all(fits) {
                return None;
            }
            for (part, piece) in parts.into_iter().zip(pieces) {
                let request = &mut requests[piece.request];
                match (part, &mut request.result) {
                    (Err(error), result) => *result = Err(error),
                    // Behind the end of the file there is nothing.
                    (Ok(data), Ok(count)) if *count == piece.at => {
                        request.buffer[piece.at..piece.at + data.len()].copy_from_slice(data);
                        *count += data.len();
                    }
                    (Ok(_), _) => {}
                }
            }
            Some(Ok(()))
        })
    }
}

impl Drop for ClientReader {
    fn drop(&mut self) {
        // If the connection is broken it is closed already.
        let _ = self.shared.done(&Request::CloseReader { file: self.file });
    }
}
