//! Clients, their commands, and the drive between them. See the crate.

use crate::glob;
use crate::name::{Name, is_digest, name_before};
use crate::peer::{Answer, Peer, PeerId};
use crate::resp::reply;
use openftl_core::{BLOCK_BYTES, Frame, FrameForm, Time};
use openftl_parts::target::{Durability, Target};
use openftl_values::payload::gathered;
use openftl_values::{Facts, Key, ValueDone, ValueError, ValueFtl, ValueRequest, ValueTarget, keys_of_list};
use std::collections::BTreeMap;

/// Bytes of a part of a command, at most: the longest value and some.
pub const PART_MAX: usize = (1 << 20) + (64 << 10);

/// Bytes of a command, at most.
pub const INPUT_MAX: usize = 2 << 20;

/// Bytes of replies that a client has not read, at most, while it may have more.
pub const OUTPUT_MAX: usize = 1 << 20;

/// Commands of a client under way, at most.
pub const COMMANDS_MAX: usize = 1024;

/// Places of scans that are remembered.
pub const CURSORS_MAX: usize = 1024;

/// Bytes that are kept for all clients, at most.
pub const KEPT_BYTES_MAX: usize = 128 << 20;

/// Frames that a value is read to unless it turns out to be longer.
pub(crate) const GET_FRAMES: usize = 2;

/// Frames that keys are listed to: those of the longest scan.
pub(crate) const LIST_FRAMES: usize = 5;

/// What a request of the drive is for.
pub(crate) enum What {
    Set,
    Get(Name),
    Exists,
    /// A key that goes by a digest is compared, and then counted or deleted.
    Compare(Name),
    Delete,
    List {
        count: u32,
    },
    KeyBefore,
}

struct Job {
    peer: PeerId,
    answer: u64,
    what: What,
    frames: Vec<Frame>,
}

/// See the module.
pub struct Front {
    /// Its tags begin here.
    tags: u64,
    pub(crate) peers: BTreeMap<PeerId, Peer>,
    next_peer: u64,
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    /// The tag of a flush that is under way.
    flush: Option<u64>,
    /// Changes since the last flush began.
    has_changed: bool,
    /// Places of scans: the last key of each.
    pub(crate) cursors: BTreeMap<u64, Key>,
    next_cursor: u64,
    pub(crate) commands: u64,
    now: Time,
}

impl Front {
    /// In front of a drive, each time the same one. Requests of it have tags from `tags` on, fewer than 2^33; others may ask it, too.
    #[must_use]
    pub fn new(tags: u64) -> Front {
        Front {
            tags,
            peers: BTreeMap::new(),
            next_peer: 0,
            jobs: Vec::new(),
            free: Vec::new(),
            flush: None,
            has_changed: false,
            cursors: BTreeMap::new(),
            next_cursor: 0,
            commands: 0,
            now: Time::ZERO,
        }
    }

