//! What came out, in tables, plots, claims and checks.

use super::{CAPACITY, Case, Cases, FILL, GROUPS, PROFILE, ROOM, SPARES, Scale, System};
use crate::file_load::FileModel;
use crate::{Check, Claim, ExperimentError, Figure, Run};
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_media::Profile;
use openftl_zones::sizing::map_bytes_for;

/// The spare flash by which claims are judged.
const CLAIMED: u32 = SPARES[0];

/// What programs of a kind cost.
type Cost<'a> = &'a dyn Fn(&Case) -> f64;

/// The mean of several ratios, which is one over the mean of their inverses.
fn mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

impl Cases {
    /// Mean over loads of what `system` costs for each of what ALFS costs.
    fn ratio(&self, loads: &[FileModel], system: System, cost: Cost<'_>) -> f64 {
        let of = |system, load| cost(self.of(system, load, FILL, CLAIMED));
        mean(&loads.iter().map(|load| of(system, *load) / of(System::Alfs, *load)).collect::<Vec<_>>())
    }
}

pub(super) fn told(scale: &Scale, cases: &Cases, cpu: Nanos) -> Result<Run, ExperimentError> {
    let mut run = Run::default();
    let chunk = u64::from(cases.blocks_per_chunk) * BLOCK_BYTES as u64;
    run.parameter(
        "NAND",
        format_args!("{PROFILE} with {GROUPS} groups of a die, chunks of {}; the same flash for all", ByteSize(chunk)),
    );
    run.parameter("page FTL", format_args!("{CAPACITY} and its over-provisioning, greedy"));
    run.parameter(
        "segments",
        format_args!("{} each, all that the flash has room for", ByteSize(chunk * u64::from(GROUPS))),
    );
    run.parameter(
        "full",
        format_args!("files have {FILL} % of the {ROOM} that F2FS has for them, unless a table says otherwise"),
    );
    run.parameter(
        "ext4 and F2FS",
        "Linux 6.1, recorded with seed 1 and replayed, 64 requests at a time up to each flush",
    );
    run.tables.push(systems(cases));
    run.tables.push(parts(cases));
    run.tables.push(goals(scale, cases));
    let programs = |case: &Case| case.programs();
    run.plots.push(by_load(
        scale,
        cases,
        "programs",
        "Blocks programmed, for what programs wrote",
        "a block",
        &programs,
    ));
    let speed = |case: &Case| case.speed() / f64::from(1 << 20);
    run.plots.push(by_load(scale, cases, "throughput", "Throughput of programs", "MiB/s", &speed));
    if scale.fills.len() > 1 {
        run.plots.push(by_fill(scale, cases));
    }
    run.claims = claims(scale, cases)?;
    run.checks = checks(scale, cases);
    run.notes = vec![
        "Spare: what the page FTL has beyond its capacity; ALFS has it as free segments. Everything is counted for each block of 4 KiB that \
         programs write to files, and erases for each chunk of them.",
        "The page FTL's recovery is that of the drive: how long Linux takes to mount behind it was not recorded.",
        "Erases follow programs later: where files have much room not every chunk that was programmed is erased yet. Claims count programs.",
        "Recordings have no reads. So those of F2FS's cleaner, and of ext4, take no time here; those of ALFS's cleaner do.",
    ];
    run.total("s of CPU time", cpu.as_secs_f64(), 1);
    Ok(run)
}

