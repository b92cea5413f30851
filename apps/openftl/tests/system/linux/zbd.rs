//! fio's own tests of zoned drives (`t/zbd/test-zbd-support` of its sources), on drives of zones.

use super::zoned::{Limits, Shape, Zoned};
use super::{Linux, NEEDS};
use crate::environment::{Need, runs_here, zbd};
use crate::network::Network;

/// As many zones as the tests want, some of which skip smaller drives.
const WHOLE: Shape = Shape { width: 2, zones: 256, limits: Limits { open: 6, active: 8 } };

/// A quarter of each zone's addresses has no blocks.
const PART: Shape = Shape { width: 3, zones: 132, limits: Limits { open: 6, active: 8 } };

/// The tests of fio 3.33.
const ALL: std::ops::RangeInclusive<u32> = 1..=58;
/// Fails in the same way on a null_blk device: fio 3.33 verifies what it has not written, and aborts (`experimental_verify`).
const BROKEN: u32 = 54;
/// Why tests skip this drive that are for others.
const SKIPPED: [&str; 3] = ["is not a SCSI device", "conventional zones", "is not a regular block device"];

/// The tests that `OPENFTL_ZBD_TESTS` asks for: `all`, or numbers with commas between them.
fn asked_for() -> Option<Vec<u32>> {
    let text = std::env::var("OPENFTL_ZBD_TESTS").ok()?;
    if text == "all" {
        return Some(ALL.filter(|test| *test != BROKEN).collect());
    }
    Some(text.split(',').map(|number| number.parse().expect("OPENFTL_ZBD_TESTS is `all`, or numbers")).collect())
}

/// Runs these tests in one guest, or each of those that are asked for in its own.
fn pass(shape: &Shape, quick: &[u32]) {
    let needs = [Need::Zbd, Need::Program("blkzone"), Need::Program("sed"), Need::Program("realpath")];
    if !runs_here(&[&NEEDS[..], &needs].concat()) {
        return;
    }
    let (drive, network) = (Zoned::alone(shape), Network::new());
    let server = drive.serve(&network);
    if let Some(tests) = asked_for() {
        let passed = tests.iter().map(|test| run(&network, &[*test])).sum::<usize>();
        assert!(2 * passed > tests.len(), "only {passed} of {} tests did not skip this drive", tests.len());
    } else {
        assert_eq!(run(&network, quick), quick.len(), "no quick test skips this drive");
    }
    server.stop();
    drive.check();
}

/// Runs these tests in a guest of their own; returns how many of them did not skip the drive.
fn run(network: &Network, tests: &[u32]) -> usize {
    let words: String = tests.iter().map(|test| format!(" -t {test}")).collect();
    let scripts = zbd().expect("it was asked whether there is a folder");
    let told = Linux::run(
        network,
        &format!(
            r#"
            connect
            # The scripts look for fio two folders up, and leave their logs beside them.
            mkdir -p fio/t/zbd && cp {}/* fio/t/zbd && ln -s $(command -v fio) fio/fio || fail "a copy of the scripts"
            # They write to zones while others are active: all are reset at the beginning and before each test that writes.
            bash fio/t/zbd/test-zbd-support -r -w{words} $disk >result 2>&1 || {{ tail -n 100 result fio/t/zbd/*.log.* >&2; fail fio; }}
            "#,
            scripts.display()
        ),
    )
    .succeeded();
    let result = told.text("result");
    let verdicts: Vec<&str> = result.lines().filter(|line| line.starts_with("Running test")).collect();
    assert_eq!(verdicts.len(), tests.len(), "{result}");
    let skipped: Vec<&&str> = verdicts.iter().filter(|line| !line.ends_with("... PASS")).collect();
    verdicts.iter().for_each(|line| println!("{line}"));
    for line in &skipped {
        assert!(line.contains("SKIP") && SKIPPED.iter().any(|reason| line.contains(reason)), "{line}: {result}");
    }
    tests.len() - skipped.len()
}

#[test]
fn tests_of_fio_pass_on_zones_with_blocks_at_all_their_addresses() {
    pass(&WHOLE, &[1, 2, 4, 6, 8, 13, 17]);
}

#[test]
fn tests_of_fio_pass_on_zones_that_hold_less_than_their_size() {
    pass(&PART, &[5, 7, 12, 16, 33, 35, 45]);
}
