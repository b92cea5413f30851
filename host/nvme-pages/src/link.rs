//! The I/O queue of a store: parts of batches are sent without waiting for each, and every other command is waited for.

use std::collections::HashMap;
use std::net::TcpStream;

use openftl_nvme::command::pages::{Asked, PageCommand};
use openftl_nvme::{Status, SubmissionEntry};
use openftl_nvme_tcp::client::{Client, ClientError, Ended, Payload};
use openftl_nvme_tcp::nvm;
use openftl_pages::{Change, Session, StoreError, StoreFailure};
use openftl_parts::target::Durability;
use zerocopy::IntoBytes;

use crate::batch::{Batch, Part};

/// Parts that are under way, of all batches.
pub const PARTS_UNDER_WAY_MAX: usize = 4;

/// Entries of the I/O queue.
pub(crate) const ENTRIES: u16 = 64;

/// Commands of one call that are under way together.
const TOGETHER_MAX: usize = 16;

/// The tags of commands that are waited for; those of parts are above.
const CALL: u64 = 0;
const FIRST_PART: u64 = 1 << 32;

/// A part whose end nobody has seen.
struct UnderWay {
    session: u32,
    wsn: u64,
    changes: Vec<(u64, u32)>,
}

/// See the module.
pub(crate) struct Link {
    io: Client<TcpStream>,
    /// Keeps the controller.
    _admin: Client<TcpStream>,
    namespace: u32,
    /// Bytes of a part, at most.
    part_bytes_max: usize,
    page_bytes_max: u32,
    batches: HashMap<(u32, u64), Batch>,
    parts: HashMap<u64, UnderWay>,
    next_tag: u64,
    /// Why there is no link any more.
    cut: Option<String>,
}

impl Link {
    pub fn new(
        io: Client<TcpStream>,
        admin: Client<TcpStream>,
        namespace: u32,
        part_bytes_max: u32,
        page_bytes_max: u32,
    ) -> Link {
        Link {
            io,
            _admin: admin,
            namespace,
            part_bytes_max: part_bytes_max as usize,
            page_bytes_max,
            batches: HashMap::new(),
            parts: HashMap::new(),
            next_tag: FIRST_PART,
            cut: None,
        }
    }

    fn expect_link(&self) -> Result<(), StoreFailure> {
        match &self.cut {
            Some(why) => Err(StoreFailure::Gone(why.clone())),
            None => Ok(()),
        }
    }

    fn link_cut(&mut self, error: &ClientError) -> StoreFailure {
        let why = format!("the connection to the store is cut: {error}");
        StoreFailure::Gone(self.cut.get_or_insert(why).clone())
    }

    /// How a command ended, with its data.
    fn result_of(&mut self, ended: Ended, asked: Asked<'_>) -> Result<(u64, Vec<u8>), StoreFailure> {
        let (status, result) = (Status::from_field(ended.status()), ended.completion.specific.get());
        if !status.is_success() {
            let known = asked.error_of(status, result).map(StoreFailure::Refused);
            return Err(known.unwrap_or_else(|| StoreFailure::Drive(format!("the drive says {status}"))));
        }
        if !ended.intact {
            return Err(StoreFailure::Drive("the data were damaged on the way: their digest is wrong".to_owned()));
        }
        let mut data = ended.data;
        data.truncate(ended.received);
        Ok((result, data))
    }

    /// Waits for a command to end. `Some`: it was waited for.
    fn wait(&mut self) -> Result<Option<Ended>, StoreFailure> {
        let ended = self.io.wait().map_err(|error| self.link_cut(&error))?;
        let Some(UnderWay { session, wsn, changes }) = self.parts.remove(&ended.tag) else { return Ok(Some(ended)) };
        let result = self.result_of(ended, Asked { session, wsn, changes: &changes, ..Asked::default() });
        if let Some(batch) = self.batches.get_mut(&(session, wsn)) {
            batch.under_way -= 1;
            if let Err(failure) = result {
                // What follows fails because of this one.
                batch.failure.get_or_insert(failure);
            }
        }
        Ok(None)
    }

    /// Runs a command, and waits for it.
    pub fn call(
        &mut self,
        command: PageCommand,
        payload: Payload,
        asked: Asked<'_>,
    ) -> Result<(u64, Vec<u8>), StoreFailure> {
        self.run(&command.entry(self.namespace), payload, asked)
    }

    /// Makes durable what was committed.
    pub fn flush(&mut self) -> Result<(), StoreFailure> {
        self.run(SubmissionEntry::of(&nvm::flush(self.namespace)), Payload::None, Asked::default()).map(drop)
    }

    fn run(
        &mut self,
        entry: &SubmissionEntry,
        payload: Payload,
        asked: Asked<'_>,
    ) -> Result<(u64, Vec<u8>), StoreFailure> {
        self.expect_link()?;
        self.submit(CALL, entry, payload);
        loop {
            if let Some(ended) = self.wait()? {
                return self.result_of(ended, asked);
            }
        }
    }

    fn submit(&mut self, tag: u64, entry: &SubmissionEntry, payload: Payload) {
        let entry: &[u8; 64] = entry.as_bytes().try_into().expect("an entry has 64 bytes");
        self.io.submit(tag, entry, payload);
    }

