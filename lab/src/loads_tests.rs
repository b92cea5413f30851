//! Every model against what it promises: which blocks it may write, when, and how many of them live at a time.

use super::*;
use crate::load::Load;
use crate::load_spec::LoadSpec;
use openftl_parts::target::Extent;

/// Blocks of the drives: a small one, and one where nothing is a power of two.
const DRIVES: [u64; 3] = [4096, 50_021, 262_144];

const STEPS: u64 = 400_000;

fn build(spec: &str, drive_blocks: u64, seed: u64) -> Box<dyn Load> {
    let spec: LoadSpec = spec.parse().unwrap_or_else(|error| panic!("{spec}: {error}"));
    let mut none = |_: &str| Err(std::io::Error::other("no trace"));
    spec.build(drive_blocks, None, seed, &mut none).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// What a drive would know of the blocks of a load.
struct Watched {
    live: Vec<bool>,
    /// The object of each block, if it is part of one that is announced.
    object: Vec<u32>,
    live_blocks: u64,
    live_blocks_max: u64,
    written: Vec<u64>,
    trimmed: u64,
    flushes: u64,
    reads: u64,
    objects: u64,
    /// Objects of several extents.
    fragmented: u64,
}

impl Watched {
    fn new(drive_blocks: u64, kinds: usize) -> Watched {
        Watched {
            live: vec![false; drive_blocks as usize],
            object: vec![0; drive_blocks as usize],
            live_blocks: 0,
            live_blocks_max: 0,
            written: vec![0; kinds],
            trimmed: 0,
            flushes: 0,
            reads: 0,
            objects: 0,
            fragmented: 0,
        }
    }

    /// Takes one step of `load`; `once` if blocks of objects are written once between their announcement and their trim.
    fn take(&mut self, access: Access, load: &dyn Load, once: bool) {
        let blocks_max = load.access_blocks_max();
        if access.operation == Operation::Allocate {
            self.announce(access, load.extents(), once);
            return;
        }
        let range = access.first as usize..access.first as usize + access.blocks as usize;
        assert!(range.end <= self.live.len(), "{access:?} is beyond the drive");
        assert!(access.operation == Operation::Flush || access.blocks > 0, "{access:?} means no block");
        match access.operation {
            Operation::Write => {
                assert!(access.blocks <= blocks_max, "{access:?} is too long");
                self.written[usize::from(access.hint.kind)] += u64::from(access.blocks);
                for block in range {
                    if once {
                        assert!(!self.live[block], "{access:?} overwrites what lives");
                        assert_eq!(self.object[block], access.hint.object, "{access:?} is not of this object");
                    }
                    self.live_blocks += u64::from(!std::mem::replace(&mut self.live[block], true));
                }
                self.live_blocks_max = self.live_blocks_max.max(self.live_blocks);
            }
            Operation::Trim => {
                for block in range {
                    self.live_blocks -= u64::from(std::mem::replace(&mut self.live[block], false));
                    self.object[block] = 0;
                }
                self.trimmed += u64::from(access.blocks);
            }
            Operation::Allocate => unreachable!("told above"),
            Operation::Read => {
                assert!(access.blocks <= blocks_max && self.live[range].iter().all(|live| *live), "{access:?}");
                self.reads += 1;
            }
            Operation::Flush => self.flushes += 1,
        }
    }

    fn announce(&mut self, access: Access, extents: Vec<Extent>, once: bool) {
        assert_ne!(access.hint.object, 0, "an object has a number");
        self.objects += 1;
        let whole = vec![Extent { first: access.first, blocks: u64::from(access.blocks) }];
        let extents = if extents.is_empty() { whole } else { extents };
        self.fragmented += u64::from(extents.len() > 1);
        assert_eq!(extents.iter().map(|extent| extent.blocks).sum::<u64>(), u64::from(access.blocks), "{extents:?}");
        for block in extents.iter().flat_map(|extent| extent.first as usize..extent.end() as usize) {
            assert!(!once || !self.live[block], "{access:?} announces what lives");
            self.object[block] = access.hint.object;
        }
    }
}

/// Fills a drive and goes on for `STEPS` steps.
fn watched(spec: &str, drive_blocks: u64, once: bool) -> Watched {
    let mut load = build(spec, drive_blocks, 1);
    let mut watched = Watched::new(drive_blocks, load.kinds().len());
    while let Some(access) = load.fill_step() {
        watched.take(access, &*load, once);
    }
    for _ in 0..STEPS {
        let access = load.step().expect("these loads have no end");
        watched.take(access, &*load, once);
    }
    let most = load.live_blocks_max();
    assert!(most <= drive_blocks, "{spec}");
    assert!(watched.live_blocks_max <= most, "{spec} on {drive_blocks}: {} of {most} live", watched.live_blocks_max);
    assert!(watched.written.iter().all(|blocks| *blocks > 0), "{spec} on {drive_blocks}: {:?}", watched.written);
    watched
}

#[test]
fn objects_are_written_once_between_their_announcement_and_their_trim() {
    for drive in DRIVES {
        for spec in [
            "writers:8",
            "writers:1",
            "lsm:4",
            "lsm:1",
            "lsm:2,trees=2,log=no",
            "log-structured-fs",
            "segments:4",
            "segments:1,segment=128KiB,reads=20%",
            "tenants:writers:3*2",
        ] {
            if drive < 2 * 4096 && spec.starts_with("tenants") {
                continue;
            }
            let watched = watched(spec, drive, true);
            assert!(watched.objects > 10 && watched.trimmed > drive, "{spec} on {drive}");
        }
    }
}

#[test]
fn the_same_seed_takes_the_same_steps_and_another_one_others() {
    let loads = [
        "writers",
        "lsm",
        "lsm:4,trees=3,discard=no",
        "log-structured-fs",
        "segments:3,reads=10%",
        "double-write,reads=20%",
        "tenants:lsm*2+double-write",
        "zipf",
    ];
    for spec in loads {
        let steps = |seed| {
            let mut load = build(spec, 50_000, seed);
            let filled: Vec<Access> = std::iter::from_fn(|| load.fill_step()).collect();
            (filled, (0..10_000).map(|_| load.step()).collect::<Vec<_>>())
        };
        assert_eq!(steps(1), steps(1), "{spec}");
        assert_ne!(steps(1).1, steps(2).1, "{spec}");
    }
}

#[test]
fn a_fill_decides_how_much_lives() {
    for spec in ["writers:8", "lsm:4", "double-write"] {
        let live = |fill: u64| {
            let watched = watched(&format!("{spec},fill={fill}%"), 262_144, false);
            assert!(watched.live_blocks_max * 100 <= 262_144 * fill, "{spec},fill={fill}%");
            watched.live_blocks_max
        };
        assert!(live(90) * 100 > live(50) * 150, "{spec}: {} and {}", live(90), live(50));
    }
}

#[test]
fn a_double_write_database_writes_half_to_its_buffer_and_flushes_twice_a_batch() {
    for drive in DRIVES {
        let watched = watched("double-write", drive, false);
        let [buffer, pages] = watched.written[..] else { panic!("two kinds") };
        // The fill writes the pages once.
        let pages = pages - drive * 85 / 100;
        assert!(buffer.abs_diff(pages) < drive / 32 + 1024, "{buffer} and {pages}");
        assert!(watched.flushes > 100 && watched.objects > 10 && watched.trimmed == 0);
    }
}

#[test]
fn a_share_of_the_steps_reads() {
    let reads = watched("double-write,reads=30%", 50_000, false).reads;
    assert!((STEPS * 29 / 100..STEPS * 31 / 100).contains(&reads), "{reads}");
}

#[test]
fn an_lsm_tree_writes_several_tables_at_a_time() {
    let mut load = build("lsm:4", 262_144, 1);
    while load.fill_step().is_some() {}
    let mut writing = std::collections::BTreeMap::new();
    let mut most = 0;
    for _ in 0..STEPS {
        let access = load.step().unwrap();
        match access.operation {
            Operation::Allocate => _ = writing.insert(access.hint.object, access.blocks),
            Operation::Write => {
                let left = writing.get_mut(&access.hint.object).expect("only announced objects are written");
                *left -= access.blocks;
                if *left == 0 {
                    writing.remove(&access.hint.object);
                }
            }
            _ => {}
        }
        most = most.max(writing.len());
    }
    // Four compactions, a flush and the log.
    assert_eq!(most, 6);
}

#[test]
fn files_of_trees_are_in_fragments_and_are_overwritten_in_place_where_they_are_not_trimmed() {
    let trimmed = watched("lsm:4,trees=4", 262_144, true);
    assert!(trimmed.fragmented * 50 > trimmed.objects, "{} of {} files", trimmed.fragmented, trimmed.objects);
    assert!(trimmed.live_blocks_max * 100 > 262_144 * 90, "{} live", trimmed.live_blocks_max);
    let left = watched("lsm:4,trees=4,discard=no", 262_144, false);
    assert_eq!((left.trimmed, left.live_blocks_max), (0, 262_144));
}

#[test]
fn data_of_later_writers_live_longer() {
    let mut load = build("writers:4", 262_144, 1);
    while load.fill_step().is_some() {}
    let (mut made, mut lifetimes, mut written) = (std::collections::BTreeMap::new(), vec![Vec::new(); 4], 0u64);
    for _ in 0..STEPS {
        let access = load.step().unwrap();
        match access.operation {
            Operation::Allocate => _ = made.insert(access.hint.object, written),
            Operation::Write => written += u64::from(access.blocks),
            Operation::Trim => {
                if let Some(made) = made.remove(&access.hint.object) {
                    lifetimes[usize::from(access.hint.kind)].push(written - made);
                }
            }
            _ => {}
        }
    }
    let means: Vec<u64> = lifetimes.iter().map(|all| all.iter().sum::<u64>() / all.len() as u64).collect();
    assert!(means.is_sorted() && means[3] > 3 * means[0], "{means:?}");
}

#[test]
fn tenants_keep_to_their_part() {
    let part = 20_000;
    let mut load = build("tenants:uniform+lsm+double-write", 3 * part, 1);
    assert_eq!(load.kinds().first().map(String::as_str), Some("1 uniform: data"));
    let kinds: Vec<u64> = load.kinds().iter().map(|kind| kind[..1].parse::<u64>().unwrap() - 1).collect();
    for _ in 0..STEPS {
        let Some(access) = load.fill_step().or_else(|| load.step()) else { panic!("no end") };
        let mut extents = if access.operation == Operation::Allocate { load.extents() } else { Vec::new() };
        if extents.is_empty() {
            extents.push(Extent { first: access.first, blocks: u64::from(access.blocks) });
        }
        if access.operation != Operation::Flush {
            let tenant = access.first / part;
            assert!(
                extents.iter().all(|extent| (extent.first / part, (extent.end() - 1) / part) == (tenant, tenant)),
                "{access:?}"
            );
            if access.operation == Operation::Write {
                assert_eq!(kinds[usize::from(access.hint.kind)], tenant, "{access:?}");
            }
        }
    }
}

#[test]
fn an_lsm_tree_never_runs_out_of_room_whatever_its_size() {
    for drive in [4096, 50_021, 1 << 20, 1 << 24] {
        for options in [
            "1,fill=20%",
            "1",
            "4,fill=40%",
            "16,fill=85%",
            "4,trees=4,log=no",
            "2,trees=3,fill=60%",
            "4,trees=4,discard=no",
        ] {
            let mut load = build(&format!("lsm:{options}"), drive, 3);
            while load.fill_step().is_some() {}
            for _ in 0..STEPS {
                assert!(load.step().is_some());
            }
        }
    }
}

/// What a drive of segments would refuse.
#[test]
fn loads_of_segments_write_each_from_its_first_block_to_its_last_and_trim_it_as_a_whole() {
    // Neither segments nor accesses are powers of two in all of them.
    for (spec, segment, segments) in [
        ("segments:4,reads=30%", 96, 50),
        ("segments:1,access=1MiB", 640, 41),
        ("segments:3,ends=any,reads=10%", 128, 30),
        ("log-structured-fs", 96, 60),
        ("log-structured-fs,access=12KiB,fill=60%", 300, 200),
    ] {
        let spec: LoadSpec = spec.parse().unwrap();
        let mut none = |_: &str| Err(std::io::Error::other("no trace"));
        let mut load = spec.build(segment * segments, Some(segment), 3, &mut none).unwrap();
        let mut written = vec![0; segments as usize];
        let (mut filling, mut full, mut trimmed) = (true, 0, 0);
        for _ in 0..STEPS {
            let access = match filling.then(|| load.fill_step()).flatten() {
                Some(access) => access,
                None => {
                    filling = false;
                    load.step().unwrap()
                }
            };
            let (at, first) = ((access.first / segment) as usize, access.first % segment);
            match access.operation {
                Operation::Write => {
                    assert_eq!(first, written[at], "{spec}: {access:?}");
                    written[at] += u64::from(access.blocks);
                    assert!(written[at] <= segment, "{spec}: {access:?}");
                    full += u64::from(written[at] == segment);
                }
                Operation::Trim => {
                    assert_eq!(
                        (first, u64::from(access.blocks), written[at]),
                        (0, segment, segment),
                        "{spec}: {access:?}"
                    );
                    written[at] = 0;
                    trimmed += 1;
                }
                Operation::Read => assert!(first + u64::from(access.blocks) <= written[at], "{spec}: {access:?}"),
                Operation::Allocate | Operation::Flush => {}
            }
            let open = written.iter().filter(|written| (1..segment).contains(*written)).count();
            assert!(open <= 5, "{spec}: {open} segments are written in part");
        }
        assert!(full > 2 * segments && trimmed > segments, "{spec}: {full} segments were filled, {trimmed} trimmed");
    }
}

#[test]
fn loads_for_segments_are_told_what_a_drive_cannot_do() {
    let refused = |text: &str, blocks, segment| {
        let spec: LoadSpec = text.parse().unwrap();
        let mut none = |_: &str| Err(std::io::Error::other("no trace"));
        spec.build(blocks, segment, 1, &mut none).err().expect(text).to_string()
    };
    for (text, blocks, segment, words) in [
        ("uniform", 65_536, Some(4096), "uniform overwrites blocks"),
        ("segments,segment=1MiB", 65_536, Some(4096), "the drive has segments of 16 MiB"),
        ("segments:9", 16 * 4096, Some(4096), "segments:9 needs 304 MiB at least, and has 256 MiB"),
        ("log-structured-fs", 40 * 4096, Some(4096), "needs 656 MiB at least"),
        ("log-structured-fs,access=12KiB", 100 * 4096, Some(4096), "no multiple of an access, 12 KiB"),
    ] {
        let found = refused(text, blocks, segment);
        assert!(found.contains(words), "{text}: {found}");
    }
}
