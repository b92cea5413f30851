//! What the figures say.

use super::batches::Batches;
use super::collection::{Collection, SKEWED};
use super::transactions::{Transactions, Way};
use super::{COSMOS, Cases, GRANBY, Nand, OVER_PROVISIONING, Scale};
use crate::recorded::{JournalMode, TRANSACTIONS};
use crate::{Check, Claim, Figure, Run};
use openftl_core::Nanos;
use openftl_core::units::ByteSize;
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_parts::VictimPolicy;
use openftl_parts::words::Purpose;

/// Programmed for itself: log, checkpoints and superblocks.
const OF_LOG: [Purpose; 3] = [Purpose::Log, Purpose::Checkpoint, Purpose::Superblock];
/// What may be programmed for transactions, for one byte under ext4 and a write-ahead log: plain, and compressed.
const PLAIN_MAX: f64 = 1.0 / 2.0;
const COMPRESSED_MAX: f64 = 1.0 / 3.0;
/// Commits a second, for those of the better mode on ext4.
const COMMITS_MIN: f64 = 2.0;
/// How far write amplification may be from theory.
const DEVIATION_MAX: f64 = 0.05;
/// How far above theory it may be.
const ABOVE_THEORY_MAX: f64 = 0.02;
/// How much lower it is to be where cleaning knows what changes often.
const LOWER_MIN: f64 = 0.15;

impl Cases {
    fn of(&self, nand: Nand, way: Way) -> &Transactions {
        let is_it = |case: &&Transactions| case.nand == nand && case.way == way;
        self.transactions.iter().find(is_it).expect("every way was measured on each")
    }

    /// NAND bytes of a way, for those of ext4 with a write-ahead log.
    fn for_wal(&self, nand: Nand, way: Way) -> f64 {
        let wal = self.of(nand, Way::Ext4(JournalMode::Wal));
        self.of(nand, way).nand_bytes() as f64 / wal.nand_bytes() as f64
    }

    /// Commits a second of a way, for those of the faster mode of ext4.
    fn faster(&self, nand: Nand, way: Way) -> f64 {
        let of = |mode| self.of(nand, Way::Ext4(mode)).commits_per_second();
        let best = JournalMode::ALL.map(of).into_iter().fold(0.0, f64::max);
        self.of(nand, way).commits_per_second() / best
    }

    fn collected(&self, theta: f64, victim: VictimPolicy) -> &Collection {
        let is_it = |case: &&Collection| case.theta == theta && case.victim == victim;
        self.collection.iter().find(is_it).expect("all of them were measured")
    }

    /// How far the write amplification of pages is from theory.
    fn deviation(&self) -> f64 {
        let uniform = self.collected(0.0, VictimPolicy::Greedy);
        uniform.of_pages / uniform.theory.expect("greedy has a theory") - 1.0
    }

    /// How much lower NAND bytes are than where greedy cleans.
    fn lower(&self, victim: VictimPolicy) -> f64 {
        1.0 - self.collected(SKEWED, victim).of_nand / self.collected(SKEWED, VictimPolicy::Greedy).of_nand
    }

    fn by_host(&self) -> &Batches {
        &self.batches[0]
    }

    fn by_drive(&self) -> &Batches {
        &self.batches[1]
    }
}

