//! What a command of an NVMe host asks of a store of pages, and the sessions that controllers have open there.

use std::collections::BTreeMap;

use openftl_bytes::objects::{Begun, ObjectAsk, ObjectFinished, ObjectRequests, Sent};
use openftl_core::{BLOCK_BYTES, Frame, Time};
use openftl_nvme::command::Refusal;
use openftl_nvme::command::pages::{PageCommand, PagePart, change_entry, expect_directory, payload_start, refusal_of};
use openftl_nvme::wire::pages::{BATCHES_MAX, CHANGES_MAX, ListEntry, ListHead, SessionReport};
use openftl_nvme::{ControllerName, IoCommand, Status};
use openftl_pages::{
    Change, ListBreak, PAGE_BYTES_MAX, PageFacts, PageFtl, Session, SessionId, StoreDone, StoreError, StoreRequest,
    StoreTarget,
};
use openftl_parts::Target;
use zerocopy::IntoBytes;

use crate::nvme::{Command, Part};
use crate::ticket::Ticket;

/// Pieces of frames that a page touches, at most.
const PIECES_MAX: usize = PAGE_BYTES_MAX as usize / BLOCK_BYTES + 2;

/// The requests under way on one store.
pub(crate) type PageRequests = ObjectRequests<Ticket, PageAsk>;

/// A request of a store has ended.
pub(crate) type PageFinished = ObjectFinished<Ticket, PageOutcome>;

/// How a request of a store ends.
pub(crate) type PageOutcome = Result<Option<PageFacts>, PageError>;

/// Why it could not be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageError {
    /// The store refuses it; of a part, because of this change.
    Store(StoreError, u32),
    /// The directory of a part is wrong.
    Directory(Refusal),
    /// This is the next part of the batch.
    NextPart(u32),
}

impl PageError {
    pub fn refusal(&self) -> Refusal {
        match *self {
            PageError::Store(ref error, change) => refusal_of(error, change),
            PageError::Directory(refusal) => refusal,
            PageError::NextPart(next) => Refusal { block: Some(next.into()), ..Status::COMMAND_SEQUENCE_ERROR.into() },
        }
    }
}

/// A batch that is not committed.
#[derive(Default)]
struct Growing {
    /// The number of its next part.
    next: u32,
    changes: usize,
    is_committing: bool,
}

/// A session that a controller has open.
struct OpenSession {
    owner: ControllerName,
    /// Tells it from others that had its number.
    opening: u64,
    durable_at_open: u64,
    growing: BTreeMap<u64, Growing>,
}

/// The sessions that controllers have open in one store.
#[derive(Default)]
pub(crate) struct PageSessions {
    open: BTreeMap<u32, OpenSession>,
    openings: u64,
    /// In batches that grow.
    changes: usize,
}

impl PageSessions {
    /// Opens a session for a controller. Returns its number, and its last durable batch.
    pub fn open(
        &mut self,
        owner: ControllerName,
        id: SessionId,
        drive: &mut PageFtl,
    ) -> Result<(u32, u64), StoreError> {
        let (session, durable_at_open) = drive.open_session(id)?;
        self.openings += 1;
        let opened = OpenSession { owner, opening: self.openings, durable_at_open, growing: BTreeMap::new() };
        self.open.insert(session.0, opened);
        Ok((session.0, durable_at_open))
    }

    /// Closes a session of a controller.
    pub fn close(
        &mut self,
        now: Time,
        owner: ControllerName,
        session: u32,
        forget: bool,
        drive: &mut PageFtl,
    ) -> Result<(), StoreError> {
        self.of(owner, session)?;
        self.end(now, session, forget, drive)
    }

    /// Closes the sessions of controllers that are there no more.
    pub fn close_others(&mut self, now: Time, is_there: impl Fn(ControllerName) -> bool, drive: &mut PageFtl) {
        let gone: Vec<u32> =
            self.open.iter().filter(|(_, open)| !is_there(open.owner)).map(|(session, _)| *session).collect();
        for session in gone {
            // It fails only if the session is not open.
            let _ = self.end(now, session, false, drive);
        }
    }

    /// Gives up a batch.
    pub fn abort(
        &mut self,
        now: Time,
        owner: ControllerName,
        session: u32,
        wsn: u64,
        drive: &mut PageFtl,
    ) -> Result<(), StoreError> {
        let open = self.of(owner, session)?;
        // The end of its commit takes one away that is being committed.
        if open.growing.get(&wsn).is_some_and(|batch| !batch.is_committing) {
            let batch = open.growing.remove(&wsn).expect("it was just found");
            self.changes -= batch.changes;
        }
        drive.abort(now, Session(session), wsn)
    }

