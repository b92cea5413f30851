//! Stores and Deletes on their way to pages: each is one batch of the store below, and so is there as a whole or not at all. Batches follow each
//! other in one session, so a power cut leaves the first of them.

use crate::asked::{Asked, Deed, Effect, Held, Phase, Plan};
use crate::change::{CHANGE_BYTES, Change};
use crate::directory::Pending;
use crate::drive::ValueFtl;
use crate::error::ValueError;
use crate::ids::{self, SLOTS, extent};
use crate::key::Key;
use crate::record::{RECORD_BYTES, Record, list_bytes};
use crate::request::Facts;
use crate::run::ENTRY_BYTES;
use openftl_core::BLOCK_BYTES;
use openftl_pages::{
    Change as PageChange, GRAIN_BYTES, PAGE_BYTES_MAX, PageFacts, PageFtl, StoreError, StoreRequest, StoreTarget,
    grains_of,
};
use openftl_parts::target::Durability;
use std::ops::RangeInclusive;

/// Pieces of a value in frames, and its record.
const PIECES_MAX: usize = PAGE_BYTES_MAX as usize / BLOCK_BYTES + 2;

/// A change of a page.
pub(crate) enum Step {
    /// It has the value of the request from now on.
    Value(u64),
    /// It has these bytes.
    Bytes(u64, Vec<u8>),
    /// It is there no more.
    Delete(u64),
}

/// A batch that is being staged.
pub(crate) struct Writing {
    at: usize,
    steps: Vec<Step>,
    next: usize,
    facts: Facts,
    effect: Effect,
    grains_new: u64,
}

/// Pages of keys that share a number.
fn extents(number: u64) -> RangeInclusive<u64> {
    extent(number, 0)..=extent(number, SLOTS as u16 - 1)
}

/// Whether it is known how long all pages are that a plan changes.
fn knows_pages(store: &mut PageFtl, number: u64, plan: &Plan) -> bool {
    let (lpid, has_extents) = match plan {
        Plan::New => (number, false),
        Plan::Again { lpid, is_lost } => (*lpid, *is_lost && *lpid == number),
        Plan::Remove { is_lost } => (number, *is_lost),
        Plan::Share { .. } | Plan::Join { .. } | Plan::Leave { .. } => (number, true),
    };
    let knows_extents = !has_extents || store.knows_all(extents(number));
    store.knows([lpid]) && knows_extents
}

fn grains(bytes: usize) -> u64 {
    grains_of(bytes as u32).into()
}

impl ValueFtl {
    /// Goes on with batches that are to be written. Returns whether anything was done.
    pub(crate) fn go_on_writing(&mut self) -> bool {
        let mut has_acted = false;
        loop {
            if self.writing.is_none() {
                let Some(at) = self.to_write.front().copied() else { return has_acted };
                match self.begin_writing(at) {
                    Ok(None) => return has_acted,
                    Ok(Some(writing)) => self.writing = Some(writing),
                    Err(error) => self.end(at, Err(error)),
                }
                self.to_write.pop_front();
                has_acted = true;
                continue;
            }
            match self.stage() {
                Ok(()) => self.commit(),
                Err(StoreError::Busy | StoreError::Early { .. }) => return has_acted,
                // Pages that others replace have not left yet.
                Err(StoreError::NoSpace { .. }) if self.uncommitted > 0 => return has_acted,
                Err(error) => self.give_up_writing(error),
            }
            has_acted = true;
        }
    }

    /// Stages the steps of the batch, as far as there is room now.
    fn stage(&mut self) -> Result<(), StoreError> {
        let writing = self.writing.as_mut().expect("a batch that is staged");
        let (session, wsn) = self.session;
        let asked = self.asked[writing.at].as_ref().expect("a request under way");
        let record = Record::Value(asked.key()).to_bytes();
        while let Some(step) = writing.steps.get(writing.next) {
            let staged = match (step, &asked.deed) {
                (Step::Value(lpid), Deed::Store { value, .. }) => {
                    let mut pieces = [&[][..]; PIECES_MAX];
                    let mut count = 0;
                    for piece in value.pieces(&self.staging).chain([&record[..]]) {
                        (pieces[count], count) = (piece, count + 1);
                    }
                    let pieces = &pieces[..count];
                    self.store.stage(self.now, session, wsn, *lpid, PageChange::Put(pieces), None)
                }
                (Step::Value(_), _) => unreachable!("only Stores have a value"),
                (Step::Bytes(lpid, bytes), _) => {
                    self.store.stage(self.now, session, wsn, *lpid, PageChange::Put(&[&bytes[..]]), None)
                }
                (Step::Delete(lpid), _) => self.store.stage(self.now, session, wsn, *lpid, PageChange::Delete, None),
            };
            staged?;
            writing.next += 1;
        }
        Ok(())
    }