pub(super) fn told(scale: &Scale, cases: &Cases, cpu: Nanos) -> Run {
    let mut run = Run::default();
    run.parameter(
        "transactions",
        format_args!(
            "{} for the host and {} beyond it, {} of other data, overwritten once at random; {TRANSACTIONS} transactions of SQLite, one after \
             the other",
            scale.capacity,
            ByteSize(OVER_PROVISIONING.of(scale.capacity.0)),
            scale.ballast
        ),
    );
    run.parameter(
        "ext4",
        "Linux 6.1, a disk of 128 MiB, mounted with discard; recorded and replayed, 64 requests up to each flush",
    );
    run.parameter(
        "batches",
        format_args!(
            "{} of pages of 256 to 4000 bytes, 85 % full, Zipf 0.99; {}",
            ByteSize(scale.batch_bytes.into()),
            scale.batch_capacity
        ),
    );
    run.parameter("collection", format_args!("pages of 2 KiB on a full store of {}, 64 a batch", scale.collected));
    run.tables = vec![transactions(cases), programmed(cases), batches(cases), collection(cases), goals(cases)];
    run.plots = vec![plot(cases, "transactions", "NAND bytes for each byte of rows that changed", "bytes", |case| {
        case.nand_bytes() as f64 / case.changed_bytes as f64
    })];
    run.plots.push(plot(cases, "commits", "Commits a second", "commits/s", Transactions::commits_per_second));
    run.claims = vec![claim(cases)];
    run.checks = checks(cases);
    if scale.is_steady {
        run.checks.extend(checks_of_collection(cases));
    }
    run.notes = vec![
        "A byte that changed: texts of the rows that a transaction changes and adds, and 8 bytes for each number. One host waits for each \
         transaction; software, kernel and link take no time, on either side.",
        "Recordings have no reads, on either side. Recovery is that of the drive behind a power cut after the last transaction: how long Linux \
         takes to replay its journal, and SQLite its log, comes on top and was not recorded.",
        "The host that cleans keeps its map in memory and writes nothing for its recovery. It has all of the flash but 7 % as segments; what the \
         page FTL below still moves, as chunks and segments do not coincide, is in a column of its own. Reads of pages by programs are the same for both, and not counted.",
        "CPU times are of this machine. They are those of the measured batches: the host's is gathering and cleaning, the drive's is the FTL and \
         the emulated device.",
    ];
    run.total("s of CPU time", cpu.as_secs_f64(), 1);
    for (batches, [host, drive]) in cases
        .batches
        .iter()
        .zip([["s of the host that cleans", "s of the block drive below it"], ["s of the host of ELEOS", "s of ELEOS"]])
    {
        run.total(host, batches.cpu[0].as_secs_f64(), 2);
        run.total(drive, batches.cpu[1].as_secs_f64(), 2);
    }
    run
}

fn transactions(cases: &Cases) -> Table {
    let columns = [
        ("NAND", ""),
        ("way", ""),
        ("to the drive", "MB"),
        ("programmed", "MB"),
        ("programmed", "bytes/byte"),
        ("of ext4 with WAL", ""),
        ("commits", "1/s"),
        ("p50", "ms"),
        ("p99", "ms"),
        ("recovery", "ms"),
    ];
    let mut table = Table::new("transactions", &columns);
    for case in &cases.transactions {
        table.row(vec![
            Cell::Text(case.nand.profile.to_owned()),
            Cell::Text(case.way.name()),
            Cell::Number(case.host_bytes as f64 / 1e6, 2),
            Cell::Number(case.nand_bytes() as f64 / 1e6, 2),
            Cell::Number(case.nand_bytes() as f64 / case.changed_bytes as f64, 0),
            Cell::Number(cases.for_wal(case.nand, case.way), 3),
            Cell::Number(case.commits_per_second(), 0),
            Cell::Number(case.milliseconds(0.5), 2),
            Cell::Number(case.milliseconds(0.99), 2),
            Cell::Number(case.recovery.as_secs_f64() * 1e3, 1),
        ]);
    }
    table
}

/// For what blocks were programmed.
fn programmed(cases: &Cases) -> Table {
    let columns = [
        ("NAND", ""),
        ("way", ""),
        ("host or map", "bytes/byte"),
        ("pages", "bytes/byte"),
        ("headers and slack", "bytes/byte"),
        ("moved", "bytes/byte"),
        ("log", "bytes/byte"),
        ("padding", "bytes/byte"),
        ("flushes", ""),
    ];
    let mut table = Table::new("programmed", &columns);
    for case in &cases.transactions {
        let shares = [
            &[Purpose::Data, Purpose::Map][..],
            &[Purpose::Tenant],
            &[Purpose::Header, Purpose::Slack],
            &[Purpose::Relocation],
            &OF_LOG,
            &[Purpose::Padding],
        ];
        let shares = shares.map(|purposes| Cell::Number(case.of_purposes(purposes), 1));
        let names = [Cell::Text(case.nand.profile.to_owned()), Cell::Text(case.way.name())];
        table.row(names.into_iter().chain(shares).chain([Cell::Count(case.drive.host_flushes)]).collect());
    }
    table
}

