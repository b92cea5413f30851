//! Finding out what a number has: nothing, the page of a key, or a list of keys. Full keys are compared, never numbers alone.

use crate::asked::{Deed, Phase, Plan};
use crate::drive::ValueFtl;
use crate::error::ValueError;
use crate::ids::{SLOTS, extent};
use crate::key::Key;
use crate::record::{RECORD_BYTES, Record, read_list};
use crate::request::{Condition, Facts};
use openftl_core::{BLOCK_BYTES, Frame};
use openftl_pages::{PageFacts, StoreError, StoreRequest, StoreTarget};
use openftl_parts::target::Target;

/// Frames of a piece of a value that is moved.
const PIECE_FRAMES: usize = 8;

/// Bytes of the value in a page of so many.
fn value_bytes(bytes: u32) -> u32 {
    bytes.saturating_sub(RECORD_BYTES as u32)
}

fn frames_of(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES)
}

impl ValueFtl {
    /// Goes on with requests that waited for parts of the map of pages. Returns whether any went on.
    pub(crate) fn look_up_again(&mut self) -> bool {
        let unknown = std::mem::take(&mut self.unknown);
        let before = unknown.len();
        for at in unknown {
            match std::mem::replace(&mut self.asked(at).phase, Phase::Waiting) {
                Phase::Listed(list) => self.found_list(at, list),
                _ => self.look_up(at),
            }
        }
        self.unknown.len() < before
    }

    /// Begins with the number of a request.
    pub(crate) fn look_up(&mut self, at: usize) {
        let number = self.asked(at).number();
        if !self.store.knows([number]) {
            return self.unknown.push(at);
        }
        match self.store.bytes_of(number) {
            None => self.found_nothing(at),
            Some(bytes) => self.read_record(at, number, bytes),
        }
    }

    /// Reads the record of a page: with its value, if that is wanted and there is room for it.
    fn read_record(&mut self, at: usize, lpid: u64, bytes: u32) {
        if bytes < RECORD_BYTES as u32 {
            return self.found_lost(at);
        }
        let is_whole = match &self.asked(at).deed {
            Deed::Retrieve { frames } => value_bytes(bytes) as usize <= frames.len() * BLOCK_BYTES,
            _ => false,
        };
        self.asked(at).phase = if is_whole { Phase::Whole { lpid, bytes } } else { Phase::Tail { lpid, bytes } };
        self.read(at);
    }

    /// Begins the read of a request's phase, or has it wait for frames.
    pub(crate) fn read(&mut self, at: usize) {
        if !self.starved.is_empty() || !self.try_read(at) {
            self.starved.push_back(at);
        }
    }

    /// Begins the read of a request's phase, if there are frames for it.
    pub(crate) fn try_read(&mut self, at: usize) -> bool {
        let asked = self.asked[at].as_mut().expect("a request under way");
        let host: &[Frame] = if let Deed::Retrieve { frames } = &asked.deed { frames } else { &[] };
        let (lpid, offset, host, own) = match &asked.phase {
            Phase::Tail { lpid, bytes } => (*lpid, value_bytes(*bytes), &[][..], 1),
            Phase::Whole { lpid, bytes } => {
                let frames = frames_of(*bytes as usize);
                (*lpid, 0, &host[..host.len().min(frames)], frames.saturating_sub(host.len()))
            }
            Phase::Data { lpid, bytes } => (*lpid, 0, &host[..host.len().min(frames_of(*bytes as usize))], 0),
            Phase::List { bytes } => (asked.number(), 0, &[][..], frames_of(*bytes as usize)),
            Phase::Other { bytes, read, .. } => {
                let rest = *bytes as usize - read.len();
                (asked.number(), read.len() as u32, &[][..], frames_of(rest).min(PIECE_FRAMES))
            }
            Phase::Run { cursor, .. } => {
                let Deed::List(listing) = &asked.deed else { unreachable!("only lists read runs") };
                let cursor = &listing.cursors[*cursor];
                let run = &self.directory.runs[cursor.run];
                (run.lpid(cursor.page), 0, &[][..], crate::drive::RUN_FRAMES)
            }
            Phase::Waiting
            | Phase::Listed(_)
            | Phase::Planned(_)
            | Phase::Committing { .. }
            | Phase::Durable { .. } => {
                unreachable!("it reads nothing")
            }
        };
        if self.own.len() < own {
            return false;
        }
        let own = self.own.split_off(self.own.len() - own);
        let frames: Vec<Frame> = host.iter().chain(&own).copied().collect();
        match asked.deed {
            Deed::Retrieve { .. } => self.statistics.retrieve_reads += 1,
            Deed::List(_) => {}
            _ => self.statistics.lookup_reads += 1,
        }
        asked.own = own;
        let read = self.store.submit(self.now, at as u64, StoreRequest::Read { lpid, offset, frames: &frames });
        if let Err(error) = read {
            self.end(at, Err(error.into()));
        }
        true
    }