    /// What a report says of a session.
    pub fn report(
        &mut self,
        owner: ControllerName,
        session: u32,
        drive: &PageFtl,
    ) -> Result<SessionReport, StoreError> {
        let open = self.of(owner, session)?;
        let committed = drive.last_batch(Session(session))?;
        Ok(SessionReport { durable_at_open: open.durable_at_open.into(), committed: committed.into() })
    }

    fn of(&mut self, owner: ControllerName, session: u32) -> Result<&mut OpenSession, StoreError> {
        self.open.get_mut(&session).filter(|open| open.owner == owner).ok_or(StoreError::NoSession { session })
    }

    /// One without a batch has nothing to be remembered: hosts that open many leave none behind.
    fn end(&mut self, now: Time, session: u32, forget: bool, drive: &mut PageFtl) -> Result<(), StoreError> {
        let is_new = drive.last_batch(Session(session)).is_ok_and(|last| last == 0);
        drive.close_session(now, Session(session), forget || is_new)?;
        let open = self.open.remove(&session);
        self.changes -= open.iter().flat_map(|open| open.growing.values()).map(|batch| batch.changes).sum::<usize>();
        Ok(())
    }

    /// A batch is not there any more, if it is one of this opening of the session.
    fn forget(&mut self, session: u32, opening: u64, wsn: u64) {
        let open = self.open.get_mut(&session).filter(|open| open.opening == opening);
        if let Some(batch) = open.and_then(|open| open.growing.remove(&wsn)) {
            self.changes -= batch.changes;
        }
    }
}

/// A part of a batch on its way into the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartAsk {
    owner: ControllerName,
    part: PagePart,
    /// Which opening of the session it belongs to; 0: it has not begun.
    opening: u64,
    changes: u32,
    /// The next change, and where the bytes of its page begin.
    at: u32,
    payload: u32,
}

/// What a host asks of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PageAsk {
    Part(PartAsk),
    Read {
        lpid: u64,
        offset: u32,
        bytes: u32,
    },
    Stat {
        lpid: u64,
    },
    /// Pages from `next` on, behind so many that are in the answer, of so many bytes at most.
    List {
        next: u64,
        listed: u32,
        bytes: u32,
    },
    Sync,
}

/// What `part` of `command` of a controller asks of a store.
pub(crate) fn page_ask(owner: ControllerName, command: &Command, part: Part) -> PageAsk {
    match (part, command.io.expect("an I/O command").command) {
        (Part::Whole, IoCommand::Page(PageCommand::Write(part))) => {
            PageAsk::Part(PartAsk { owner, part, opening: 0, changes: 0, at: 0, payload: 0 })
        }
        (Part::Whole, IoCommand::Page(PageCommand::Read { lpid, offset, bytes })) => {
            PageAsk::Read { lpid, offset, bytes }
        }
        (Part::Whole, IoCommand::Page(PageCommand::Stat { lpid })) => PageAsk::Stat { lpid },
        (Part::Whole, IoCommand::Page(PageCommand::List { from, bytes })) => {
            PageAsk::List { next: from, listed: 0, bytes }
        }
        (Part::Bytes(openftl_bytes::ByteRequest::Flush), _) => PageAsk::Sync,
        (_, other) => unreachable!("{other:?} is no request of a store of pages"),
    }
}

impl PartAsk {
    fn store(&self, error: StoreError) -> PageError {
        PageError::Store(error, self.at)
    }

    /// Looks whether it may begin: nothing has happened before.
    fn enter(&mut self, drive: &PageFtl, sessions: &mut PageSessions, sent: Sent<'_>) -> Result<(), PageError> {
        let PagePart { session, wsn, part, bytes, .. } = self.part;
        let all = sessions.changes;
        let open = sessions.of(self.owner, session).map_err(|error| self.store(error))?;
        let growing = open.growing.get(&wsn);
        if growing.is_some_and(|batch| batch.is_committing) {
            return Err(self.store(StoreError::Committing { wsn }));
        }
        let next = growing.map_or(0, |batch| batch.next);
        if u32::from(part) != next {
            return Err(PageError::NextPart(next));
        }
        if growing.is_none() && open.growing.len() >= BATCHES_MAX {
            let last = drive.last_batch(Session(session)).map_err(|error| self.store(error))?;
            return Err(self.store(StoreError::Early { wsn, last }));
        }
        if bytes > 0 {
            self.changes = expect_directory(bytes, |from, out| sent.read(from, out)).map_err(PageError::Directory)?;
            self.payload = payload_start(self.changes);
        }
        self.opening = open.opening;
        if all + self.changes as usize > CHANGES_MAX {
            return Err(self.store(StoreError::BatchTooLong { most: CHANGES_MAX }));
        }
        open.growing.entry(wsn).or_default().changes += self.changes as usize;
        sessions.changes += self.changes as usize;
        Ok(())
    }