    /// Commits the batch, of which all is staged.
    fn commit(&mut self) {
        let Writing { at, facts, effect, grains_new, .. } = self.writing.take().expect("a batch that is staged");
        let (session, wsn) = self.session;
        let request = StoreRequest::Commit { session, wsn, durability: Durability::Volatile };
        self.asked(at).phase = Phase::Committing { facts, effect };
        if let Err(error) = self.store.submit(self.now, at as u64, request) {
            self.value_grains -= grains_new;
            return self.end(at, Err(error.into()));
        }
        self.session.1 += 1;
        self.uncommitted += 1;
        if let Some((key, pending)) = &effect.change {
            self.uncommitted_changes += 1;
            self.statistics.change_bytes += grains(CHANGE_BYTES) * GRAIN_BYTES as u64;
            if effect.is_counted {
                if pending.is_removed { self.staged.remove(key) } else { self.staged.add(key) }
            }
        }
        // The bytes have been taken.
        let asked = self.asked[at].as_mut().expect("a request under way");
        if let Deed::Store { value, .. } = &mut asked.deed {
            let taken = std::mem::replace(value, Held::Bytes(Vec::new()));
            taken.release(&mut self.staging, &mut self.waiting_bytes);
        }
    }

    /// The batch cannot be written.
    fn give_up_writing(&mut self, error: StoreError) {
        let Writing { at, grains_new, .. } = self.writing.take().expect("a batch that is staged");
        let (session, wsn) = self.session;
        // One that was refused from the beginning is none.
        _ = self.store.abort(self.now, session, wsn);
        self.value_grains -= grains_new;
        let error = match error {
            StoreError::MapFull { .. } => ValueError::KeysExceeded { most: self.count.keys },
            StoreError::NoSpace { .. } => self.exceeded(grains_new),
            error => error.into(),
        };
        self.end(at, Err(error));
    }

    fn exceeded(&self, grains: u64) -> ValueError {
        let bytes = |grains: u64| grains * GRAIN_BYTES as u64;
        let free = self.value_grains_max().saturating_sub(self.value_grains);
        ValueError::CapacityExceeded { needed: bytes(grains), free: bytes(free) }
    }

    /// The batch of a request. `None`: not now.
    fn begin_writing(&mut self, at: usize) -> Result<Option<Writing>, ValueError> {
        let asked = self.asked[at].as_ref().expect("a request under way");
        let Phase::Planned(plan) = &asked.phase else { unreachable!("what is to be written is planned") };
        if !knows_pages(&mut self.store, asked.number(), plan) {
            return Ok(None);
        }
        let is_delete = matches!(plan, Plan::Remove { .. } | Plan::Leave { .. });
        let has_change = !matches!(plan, Plan::Again { is_lost: false, .. });
        if has_change && self.directory.pending() + self.uncommitted_changes >= self.shape.changes_max as usize {
            // The directory takes no more until its changes are merged.
            return match self.merge_error {
                Some(error) if self.merge.is_none() && self.uncommitted == 0 => Err(error),
                _ => Ok(None),
            };
        }
        let is_new = matches!(plan, Plan::New | Plan::Share { .. } | Plan::Join { .. });
        if is_new && self.staged.keys >= self.shape.keys_max {
            return Err(ValueError::KeysExceeded { most: self.shape.keys_max });
        }
        // A key that is deleted needs room in the map, too, and so does a merge.
        let kept = (self.directory.run_keys() + u64::from(self.shape.changes_max)) * ENTRY_BYTES;
        let kept = 16 + kept as usize / self.run_page_bytes();
        if is_new && !self.store.has_room_for(kept) {
            if self.store.makes_map_room() {
                return Ok(None);
            }
            return Err(ValueError::KeysExceeded { most: self.count.keys });
        }
        let lost_extents = match plan {
            Plan::Again { lpid, is_lost: true } if *lpid == asked.number() => self.store.pages_in(extents(*lpid)),
            Plan::Remove { is_lost: true } => self.store.pages_in(extents(asked.number())),
            _ => Vec::new(),
        };
        let (mut steps, mut effect) = self.steps(asked, plan, lost_extents);
        effect.is_counted = is_new || is_delete;
        let bytes = |step: &Step| match step {
            Step::Value(lpid) => Some((*lpid, asked.value_bytes() + RECORD_BYTES)),
            Step::Bytes(lpid, bytes) => Some((*lpid, bytes.len())),
            Step::Delete(_) => None,
        };
        let grains_new: u64 = steps.iter().filter_map(bytes).map(|(_, bytes)| grains(bytes)).sum();
        let lpid = |step: &Step| match step {
            Step::Value(lpid) | Step::Bytes(lpid, _) | Step::Delete(lpid) => *lpid,
        };
        let old = steps.iter().filter_map(|step| self.store.bytes_of(lpid(step))).filter(|bytes| *bytes > 0);
        effect.grains_old = old.map(|bytes| u64::from(grains_of(bytes))).sum();
        if !is_delete && grains_new > effect.grains_old && self.value_grains + grains_new > self.value_grains_max() {
            return Err(self.exceeded(grains_new));
        }
        if has_change {
            let (key, counted) = (asked.key(), self.directory.next_change);
            let mut count = self.staged;
            if effect.is_counted {
                if is_delete { count.remove(&key) } else { count.add(&key) }
            }
            let change = Change { key, is_removed: is_delete, count };
            steps.push(Step::Bytes(ids::change(counted), change.to_bytes().to_vec()));
            // Another change of this key that waits says nothing any more.
            if let Some(older) = self.directory.changes.get(&key) {
                steps.push(Step::Delete(ids::change(older.counted)));
            }
            effect.change = Some((key, Pending { is_removed: is_delete, counted }));
            self.directory.next_change += 1;
        }
        self.value_grains += grains_new;
        let facts = match is_delete {
            true => Facts { bytes: 0, keys: 1 },
            false => Facts { bytes: asked.value_bytes() as u32, keys: is_new.into() },
        };
        Ok(Some(Writing { at, steps, next: 0, facts, effect, grains_new }))
    }