fn batches(cases: &Cases) -> Table {
    let columns = [
        ("cleaned by", ""),
        ("pages", ""),
        ("batches", ""),
        ("full", "%"),
        ("over the link", "bytes/byte"),
        ("written", "bytes/byte"),
        ("read", "bytes/byte"),
        ("moved", "bytes/byte"),
        ("moved below", "bytes/byte"),
        ("programmed", "bytes/byte"),
        ("throughput", "MiB/s"),
    ];
    let mut table = Table::new("batches", &columns);
    for case in &cases.batches {
        table.row(vec![
            Cell::Text(case.name.to_owned()),
            Cell::Count(case.pages),
            Cell::Count(case.batches),
            Cell::Number(case.utilisation * 100.0, 1),
            Cell::Number(case.link(), 3),
            Cell::Number(case.per_byte(case.written), 3),
            Cell::Number(case.per_byte(case.read), 3),
            Cell::Number(case.per_byte(case.moved), 3),
            Cell::Number(case.per_byte(case.moved_below), 3),
            Cell::Number(case.per_byte(case.nand_bytes), 3),
            Cell::Number(case.speed(), 1),
        ]);
    }
    table
}

fn collection(cases: &Cases) -> Table {
    let columns =
        [("Zipf", ""), ("policy", ""), ("spare", "%"), ("WAF of pages", ""), ("theory", ""), ("NAND", "bytes/byte")];
    let mut table = Table::new("collection", &columns);
    for case in &cases.collection {
        table.row(vec![
            Cell::Number(case.theta, 2),
            Cell::Text(case.victim.to_string()),
            Cell::Number(case.spare * 100.0, 1),
            Cell::Number(case.of_pages, 3),
            case.theory.map_or(Cell::Text("none".to_owned()), |theory| Cell::Number(theory, 3)),
            Cell::Number(case.of_nand, 3),
        ]);
    }
    table
}

/// A figure of each way, by NAND.
fn plot(
    cases: &Cases,
    name: &'static str,
    title: &str,
    unit: &'static str,
    figure: impl Fn(&Transactions) -> f64,
) -> Plot {
    let ways = Way::all();
    let nands = [COSMOS, GRANBY].into_iter().filter(|nand| cases.transactions.iter().any(|case| case.nand == *nand));
    let series = nands.map(|nand| {
        let points = (1..).zip(&ways).map(|(at, way): (u32, _)| (f64::from(at), figure(cases.of(nand, *way))));
        Series::new(nand.profile, points.collect())
    });
    let names: Vec<String> = (1..).zip(&ways).map(|(at, way): (u32, _)| format!("{at}: {}", way.name())).collect();
    Plot {
        name,
        title: title.to_owned(),
        x: Axis::even("way", ""),
        y: Axis::even(name, unit),
        series: series.collect(),
        caption: vec![format!("{}.", names.join(", "))],
    }
}

fn claim(cases: &Cases) -> Claim {
    let (host, drive) = (cases.by_host(), cases.by_drive());
    Claim::new(
        &["000-29"],
        "A drive that takes buffers of pages of any size leaves hosts less to do.",
        vec![
            Figure::above(
                "bytes over the link, where the host cleans",
                " times",
                2,
                1.0,
                "more",
                host.link() / drive.link(),
            ),
            Figure::above("bytes that the host copies, a byte put", "", 2, 0.0, "some", host.per_byte(host.moved)),
        ],
        "The paper has no figures. A host that cleans reads what is live and writes it again, over the link. CPU times of both ends are among the totals.",
    )
}

