//! Every format line by line, and what becomes of requests that do not fit.

use super::*;
use expect_test::{Expect, expect};

fn config() -> TraceConfig {
    TraceConfig { file: "sample".to_owned(), drive_blocks: 1000, ..TraceConfig::default() }
}

fn play_with(config: TraceConfig, text: &[u8]) -> String {
    let mut trace = Trace::new(config, text);
    let mut played = String::new();
    while let Some(Access { operation, first, blocks, .. }) = trace.step() {
        played.push_str(&format!("{operation:?} {first}+{blocks}\n"));
    }
    if let Some(error) = trace.failure() {
        played.push_str(&format!("{error}\n"));
    }
    played
}

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&play_with(config(), text.as_bytes()));
}

#[test]
fn fio_logs_of_both_versions() {
    check(
        include_str!("../tests/traces/fio-version-2.log"),
        expect![[r#"
            Write 0+1
            Read 2+2
            Flush 0+0
            Trim 8+4
            Write 100+64
            Write 164+64
            Write 228+2
        "#]],
    );
    check(
        include_str!("../tests/traces/fio-version-3.log"),
        expect![[r#"
            Write 0+1
            Read 2+2
            Flush 0+0
        "#]],
    );
    check(
        "fio version 1\n",
        expect![[r#"
            sample, line 1: version `1`: only logs of version 2 and 3 are known, and say so in their first line
        "#]],
    );
    check(
        "fio version 2 iolog\n\n/dev/sda erase 0 4096\n",
        expect![[r#"
            sample, line 3: action `erase`: an action is read, write, trim, sync, datasync, wait, add, open or close
        "#]],
    );
}

#[test]
fn text_of_blkparse_until_its_summary() {
    check(
        include_str!("../tests/traces/blkparse.txt"),
        expect![[r#"
            Write 0+1
            Read 1+2
            Flush 0+0
            Trim 8+8
            Write 16+1
        "#]],
    );
    check(
        "8,0 1 1 0.0 9 Q W 8 - 8 [x] y\n",
        expect![[r#"
            sample, line 1: sector and count `-`: write them as `223490 + 8`
        "#]],
    );
}

#[test]
fn csv_of_msr_and_alibaba() {
    check(
        include_str!("../tests/traces/msr.csv"),
        expect![[r#"
            Read 93+9
            Write 0+2
        "#]],
    );
    check(
        include_str!("../tests/traces/alibaba.csv"),
        expect![[r#"
            Write 4+4
            Read 0+1
        "#]],
    );
    check(
        "419,W,-1,16384,1577808000000046\n",
        expect![[r#"
            sample, line 1: offset (3rd field) `-1`: write a whole number that fits in 64 bits
        "#]],
    );
}

#[test]
fn one_device_is_played_the_first_or_a_chosen_one() {
    let text = include_str!("../tests/traces/msr.csv").as_bytes();
    let other = play_with(TraceConfig { device: Some("1".to_owned()), ..config() }, text);
    assert_eq!(other, "Write 4+1\n");
}

#[test]
fn requests_beyond_the_drive_are_an_error_or_wrapped_or_scaled() {
    let text = b"1,W,4079616,16384,0\n1,W,8192000,4096,0\n";
    let with = |beyond| play_with(TraceConfig { beyond, ..config() }, text);
    expect![[r#"
        Write 996+4
        sample, line 2: offset and length `1,W,8192000,4096,0`: beyond the end of the drive: make it larger, or choose beyond=wrap or beyond=scale:SIZE
    "#]]
    .assert_eq(&with(Beyond::Error));
    assert_eq!(with(Beyond::Wrap), "Write 996+4\nWrite 0+1\n");
    assert_eq!(with(Beyond::Scale { from_bytes: 4000 * 4096 }), "Write 249+4\nWrite 500+1\n");
    let across = play_with(TraceConfig { beyond: Beyond::Wrap, ..config() }, b"1,W,4087808,16384,0\n");
    assert_eq!(across, "Write 998+2\nWrite 0+2\n");
}

#[test]
fn what_is_no_trace_is_refused_with_its_line() {
    let refused = |bytes: &[u8]| play_with(config(), bytes);
    assert!(refused(b"hello\n").contains("line 1: format `hello`"));
    assert!(refused(&[0x1f, 0x8b, 0xff]).contains("uncompress"));
    assert!(refused(&vec![b'x'; LINE_BYTES_MAX + 1]).contains("64 KiB"));
    assert!(refused(b"1,W,18446744073709551615,2,0\n").contains("beyond the end"));
    assert_eq!(refused(b""), "");
    assert_eq!(refused(b"1,W,0,0,0\n"), "", "no byte, no block");
}

#[test]
fn a_fill_writes_what_was_asked_for() {
    let mut trace = Trace::new(TraceConfig { fill_blocks: 100, ..config() }, &b""[..]);
    let filled: Vec<(u64, u32)> =
        std::iter::from_fn(|| trace.fill_step()).map(|access| (access.first, access.blocks)).collect();
    assert_eq!(filled, [(0, 64), (64, 36)]);
}

/// Milliseconds at which requests are wanted, and why there are no more.
fn times(text: &str, pace: &str) -> (Vec<f64>, String) {
    let pace = Some(pace.parse().unwrap());
    let mut trace = Trace::new(TraceConfig { pace, ..config() }, text.as_bytes());
    let mut times = Vec::new();
    while trace.step().is_some() {
        times.push(trace.due().expect("each has a time").0 as f64 / 1e6);
    }
    (times, trace.failure().map(ToString::to_string).unwrap_or_default())
}

#[test]
fn times_of_every_format_count_from_the_first_request() {
    let all = |text: &str, pace: &str| {
        let (times, failure) = times(text, pace);
        assert_eq!(failure, "");
        times
    };
    assert_eq!(all(include_str!("../tests/traces/fio-version-3.log"), "trace"), [0.0, 0.004, 0.006]);
    assert_eq!(
        all("fio version 3 iolog\n3 a write 0 266240\n5 a read 0 4096\n", "2x"),
        [0.0, 0.0, 0.001],
        "cut in two"
    );
    let blkparse = "8,0 1 1 3.999999000 9 Q W 8 + 8 [x]\n8,0 1 2 4.500000000 9 Q W 8 + 8 [x]\n";
    assert_eq!(all(blkparse, "trace"), [0.0, 500.001]);
    assert_eq!(all("1000,h,0,Read,0,4096,1\n2000,h,1,Read,0,1,1\n51000,h,0,Write,0,4096,1\n", "10x"), [0.0, 0.5]);
    assert_eq!(all("1,W,0,4096,500\n1,W,0,4096,2500\n1,R,0,4096,1500\n", "0.5x"), [0.0, 4.0, 4.0], "never back");
}

#[test]
fn a_trace_without_times_has_no_pace() {
    let (played, failure) = times("fio version 2 iolog\na write 0 4096\n", "trace");
    assert!(
        played.is_empty() && failure.starts_with("sample, line 2: time ``: ") && failure.contains("pace"),
        "{failure}"
    );
    assert!(times("1,W,0,4096,soon\n", "10x").1.contains("time `soon`"));
    assert!(times("1,W,0,4096,18446744073709551615\n", "10x").1.contains("time `1844"), "too late for any clock");
}
