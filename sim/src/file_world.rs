//! A file system in lock step with the model, and the states that a power cut may leave of it.
//!
//! ```text
//!   step ──▶ file system: attempted until it is over ──▶ reply ─┐
//!        └─▶ model ───────────────────────────────────▶ reply ─┴▶ the same?
//!                  └─▶ states:  s3  s4  s5  s6          one for each change since the last sync that is over
//! ```
//!
//! The file system goes first: it alone knows whether it is full, and then the model is not asked. A refusal is right if it is any of those
//! that the model names.

use crate::file_model::FileModel;
use crate::file_replies::{Inodes, Leniency, is_change, is_xattr_without_room, may_need_room, time_of_day};
use crate::file_steps::{Asked, FileStep};
use crate::liveness::{Patience, Waiting};
use crate::portrait::{Portrait, shown, with_bytes};
use openftl_alfs::operation::{Operation, Reply};
use openftl_alfs::{Attributes, Entry, FileSystem, FileTime, Inode, Refusal, Ticket};
use openftl_core::{Clock, Nanos, Time, VirtualClock};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Steps that a failure shows.
const STEPS_SHOWN: usize = 16;

/// What a file system was like after an operation.
pub struct State {
    /// How many changes there had been.
    pub number: u64,
    /// The model.
    pub model: FileModel,
    portrait: OnceCell<Portrait>,
}

impl State {
    fn new(number: u64, model: FileModel) -> Rc<State> {
        Rc::new(State { number, model, portrait: OnceCell::new() })
    }

    /// What a host would see. Made once, when it is first asked for.
    pub fn portrait(&self) -> &Portrait {
        self.portrait.get_or_init(|| portrait_of_model(&self.model))
    }
}

fn portrait_of_model(model: &FileModel) -> Portrait {
    let mut model = model.clone();
    let ticket = model.ticket();
    let mut run = |operation: &Operation<'_>| {
        let reply = model.attempt(Time::ZERO, FileTime::default(), ticket, operation).expect("the model never waits");
        reply.map(|reply| with_bytes(&mut model, reply))
    };
    Portrait::of(&mut run).expect("the model agrees with itself")
}

/// The states that a power cut may leave; the first one was reached before the last sync that is over.
pub type States = [Rc<State>];

/// The last of the states that a portrait is of.
///
/// # Errors
/// How the portrait differs from the state that it is most like.
pub fn verdict<'s>(portrait: &Portrait, states: &'s States) -> Result<&'s Rc<State>, String> {
    if let Some(state) = states.iter().rev().find(|state| state.portrait().hash == portrait.hash) {
        return Ok(state);
    }
    let difference = |state: &Rc<State>| state.portrait().difference(portrait);
    let nearest = states.iter().rev().min_by_key(|state| difference(state).len()).expect("there is a state");
    Err(format!(
        "the file system is like none of the states {} to {}; from {} it differs by\n{}",
        states[0].number,
        states[states.len() - 1].number,
        nearest.number,
        difference(nearest)
    ))
}

/// A listing that goes on while other operations change the folder.
struct Listing {
    folder: Inode,
    after: u64,
    /// Names that have been there since it began, each with its file.
    steady: BTreeSet<(Vec<u8>, Inode)>,
    seen: BTreeSet<Vec<u8>>,
}

/// See the module.
pub struct FileWorld<F> {
    /// The file system.
    pub subject: F,
    /// The model.
    pub model: FileModel,
    /// Virtual time.
    pub clock: VirtualClock,
    /// In what the file system may differ from the model.
    pub leniency: Leniency,
    /// How often it was full.
    pub refused_for_room: u64,
    /// Files of the model that may be refused because the medium lost something of them; no others may.
    pub unreadable: BTreeSet<Inode>,
    /// How often one was.
    pub refused_for_device: u64,
    patience: Patience,
    inodes: Inodes,
    states: Vec<Rc<State>>,
    /// A sync under way, and the number of the state at its beginning.
    syncing: Option<(Ticket, u64)>,
    listing: Option<Listing>,
    operations: u64,
    days: u64,
    steps: Vec<String>,
}

