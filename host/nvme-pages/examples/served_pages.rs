//! What it costs to have a store of pages behind NVMe/TCP: batches of pages on instant media, put and read back here and through a socket of this
//! machine.
//!
//! ```sh
//! cargo run --release -p openftl-nvme-pages --example served_pages -- 2048 64 4096
//! ```
//!
//! The arguments are bytes of a page, and pages of a small and of a large batch. Both stores have the same drive.

#[path = "../tests/support/mod.rs"]
#[expect(dead_code, reason = "tests use more of it")]
mod support;

use std::time::Instant;

use openftl_core::Time;
use openftl_drive::page_store::PageStore;
use openftl_files::{Pace, PaceClock};
use openftl_media::Timing;
use openftl_pages::{BlockingStore, Change};
use openftl_parts::Durability;
use support::{Served, bytes_of, drive_on, session};

/// Bytes that are put in a turn.
const TURN_BYTES: usize = 32 << 20;

/// Turns, of which the fastest counts: others of the machine only make them slower.
const TURNS: usize = 5;

/// Chunks on each parallel unit: some 200 MiB for pages.
const CHUNKS: u32 = 48;

/// Puts and reads pages, in batches of so many. MiB a second of each.
fn measure(store: &mut dyn BlockingStore, page_bytes: usize, batch: usize) -> [f64; 2] {
    let (opened, last) = store.open_session(session(1)).expect("nobody else has it");
    let (pages, mut wsn) = (TURN_BYTES / page_bytes, last);
    let bytes = bytes_of(1, 1, page_bytes);
    let mut best = [0.0_f64; 2];
    let speed = |started: Instant| (pages * page_bytes) as f64 / f64::from(1 << 20) / started.elapsed().as_secs_f64();
    for _ in 0..TURNS {
        let started = Instant::now();
        for first in (0..pages).step_by(batch) {
            wsn += 1;
            for lpid in first..(first + batch).min(pages) {
                store.stage(opened, wsn, lpid as u64, Change::Put(&[&bytes]), None).expect("there is room");
            }
            store.commit(opened, wsn, Durability::Volatile).expect("there is room");
        }
        store.sync().expect("it takes writes");
        best[0] = best[0].max(speed(started));
        let started = Instant::now();
        for lpid in 0..pages {
            assert_eq!(store.read_whole(lpid as u64).expect("it was put").len(), page_bytes);
        }
        best[1] = best[1].max(speed(started));
    }
    store.close_session(opened, false).expect("it is open");
    best
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<usize>().expect("a number"));
    let page_bytes = numbers.next().unwrap_or(2048);
    let batches = [numbers.next().unwrap_or(64), numbers.next().unwrap_or(4096)];
    println!("pages of {page_bytes} bytes, MiB/s: put here, put served, read here, read served");
    for batch in batches {
        let drive = drive_on("cosmos", CHUNKS, Timing::Instant);
        let mut here = PageStore::new(drive, PaceClock { pace: Pace::wall(), now: Time::ZERO });
        let [put_here, read_here] = measure(&mut here, page_bytes, batch);
        let served = Served::new(drive_on("cosmos", CHUNKS, Timing::Instant));
        let mut store = served.connect();
        let [put_there, read_there] = measure(&mut store, page_bytes, batch);
        let (written, copied) = (served.counters.bytes_written.get(), served.counters.bytes_copied.get());
        drop(store);
        served.end();
        println!(
            "batches of {batch:>5}: {put_here:6.0} {put_there:6.0} {read_here:6.0} {read_there:6.0}; between socket and \
             frames {:.1} % of {} MiB were copied",
            100.0 * copied as f64 / written as f64,
            written >> 20,
        );
    }
}