fn systems(cases: &Cases) -> Table {
    let mut table = Table::new(
        "amf",
        &[
            ("load", ""),
            ("full", "%"),
            ("spare", "%"),
            ("system", ""),
            ("throughput", "MiB/s"),
            ("file system WAF", ""),
            ("device WAF", ""),
            ("moved by the drive", "a block"),
            ("programs", "a block"),
            ("erases", "a chunk"),
            ("map", "KiB"),
            ("recovery", "ms"),
        ],
    );
    for case in &cases.all {
        let [drive, volume] = case.recovery.map(|span| span.as_secs_f64() * 1e3);
        table.row(vec![
            Cell::Text(case.condition.load.name().to_owned()),
            Cell::Count(case.condition.fill.into()),
            Cell::Count(case.condition.spare.into()),
            Cell::Text(case.condition.system.name().to_owned()),
            Cell::Number(case.speed() / f64::from(1 << 20), 2),
            Cell::Number(case.file_system_waf(), 3),
            Cell::Number(case.device_waf(), 3),
            Cell::Number(case.per_block(case.moved()), 3),
            Cell::Number(case.programs(), 3),
            Cell::Number(cases.erases(case), 3),
            Cell::Number(case.map_bytes as f64 / 1024.0, 1),
            Cell::Number(drive + volume, 1),
        ]);
    }
    table
}

/// What ALFS writes.
fn parts(cases: &Cases) -> Table {
    let columns = [
        ("load", ""),
        ("full", "%"),
        ("spare", "%"),
        ("contents", "a block"),
        ("names", "a block"),
        ("nodes", "a block"),
        ("patches of nodes", "a block"),
        ("map of nodes", "a block"),
        ("summaries", "a block"),
        ("records", "a block"),
        ("moved", "a block"),
        ("syncs", ""),
        ("segments cleaned", ""),
    ];
    let mut table = Table::new("alfs", &columns);
    for (case, alfs) in cases.all.iter().filter_map(|case| Some((case, case.alfs?))) {
        let mut row = vec![
            Cell::Text(case.condition.load.name().to_owned()),
            Cell::Count(case.condition.fill.into()),
            Cell::Count(case.condition.spare.into()),
        ];
        let parts =
            [alfs.data, alfs.names, alfs.nodes, alfs.patches, alfs.map, alfs.summaries, alfs.records, alfs.moved];
        row.extend(parts.map(|blocks| Cell::Number(case.per_block(blocks), 3)));
        row.extend([alfs.syncs, alfs.segments_cleaned].map(Cell::Count));
        table.row(row);
    }
    table
}

fn by_load(
    scale: &Scale,
    cases: &Cases,
    name: &'static str,
    title: &str,
    unit: &'static str,
    figure: Cost<'_>,
) -> Plot {
    let series = System::ALL.map(|system| {
        let of = |load: &FileModel| figure(cases.of(system, *load, FILL, CLAIMED));
        Series::new(system.name(), (1..).zip(scale.loads).map(|(at, load)| (f64::from(at), of(load))).collect())
    });
    let loads = (1..).zip(scale.loads).map(|(at, load): (u32, _)| format!("{at}: {load}"));
    Plot {
        name,
        title: title.to_owned(),
        x: Axis::even("load", ""),
        y: Axis::even(name, unit),
        series: series.into(),
        caption: vec![format!("{}; {FILL} % full, {CLAIMED} % spare.", loads.collect::<Vec<_>>().join(", "))],
    }
}

fn by_fill(scale: &Scale, cases: &Cases) -> Plot {
    let series = System::ALL.map(|system| {
        let fills = if system == System::Alfs { scale.fills } else { scale.recorded_fills };
        let of = |fill: &u32| (f64::from(*fill), cases.of(system, FileModel::Random, *fill, CLAIMED).programs());
        Series::new(system.name(), fills.iter().map(of).collect())
    });
    Plot {
        name: "full",
        title: "Blocks programmed for random writes, by how full file systems are".to_owned(),
        x: Axis::even("full", "%"),
        y: Axis::even("programs", "a block"),
        series: series.into(),
        caption: vec![format!("Of what F2FS has room for. {CLAIMED} % spare.")],
    }
}