impl<F: FileSystem> FileWorld<F> {
    /// A new file system, which has nothing but a root.
    ///
    /// # Errors
    /// If it has something else.
    pub fn new(subject: F, clock: VirtualClock, patience: Patience) -> Result<FileWorld<F>, String> {
        let model = FileModel::new(0o755, FileTime::default());
        let mut world = FileWorld::with(subject, clock, patience, model);
        let root = match world.run(time_of_day(0, 0), &Operation::Attributes { inode: Inode::ROOT })? {
            Ok(Reply::Attributes(root)) => root,
            other => return Err(format!("the root of a new file system: {other:?}")),
        };
        world.model = world.model.with_root(&root);
        world.inodes.pair(&world.model, Inode::ROOT, &root)?;
        world.states = vec![State::new(0, world.model.clone())];
        world.verify()?;
        Ok(world)
    }

    fn with(subject: F, clock: VirtualClock, patience: Patience, model: FileModel) -> FileWorld<F> {
        FileWorld {
            subject,
            model,
            clock,
            leniency: Leniency::default(),
            refused_for_room: 0,
            unreadable: BTreeSet::new(),
            refused_for_device: 0,
            patience,
            inodes: Inodes::default(),
            states: Vec::new(),
            syncing: None,
            listing: None,
            operations: 0,
            days: 0,
            steps: Vec::new(),
        }
    }

    /// A file system that was just mounted and is to be in one of these states. Gives also what it is like.
    ///
    /// # Errors
    /// If it is in none of them.
    pub fn mounted(
        subject: F,
        clock: VirtualClock,
        patience: Patience,
        states: &States,
    ) -> Result<(FileWorld<F>, Portrait), String> {
        let model = states.last().expect("there is a state").model.clone();
        let mut world = FileWorld::with(subject, clock, patience, model);
        // Later than all that was before.
        (world.operations, world.days) = (1_000, states.last().map_or(0, |state| state.number) + 1);
        let portrait = world.portrait()?;
        let state = verdict(&portrait, states)?;
        world.model = state.model.after_power_cut();
        world.states = vec![State::new(state.number, world.model.clone())];
        world.pair_all()?;
        Ok((world, portrait))
    }

    /// Finds out which file is which, path by path; the trees are the same.
    fn pair_all(&mut self) -> Result<(), String> {
        let mut folders = vec![Inode::ROOT];
        let root = self.attributes_of(&Operation::Attributes { inode: Inode::ROOT })?;
        self.inodes.pair(&self.model, Inode::ROOT, &root)?;
        while let Some(parent) = folders.pop() {
            let names = self.model.file(parent).and_then(|file| file.folder()).expect("it is a folder").names.clone();
            let folder = self.inodes.subject(parent).expect("it was paired");
            for (name, inode) in names.iter().map(|(name, at)| (name, at.inode)) {
                let found = self.attributes_of(&Operation::Lookup { parent: folder, name })?;
                if self.inodes.subject(inode) == Some(found.inode) {
                    continue;
                }
                self.inodes.pair(&self.model, inode, &found)?;
                self.model.set_accessed(inode, found.accessed);
                if self.model.file(inode).is_some_and(|file| file.folder().is_some()) {
                    folders.push(inode);
                }
            }
        }
        Ok(())
    }

    fn attributes_of(&mut self, operation: &Operation<'_>) -> Result<Attributes, String> {
        match self.run(time_of_day(self.operations, self.days), operation)? {
            Ok(Reply::Attributes(attributes)) => Ok(attributes),
            other => Err(format!("{operation:?}: {other:?}")),
        }
    }

    /// The states that a power cut may leave now.
    #[must_use]
    pub fn states(&self) -> &States {
        &self.states
    }

    /// The next time of day.
    fn time_of_day(&mut self) -> FileTime {
        self.operations += 1;
        time_of_day(self.operations, self.days)
    }

    /// Lets the file system work, and the sync that is under way end.
    fn wait(&mut self, waiting: &mut Waiting) -> Result<(), String> {
        if !self.subject.poll(self.clock.now()) {
            let Some(due) = self.subject.next_due() else {
                return Err("an operation waits, and nothing is due".to_owned());
            };
            let now = self.clock.wait_until(due);
            self.subject.poll(now);
        }
        waiting.poll(self.clock.0)?;
        self.attempt_sync()
    }