    /// The batch, if its session is still open and it was not given up.
    fn growing<'s>(&self, sessions: &'s mut PageSessions) -> Result<&'s mut Growing, PageError> {
        let PagePart { session, wsn, .. } = self.part;
        let open = sessions.open.get_mut(&session).filter(|open| open.opening == self.opening);
        let batch = open.and_then(|open| open.growing.get_mut(&wsn));
        batch.ok_or_else(|| self.store(StoreError::Aborted))
    }

    /// All of its batch is given up.
    fn fail(&self, now: Time, drive: &mut PageFtl, sessions: &mut PageSessions, error: StoreError) -> PageError {
        let PagePart { session, wsn, .. } = self.part;
        // One that is being committed is another's.
        if !matches!(error, StoreError::Committing { .. }) {
            let _ = drive.abort(now, Session(session), wsn);
        }
        sessions.forget(session, self.opening, wsn);
        self.store(error)
    }

    fn begin(
        &mut self,
        now: Time,
        tag: u64,
        drive: &mut PageFtl,
        sessions: &mut PageSessions,
        sent: Sent<'_>,
    ) -> Result<Begun<PageOutcome>, PageError> {
        let PagePart { session, wsn, part, commit, .. } = self.part;
        let has_begun = self.opening > 0;
        let entered = if has_begun { self.growing(sessions).map(drop) } else { self.enter(drive, sessions, sent) };
        match entered {
            Err(PageError::Store(error, _)) if !has_begun && self.opening > 0 => {
                return Err(self.fail(now, drive, sessions, error));
            }
            entered => entered?,
        }
        let mut pieces = [&[][..]; PIECES_MAX];
        while self.at < self.changes {
            let entry = change_entry(self.at, |from, out| sent.read(from, out));
            let bytes = entry.bytes.get();
            let change = match (entry.is_delete(), bytes > PAGE_BYTES_MAX) {
                (true, _) => Change::Delete,
                (false, true) => {
                    let most = drive.page_bytes_max();
                    let error = StoreError::Length { lpid: entry.lpid.get(), bytes: bytes.into(), most };
                    return Err(self.fail(now, drive, sessions, error));
                }
                (false, false) => Change::Put(sent.pieces(self.payload, bytes, &mut pieces)),
            };
            match drive.stage(now, Session(session), wsn, entry.lpid.get(), change, entry.condition()) {
                Ok(()) => (self.at, self.payload) = (self.at + 1, self.payload + bytes),
                Err(StoreError::Busy) => return Ok(Begun::Waits),
                Err(error) => return Err(self.fail(now, drive, sessions, error)),
            }
        }
        let batch = self.growing(sessions)?;
        batch.next = u32::from(part) + 1;
        let Some(durability) = commit else { return Ok(Begun::Ended(Ok(None))) };
        batch.is_committing = true;
        match drive.submit(now, tag, StoreRequest::Commit { session: Session(session), wsn, durability }) {
            Ok(()) => Ok(Begun::Taken),
            Err(error) => {
                // It is no change of this part.
                self.at = 0;
                Err(self.fail(now, drive, sessions, error))
            }
        }
    }
}

/// Bytes of a list of so many pages.
fn list_bytes(pages: u32) -> usize {
    size_of::<ListHead>() + pages as usize * size_of::<ListEntry>()
}

