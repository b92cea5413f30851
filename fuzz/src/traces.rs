//! A recorded trace in any format: what is played lies on the drive, and what is not names its line.

use openftl_lab::load::{Load, Operation};
use openftl_lab::trace::{Beyond, Trace, TraceConfig, TraceFormat};
use openftl_lab::{LoadSpec, load};

const DRIVE_BLOCKS: u64 = 1000;

/// A trim or a wrapped request of a short line may come back in pieces; more of them than this is a loop.
const STEPS_MAX: usize = 1 << 20;

pub fn run(data: &[u8]) {
    let formats = [TraceFormat::Fio, TraceFormat::Blkparse, TraceFormat::Msr, TraceFormat::Alibaba];
    for format in formats.map(Some).into_iter().chain([None]) {
        for beyond in [Beyond::Error, Beyond::Wrap, Beyond::Scale { from_bytes: 1 << 30 }] {
            play(data, format, beyond);
        }
    }
    if let Ok(text) = std::str::from_utf8(data) {
        of_text(text);
    }
}

fn play(data: &[u8], format: Option<TraceFormat>, beyond: Beyond) {
    let file = "fuzzed".to_owned();
    let config = TraceConfig { file, format, beyond, drive_blocks: DRIVE_BLOCKS, ..TraceConfig::default() };
    let mut trace = Trace::new(config, data);
    let mut steps = 0;
    while let Some(load::Access { operation, first, blocks, .. }) = trace.step() {
        steps += 1;
        assert!(steps < STEPS_MAX, "a trace comes to its end");
        if operation != Operation::Flush {
            assert!(blocks > 0 && first + u64::from(blocks) <= DRIVE_BLOCKS, "{first}+{blocks} is not on the drive");
        }
        if matches!(operation, Operation::Read | Operation::Write) {
            assert!(blocks <= trace.access_blocks_max());
        }
    }
    if let Some(error) = trace.failure() {
        assert!(error.line > 0 && !error.fix.is_empty() && error.to_string().starts_with("fuzzed, line "));
        assert_eq!(trace.step(), None, "what has failed has ended");
    }
}

/// The same bytes as the text of a load: what is accepted is written so that it is read back.
fn of_text(text: &str) {
    match text.parse::<LoadSpec>() {
        Ok(spec) => assert_eq!(spec.to_string().parse::<LoadSpec>().as_ref(), Ok(&spec)),
        Err(error) => assert!(!error.to_string().is_empty(), "an error says something"),
    }
}