fn checks(cases: &Cases) -> Vec<Check> {
    let (plain, compressed) = (Way::compressed_by("none"), [Way::compressed_by("lz4"), Way::compressed_by("zstd")]);
    let ratios =
        [cases.for_wal(COSMOS, plain), cases.for_wal(COSMOS, compressed[0]), cases.for_wal(COSMOS, compressed[1])];
    let (host, drive) = (cases.by_host(), cases.by_drive());
    vec![
        Check {
            claim: "Small transactions of SQLite wear flash less than on ext4 with a write-ahead log.",
            check: "half of what is programmed, a third with compression, on cosmos",
            holds: ratios[0] <= PLAIN_MAX && ratios[1] <= COMPRESSED_MAX && ratios[2] <= COMPRESSED_MAX,
            measured: format!("{:.2}, with LZ4 {:.2}, with Zstandard {:.2}", ratios[0], ratios[1], ratios[2]),
            why: "There is no journal, neither of the database nor of a file system, and one flush for each transaction.",
        },
        Check {
            claim: "Only what programs put crosses the link to a drive that cleans by itself.",
            check: "at most 1.02 bytes for each byte of pages, and more where the host cleans",
            holds: drive.link() <= 1.02 && host.link() > drive.link(),
            measured: format!("{:.3}, and {:.3} where the host cleans", drive.link(), host.link()),
            why: "A directory of 16 bytes for a page is all that goes with them.",
        },
    ]
}

fn checks_of_collection(cases: &Cases) -> Vec<Check> {
    vec![
        Check {
            claim: "Cleaning pages costs no more than theory says of the spare bytes.",
            check: "at most 2% above the theory of greedy, for pages of 2 KiB that are put uniformly",
            holds: cases.deviation() <= ABOVE_THEORY_MAX,
            measured: format!("{:+.1}%", cases.deviation() * 100.0),
            why: "Victims are chosen by live bytes, and pages are alike. Theory has no chunks that are open or kept for what moves; while they \
                  are empty they are spare, too.",
        },
        Check {
            claim: "Knowing what changes often saves flash where few pages are popular.",
            check: "minimum declining cost programs 15% less than greedy, Zipf 0.99",
            holds: cases.lower(VictimPolicy::MinimumDecliningCost) >= LOWER_MIN,
            measured: format!("{:.1}% less", cases.lower(VictimPolicy::MinimumDecliningCost) * 100.0),
            why: "What is moved is written apart by how often it changes, and a chunk waits until it has lost most of what it will lose.",
        },
    ]
}

/// What was aimed at, and what was reached.
fn goals(cases: &Cases) -> Table {
    let columns = [("goal", ""), ("aim", ""), ("reached", ""), ("is reached", "")];
    let mut table = Table::new("goals", &columns);
    let mut goal = |goal: String, aim: f64, reached: f64, is_reached: bool| {
        let is_reached = if is_reached { "yes" } else { "no" };
        let cells = [Cell::Number(aim, 2), Cell::Number(reached, 3), Cell::Text(is_reached.to_owned())];
        table.row([Cell::Text(goal)].into_iter().chain(cells).collect());
    };
    let plain = Way::compressed_by("none");
    let ways =
        [(plain, PLAIN_MAX), (Way::compressed_by("lz4"), COMPRESSED_MAX), (Way::compressed_by("zstd"), COMPRESSED_MAX)];
    let nands = [COSMOS, GRANBY].into_iter().filter(|nand| cases.transactions.iter().any(|case| case.nand == *nand));
    for nand in nands {
        for (way, most) in ways {
            let reached = cases.for_wal(nand, way);
            goal(
                format!("NAND bytes for those of ext4 with WAL, {}, {}, at most", way.name(), nand.profile),
                most,
                reached,
                reached <= most,
            );
        }
        for (way, _) in ways {
            let reached = cases.faster(nand, way);
            goal(
                format!("commits a second for the faster mode of ext4, {}, {}", way.name(), nand.profile),
                COMMITS_MIN,
                reached,
                reached >= COMMITS_MIN,
            );
        }
    }
    let deviation = cases.deviation().abs();
    goal(
        "WAF of pages of 2 KiB, away from theory, at most".to_owned(),
        DEVIATION_MAX,
        deviation,
        deviation <= DEVIATION_MAX,
    );
    let lower = cases.lower(VictimPolicy::MinimumDecliningCost);
    goal("NAND bytes lower by minimum declining cost, Zipf 0.99".to_owned(), LOWER_MIN, lower, lower >= LOWER_MIN);
    table
}