/// Adds pages to an answer, until it is full or the drive has to read before it knows the next one.
fn go_on_listing(
    drive: &mut PageFtl,
    next: &mut u64,
    listed: &mut u32,
    bytes: u32,
    room: &[Frame],
) -> Begun<PageOutcome> {
    let most = (bytes as usize).saturating_sub(size_of::<ListHead>()) / size_of::<ListEntry>();
    let mut pages = Vec::new();
    let broken = drive.list(*next..=u64::MAX, most - *listed as usize, &mut pages).err();
    let mut at = list_bytes(*listed);
    for (lpid, bytes) in &pages {
        let entry = ListEntry { lpid: (*lpid).into(), bytes: (*bytes).into(), reserved: 0.into() };
        put(drive, room, at, entry.as_bytes());
        at += size_of::<ListEntry>();
    }
    *listed += pages.len() as u32;
    match broken {
        Some(ListBreak::Waits { from }) => {
            *next = from;
            Begun::Waits
        }
        Some(ListBreak::Lost { from }) => {
            Begun::Ended(Err(PageError::Store(StoreError::Unrecovered { lpid: from }, 0)))
        }
        None => {
            let head = ListHead { pages: (*listed).into(), reserved: 0.into() };
            put(drive, room, 0, head.as_bytes());
            Begun::Ended(Ok(None))
        }
    }
}

/// Writes bytes to an answer from `at` on.
fn put(drive: &mut PageFtl, room: &[Frame], mut at: usize, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = (BLOCK_BYTES - at % BLOCK_BYTES).min(bytes.len());
        let (here, rest) = bytes.split_at(count);
        drive.frames_mut().bytes_mut(room[at / BLOCK_BYTES])[at % BLOCK_BYTES..][..count].copy_from_slice(here);
        (at, bytes) = (at + count, rest);
    }
}

impl ObjectAsk for PageAsk {
    type Drive = PageFtl;
    type Context = PageSessions;
    type Outcome = PageOutcome;

    fn bytes_sent(&self) -> u32 {
        if let PageAsk::Part(ask) = self { ask.part.bytes } else { 0 }
    }

    fn bytes_wanted(&self) -> u32 {
        if let PageAsk::Read { bytes, .. } | PageAsk::List { bytes, .. } = self { *bytes } else { 0 }
    }

    fn is_ordered(&self) -> bool {
        matches!(self, PageAsk::Part(_))
    }

    fn begin(
        &mut self,
        now: Time,
        tag: u64,
        drive: &mut PageFtl,
        sessions: &mut PageSessions,
        sent: Sent<'_>,
        room: &[Frame],
    ) -> Begun<PageOutcome> {
        let request = match self {
            PageAsk::Part(ask) => {
                let begun = ask.begin(now, tag, drive, sessions, sent);
                return begun.unwrap_or_else(|error| Begun::Ended(Err(error)));
            }
            PageAsk::Read { lpid, offset, .. } => StoreRequest::Read { lpid: *lpid, offset: *offset, frames: room },
            PageAsk::Stat { lpid } => StoreRequest::Stat { lpid: *lpid },
            PageAsk::List { next, listed, bytes } => return go_on_listing(drive, next, listed, *bytes, room),
            PageAsk::Sync => StoreRequest::Sync,
        };
        match drive.submit(now, tag, request) {
            Ok(()) => Begun::Taken,
            Err(StoreError::Busy) => Begun::Waits,
            Err(error) => Begun::Ended(Err(PageError::Store(error, 0))),
        }
    }

    fn give_up(&mut self, now: Time, drive: &mut PageFtl, sessions: &mut PageSessions) -> PageOutcome {
        Err(match self {
            PageAsk::Part(ask) => ask.fail(now, drive, sessions, StoreError::Busy),
            _ => PageError::Store(StoreError::Busy, 0),
        })
    }

    /// A commit waits for those with smaller numbers.
    fn waits_for_host(&self, drive: &PageFtl) -> bool {
        let PageAsk::Part(ask) = self else { return false };
        drive.last_batch(Session(ask.part.session)).is_ok_and(|last| last + 1 < ask.part.wsn)
    }

    fn is_at_rest(drive: &PageFtl) -> bool {
        drive.is_at_rest()
    }

    fn frames_kept(drive: &PageFtl) -> usize {
        drive.frames_to_put()
    }

    fn outcome_of(done: &StoreDone) -> (u64, PageOutcome) {
        (done.tag, done.result.map_err(|error| PageError::Store(error, 0)))
    }