fn claims(scale: &Scale, cases: &Cases) -> Result<Vec<Claim>, ExperimentError> {
    let programs = |case: &Case| case.programs();
    let time = |case: &Case| 1.0 / case.speed();
    let lifetime = |system| (cases.ratio(scale.loads, system, &programs) - 1.0) * 100.0;
    let faster = |loads: &[FileModel], system| cases.ratio(loads, system, &time);
    let random = [FileModel::Random];
    let databases: Vec<FileModel> =
        scale.loads.iter().copied().filter(|load| matches!(load, FileModel::Oltp | FileModel::TpcC)).collect();
    let order = |loads: &[FileModel]| {
        let [ext4, f2fs] = [System::Ext4, System::F2fs].map(|system| faster(loads, system));
        vec![
            Figure::above("ALFS against F2FS", " times", 2, 1.0, "more", f2fs),
            Figure::above("ALFS against ext4", " times", 2, 1.0, "more", ext4),
            Figure::above("ext4 against F2FS", " times", 2, 1.0, "more", f2fs / ext4),
        ]
    };
    let profile = Profile::builtin(PROFILE)?;
    let shape = profile.geometry(profile.chunks_per_pu)?;
    let memory = |bytes: u64| map_bytes_for(&shape, shape.pus(), bytes / BLOCK_BYTES as u64) as f64;
    let (half, whole) = (memory(512 << 30), memory(1 << 40));
    let page_map = (1_u64 << 40) as f64 / 1024.0;
    let mib = f64::from(1 << 20);
    let f2fs = cases.of(System::F2fs, FileModel::Random, FILL, CLAIMED);
    Ok(vec![
        Claim::new(
            &["004-3"],
            "Random writes are faster with AMF, and slowest with F2FS on a page FTL.",
            order(&random),
            "F2FS writes into the holes of its segments where free ones run short, so the page FTL gets random writes from it as from \
             ext4, and beside them nodes and what its cleaner moves.",
        ),
        Claim::new(
            &["004-4"],
            "Databases are faster with AMF than with EXT4, and slowest with F2FS.",
            order(&databases),
            "A sync of ALFS writes beside contents a block with the changes of all nodes and a record, and the drive writes nothing for it. \
             Contents that replace others are in a log of their own, so those of the rollback journal leave whole segments when it is removed.",
        ),
        Claim::new(
            &["004-5"],
            "Flash lives 6 % longer than under EXT4, and 37 % longer than under F2FS.",
            vec![
                Figure::effect("longer than under ext4", " %", 0, 6.0, 0.0, lifetime(System::Ext4)),
                Figure::effect("longer than under F2FS", " %", 0, 37.0, 0.0, lifetime(System::F2fs)),
            ],
            "Chunks programmed for what programs write, each of which is erased once, sooner or later; the geometric mean of all loads. How \
             full the paper's systems were, and over which programs its mean goes, is not told.",
        ),
        Claim {
            by_definition: true,
            ..Claim::new(
                &["004-6"],
                "A map of segments takes 4 MB for 512 GB, and 8 MB for 1 TB.",
                vec![
                    Figure::value("512 GiB", " MiB", 2, 4.0, 1.0, half / mib),
                    Figure::value("1 TiB", " MiB", 2, 8.0, 2.0, whole / mib),
                ],
                "Three bytes name a chunk of 128 blocks, where the paper's figures have room for four; and eight for a segment.",
            )
        },
        Claim::new(
            &["004-7"],
            "The controller needs 128 times less DRAM, and performance grows by 80 %.",
            vec![
                Figure::effect("less memory for the map", " times", 0, 128.0, 1.0, page_map / whole),
                Figure::effect("throughput against F2FS", " times", 2, 1.8, 1.0, faster(scale.loads, System::F2fs)),
            ],
            "The first is a property of the erase block. Against what the 80 % are is not told; here it is F2FS, the geometric mean of all \
             loads.",
        ),
        Claim::new(
            &["004-9"],
            "A log on a page FTL is managed twice.",
            vec![
                Figure::above("blocks that F2FS writes, a block", "", 2, 1.0, "more", f2fs.file_system_waf()),
                Figure::above("moved by the FTL below it, a block", "", 2, 0.0, "some", f2fs.per_block(f2fs.moved())),
            ],
            "Random writes. Segments of F2FS and chunks of the FTL are not the same, so both have to move what the other could have left.",
        ),
    ])
}

