//! A file on zones being read, by any number of threads.

use super::node::Node;
use super::shared::Shared;
use crate::files::Counts;
use crate::pieces::available;
use crate::{FileError, FileKind, ReadRequest};
use openftl_media::Media;
use std::sync::Arc;

/// A file that can be read, whatever becomes of its name.
pub struct ZoneReader<M: Media> {
    shared: Arc<Shared<M>>,
    node: Arc<Node>,
}

impl<M: Media> ZoneReader<M> {
    pub(super) fn new(shared: Arc<Shared<M>>, node: Arc<Node>) -> ZoneReader<M> {
        node.write().users += 1;
        ZoneReader { shared, node }
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
        self.node.number
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
        Counts::add(&self.shared.counts.reads, requests.len() as u64);
        // Until all is read nothing of the file moves.
        let contents = self.node.read();
        let bytes = self.node.bytes();
        let in_zones = bytes - contents.tail.len() as u64;
        let mut whole = Vec::with_capacity(requests.len());
        for request in requests.iter_mut() {
            let count = available(bytes, request);
            let (from, end) = (request.offset.max(in_zones), request.offset + count as u64);
            if from < end {
                let tail = &contents.tail[(from - in_zones) as usize..(end - in_zones) as usize];
                request.buffer[(from - request.offset) as usize..][..tail.len()].copy_from_slice(tail);
            }
            whole.push(count);
        }
        self.shared.read_pieces(requests, in_zones, &contents.extents);
        drop(contents);
        for (request, whole) in requests.iter_mut().zip(whole) {
            if request.result.is_ok() {
                request.result = Ok(whole);
                Counts::add(&self.shared.counts.bytes_read, whole as u64);
            }
        }
    }
}

impl<M: Media> Drop for ZoneReader<M> {
    fn drop(&mut self) {
        self.shared.leave(&self.node);
    }
}
