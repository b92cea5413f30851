//! What follows from it: the claims of the paper, and checks of ours.

use super::measured::{Churn, FILL, Kind, Measured, RANDOM, SEQUENTIAL, drive_amplification, kib_from_media};
use crate::rocksdb::Bench;
use crate::stack::Stack;
use openftl_experiments::{Check, Claim, Figure};
use openftl_tables::TablePlacement;

/// What the paper's interface moves for a read: a write unit.
const PAPER_READ_KIB: f64 = 96.0;
/// By-load may be so far behind the better of the others.
const BY_LOAD_MIN: f64 = 0.9;
/// What a clock is worth: rates nearer to each other than this share are the same.
const CLOCK: f64 = 0.03;
const WAF_MAX: f64 = 1.02;
/// By-load may be so far behind ext4.
const BESIDE_EXT4_MIN: f64 = 0.9;

/// What was measured, for the findings about placements.
pub struct Cells<'a> {
    pub measured: &'a [Measured],
    pub threads: &'a [usize],
}

impl Cells<'_> {
    fn rate(&self, stack: Stack, threads: usize, kind: Kind) -> Option<f64> {
        let found = self.measured.iter().find(|cell| cell.stack == stack && cell.threads == threads);
        found.map(|cell| cell.rate(kind))
    }

    fn rates(&self, threads: usize, kind: Kind) -> [f64; 3] {
        Stack::TABLES.map(|stack| self.rate(stack, threads, kind).unwrap_or(f64::NAN))
    }

    /// `1, 2, 4`.
    fn each_thread(&self) -> String {
        self.threads.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
    }

    /// How many times as fast horizontal placement is as vertical.
    fn ratio(&self, threads: usize, kind: Kind) -> f64 {
        let [horizontal, vertical, _] = self.rates(threads, kind);
        horizontal / vertical
    }

    /// The least and the greatest of a figure over all numbers of threads and both kinds of reads.
    fn of_reads(&self, figure: impl Fn(usize, Kind) -> f64) -> [f64; 2] {
        let all =
            [SEQUENTIAL, RANDOM].into_iter().flat_map(|kind| self.threads.iter().map(move |threads| (*threads, kind)));
        all.map(|(threads, kind)| figure(threads, kind))
            .fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], one| [least.min(one), most.max(one)])
    }

    /// What the paper's Figure 5 says. Of numbers of threads that were not measured, nothing.
    pub fn claims(&self, most: usize) -> Vec<Claim> {
        let [horizontal, vertical] = [0, 1].map(|stack: usize| move |threads: usize| self.rates(threads, FILL)[stack]);
        let others = || self.threads.iter().copied().filter(|threads| *threads != 2);
        let [least_of_reads, most_of_reads] = self.of_reads(|threads, kind| self.ratio(threads, kind));
        let mut claims = vec![
            Claim::new(
                &["000-15"],
                "With one thread fill-sequential is 4 times as fast with horizontal placement as with vertical.",
                vec![Figure::effect("horizontal against vertical", " times", 1, 4.0, 1.0, self.ratio(1, FILL))],
                "One thread fills one table after the other: vertical gives it the four dies of a group at a time, horizontal all 32. \
                 The first write buffers cost nothing with either.",
            ),
            Claim::new(
                &["000-16"],
                "With eight threads vertical is twice as fast as horizontal.",
                vec![Figure::effect(
                    format!("vertical against horizontal, {most} threads"),
                    " times",
                    2,
                    2.0,
                    1.0,
                    1.0 / self.ratio(most, FILL),
                )],
                "A die programs one unit after the other, whichever table it is of: tables that share all dies lose nothing that \
                 tables on groups of their own would have. The paper calls it unexpected, and names no reason.",
            ),
            Claim::new(
                &["000-12"],
                "Horizontal fill-sequential is best with two threads.",
                others()
                    .map(|threads| {
                        let ratio = horizontal(2) / horizontal(threads);
                        Figure::above(format!("two against {threads}"), " times", 2, 1.0 + CLOCK, "best", ratio)
                    })
                    .collect(),
                "Two threads keep the dies busy while one waits; more of them write the same keys again, and compactions follow.",
            ),
        ];
        let lost = |threads: usize| (1.0 - horizontal(threads) / horizontal(2)) * 100.0;
        let many: Vec<usize> = self.threads.iter().copied().filter(|threads| *threads > 2).collect();
        if !many.is_empty() {
            claims.push(Claim::new(
                &["000-13"],
                "Horizontal fill-sequential loses 60 % with four or eight threads.",
                many.iter().map(|threads| Figure::effect(format!("{threads} threads"), " %", 0, 60.0, 0.0, lost(*threads))).collect(),
                "Several threads write the same keys, of which compactions write some again. db_bench does not wait for the last write \
                 buffers, which hold up to half of what one thread writes and less with more.",
            ));
        }
        let steps = self.threads.windows(2).map(|pair| {
            let ratio = vertical(pair[1]) / vertical(pair[0]);
            Figure::above(format!("{} threads against {}", pair[1], pair[0]), " times", 2, 1.0 + CLOCK, "gains", ratio)
        });
        claims.push(Claim::new(
            &["000-14"],
            "Vertical fill-sequential gains with each doubling of the threads.",
            steps.collect(),
            "Tables that are written side by side have groups of their own, until compactions take the dies.",
        ));
        let slowest_fill = |threads: usize| horizontal(threads).min(vertical(threads));
        let beside = |threads: usize, kind: Kind| {
            let [one, other, _] = self.rates(threads, kind);
            one.max(other)
        };
        let figure = |name: &str, says, ratio: &dyn Fn(usize) -> f64| {
            let least = self.threads.iter().map(|threads| ratio(*threads)).fold(f64::INFINITY, f64::min);
            Figure::above(name, " times", 1, 2.0, says, least)
        };
        claims.push(Claim::new(
            &["000-11", "000-17"],
            "Writes are much faster than reads, and sequential reads than random ones.",
            vec![
                figure("fillseq against readseq, the least", "much faster", &|threads| slowest_fill(threads) / beside(threads, SEQUENTIAL)),
                figure("readseq against readrandom, the least", "much faster", &|threads| {
                    let [horizontal, vertical, _] = self.rates(threads, SEQUENTIAL);
                    horizontal.min(vertical) / beside(threads, RANDOM)
                }),
            ],
            "Writes are acknowledged from RocksDB's buffers. A sequential read takes a whole unit from NAND for many keys and reads \
             ahead, a random one waits for the NAND each time.",
        ));
        claims.push(Claim::new(
            &["000-18"],
            "Placement is marginal for reads.",
            vec![
                Figure::value("horizontal against vertical, the least", " times", 2, 1.0, 0.25, least_of_reads),
                Figure::value("the most", " times", 2, 1.0, 0.25, most_of_reads),
            ],
            "Random reads find one die each, whatever the placement. In sequential ones a reader and what it reads ahead are spread over \
             four dies with vertical placement, and over 32 with horizontal.",
        ));
        claims.push(Claim::new(
            &["000-18"],
            "Horizontal placement is ahead of vertical in all reads.",
            vec![Figure::above("horizontal against vertical, the least", " times", 2, 1.0 - CLOCK, "ahead", least_of_reads)],
            "Readers of one table share four dies with vertical placement, and 32 with horizontal. Within 3 % counts as no less, for what \
             a clock is worth.",
        ));
        claims
    }

    pub fn by_load(&self) -> Check {
        let ratios = self.threads.iter().map(|threads| {
            let [horizontal, vertical, by_load] = self.rates(*threads, FILL);
            by_load / horizontal.max(vertical)
        });
        let ratios: Vec<f64> = ratios.collect();
        Check {
            claim: "By-load is as good as the better of the two, however many threads there are.",
            check: "within 10 % of it in fillseq, at each number of threads",
            holds: ratios.iter().all(|ratio| *ratio >= BY_LOAD_MIN),
            measured: format!("{} times the better, with {} threads", each(&ratios), self.each_thread()),
            why: "While few tables are being written each has all groups; then each has the half that is written to least, and two tables \
                  need not meet.",
        }
    }

    /// Nothing if there was no ext4.
    pub fn beside_ext4(&self) -> Option<Check> {
        let by_load = Stack::Tables(TablePlacement::ByLoad);
        let mut least = f64::INFINITY;
        let mut words = Vec::new();
        for kind in [FILL, SEQUENTIAL, RANDOM] {
            let ratio =
                |threads: &usize| Some(self.rate(by_load, *threads, kind)? / self.rate(Stack::Ext4, *threads, kind)?);
            let ratios = self.threads.iter().map(ratio).collect::<Option<Vec<f64>>>()?;
            least = ratios.iter().copied().fold(least, f64::min);
            words.push(format!("{} {}", kind.name, each(&ratios)));
        }
        Some(Check {
            claim: "RocksDB is as fast on tables as on ext4 on a block drive with the same device.",
            check: "by-load at least 0.9 times as fast as ext4 in each load of Figure 5",
            holds: least >= BESIDE_EXT4_MIN,
            measured: format!("{} times, with {} threads", words.join("; "), self.each_thread()),
            why: "A table is written to the dies that the placement chose, without a file system, a kernel and a protocol in between; a \
                  block drive spreads whatever comes over all dies.",
        })
    }
}

