//! What reaches the store for 500 small transactions, to compare with what SQLite writes to a file system: 25.5 MB of database and rollback
//! journal, or 17.3 MB of database and write-ahead log. On ext4 on a block drive on the same flash the latter are 59 MB of NAND (`databases.rs` of the system tests).
//!
//! `cargo test --release -p openftl-sqlite --test all figures -- --nocapture` prints it.

use crate::world::{Drive, SQLITE, figure, runs_here};
use openftl_experiments::order_table;
const TRANSACTIONS: u64 = 500;

fn transactions() -> String {
    let count = "PRAGMA openftl_statistics;\n";
    [count, &order_table::transactions(TRANSACTIONS), count, "PRAGMA integrity_check;\n"].concat()
}

#[test]
fn small_transactions_put_no_journal_bytes() {
    if !runs_here(SQLITE) {
        return;
    }
    let (mut put, mut nand) = (Vec::new(), Vec::new());
    for (compress, journal) in [("none", "delete"), ("lz4", "delete"), ("zstd", "delete"), ("none", "wal")] {
        let drive = Drive::new("256MiB");
        let more = format!("&compress={compress}");
        let rows = format!("PRAGMA journal_mode={journal};\n{}PRAGMA page_count;", order_table::rows());
        let pages = drive.sql_with("data.db", &more, &rows).split_off(journal.len() + 1);
        let started = std::time::Instant::now();
        let text = drive.sql_with("data.db", &more, &transactions());
        let seconds = started.elapsed().as_secs_f64();
        let lines: Vec<&str> = text.lines().collect();
        let of = |name: &str| figure(lines[1], name) - figure(lines[0], name);
        println!(
            "compress={compress}, {journal}: database of {pages} pages; {} batches, {} pages, {:.2} MB put, {:.2} MB of headers and grains, {:.2} MB to \
             the log, {:.2} MB padding, {:.2} MB on NAND (pages {:.2}, headers {:.2}, slack {:.2}, map {:.2}, relocation {:.2}, log {:.2}, padding {:.2}); {seconds:.2} s with opening and closing",
            of("batches_committed"),
            of("pages_put"),
            of("bytes_put") as f64 / 1e6,
            (of("header_bytes") + of("grain_bytes")) as f64 / 1e6,
            of("log_bytes") as f64 / 1e6,
            of("padded_bytes") as f64 / 1e6,
            of("nand_bytes") as f64 / 1e6,
            of("nand_page_bytes") as f64 / 1e6,
            of("nand_header_bytes") as f64 / 1e6,
            of("nand_slack_bytes") as f64 / 1e6,
            of("nand_area_bytes") as f64 / 1e6,
            of("nand_relocation_bytes") as f64 / 1e6,
            of("nand_log_bytes") as f64 / 1e6,
            of("nand_padding_bytes") as f64 / 1e6,
        );
        // Checkpoints of a log are batches too.
        let most = TRANSACTIONS + if journal == "wal" { 20 } else { 0 };
        assert!((TRANSACTIONS..=most).contains(&of("batches_committed")) && lines[2] == "ok", "{text}");
        put.push(of("bytes_put"));
        nand.push(of("nand_bytes"));
    }
    assert!(put[0] < 13_000_000, "no more than the pages of the database that change");
    assert!(
        nand[0] < 29_000_000 && nand[1] < 19_000_000,
        "half, and a third, of what ext4 and a write-ahead log take: {nand:?}"
    );
    assert!(put[1] * 3 < put[0] * 2 && put[2] < put[1], "compression saves a third at least, and Zstandard more");
    assert!(put[3] > put[0], "a log is written beside the database");
}
