//! Loads are read as they are written, and what cannot be is named.

use super::*;
use expect_test::expect;

fn none(_: &str) -> std::io::Result<Box<dyn BufRead>> {
    Err(std::io::Error::new(std::io::ErrorKind::NotFound, "no such file"))
}

#[test]
fn loads_are_read_as_they_are_written() {
    for text in [
        "uniform",
        "sequential,access=64KiB",
        "zipf:0.99,access=16KiB,reads=30%,fill=85%",
        "hot-cold:90/10",
        "hot-cold:99.5/0.5",
        "writers:8,fill=80%",
        "lsm:4",
        "lsm:4,trees=4,log=no,discard=no,fill=90%",
        "log-structured-fs,access=16KiB",
        "double-write:1.2,reads=50%",
        "tenants:lsm:4*4",
        "tenants:lsm:4,fill=70%*2+double-write:0.99+zipf:1",
        "trace:web.csv",
        "trace:/tmp/a:b.csv,format=msr,device=0,beyond=wrap,fill=50%",
        "trace:web.csv,beyond=scale:68719476736",
        "trace:web.csv,pace=trace",
        "trace:web.csv,format=msr,pace=2.5x,beyond=wrap",
    ] {
        let spec: LoadSpec = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(spec.to_string(), text);
        assert_eq!(spec.to_string().parse(), Ok(spec));
    }
    for (short, long) in
        [("zipf", "zipf:0.99"), ("hot-cold", "hot-cold:90/10"), ("writers", "writers:8"), ("lsm", "lsm:4")]
    {
        assert_eq!(short.parse::<LoadSpec>().unwrap().to_string(), long);
    }
}

#[test]
fn what_cannot_be_is_named_with_what_can() {
    let texts = [
        "unifrom",
        "uniform:1",
        "zipf:-1",
        "hot-cold:90",
        "hot-cold:190/10",
        "writers:0",
        "lsm,reads=10%",
        "lsm,trees=0",
        "lsm,log=off",
        "zipf,access=5000",
        "zipf,fill=5%",
        "writers,fill=100%",
        "zipf,colour=red",
        "trace:",
        "trace:a,format=qemu",
        "trace:a,beyond=clip",
        "trace:a,pace=fast",
        "trace:a,pace=0x",
        "tenants:trace:a,pace=trace+lsm",
        "tenants:lsm*0",
        "tenants:lsm+tenants:lsm",
        "tenants:lsm*65",
    ];
    let errors: Vec<String> = texts.iter().map(|text| text.parse::<LoadSpec>().unwrap_err().to_string()).collect();
    expect![[r#"
        `unifrom` is no load (did you mean uniform?); write uniform, sequential, zipf, hot-cold, writers, lsm, log-structured-fs, segments, double-write, tenants or trace
        uniform:1: nothing comes behind this name
        zipf:-1: write an exponent from 0 to 8, as 0.99
        hot-cold:90: write percent of the accesses, a slash and percent of the space, as 90/10
        hot-cold:190/10: write percent of the accesses, a slash and percent of the space, as 90/10
        writers:0: write a number from 1 to 255
        lsm has no option `reads=10%`; write access=256KiB, fill=95%, trees=4, log=no or discard=no
        trees=0: write a number from 1 to 16
        log=off: write yes or no
        access=5000: write a multiple of 4KiB up to 1MiB, as 16KiB
        fill=5%: write a share from 20% to 100%
        fill=100%: write a share from 20% to 95%
        zipf has no option `colour=red`; write access=16KiB, reads=30%, fill=85% or clustered=yes
        trace:: name a file, as trace:web.csv
        format=qemu: write one of fio, blkparse, msr or alibaba
        beyond=clip: write error, wrap or scale:64GiB
        pace=fast: write trace for its own times, or how many times as fast, as 10x or 0.5x
        pace=0x: write trace for its own times, or how many times as fast, as 10x or 0.5x
        tenants:trace:a,pace=trace+lsm: tenants take turns, so the times of a trace mean nothing among them; leave out pace
        tenants:lsm*0: behind an asterisk comes how many there are, as lsm*4
        tenants:lsm+tenants:lsm: at most 64 tenants share a drive, and a tenant has none of its own
        tenants:lsm*65: at most 64 tenants share a drive, and a tenant has none of its own"#]].assert_eq(&errors.join("\n"));
}

#[test]
fn a_drive_that_is_too_small_and_a_trace_that_is_not_there_are_named() {
    let error = |text: &str, blocks| {
        let spec: LoadSpec = text.parse().unwrap();
        spec.build(blocks, None, 1, &mut none).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(error("tenants:lsm*2", 4096).contains("needs 32 MiB at least, and has 16 MiB"));
    assert!(error("trace:web.csv", 4096).contains("trace web.csv: no such file"));
    assert!(error("lsm:4,trees=16,fill=20%", 4096).contains("trees=16: the trees"));
    assert!(error("writers:255", 4096).contains("writers:255 needs"));
    assert_eq!(error("writers:255", 261_120), "");
    for text in ["uniform", "writers", "lsm", "log-structured-fs", "double-write", "tenants:lsm"] {
        assert_eq!(error(text, 4096), "", "{text} runs on 16 MiB");
    }
}
