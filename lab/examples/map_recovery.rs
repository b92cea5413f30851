//! How long a drive takes to open that has its map on media: so many GiB of `granby`, with a tenth of the map in memory and so many
//! blocks written in each map page.
//!
//! ```text
//!   cargo run --release -p openftl-lab --example map_recovery -- 1024 64
//! ```

use openftl_blocks::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{Clock, FrameForm, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::{BlockTarget, Config, Done, Durability, Handle, Request, Target, chunks_per_pu};

/// Requests under way at a time, at most.
const DEPTH: usize = 500;

/// Lets the drive work until something has ended.
fn step(drive: &mut BlockFtl<EmulatedDevice>, clock: &mut VirtualClock, done: &mut Vec<Done>) -> usize {
    if let Some(due) = drive.next_due() {
        clock.wait_until(due);
    }
    drive.poll(clock.now(), done);
    done.drain(..).count()
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (gib, blocks_per_page) = (numbers.next().unwrap_or(64), numbers.next().unwrap_or(64).clamp(1, 1024));
    let profile = Profile::builtin("granby").expect("it is built in");
    let budget = MapBudget::Share(Share::percent(10));
    let config = Config {
        capacity_blocks: gib << 18,
        over_provisioning: Share::percent(10),
        payload: FrameForm::Stamp,
        map_memory: Some(MapMemory { budget, policy: CachePolicy::Clock, page: PageSize::WHOLE }),
        ..Config::default()
    };
    let shape = profile.geometry(profile.chunks_per_pu).expect("it is valid");
    let chunks = chunks_per_pu(&shape, &config, Share::percent(1)).expect("such a drive can be");
    let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, 1).expect("there is memory");
    let mut clock = VirtualClock::default();
    let mut drive = BlockFtl::format(device, config.clone(), &mut clock).expect("it is new");
    let (pages, mut done, mut under_way) = (config.capacity_blocks / 1024, Vec::new(), 0);
    for number in 0..pages * blocks_per_page {
        let mut frames = Vec::new();
        while under_way > DEPTH || !drive.frames_mut().acquire_many(config.payload, 1, &mut frames) {
            under_way -= step(&mut drive, &mut clock, &mut done);
        }
        let first = number % pages * 1024 + number / pages * (1024 / blocks_per_page);
        let (durability, handle) = (Durability::Volatile, Handle(0));
        let write = Request::Write { first, frames: &frames, durability, handle };
        drive.submit(clock.now(), number, write).expect("there is room");
        under_way += 1;
    }
    while under_way > 0 {
        under_way -= step(&mut drive, &mut clock, &mut done);
    }
    println!(
        "{} map pages written, {} bytes of memory",
        drive.statistics().map_pages_written,
        drive.map_memory_bytes()
    );
    let media = drive.close(&mut clock).unwrap_or_else(|_| panic!("it closes"));
    let began = clock.now();
    let drive = BlockFtl::open(media, config, &mut clock).unwrap_or_else(|error| panic!("{error}"));
    println!("opened in {}", clock.now().since(began));
    for step in &drive.recovery_report().steps {
        println!(
            "  {:<22} {:>12} {:>9} blocks read, {}",
            step.name,
            step.time.to_string(),
            step.blocks_read,
            step.found
        );
    }
}