    fn attempt_sync(&mut self) -> Result<(), String> {
        let Some((ticket, number)) = self.syncing else { return Ok(()) };
        let (now, clock) = (self.clock.now(), time_of_day(self.operations, self.days));
        match self.subject.attempt(now, clock, ticket, &Operation::Sync) {
            None => Ok(()),
            Some(Ok(Reply::Done)) => {
                self.syncing = None;
                self.states.retain(|state| state.number >= number);
                Ok(())
            }
            Some(other) => Err(format!("a sync ended with {other:?}")),
        }
    }

    /// Runs an operation on the file system, until it is over.
    fn run(&mut self, clock: FileTime, operation: &Operation<'_>) -> Result<Result<Reply, Refusal>, String> {
        let ticket = self.subject.ticket();
        let mut waiting = Waiting::new(self.patience, self.clock.0);
        loop {
            let now = self.clock.now();
            if let Some(reply) = self.subject.attempt(now, clock, ticket, operation) {
                return Ok(reply.map(|reply| with_bytes(&mut self.subject, reply)));
            }
            self.wait(&mut waiting).map_err(|error| format!("{operation:?}: {error}"))?;
        }
    }

    fn run_on_model(&mut self, clock: FileTime, operation: &Operation<'_>) -> Result<Reply, Refusal> {
        let ticket = self.model.ticket();
        let reply = self.model.attempt(Time::ZERO, clock, ticket, operation).expect("the model never waits");
        reply.map(|reply| with_bytes(&mut self.model, reply))
    }