fn each(ratios: &[f64]) -> String {
    ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(", ")
}

pub fn amplification(churned: &[Churn]) -> Check {
    let (tables, others): (Vec<&Churn>, Vec<&Churn>) =
        churned.iter().partition(|churn| Stack::TABLES.contains(&churn.stack));
    let most = tables.iter().map(|churn| drive_amplification(&churn.writes)).fold(0.0, f64::max);
    let relocated = |churn: &Churn| programmed(&churn.writes, "relocation");
    let deleted: f64 = tables.iter().map(|churn| churn.writes.count("/tables/deleted")).sum();
    let beside = others.iter().map(|churn| {
        let drive = drive_amplification(&churn.writes);
        format!("; {drive:.4} under {}, {:.0} blocks relocated", churn.stack, relocated(churn))
    });
    Check {
        claim: "What RocksDB writes is all that the drive programs, also where tables are deleted.",
        check: "write amplification of table drives at most 1.02 under fillrandom, deleterandom and overwrite, with the log",
        holds: most <= WAF_MAX,
        measured: format!(
            "{most:.4} at most; {deleted:.0} tables deleted, {:.0} blocks relocated{}",
            tables.iter().map(|churn| relocated(churn)).sum::<f64>(),
            beside.collect::<String>()
        ),
        why: "A deleted table is chunks to be reset. What is above 1 is padding for the most part: a sync makes a few blocks of the log \
              area durable, and they fill a write unit with nothing.",
    }
}

/// Blocks programmed for a purpose.
fn programmed(bench: &Bench, purpose: &str) -> f64 {
    let all = bench.drive["programmed"].as_array();
    let of = |pair: &serde_json::Value| (pair[0] == purpose).then(|| pair[1].as_f64()).flatten();
    all.and_then(|all| all.iter().find_map(of)).unwrap_or(0.0)
}

pub fn blocks_of_a_read(measured: &[Measured]) -> Check {
    let tables = measured.iter().filter(|cell| Stack::TABLES.contains(&cell.stack));
    let most = tables.map(|cell| kib_from_media(cell.bench(RANDOM))).fold(0.0, f64::max);
    Check {
        claim: "A point read moves the blocks of 4 KiB that it needs, and no write unit.",
        check: "readrandom reads less than a quarter of 96 KiB from media for each operation",
        holds: most < PAPER_READ_KIB / 4.0,
        measured: format!("{most:.1} KiB at most, against the 96 KiB of the paper's interface"),
        why: "A block of RocksDB is a little more than 4 KiB and begins anywhere, so that it lies on two blocks of the drive; the rest are \
              the index and the filters, read when the database is opened.",
    }
}
