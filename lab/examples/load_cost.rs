//! What the load itself costs: nanoseconds per access of each pattern, and of the driver on a drive that does nothing.
//!
//! `cargo run --release -p openftl-lab --example load_cost`

use openftl_core::units::Share;
use openftl_core::{FrameForm, Frames, Time, VirtualClock};
use openftl_lab::{Driver, Limit, Pattern, Workload, WorkloadConfig};
use openftl_parts::{BlockTarget, Done, IoError, Request, Target};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

const BLOCKS: u64 = 1 << 20;
const ACCESSES: u64 = 20_000_000;

/// Takes every write and forgets it.
struct Nothing {
    frames: Frames,
    done: Vec<Done>,
}

impl Target for Nothing {
    type Done = Done;

    fn frames(&self) -> &Frames {
        &self.frames
    }

    fn frames_mut(&mut self) -> &mut Frames {
        &mut self.frames
    }

    fn poll(&mut self, _: Time, done: &mut Vec<Done>) {
        done.append(&mut self.done);
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl BlockTarget for Nothing {
    fn blocks(&self) -> u64 {
        BLOCKS
    }

    fn payload_form(&self) -> FrameForm {
        FrameForm::Stamp
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        if let Request::Write { frames, .. } = request {
            for &frame in frames {
                self.frames.release(frame);
            }
        }
        self.done.push(Done { tag, result: Ok(()), at: now });
        Ok(())
    }
}

fn main() {
    let config = |pattern| WorkloadConfig {
        pattern,
        read_share: Share::percent(0),
        access_blocks: 1,
        drive_blocks: BLOCKS,
        seed: 1,
    };
    for (name, pattern) in [
        ("uniform", Pattern::Uniform),
        ("sequential", Pattern::Sequential),
        ("zipf 0.99", Pattern::Zipf { theta: 0.99 }),
        ("hot-cold", Pattern::HotCold { accesses: Share::percent(90), space: Share::percent(10) }),
    ] {
        let mut workload = Workload::new(&config(pattern));
        let started = Instant::now();
        for _ in 0..ACCESSES {
            black_box(workload.next_access());
        }
        println!("{name:12} {:6.1} ns an access", started.elapsed().as_nanos() as f64 / ACCESSES as f64);
    }
    let mut target = Nothing { frames: Frames::new(0, 1024, 16), done: Vec::new() };
    let mut driver = Driver::new(BLOCKS, 32, 1);
    let mut workload = Workload::new(&config(Pattern::Uniform));
    let started = Instant::now();
    let outcome = driver
        .run(&mut target, &mut VirtualClock::default(), &mut workload, Limit::Requests(ACCESSES), |_| {
            ControlFlow::Continue(())
        })
        .expect("a drive that does nothing makes no mistake");
    black_box(outcome);
    println!(
        "{:12} {:6.1} ns a write, workload included",
        "driver",
        started.elapsed().as_nanos() as f64 / ACCESSES as f64
    );
}