    /// The bytes that were read from `from` on, of the frames of a request: its host's first, if they were read to.
    fn bytes_read(&self, at: usize, from: usize, count: usize) -> Vec<u8> {
        let asked = self.asked[at].as_ref().expect("a request under way");
        let host: &[Frame] = match (&asked.deed, &asked.phase) {
            (Deed::Retrieve { frames }, Phase::Whole { .. }) => frames,
            _ => &[],
        };
        let frame = |index: usize| if index < host.len() { host[index] } else { asked.own[index - host.len()] };
        let (mut bytes, mut next) = (Vec::with_capacity(count), from);
        while bytes.len() < count {
            let within = next % BLOCK_BYTES;
            let part = (BLOCK_BYTES - within).min(count - bytes.len());
            bytes.extend_from_slice(&self.store.frames().bytes(frame(next / BLOCK_BYTES))[within..within + part]);
            next += part;
        }
        bytes
    }

    /// The pages below have answered a request.
    pub(crate) fn answered(&mut self, at: usize, result: Result<Option<PageFacts>, StoreError>) {
        let phase = std::mem::replace(&mut self.asked(at).phase, Phase::Waiting);
        match phase {
            Phase::Committing { facts, effect } => return self.committed(at, result, facts, effect),
            Phase::Durable { facts } => return self.end(at, result.map(|_| facts).map_err(ValueError::from)),
            Phase::Waiting | Phase::Planned(_) => {
                return self.end(at, result.map(|_| Facts::default()).map_err(ValueError::from));
            }
            _ => {}
        }
        if let Err(error) = result
            && !matches!(phase, Phase::Run { .. })
        {
            let own = std::mem::take(&mut self.asked(at).own);
            self.own.extend(own);
            return match error {
                StoreError::Unrecovered { .. } => self.found_lost(at),
                error => self.end(at, Err(error.into())),
            };
        }
        let key = self.asked(at).key.map(|(key, _)| key);
        let is_key = |record: Option<Record>| matches!(record, Some(Record::Value(other)) if Some(other) == key);
        match phase {
            Phase::Tail { lpid, bytes } => {
                let record = Record::read(&self.bytes_read(at, 0, RECORD_BYTES));
                self.release_own(at);
                match record {
                    Some(Record::Listed(..)) => self.read_list(at, bytes),
                    record if is_key(record) => self.found(at, lpid, bytes),
                    Some(Record::Value(other)) => self.found_other(at, other, bytes),
                    None => self.found_lost(at),
                }
            }
            Phase::Whole { bytes, .. } => {
                self.asked(at).phase = phase;
                let record = Record::read(&self.bytes_read(at, value_bytes(bytes) as usize, RECORD_BYTES));
                self.release_own(at);
                match record {
                    Some(Record::Listed(..)) => self.read_list(at, bytes),
                    record if is_key(record) => self.end(at, Ok(Facts { bytes: value_bytes(bytes), keys: 0 })),
                    Some(Record::Value(_)) => self.end(at, Err(ValueError::NoKey)),
                    None => self.found_lost(at),
                }
            }
            Phase::Data { bytes, .. } => self.end(at, Ok(Facts { bytes: value_bytes(bytes), keys: 0 })),
            Phase::List { bytes } => {
                let list = read_list(&self.bytes_read(at, 0, bytes as usize));
                self.release_own(at);
                match list {
                    Some(list) => self.found_list(at, list),
                    None => self.found_lost(at),
                }
            }
            Phase::Other { key, bytes, mut read } => {
                let count = (bytes as usize - read.len()).min(PIECE_FRAMES * BLOCK_BYTES);
                read.extend(self.bytes_read(at, 0, count));
                self.release_own(at);
                self.go_on_sharing(at, key, bytes, read);
            }
            Phase::Run { cursor, generation } => {
                let bytes = result.map(|facts| facts.expect("a read says what it read").bytes);
                self.run_was_read(at, cursor, generation, bytes);
            }
            _ => unreachable!("it was dealt with"),
        }
    }