    fn end(&mut self, outcome: &PageOutcome, sessions: &mut PageSessions) -> u32 {
        match (self, outcome) {
            (PageAsk::Part(PartAsk { part, opening, .. }), _) if part.commit.is_some() && *opening > 0 => {
                sessions.forget(part.session, *opening, part.wsn);
                0
            }
            (PageAsk::Read { offset, bytes, .. }, Ok(Some(facts))) => facts.bytes.saturating_sub(*offset).min(*bytes),
            (PageAsk::List { listed, .. }, Ok(_)) => list_bytes(*listed) as u32,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::What;
    use openftl_core::{Clock, VirtualClock};
    use openftl_media::{EmulatedDevice, Profile, Store, Timing};
    use openftl_nvme::queue::SubsystemIndex;
    use openftl_pages::Ftl;
    use openftl_parts::Config;
    use openftl_parts::target::Durability;

    const OWNER: ControllerName = ControllerName { subsystem: SubsystemIndex::Nvm(0), id: 1, association: 1 };
    const TICKET: Ticket = Ticket { slot: 0, generation: 0, what: What::Stop };

    struct Bench {
        drive: PageFtl<EmulatedDevice>,
        requests: PageRequests,
        sessions: PageSessions,
        clock: VirtualClock,
    }

    impl Bench {
        fn new() -> Bench {
            let mut clock = VirtualClock::default();
            let profile = Profile::builtin("tiny").unwrap();
            let device = EmulatedDevice::new(profile, 64, Store::Ram, Timing::Modelled, 1).unwrap();
            let config = Config { checkpoint_log_blocks: Some(8), ..Config::default() };
            let drive = PageFtl::format(device, config, (), &mut clock).unwrap();
            Bench { drive, requests: PageRequests::new(16, 512), sessions: PageSessions::default(), clock }
        }

        /// Starts a commit of what was staged before.
        fn commit(&mut self, session: u32, wsn: u64) {
            let part = PagePart { session, wsn, part: 0, bytes: 0, commit: Some(Durability::Durable) };
            let ask = PageAsk::Part(PartAsk { owner: OWNER, part, opening: 0, changes: 0, at: 0, payload: 0 });
            let id = self.requests.admit(&mut self.drive, TICKET, ask).unwrap();
            self.requests.start(self.clock.now(), &mut self.drive, &mut self.sessions, id);
        }

        /// What ends while the drive has something to do.
        fn run(&mut self) -> Vec<PageOutcome> {
            let (mut outcomes, mut finished) = (Vec::new(), Vec::new());
            for _ in 0..100 {
                let now = self.clock.now();
                self.requests.poll(now, &mut self.drive, &mut self.sessions, &mut finished, &mut Vec::new());
                for PageFinished { id, outcome, .. } in finished.drain(..) {
                    outcomes.push(outcome);
                    self.requests.release(&mut self.drive, id);
                }
                if !self.requests.waits_for_drive(&self.drive) {
                    break;
                }
                self.clock.wait_until(self.drive.next_due().expect("the drive ends what waits for it"));
            }
            outcomes
        }
    }

    #[test]
    fn a_commit_waits_for_its_host_until_those_before_it_have_come_and_then_for_the_drive() {
        let mut bench = Bench::new();
        let (session, _) = bench.sessions.open(OWNER, SessionId([1; 16]), &mut bench.drive).unwrap();
        bench.commit(session, 2);
        bench.commit(session, 3);
        assert_eq!(bench.run(), []);
        // A watch over the drive would take it for one that stands still.
        assert!(!bench.requests.waits_for_drive(&bench.drive) && bench.requests.len() == 2);
        bench.commit(session, 1);
        assert!(bench.requests.waits_for_drive(&bench.drive));
        assert_eq!(bench.run(), [Ok(None); 3]);
        assert!(bench.requests.is_empty());
    }

    #[test]
    fn the_sessions_of_a_controller_that_is_gone_are_closed_and_what_waits_in_them_ends() {
        let mut bench = Bench::new();
        let (session, _) = bench.sessions.open(OWNER, SessionId([1; 16]), &mut bench.drive).unwrap();
        bench.commit(session, 2);
        assert_eq!(bench.run(), []);
        bench.sessions.close_others(bench.clock.now(), |owner| owner == OWNER, &mut bench.drive);
        assert_eq!(bench.run(), [], "it is there");
        bench.sessions.close_others(bench.clock.now(), |owner| owner != OWNER, &mut bench.drive);
        assert_eq!(bench.run(), [Err(PageError::Store(StoreError::Aborted, 0))]);
        assert_eq!((bench.sessions.changes, bench.sessions.open.len()), (0, 0));
        // Nor can its number be used any more.
        bench.commit(session, 1);
        assert_eq!(bench.run(), [Err(PageError::Store(StoreError::NoSession { session }, 0))]);
    }
}