    /// The changes of pages of a plan, and the bytes of values that come and go. Of extents that are lost nobody knows any more whose they are.
    fn steps(&self, asked: &Asked, plan: &Plan, lost_extents: Vec<u64>) -> (Vec<Step>, Effect) {
        let (number, mut effect) = (asked.number(), Effect::default());
        let value_at = |lpid: u64| {
            self.store.bytes_of(lpid).map_or(0, |bytes| u64::from(bytes).saturating_sub(RECORD_BYTES as u64))
        };
        effect.bytes_new = asked.value_bytes() as u64;
        let rewrite = |list: &[(Key, u16)]| match list.is_empty() {
            true => Step::Delete(number),
            false => Step::Bytes(number, list_bytes(list)),
        };
        let steps = match plan {
            Plan::New => vec![Step::Value(number)],
            Plan::Again { lpid, .. } => {
                effect.bytes_old = value_at(*lpid);
                [Step::Value(*lpid)].into_iter().chain(lost_extents.into_iter().map(Step::Delete)).collect()
            }
            Plan::Share { other, value } => {
                let mut page = value.clone();
                page.extend(Record::Value(*other).to_bytes());
                let list = [(*other, 0), (asked.key(), 1)];
                vec![
                    Step::Bytes(extent(number, 0), page),
                    Step::Value(extent(number, 1)),
                    Step::Bytes(number, list_bytes(&list)),
                ]
            }
            Plan::Join { list } => {
                let slot =
                    (0..).find(|slot| list.iter().all(|(_, other)| other != slot)).expect("a list has fewer keys");
                let mut list = list.clone();
                list.push((asked.key(), slot));
                vec![Step::Value(extent(number, slot)), Step::Bytes(number, list_bytes(&list))]
            }
            Plan::Remove { .. } => {
                effect.bytes_old = value_at(number);
                [Step::Delete(number)].into_iter().chain(lost_extents.into_iter().map(Step::Delete)).collect()
            }
            Plan::Leave { list, slot } => {
                effect.bytes_old = value_at(extent(number, *slot));
                let left: Vec<(Key, u16)> = list.iter().filter(|(_, other)| other != slot).copied().collect();
                vec![Step::Delete(extent(number, *slot)), rewrite(&left)]
            }
        };
        (steps, effect)
    }

    /// The batch of a request is committed, or never will be.
    pub(crate) fn committed(
        &mut self,
        at: usize,
        result: Result<Option<PageFacts>, StoreError>,
        facts: Facts,
        effect: Effect,
    ) {
        self.uncommitted -= 1;
        self.uncommitted_changes -= usize::from(effect.change.is_some());
        if let Err(error) = result {
            return self.end(at, Err(error.into()));
        }
        self.value_bytes = (self.value_bytes + effect.bytes_new).saturating_sub(effect.bytes_old);
        self.value_grains = self.value_grains.saturating_sub(effect.grains_old);
        if let Some((key, pending)) = effect.change {
            self.directory.changes.insert(key, pending);
            if effect.is_counted {
                if pending.is_removed { self.count.remove(&key) } else { self.count.add(&key) }
            }
        }
        // What it waits for may be done now.
        self.merge_error = None;
        let asked = self.asked(at);
        let (number, is_change, is_durable) = (asked.number(), asked.is_change(), asked.is_durable);
        asked.has_turn = false;
        self.turns.leave(number, is_change, &mut self.ready);
        if !is_durable {
            return self.end(at, Ok(facts));
        }
        self.asked(at).phase = Phase::Durable { facts };
        if let Err(error) = self.store.submit(self.now, at as u64, StoreRequest::Sync) {
            self.end(at, Err(error.into()));
        }
    }
}

impl Asked {
    /// Bytes of the value that is stored.
    fn value_bytes(&self) -> usize {
        if let Deed::Store { value, .. } = &self.deed { value.bytes() } else { 0 }
    }
}