    /// Gives the frames back that were read to.
    pub(crate) fn release_own(&mut self, at: usize) {
        let own = std::mem::take(&mut self.asked(at).own);
        self.own.extend(own);
    }

    fn read_list(&mut self, at: usize, bytes: u32) {
        self.asked(at).phase = Phase::List { bytes };
        self.read(at);
    }

    fn plan(&mut self, at: usize, plan: Plan) {
        self.asked(at).phase = Phase::Planned(plan);
        self.to_write.push_back(at);
    }

    /// The number has no page.
    fn found_nothing(&mut self, at: usize) {
        match self.asked(at).deed {
            Deed::Store { condition, .. } if condition != Condition::IfExists => self.plan(at, Plan::New),
            _ => self.end(at, Err(ValueError::NoKey)),
        }
    }

    /// Page `lpid` is that of the key alone.
    fn found(&mut self, at: usize, lpid: u64, bytes: u32) {
        match &self.asked(at).deed {
            Deed::Store { condition: Condition::IfMissing, .. } => self.end(at, Err(ValueError::KeyExists)),
            Deed::Store { .. } => self.plan(at, Plan::Again { lpid, is_lost: false }),
            Deed::Retrieve { frames } if !frames.is_empty() => {
                self.asked(at).phase = Phase::Data { lpid, bytes };
                self.read(at);
            }
            Deed::Delete => self.plan(at, Plan::Remove { is_lost: false }),
            _ => self.end(at, Ok(Facts { bytes: value_bytes(bytes), keys: 0 })),
        }
    }

    /// The number is that of another key alone.
    fn found_other(&mut self, at: usize, other: Key, bytes: u32) {
        match self.asked(at).deed {
            Deed::Store { condition, .. } if condition != Condition::IfExists => {
                self.statistics.shared += 1;
                self.go_on_sharing(at, other, value_bytes(bytes), Vec::new());
            }
            _ => self.end(at, Err(ValueError::NoKey)),
        }
    }

    /// Reads the value of the other key, until all of it is there.
    fn go_on_sharing(&mut self, at: usize, other: Key, bytes: u32, read: Vec<u8>) {
        if read.len() == bytes as usize {
            return self.plan(at, Plan::Share { other, value: read });
        }
        self.asked(at).phase = Phase::Other { key: other, bytes, read };
        self.read(at);
    }

    /// Several keys have the number.
    fn found_list(&mut self, at: usize, list: Vec<(Key, u16)>) {
        let (key, number) = (self.asked(at).key(), self.asked(at).number());
        let Some((_, slot)) = list.iter().find(|(other, _)| *other == key).copied() else {
            return match self.asked(at).deed {
                Deed::Store { condition, .. } if condition != Condition::IfExists => {
                    if list.len() == SLOTS {
                        return self.end(at, Err(ValueError::KeysExceeded { most: self.shape.keys_max }));
                    }
                    self.statistics.shared += 1;
                    self.plan(at, Plan::Join { list });
                }
                _ => self.end(at, Err(ValueError::NoKey)),
            };
        };
        let lpid = extent(number, slot);
        if !self.store.knows([lpid]) {
            self.asked(at).phase = Phase::Listed(list);
            return self.unknown.push(at);
        }
        let bytes = self.store.bytes_of(lpid).unwrap_or(0);
        let is_lost = bytes < RECORD_BYTES as u32;
        match &self.asked(at).deed {
            Deed::Store { condition: Condition::IfMissing, .. } => self.end(at, Err(ValueError::KeyExists)),
            Deed::Store { .. } => self.plan(at, Plan::Again { lpid, is_lost }),
            Deed::Delete => self.plan(at, Plan::Leave { list, slot }),
            Deed::Retrieve { .. } => self.read_record(at, lpid, bytes),
            _ if is_lost => self.end(at, Err(ValueError::Unrecovered)),
            _ => self.end(at, Ok(Facts { bytes: value_bytes(bytes), keys: 0 })),
        }
    }

    /// The medium has lost the page of the number: whose it was is not known. What is stored or deleted takes its place.
    fn found_lost(&mut self, at: usize) {
        let lpid = self.asked(at).number();
        match self.asked(at).deed {
            Deed::Store { condition: Condition::Always, .. } => self.plan(at, Plan::Again { lpid, is_lost: true }),
            Deed::Delete => self.plan(at, Plan::Remove { is_lost: true }),
            _ => self.end(at, Err(ValueError::Unrecovered)),
        }
    }
}