    /// Reads all of these pages, some at a time, `first_bytes` of each; `take` has what came of each, and the bytes that it has.
    pub fn read_together(
        &mut self,
        lpids: &[u64],
        first_bytes: u32,
        mut take: impl FnMut(usize, Result<(u64, Vec<u8>), StoreFailure>),
    ) -> Result<(), StoreFailure> {
        self.expect_link()?;
        let (mut begun, mut ended_count) = (0, 0);
        while ended_count < lpids.len() {
            while begun < lpids.len() && begun - ended_count < TOGETHER_MAX {
                let command = PageCommand::Read { lpid: lpids[begun], offset: 0, bytes: first_bytes };
                let room = Payload::ToHost(vec![0; first_bytes as usize]);
                self.submit(begun as u64, &command.entry(self.namespace), room);
                begun += 1;
            }
            let Some(ended) = self.wait()? else { continue };
            let at = ended.tag as usize;
            let asked = Asked { lpid: lpids[at], ..Asked::default() };
            let result = self.result_of(ended, asked);
            take(at, result);
            ended_count += 1;
        }
        Ok(())
    }

    /// Adds a change to a batch. What fills a part is sent.
    pub fn stage(
        &mut self,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreFailure> {
        self.expect_link()?;
        let bytes: usize = match change {
            Change::Put(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
            Change::Delete => 0,
        };
        let most = self.page_bytes_max;
        if matches!(change, Change::Put(_)) && !(1..=most as usize).contains(&bytes) {
            return Err(StoreError::Length { lpid, bytes: bytes as u64, most }.into());
        }
        let key = (session.0, wsn);
        let batch = self.batches.entry(key).or_default();
        if let Some(failure) = &batch.failure {
            return Err(failure.clone());
        }
        if batch.bytes_with(bytes) > self.part_bytes_max {
            let part = batch.take_part(session.0, wsn, None);
            self.send_part(key, part)?;
        }
        self.batches.get_mut(&key).expect("it was just found").push(lpid, change, if_version);
        Ok(())
    }

    /// Sends a part, when not too many are under way.
    fn send_part(&mut self, key: (u32, u64), part: Option<Part>) -> Result<(), StoreFailure> {
        let Some(Part { command, data, changes }) = part else {
            return Err(StoreFailure::Drive("a batch has at most 65,536 parts: commit it as several".to_owned()));
        };
        while self.parts.len() >= PARTS_UNDER_WAY_MAX {
            self.wait()?;
        }
        let (tag, (session, wsn)) = (self.next_tag, key);
        self.next_tag += 1;
        self.parts.insert(tag, UnderWay { session, wsn, changes });
        let payload = if data.is_empty() { Payload::None } else { Payload::ToController(data) };
        self.submit(tag, &command.entry(self.namespace), payload);
        self.batches.get_mut(&key).expect("it has a part").under_way += 1;
        Ok(())
    }

    fn settle(&mut self, key: (u32, u64)) -> Result<(), StoreFailure> {
        while self.batches.get(&key).is_some_and(|batch| batch.under_way > 0) {
            self.wait()?;
        }
        Ok(())
    }

    /// Commits a batch.
    pub fn commit(&mut self, session: Session, wsn: u64, durability: Durability) -> Result<(), StoreFailure> {
        self.expect_link()?;
        let key = (session.0, wsn);
        let batch = self.batches.entry(key).or_default();
        let failure = batch.failure.clone();
        let part = if failure.is_none() { batch.take_part(session.0, wsn, Some(durability)) } else { None };
        let sent = match failure {
            Some(failure) => Err(failure),
            None => self.send_part(key, part),
        };
        self.settle(key)?;
        let batch = self.batches.remove(&key).expect("it was just found");
        let result = sent.and(batch.failure.map_or(Ok(()), Err));
        if result.is_err() && self.cut.is_none() {
            // What of it the drive still has is of no use.
            let _ = self.abort_there(session, wsn);
        }
        result
    }

    /// Gives a batch up, here and there.
    pub fn abort(&mut self, session: Session, wsn: u64) -> Result<(), StoreFailure> {
        self.expect_link()?;
        self.settle((session.0, wsn))?;
        self.batches.remove(&(session.0, wsn));
        self.abort_there(session, wsn)
    }

    fn abort_there(&mut self, session: Session, wsn: u64) -> Result<(), StoreFailure> {
        let asked = Asked { session: session.0, wsn, ..Asked::default() };
        self.call(PageCommand::Abort { session: session.0, wsn }, Payload::None, asked).map(drop)
    }

    /// A session is closed: its batches are of no use.
    pub fn forget_batches(&mut self, session: Session) -> Result<(), StoreFailure> {
        let keys: Vec<(u32, u64)> = self.batches.keys().filter(|(open, _)| *open == session.0).copied().collect();
        keys.into_iter().try_for_each(|key| {
            self.settle(key)?;
            self.batches.remove(&key);
            Ok(())
        })
    }

    /// Bytes of a page that can be written, at most.
    pub fn page_bytes_max(&self) -> u32 {
        self.page_bytes_max
    }
}