    /// Whether [`Front::flush`] would begin one.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.flush.is_none() && self.has_changed
    }

    /// A client has come.
    pub fn connect(&mut self) -> PeerId {
        self.next_peer += 1;
        let peer = PeerId(self.next_peer);
        self.peers.insert(peer, Peer::default());
        peer
    }

    /// A client has gone. What it has begun goes on.
    pub fn disconnect(&mut self, peer: PeerId) {
        self.peers.remove(&peer);
    }

    /// Clients that there are.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.peers.len()
    }

    /// Commands that were understood.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Whether more bytes of a client are to be received.
    #[must_use]
    pub fn wants_input(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|peer| {
            !peer.is_ending
                && !peer.has_ended
                && peer.input.len() - peer.at < INPUT_MAX
                && peer.output.len() <= OUTPUT_MAX
        })
    }

    /// Bytes that a client has sent.
    pub fn receive(&mut self, peer: PeerId, bytes: &[u8]) {
        let Some(peer) = self.peers.get_mut(&peer).filter(|peer| !peer.is_ending) else { return };
        if peer.at == peer.input.len() {
            peer.input.clear();
            peer.at = 0;
        }
        peer.input.extend_from_slice(bytes);
    }

    /// A client sends nothing more. It gets what it has asked for.
    pub fn end_input(&mut self, peer: PeerId) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.has_ended = true;
        }
    }

    /// Bytes that a client is to get.
    #[must_use]
    pub fn output(&self, peer: PeerId) -> &[u8] {
        self.peers.get(&peer).map_or(&[], |peer| &peer.output)
    }

    /// So many of them were sent.
    pub fn sent(&mut self, peer: PeerId, count: usize) {
        let Some(peer) = self.peers.get_mut(&peer) else { return };
        peer.output.drain(..count);
        if peer.output.is_empty() {
            peer.output.shrink_to(64 << 10);
        }
    }

    /// Whether a client has all that it is to get, and is to be closed.
    #[must_use]
    pub fn is_over(&self, peer: PeerId) -> bool {
        let is_over =
            |peer: &Peer| (peer.is_ending || peer.has_ended) && peer.answers.is_empty() && peer.output.is_empty();
        self.peers.get(&peer).is_none_or(is_over)
    }

    /// The client that keeps the most, if all together keep too much.
    #[must_use]
    pub fn heaviest(&self) -> Option<PeerId> {
        let kept = self.peers.iter().map(|(id, peer)| (peer.kept(), *id));
        let (all, most) = kept.fold((0, None), |(all, most), one| (all + one.0, most.max(Some(one))));
        most.filter(|_| all > KEPT_BYTES_MAX).map(|(_, peer)| peer)
    }

    /// Has all that was changed become durable, if a flush is not under way. Returns whether one was begun.
    pub fn flush(&mut self, now: Time, drive: &mut ValueFtl) -> bool {
        if !self.wants_flush() {
            return false;
        }
        let tag = self.tags + u64::from(u32::MAX) + 1;
        let has_begun = drive.submit(now, tag, ValueRequest::Flush).is_ok();
        if has_begun {
            (self.flush, self.has_changed) = (Some(tag), false);
        }
        has_begun
    }

    /// Takes what the drive has `done`, and goes on with all clients. Returns whether anything was: then the drive may have done more, and is to be
    /// polled.
    pub fn advance(&mut self, now: Time, drive: &mut ValueFtl, done: impl IntoIterator<Item = ValueDone>) -> bool {
        self.now = self.now.max(now);
        let mut has_acted = false;
        for done in done {
            self.ended(drive, done);
            has_acted = true;
        }
        let peers: Vec<PeerId> = self.peers.keys().copied().collect();
        peers.into_iter().fold(has_acted, |has_acted, peer| self.go_on(drive, peer) | has_acted)
    }

    /// The drive is gone, and so are its clients and what they had under way. Others may come when it is back.
    pub fn drive_lost(&mut self) {
        self.peers.clear();
        self.jobs.clear();
        self.free.clear();
        self.cursors.clear();
        (self.flush, self.has_changed) = (None, false);
    }

    /// A request of the drive has ended.
    fn ended(&mut self, drive: &mut ValueFtl, done: ValueDone) {
        if Some(done.tag) == self.flush {
            self.flush = None;
            return;
        }
        let at = (done.tag - self.tags) as usize;
        let job = self.jobs[at].take().expect("a request under way");
        self.free.push(at);
        self.finish(drive, job, done.result);
    }

    /// Gives a client what a request has brought.
    fn finish(&mut self, drive: &mut ValueFtl, job: Job, result: Result<Facts, ValueError>) {
        let Job { peer, answer, what, frames } = job;
        let cover = frames.len() * BLOCK_BYTES;
        let read = result.map(|facts| gathered(drive.frames(), &frames, (facts.bytes as usize).min(cover)));
        frames.iter().for_each(|frame| drive.frames_mut().release(*frame));
        if matches!(what, What::Set | What::Delete) {
            self.has_changed = true;
        }
        match what {
            What::Set => self.ready(peer, answer, |out| match result {
                Ok(_) => reply::status(out, "OK"),
                Err(ValueError::NoKey | ValueError::KeyExists) => reply::nil(out),
                Err(error) => reply::error(out, &format!("ERR {error}")),
            }),
            What::Get(name) if result.is_ok_and(|facts| facts.bytes as usize > cover) => {
                let bytes = result.map_or(0, |facts| facts.bytes as usize);
                if let Some(answer) = self.peers.get_mut(&peer).and_then(|peer| peer.answer(answer)) {
                    *answer = Answer::Long { name, frames: bytes.div_ceil(BLOCK_BYTES) };
                }
            }
            What::Get(name) => match (self.has_read(peer, &name), read) {
                ((), Ok(bytes)) => self.ready(peer, answer, |out| match value_of(&name, &bytes) {
                    Some(value) => reply::bulk(out, value),
                    None => reply::nil(out),
                }),
                ((), Err(ValueError::NoKey)) => self.ready(peer, answer, reply::nil),
                ((), Err(error)) => self.ready(peer, answer, |out| reply::error(out, &format!("ERR {error}"))),
            },
            What::Exists | What::Delete => self.counted(peer, answer, result.map(|_| true)),
            What::Compare(name) => {
                let is_it =
                    read.as_ref().is_ok_and(|bytes| value_of(&name, bytes).is_some() || is_longer(&name, bytes));
                let deletes = matches!(
                    self.peers.get_mut(&peer).and_then(|peer| peer.answer(answer)),
                    Some(Answer::Count { deletes: true, .. })
                );
                if !is_it || !deletes {
                    return self.counted(peer, answer, read.map(|_| is_it));
                }
                let delete = ValueRequest::Delete { key: name.key(), durability: Durability::Volatile };
                if !self.ask(drive, peer, answer, What::Delete, Vec::new(), delete) {
                    self.counted(peer, answer, Err(ValueError::Busy));
                }
            }
            What::List { count } => self.listed(peer, answer, read, count),
            What::KeyBefore => {
                let Some(Answer::Scan { pattern, keys, under_way, .. }) =
                    self.peers.get_mut(&peer).and_then(|peer| peer.answer(answer))
                else {
                    return;
                };
                *under_way -= 1;
                // One that has gone meanwhile is not told of.
                if let Ok(bytes) = read
                    && let Some((key, _)) = name_before(&bytes)
                    && pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, key))
                {
                    keys.push(key.to_vec());
                }
                self.end_scan(peer, answer);
            }
        }
    }

    fn has_read(&mut self, peer: PeerId, name: &Name) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.has_read(&name.key());
        }
    }

    /// An answer is there.
    pub(crate) fn ready(&mut self, peer: PeerId, answer: u64, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(answer) = self.peers.get_mut(&peer).and_then(|peer| peer.answer(answer)) {
            let mut out = Vec::new();
            write(&mut out);
            *answer = Answer::Ready(out);
        }
    }

    /// One key of several is known.
    fn counted(&mut self, peer: PeerId, number: u64, result: Result<bool, ValueError>) {
        let Some(answer) = self.peers.get_mut(&peer).and_then(|peer| peer.answer(number)) else { return };
        let Answer::Count { todo, under_way, count, error, .. } = answer else { unreachable!("it is counted") };
        *under_way -= 1;
        match result {
            Ok(is_it) => *count += i64::from(is_it),
            Err(ValueError::NoKey) => {}
            Err(other) => *error = error.or(Some(other)),
        }
        if todo.is_empty() && *under_way == 0 {
            let (count, error) = (*count, *error);
            self.ready(peer, number, |out| match error {
                None => reply::number(out, count),
                Some(error) => reply::error(out, &format!("ERR {error}")),
            });
        }
    }

    /// Keys were listed for a scan.
    fn listed(&mut self, peer: PeerId, number: u64, read: Result<Vec<u8>, ValueError>, count: u32) {
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => return self.ready(peer, number, |out| reply::error(out, &format!("ERR {error}"))),
        };
        let Some(answer) = self.peers.get_mut(&peer).and_then(|peer| peer.answer(number)) else { return };
        let Answer::Scan { cursor, pattern, keys, todo, under_way } = answer else { unreachable!("it scans") };
        *under_way -= 1;
        // The key that the scan has come to before comes again.
        let last = self.cursors.get(cursor).copied();
        let found = keys_of_list(&bytes).expect("the drive writes lists");
        let found = found.into_iter().filter(|key| Some(*key) != last).take(count as usize);
        let (mut looked_at, mut newest) = (0, None);
        for key in found {
            (looked_at, newest) = (looked_at + 1, Some(key));
            if is_digest(&key) {
                todo.push_back(key);
            } else if pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, key.bytes())) {
                keys.push(key.bytes().to_vec());
            }
        }
        *cursor = 0;
        if let (Some(newest), true) = (newest, looked_at == count) {
            self.next_cursor += 1;
            *cursor = self.next_cursor;
            self.cursors.insert(self.next_cursor, newest);
            if self.cursors.len() > CURSORS_MAX {
                self.cursors.pop_first();
            }
        }
        self.end_scan(peer, number);
    }

    fn end_scan(&mut self, peer: PeerId, number: u64) {
        let Some(Answer::Scan { cursor, keys, todo, under_way, .. }) =
            self.peers.get_mut(&peer).and_then(|peer| peer.answer(number))
        else {
            return;
        };
        if !todo.is_empty() || *under_way > 0 {
            return;
        }
        let (cursor, keys) = (*cursor, std::mem::take(keys));
        self.ready(peer, number, |out| {
            reply::array(out, 2);
            reply::bulk(out, cursor.to_string().as_bytes());
            reply::array(out, keys.len());
            keys.iter().for_each(|key| reply::bulk(out, key));
        });
    }

    /// Asks the drive. `false`: not now, and the frames are given back.
    pub(crate) fn ask(
        &mut self,
        drive: &mut ValueFtl,
        peer: PeerId,
        answer: u64,
        what: What,
        frames: Vec<Frame>,
        request: ValueRequest<'_>,
    ) -> bool {
        let at = self.free.pop().unwrap_or(self.jobs.len());
        if at == self.jobs.len() {
            self.jobs.push(None);
        }
        match drive.submit(self.now, self.tags + at as u64, request) {
            Ok(()) => {
                self.jobs[at] = Some(Job { peer, answer, what, frames });
                true
            }
            Err(ValueError::Busy) => {
                self.free.push(at);
                frames.iter().for_each(|frame| drive.frames_mut().release(*frame));
                false
            }
            Err(error) => {
                self.free.push(at);
                self.finish(drive, Job { peer, answer, what, frames }, Err(error));
                true
            }
        }
    }

    pub(crate) fn retrieve(
        &mut self,
        drive: &mut ValueFtl,
        peer: PeerId,
        answer: u64,
        what: What,
        key: Key,
        frames: usize,
    ) -> bool {
        let Some(frames) = frames_of(drive, frames) else { return false };
        let given = frames.clone();
        self.ask(drive, peer, answer, what, frames, ValueRequest::Retrieve { key, frames: &given })
    }

    /// Goes on with what a client waits for and has sent. Returns whether anything was done.
    fn go_on(&mut self, drive: &mut ValueFtl, id: PeerId) -> bool {
        let mut has_acted = false;
        loop {
            let Some(peer) = self.peers.get_mut(&id) else { return has_acted };
            let acts = peer.deliver() | self.ask_rest(drive, id);
            let acts = acts | self.next_command(drive, id);
            if !acts {
                return has_acted;
            }
            has_acted = true;
        }
    }

    /// Asks for what is left of answers that take several requests: the first one, if it is a long value, and the last one.
    fn ask_rest(&mut self, drive: &mut ValueFtl, id: PeerId) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else { return false };
        let first = peer.first;
        if let Some(Answer::Long { name, frames }) = peer.answers.front()
            && peer.output.len() <= OUTPUT_MAX
        {
            let (name, frames) = (name.clone(), *frames);
            let key = name.key();
            if self.retrieve(drive, id, first, What::Get(name), key, frames) {
                if let Some(answer @ Answer::Long { .. }) =
                    self.peers.get_mut(&id).and_then(|peer| peer.answers.front_mut())
                {
                    *answer = Answer::Waiting;
                }
                return true;
            }
            return false;
        }
        let last = first + peer.answers.len() as u64;
        let Some(last) = last.checked_sub(1).filter(|_| !peer.answers.is_empty()) else { return false };
        match peer.answers.back_mut() {
            Some(Answer::Count { deletes, todo, under_way, .. }) => {
                let (Some(name), deletes) = (todo.front().cloned(), *deletes) else { return false };
                if deletes && peer.reading.contains_key(&name.key()) {
                    return false;
                }
                todo.pop_front();
                *under_way += 1;
                let key = name.key();
                let delete = ValueRequest::Delete { key, durability: Durability::Volatile };
                let has_begun = match (&name, deletes) {
                    (Name::Plain(_), true) => self.ask(drive, id, last, What::Delete, Vec::new(), delete),
                    (Name::Plain(_), false) => {
                        self.ask(drive, id, last, What::Exists, Vec::new(), ValueRequest::Exist { key })
                    }
                    (Name::Digest(..), _) => {
                        let frames = (name.before().len()).div_ceil(BLOCK_BYTES);
                        self.retrieve(drive, id, last, What::Compare(name.clone()), key, frames)
                    }
                };
                if !has_begun
                    && let Some(Answer::Count { todo, under_way, .. }) =
                        self.peers.get_mut(&id).and_then(|peer| peer.answers.back_mut())
                {
                    todo.push_front(name);
                    *under_way -= 1;
                }
                has_begun
            }
            Some(Answer::Scan { todo, under_way, .. }) => {
                let Some(key) = todo.pop_front() else { return false };
                *under_way += 1;
                let has_begun = self.retrieve(drive, id, last, What::KeyBefore, key, GET_FRAMES);
                if !has_begun
                    && let Some(Answer::Scan { todo, under_way, .. }) =
                        self.peers.get_mut(&id).and_then(|peer| peer.answers.back_mut())
                {
                    todo.push_front(key);
                    *under_way -= 1;
                }
                has_begun
            }
            _ => false,
        }
    }
}

/// Frames to read to, if there are so many.
pub(crate) fn frames_of(drive: &mut ValueFtl, count: usize) -> Option<Vec<Frame>> {
    let mut frames = Vec::new();
    drive.frames_mut().acquire_many(FrameForm::Bytes, count, &mut frames).then_some(frames)
}

/// The value of a key, from what the drive has under it. `None`: it is that of another key.
fn value_of<'a>(name: &Name, bytes: &'a [u8]) -> Option<&'a [u8]> {
    match name {
        Name::Plain(_) => Some(bytes),
        Name::Digest(_, key) => name_before(bytes).filter(|(other, _)| other == key).map(|(_, count)| &bytes[count..]),
    }
}

/// Whether the bytes are the beginning of the key and its value.
fn is_longer(name: &Name, bytes: &[u8]) -> bool {
    let before = name.before();
    bytes.len() >= before.len() && bytes.starts_with(&before)
}