    /// The same operation as the file system names its files; `None`: it does not know one of them any more, or never did.
    fn translated<'a>(&self, asked: &'a Asked) -> Option<Operation<'a>> {
        let is_known = asked.inodes().iter().all(|inode| self.inodes.subject(*inode).is_some());
        is_known.then(|| asked.operation(|inode| self.inodes.subject(inode).expect("it is known")))
    }

    /// Does what a step says, and compares.
    ///
    /// # Errors
    /// How the file system differs from the model, and after which steps.
    pub fn step(&mut self, step: &FileStep) -> Result<(), String> {
        self.steps.push(step.to_string());
        let result = match step {
            FileStep::Ask(asked) => self.ask(asked),
            FileStep::BeginSync => self.begin_sync(),
            FileStep::ListSome(folder, entries) => self.list_some(*folder, *entries),
            FileStep::Hold(inode) => {
                self.hold(*inode);
                Ok(())
            }
            FileStep::Release(inode) => self.release(*inode),
            FileStep::Idle(span) => self.idle(*span),
        };
        result.and_then(|()| self.attempt_sync()).map_err(|error| {
            let shown = self.steps.len().saturating_sub(STEPS_SHOWN);
            format!("{error}\nafter {shown} steps and\n  {}", self.steps[shown..].join("\n  "))
        })
    }

    fn ask(&mut self, asked: &Asked) -> Result<(), String> {
        let Some(operation) = self.translated(asked) else { return Ok(()) };
        if let Operation::ReadDirectory { entries, with_attributes, .. } = operation {
            return self.list(asked.inodes()[0], entries, with_attributes);
        }
        let of_model = asked.operation(|inode| inode);
        let (clock, number) = (self.time_of_day(), self.number());
        let found = self.run(clock, &operation)?;
        let refusals = self.model.refusals(&of_model);
        let found = match found {
            Err(refusal) if refusals.contains(&refusal) || is_xattr_without_room(&self.model, &of_model, refusal) => {
                return Ok(());
            }
            Err(Refusal::NoRoom) if self.leniency.may_be_full && may_need_room(&operation) => {
                self.refused_for_room += 1;
                return Ok(());
            }
            Err(Refusal::Device) if asked.inodes().iter().any(|inode| self.unreadable.contains(inode)) => {
                self.refused_for_device += 1;
                return Ok(());
            }
            Err(refusal) if refusals.is_empty() => return Err(format!("{asked}: it is refused: {refusal}")),
            Err(refusal) => {
                return Err(format!("{asked}: it is refused: {refusal}, and that should be one of {refusals:?}"));
            }
            Ok(reply) if !refusals.is_empty() => {
                return Err(format!("{asked}: {reply:?}, and there should be one of {refusals:?}"));
            }
            Ok(reply) => reply,
        };
        let expected = self.run_on_model(clock, &of_model).expect("it was asked for refusals");
        self.inodes
            .reply(&self.model, self.leniency, &of_model, &found, &expected)
            .map_err(|error| format!("{asked}: {error}"))?;
        if operation == Operation::Sync {
            self.states.retain(|state| state.number >= number);
        }
        if is_change(&operation) {
            self.changed();
        }
        Ok(())
    }

    /// The number of the state that the model is in.
    fn number(&self) -> u64 {
        self.states.last().expect("there is a state").number
    }

    fn changed(&mut self) {
        let state = State::new(self.number() + 1, self.model.clone());
        self.states.push(state);
        if let Some(Listing { folder, steady, .. }) = &mut self.listing {
            steady.retain(|(name, inode)| self.model.named(*folder, name) == Some(*inode));
        }
    }

    fn begin_sync(&mut self) -> Result<(), String> {
        if self.syncing.is_none() {
            let ticket = self.subject.ticket();
            self.syncing = Some((ticket, self.number()));
        }
        self.attempt_sync()
    }

    /// Waits for the sync that is under way, if one is.
    ///
    /// # Errors
    /// If it does not end well.
    pub fn settle(&mut self) -> Result<(), String> {
        let mut waiting = Waiting::new(self.patience, self.clock.0);
        while self.syncing.is_some() {
            self.wait(&mut waiting)?;
        }
        Ok(())
    }

    fn hold(&mut self, inode: Inode) {
        if let Some(subject) = self.inodes.subject(inode).filter(|_| self.model.file(inode).is_some()) {
            self.model.hold(inode, 1);
            self.subject.hold(subject, 1);
        }
    }

    fn release(&mut self, inode: Inode) -> Result<(), String> {
        // Of what is not held the file system has nothing to say that a host could rely on.
        let Some(subject) = self.inodes.subject(inode).filter(|_| self.model.holds(inode) > 0) else { return Ok(()) };
        let (expected, found) = (self.model.release(inode, 1), self.subject.release(subject, 1));
        if expected == found { Ok(()) } else { Err(format!("file {inode} was held, and was not released")) }
    }

    fn idle(&mut self, span: Nanos) -> Result<(), String> {
        let until = self.clock.now() + span;
        let mut waiting = Waiting::new(self.patience, self.clock.0);
        self.days += u64::from(span >= Nanos::from_millis(500));
        while let Some(due) = self.subject.next_due().filter(|due| *due <= until) {
            let now = self.clock.wait_until(due);
            self.subject.poll(now);
            // Time passes as it should; only a file system that never lets it pass is not alive.
            waiting.poll(waiting.since())?;
            self.attempt_sync()?;
        }
        self.clock.wait_until(until);
        Ok(())
    }

    /// Some entries of a folder of the model, behind a cookie.
    fn entries(
        &mut self,
        folder: Inode,
        after: u64,
        entries: usize,
        with_attributes: bool,
    ) -> Result<Vec<Entry>, String> {
        let inode = self.inodes.subject(folder).expect("it is known");
        let clock = self.time_of_day();
        let operation = Operation::ReadDirectory { inode, after, entries, with_attributes };
        let found = match self.run(clock, &operation)? {
            Ok(Reply::Entries(found)) if found.len() <= entries => found,
            other => return Err(format!("{operation:?}: {other:?}")),
        };
        for entry in &found {
            self.inodes.entry(&self.model, self.leniency, folder, entry)?;
            let is_dot = matches!(entry.name.as_slice(), b"." | b"..");
            if entry.attributes.is_some() != (with_attributes && !is_dot) {
                return Err(format!("{operation:?}: {entry:?}"));
            }
        }
        let of_model = Operation::ReadDirectory { inode: folder, after: 0, entries: 0, with_attributes };
        self.run_on_model(clock, &of_model).map(|_| ()).map_err(|refusal| format!("{operation:?}: {refusal}"))?;
        Ok(found)
    }

    /// The names that a listing of a folder has to have, each with its file.
    fn names(&self, folder: Inode) -> BTreeSet<(Vec<u8>, Inode)> {
        let dots = [b".".to_vec(), b"..".to_vec()].map(|dot| {
            let inode = self.model.named(folder, &dot).expect("it is a folder");
            (dot, inode)
        });
        let names = &self.model.file(folder).and_then(|file| file.folder()).expect("it is a folder").names;
        names.iter().map(|(name, at)| (name.clone(), at.inode)).chain(dots).collect()
    }

    /// Lists all of a folder. What is no folder is refused.
    fn list(&mut self, folder: Inode, entries: usize, with_attributes: bool) -> Result<(), String> {
        if self.model.file(folder).is_none_or(|file| file.folder().is_none()) {
            let shape = Operation::ReadDirectory { inode: folder, after: 0, entries, with_attributes };
            let (refusals, clock) = (self.model.refusals(&shape), self.time_of_day());
            let inode = self.inodes.subject(folder).expect("it is known");
            let operation = Operation::ReadDirectory { inode, after: 0, entries, with_attributes };
            return match self.run(clock, &operation)? {
                Err(refusal) if refusals.contains(&refusal) => Ok(()),
                other => Err(format!("{operation:?}: {other:?}, and there should be one of {refusals:?}")),
            };
        }
        if !self.is_listable(folder) {
            return Ok(());
        }
        let (mut after, mut seen) = (0, BTreeMap::new());
        loop {
            let found = self.entries(folder, after, entries, with_attributes)?;
            let Some(last) = found.last() else { break };
            after = last.cookie;
            for entry in found {
                if seen.insert(entry.name.clone(), ()).is_some() {
                    return Err(format!("{} is listed twice in folder {folder}", shown(&entry.name)));
                }
            }
        }
        match self.names(folder).iter().find(|(name, _)| !seen.contains_key(name)) {
            Some((name, _)) => Err(format!("{} is in folder {folder} and is not listed", shown(name))),
            None => Ok(()),
        }
    }

    /// Whether a folder is there, and not removed.
    fn is_listable(&self, folder: Inode) -> bool {
        let file = self.model.file(folder);
        file.is_some_and(|file| file.folder().is_some() && file.attributes().links > 0)
            && self.inodes.subject(folder).is_some()
    }

    fn list_some(&mut self, folder: Inode, entries: usize) -> Result<(), String> {
        let going_on = self.listing.take().filter(|listing| self.is_listable(listing.folder));
        let begun = || Listing { folder, after: 0, steady: self.names(folder), seen: BTreeSet::new() };
        let Some(mut listing) = going_on.or_else(|| self.is_listable(folder).then(begun)) else { return Ok(()) };
        let found = self.entries(listing.folder, listing.after, entries, true)?;
        let Some(last) = found.last() else {
            let missing = listing.steady.iter().find(|(name, _)| !listing.seen.contains(name));
            return missing.map_or(Ok(()), |(name, _)| {
                Err(format!("{} was in folder {} all the time and was not listed", shown(name), listing.folder))
            });
        };
        listing.after = last.cookie;
        for entry in found {
            let is_steady = listing.steady.iter().any(|(name, _)| *name == entry.name);
            if !listing.seen.insert(entry.name.clone()) && is_steady {
                return Err(format!("{} is listed twice in folder {}", shown(&entry.name), listing.folder));
            }
        }
        self.listing = Some(listing);
        Ok(())
    }

    /// What the file system is like.
    ///
    /// # Errors
    /// What is refused, does not end, or contradicts itself.
    pub fn portrait(&mut self) -> Result<Portrait, String> {
        let mut hung = None;
        let portrait = Portrait::of(&mut |operation| {
            let clock = time_of_day(self.operations, self.days);
            self.run(clock, operation).unwrap_or_else(|error| {
                hung = Some(error);
                Err(Refusal::Device)
            })
        });
        hung.map_or(portrait, Err)
    }

    /// Compares all of the file system with the model.
    ///
    /// # Errors
    /// How they differ.
    pub fn verify(&mut self) -> Result<Portrait, String> {
        let portrait = self.portrait()?;
        let last = self.states.last().expect("there is a state");
        verdict(&portrait, std::slice::from_ref(last))?;
        Ok(portrait)
    }
}
