//! Random batches through the wire, compared with a map: sessions, conditions, aborts, repeated batches, restarts of the server.

use std::collections::BTreeMap;

use openftl_media::Timing;
use openftl_nvme_pages::RemoteStore;
use openftl_pages::{BlockingStore, Change, Session, StoreError, StoreFailure};
use openftl_parts::Durability;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::support::*;

const SESSIONS: usize = 3;
const LPIDS: u64 = 60;
const BATCHES: u64 = 250;

struct Chance(Xoshiro256PlusPlus);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }
}

type Model = BTreeMap<u64, Vec<u8>>;

fn open_all(store: &mut RemoteStore, committed: &[u64; SESSIONS], all_durable: bool) -> [Session; SESSIONS] {
    std::array::from_fn(|index| {
        let (session, last) = store.open_session(session(index as u8 + 1)).unwrap();
        if all_durable {
            assert_eq!(last, committed[index], "a server that stops makes all durable");
        } else {
            assert!(last <= committed[index]);
        }
        session
    })
}

fn expect_same(store: &mut RemoteStore, model: &Model) {
    let listed: Vec<(u64, u32)> = model.iter().map(|(lpid, bytes)| (*lpid, bytes.len() as u32)).collect();
    assert_eq!(store.list(0, usize::MAX).unwrap(), listed);
    let lpids: Vec<u64> = model.keys().copied().collect();
    for ((lpid, expected), found) in model.iter().zip(store.read_many(&lpids).unwrap()) {
        assert!(found.unwrap() == *expected, "page {lpid}");
    }
}

fn play(seed: u64) {
    let mut chance = Chance(Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut served = Served::new(drive_on("tiny", 96, Timing::Instant));
    let mut store = served.connect();
    let mut committed = [0_u64; SESSIONS];
    let mut sessions = open_all(&mut store, &committed, true);
    let mut model = Model::new();
    let longest = u64::from(store.page_bytes_max());
    for turn in 0..BATCHES {
        let which = chance.below(SESSIONS as u64) as usize;
        let (session, wsn) = (sessions[which], committed[which] + 1);
        let mut expected = model.clone();
        let mut does_hold = true;
        let mut changes: Vec<(u64, Option<Vec<u8>>, Option<u64>)> = Vec::new();
        for _ in 0..1 + chance.below(20) {
            let lpid = chance.below(LPIDS) * 1_000_003;
            let length = 1 + if chance.below(8) == 0 { chance.below(longest) } else { chance.below(300) };
            let put = (chance.below(4) > 0).then(|| bytes_of(lpid, turn, length as usize));
            let if_version = match chance.below(6) {
                // What is there when the batch is staged; all batches are committed one after the other.
                0 => Some(store.stat(lpid).map_or(0, |facts| facts.version)),
                1 => Some(1 << 40),
                _ => None,
            };
            does_hold &= if_version != Some(1 << 40);
            match &put {
                Some(bytes) => _ = expected.insert(lpid, bytes.clone()),
                None => _ = expected.remove(&lpid),
            }
            changes.push((lpid, put, if_version));
        }
        let durability = if chance.below(3) == 0 { Durability::Durable } else { Durability::Volatile };
        let send = |store: &mut RemoteStore| {
            for (lpid, put, if_version) in &changes {
                match put {
                    Some(bytes) => store.stage(session, wsn, *lpid, Change::Put(&[bytes]), *if_version)?,
                    None => store.stage(session, wsn, *lpid, Change::Delete, *if_version)?,
                }
            }
            store.commit(session, wsn, durability)
        };
        match (chance.below(12), does_hold) {
            (0, _) => {
                for (lpid, put, _) in &changes {
                    let bytes = put.as_deref().unwrap_or(b"x");
                    store.stage(session, wsn, *lpid, Change::Put(&[bytes]), None).unwrap();
                }
                store.abort(session, wsn).unwrap();
            }
            (kind, true) => match send(&mut store) {
                Ok(()) => {
                    (model, committed[which]) = (expected, wsn);
                    if kind == 1 {
                        send(&mut store).expect("the same batch again is the same batch");
                    }
                }
                Err(StoreFailure::Refused(StoreError::NoSpace { .. })) => store.abort(session, wsn).unwrap(),
                Err(failure) => panic!("seed {seed}, batch {turn}: {failure}"),
            },
            (_, false) => {
                let refused = send(&mut store);
                let is_condition = matches!(refused, Err(StoreFailure::Refused(StoreError::Condition { .. })));
                let is_full = matches!(refused, Err(StoreFailure::Refused(StoreError::NoSpace { .. })));
                assert!(is_condition || is_full, "seed {seed}, batch {turn}: {refused:?}");
                store.abort(session, wsn).unwrap();
            }
        }
        if chance.below(10) == 0 {
            expect_same(&mut store, &model);
        }
        if chance.below(60) == 0 {
            let drive = served.end();
            served = Served::new(drive);
            store = served.connect();
            sessions = open_all(&mut store, &committed, true);
        }
    }
    expect_same(&mut store, &model);
}

#[test]
fn random_batches_agree_with_a_map() {
    (0..6).for_each(play);
}
