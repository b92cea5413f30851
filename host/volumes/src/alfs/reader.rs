//! A file of an ALFS being read, by any number of threads.

use super::node::Node;
use super::shared::Shared;
use openftl_alfs::operation::PAYLOAD_BYTES_MAX;
use openftl_alfs::{FileSystem, Operation, Reply};
use openftl_files::{Counts, FileError, FileKind, ReadRequest};
use openftl_media::Media;
use std::sync::Arc;

/// Reads of the file system that are under way for one reader at a time: no more than this is in memory twice.
const READS_MAX: usize = 64;

/// A file that can be read, whatever becomes of its name.
pub struct AlfsReader<M: Media> {
    shared: Arc<Shared<M>>,
    node: Arc<Node>,
    /// As it was opened.
    path: String,
}

/// A part of a request that the file system reads at a time.
struct Piece {
    request: usize,
    /// Where in the request's buffer it goes, and how many bytes.
    at: usize,
    bytes: usize,
}

impl<M: Media> AlfsReader<M> {
    /// Of a file that was [entered](Shared::enter).
    pub(super) fn new(shared: Arc<Shared<M>>, node: Arc<Node>, path: String) -> AlfsReader<M> {
        AlfsReader { shared, node, path }
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.node.kind
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.node.bytes()
    }

    /// A number that differs from that of every other file on the drive.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.node.id()
    }

    /// Reads from `offset` on, as much as fits into `buffer`; less only at the end of the file.
    ///
    /// # Errors
    /// If the medium has lost it.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let mut requests = [ReadRequest { offset, buffer, result: Ok(0) }];
        self.read_many(&mut requests);
        let [request] = requests;
        request.result
    }

    /// Reads all of them at a time.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        let counts = &self.shared.counts;
        Counts::add(&counts.reads, requests.len() as u64);
        let mut pieces: Vec<Piece> = Vec::with_capacity(requests.len());
        for (number, request) in requests.iter_mut().enumerate() {
            request.result = Ok(0);
            let all = request.buffer.len();
            pieces.extend((0..all).step_by(PAYLOAD_BYTES_MAX).map(|at| Piece {
                request: number,
                at,
                bytes: PAYLOAD_BYTES_MAX.min(all - at),
            }));
        }
        for pieces in pieces.chunks(READS_MAX) {
            self.read_pieces(pieces, requests);
        }
        let read = requests.iter().filter_map(|request| request.result.as_ref().ok()).sum::<usize>();
        Counts::add(&counts.bytes_read, read as u64);
    }

    fn read_pieces(&self, pieces: &[Piece], requests: &mut [ReadRequest<'_>]) {
        let inode = self.node.inode;
        let mut found = vec![0; pieces.len()];
        let operations: Vec<Operation<'_>> = pieces
            .iter()
            .map(|Piece { request, at, bytes }| Operation::Read {
                inode,
                offset: requests[*request].offset.saturating_add(*at as u64),
                bytes: *bytes as u32,
            })
            .collect();
        self.shared.run_all(&self.path, &operations, |piece, fs, reply| {
            let Piece { request, at, .. } = pieces[piece];
            let request = &mut requests[request];
            match reply {
                Ok(Reply::Data(data)) => {
                    let mut to = at;
                    fs.data(&data, &mut |bytes| {
                        request.buffer[to..to + bytes.len()].copy_from_slice(bytes);
                        to += bytes.len();
                    });
                    fs.give_back(data);
                    found[piece] = to - at;
                }
                Ok(reply) => unreachable!("bytes were asked for, and {reply:?} came"),
                Err(error) => request.result = Err(error),
            }
        });
        // A file that grows meanwhile may end in one piece, and go on in the next.
        for (piece, found) in pieces.iter().zip(found) {
            if let Ok(read) = &mut requests[piece.request].result
                && *read == piece.at
            {
                *read += found;
            }
        }
    }
}

impl<M: Media> Drop for AlfsReader<M> {
    fn drop(&mut self) {
        self.shared.leave(&self.node);
    }
}
