//! Stores whose map is on media, with hardly any memory for it.

use openftl_blocks::Ftl;
use openftl_media::Profile;
use openftl_pages::index::Index;
use openftl_pages::{Change, ListBreak, StoreError, StoreRequest, StoreTarget};
use openftl_parts::map::Width;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::target::Durability;
use openftl_parts::{Access, Config, OpenError};
use openftl_sim::damage::area_on_media;
use openftl_sim::page_world::{PageWorld, SESSIONS};
use openftl_sim::played::Played;

/// Pages of a leaf, at most.
const LEAF_PAGES: u32 = 8;

fn memory(budget: MapBudget, policy: CachePolicy) -> MapMemory {
    MapMemory { budget, policy, page: PageSize::of(LEAF_PAGES, Width::Narrow).expect("a leaf of a few pages") }
}

fn config(policy: CachePolicy) -> Config {
    let map_memory = Some(memory(MapBudget::BeyondLeast(1_000), policy));
    Config { checkpoint_log_blocks: Some(8), host_frames: 256, map_memory, ..Config::default() }
}

fn tiny() -> Profile {
    Profile::builtin("tiny").expect("a builtin profile")
}

/// A store with hundreds of pages, far from each other in part.
fn filled(policy: CachePolicy) -> PageWorld {
    let mut world = PageWorld::new(tiny(), config(policy), 60, 7);
    world.page_bytes_max = 2_000;
    for round in 0..90 {
        let session = (round % SESSIONS as u64) as usize;
        world.stage(session, round * 6, 6, round * 3, false);
        world.commit(session, round % 10 == 9);
        world.settle();
    }
    world.sync();
    world.settle();
    world
}

#[test]
fn all_pages_are_found_with_as_little_memory_as_was_asked_for() {
    for policy in CachePolicy::ALL {
        let mut world = filled(*policy);
        let (pages, bytes) = (world.ftl().pages(), world.ftl().map_bytes());
        let MapBudget::BeyondLeast(beyond) = config(*policy).map_memory.expect("it is limited").budget else {
            unreachable!("it is so much beyond the least")
        };
        let slots = world.ftl().block().config().catalog_blocks - 9;
        let most = Index::least_memory(slots, *policy, LEAF_PAGES as usize) + beyond;
        assert!(pages > 250 && bytes <= most, "{pages} pages, {bytes} bytes, {most} at most");
        let before = world.ftl().statistics().0.map_pages_read;
        world.verify_all();
        let read = world.ftl().statistics().0.map_pages_read - before;
        assert!(read > pages / u64::from(LEAF_PAGES) / 2, "{policy}: {read} leaves read for {pages} pages");
        // Reads of the map are none of a host.
        assert!(world.ftl().statistics().0.host_blocks_read < 2 * pages);
        world.clean_restart();
        world.verify_all();
    }
}

/// The store remembers what it was made with, and may be opened with more.
#[test]
fn how_much_of_the_map_is_in_memory_is_chosen_when_a_store_is_made_or_opened() {
    let mut world = filled(CachePolicy::Lru);
    let made_with = world.ftl().map_bytes_max();
    let as_made = Config { map_memory: None, ..world.config.clone() };
    world.next_config = Some(as_made.clone());
    world.clean_restart();
    world.verify_all();
    assert!(made_with.is_some() && world.ftl().map_bytes_max() == made_with);
    let budget = MapBudget::Bytes(1 << 20);
    world.next_config = Some(Config { map_memory: Some(memory(budget, CachePolicy::Clock)), ..as_made.clone() });
    world.clean_restart();
    world.verify_all();
    assert_eq!((world.ftl().statistics().0.map_pages_read, world.ftl().map_bytes_max()), (0, Some(1 << 20)));
    world.close().unwrap();
    world.sessions.clear();
    world.config = Config { map_memory: Some(memory(MapBudget::Bytes(100), CachePolicy::Clock)), ..as_made };
    let Err(OpenError::Tenant { text, is_lost: false }) = world.open(Access::ReadWrite) else { panic!("too little") };
    assert!(text.starts_with("map_memory = 100 bytes: the map of this store takes at least "), "{text}");
}

/// A batch with more pages than there is memory for leaves, deletions and a condition among them.
#[test]
fn a_batch_may_name_more_leaves_than_there_is_memory_for() {
    let mut world = filled(CachePolicy::Clock);
    let (session, known) = (world.sessions[0], world.listed());
    let (wsn, clock) = (world.ftl().last_batch(session).unwrap() + 1, world.clock.0);
    let of_first = known[0].0;
    let version = world.ask(StoreRequest::Stat { lpid: of_first }).unwrap().expect("facts").version;
    for (at, (lpid, _)) in known.iter().enumerate() {
        let bytes = [at as u8; 700];
        let change = if at % 3 == 2 { Change::Delete } else { Change::Put(&[&bytes]) };
        let condition = (at == 0).then_some(version);
        while world.ftl().stage(clock, session, wsn, *lpid, change, condition) == Err(StoreError::Busy) {
            // Time passes, and its leaf is read.
            _ = world.bytes_of(of_first, 1);
        }
    }
    assert_eq!(world.ask(StoreRequest::Commit { session, wsn, durability: Durability::Durable }), Ok(None));
    let left = world.listed();
    assert_eq!(left.len(), known.len() - known.len() / 3);
    assert!(left.iter().all(|(_, bytes)| *bytes == 700));
    for (at, (lpid, _)) in known.iter().enumerate() {
        match world.bytes_of(*lpid, 1) {
            Ok(bytes) => assert!(at % 3 < 2 && bytes == [at as u8; 700]),
            Err(error) => assert_eq!((error, at % 3), (StoreError::NoPage { lpid: *lpid }, 2)),
        }
    }
}

/// The medium loses a leaf while the store is open: pages of others are read, and nothing changes any more.
#[test]
fn a_leaf_that_is_lost_meanwhile_costs_its_own_pages_and_no_others() {
    let mut world = filled(CachePolicy::Clock);
    world.clean_restart();
    let known = world.listed();
    let leaves: Vec<_> = area_on_media(world.ftl().block())[9..].iter().copied().flatten().collect();
    leaves.iter().for_each(|ppa| world.wire.device().corrupt(*ppa).expect("it is written"));
    let results: Vec<_> = known.iter().map(|(lpid, _)| (*lpid, world.bytes_of(*lpid, 1))).collect();
    let lost = results.iter().filter(|(lpid, read)| *read == Err(StoreError::Unrecovered { lpid: *lpid })).count();
    assert!(results.iter().all(|(_, read)| !matches!(read, Err(StoreError::NoPage { .. }))), "lost is not gone");
    // Those that are in memory are not.
    assert!(lost > known.len() / 4, "{lost} of {}", known.len());
    let (session, now) = (world.sessions[0], world.clock.0);
    let wsn = world.ftl().last_batch(session).unwrap() + 1;
    let staged = world.ftl().stage(now, session, wsn, 1, Change::Delete, None);
    assert!(matches!(staged, Err(StoreError::Log(_))), "{staged:?}");
    let mut found = Vec::new();
    let listed = world.ftl().list(0..=u64::MAX, usize::MAX, &mut found);
    assert!(matches!(listed, Err(ListBreak::Lost { .. })), "{listed:?}");
    // It is repaired from the pages themselves.
    world.power_cut_at(openftl_sim::step::Moment::NOW);
    assert!(world.open(Access::ReadWrite).expect_err("its map is lost").is_repairable());
    world.open(Access::Repair).unwrap();
    world.adopt_repaired().unwrap();
    assert_eq!(world.listed(), known);
}