fn checks(scale: &Scale, cases: &Cases) -> Vec<Check> {
    let alfs: Vec<&Case> = cases.all.iter().filter(|case| case.alfs.is_some()).collect();
    let most = alfs.iter().map(|case| beside(case)).fold(0.0, f64::max);
    let moved = alfs.iter().map(|case| case.per_block(case.moved())).fold(0.0, f64::max);
    let programs = |case: &Case| case.programs();
    let time = |case: &Case| 1.0 / case.speed();
    let random = [FileModel::Random];
    let (fewer, faster) = (cases.ratio(&random, System::F2fs, &programs), cases.ratio(&random, System::F2fs, &time));
    let fullest = *scale.recorded_fills.last().expect("file systems are full somehow");
    let of = |system| cases.of(system, FileModel::Random, fullest, CLAIMED).programs();
    let fewer_when_full = of(System::F2fs) / of(System::Alfs);
    vec![
        Check {
            claim: "The drive programs what ALFS writes, and moves nothing but records of its own.",
            check: "beside what ALFS writes 0.02 blocks for each block of it, and 0.5 for each flush, or fewer; 0.002 moved for a block, or \
                    fewer",
            holds: most <= 1.0 && moved <= 0.002,
            measured: format!("{:.0} % of those blocks at most, {moved:.4} moved", most * 100.0),
            why: "A segment is erased when ALFS trims it, and has nothing in it then. Its record is written when it has chunks, and when it is full \
                  or empty, with two copies of the log with the record's place; otherwise a flush writes nothing.",
        },
        Check {
            claim: "Random writes wear flash less than with F2FS, and are faster.",
            check: "1.1 times as many programs under F2FS or more, also where files have more room; ALFS 1.2 times as fast or more",
            holds: fewer >= 1.1 && fewer_when_full >= 1.1 && faster >= 1.2,
            measured: format!(
                "programs {fewer:.2} times, {fewer_when_full:.2} times where {fullest} % full; {faster:.2} times as fast"
            ),
            why: "All spare flash is in one place, where the cleaner has it, and nothing is moved twice.",
        },
    ]
}

/// What the drive programs beside what ALFS writes, as a share of what it may.
fn beside(case: &Case) -> f64 {
    let written = case.file_system_blocks();
    let more = case.drive.nand_blocks_written().saturating_sub(written);
    more as f64 / (written as f64 * 0.02 + case.drive.host_flushes as f64 * 0.5)
}

/// What was aimed at, and what was reached.
fn goals(scale: &Scale, cases: &Cases) -> Table {
    let columns = [("goal", ""), ("aim", ""), ("reached", ""), ("is reached", "")];
    let mut table = Table::new("goals", &columns);
    let programs = |case: &Case| case.programs();
    let time = |case: &Case| 1.0 / case.speed();
    let mut goal = |goal: &str, aim: f64, reached: f64, is_reached: bool| {
        let is_reached = if is_reached { "yes" } else { "no" };
        let cells = [Cell::Number(aim, 2), Cell::Number(reached, 3), Cell::Text(is_reached.to_owned())];
        table.row([Cell::Text(goal.to_owned())].into_iter().chain(cells).collect());
    };
    for load in scale.loads {
        let waf = cases.of(System::Alfs, *load, FILL, CLAIMED).device_waf();
        goal(&format!("device WAF under ALFS, {load}, at most"), 1.02, waf, waf <= 1.02);
    }
    let [ext4, f2fs] = [System::Ext4, System::F2fs].map(|system| cases.ratio(scale.loads, system, &programs));
    goal("programs of F2FS for one of ALFS, all loads", 1.6, f2fs, f2fs >= 1.6);
    goal("programs of ext4 for one of ALFS, all loads", 1.15, ext4, ext4 >= 1.15);
    let faster = cases.ratio(&[FileModel::Random], System::F2fs, &time);
    goal("throughput of random writes, for F2FS's", 2.0, faster, faster >= 2.0);
    table
}
