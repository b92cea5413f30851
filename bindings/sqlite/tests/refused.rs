//! Stores that are full, in use, damaged or none: a clear error, and nothing is lost.

use crate::world::{Drive, SQLITE, figure, library, runs_here};
use openftl_drive::page_drive::open_stored;
use openftl_pages::{BlockingStore, Change, SessionId};
use openftl_parts::{Access, Durability};
use std::io::Write;

fn errors(drive: &Drive, more: &str, commands: &str) -> String {
    let output = drive.output("data.db", more, commands);
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_full_store_loses_the_transaction_and_nothing_else() {
    if !runs_here(SQLITE) {
        return;
    }
    for synchronous in ["FULL", "OFF"] {
        let drive = Drive::new("8MiB");
        let rows = 300 + drive.capacity.0 / 4096;
        let fill = format!(
            "PRAGMA synchronous={synchronous}; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{rows})
             INSERT INTO t SELECT i, randomblob(4000) FROM n;"
        );
        drive.sql("data.db", "CREATE TABLE t(id INTEGER PRIMARY KEY, bytes); INSERT INTO t VALUES(0, 'kept');");
        let text = errors(&drive, "", &fill);
        assert!(text.contains("database or disk is full"), "{text}");
        assert!(text.contains("the store is full") || text.contains("batch"), "{text}");
        let check = "PRAGMA integrity_check; SELECT count(*), min(bytes) FROM t;";
        assert_eq!(drive.sql("data.db", check), "ok\n1|kept");
        // In one connection, with smaller transactions, until there is no room.
        let mut commands = format!("PRAGMA synchronous={synchronous};\n.bail off\n");
        for row in 1..rows / 8 {
            commands +=
                &format!("INSERT INTO t SELECT {row}*100+value, randomblob(4000) FROM generate_series(1, 8);\n");
        }
        commands += "PRAGMA integrity_check; SELECT count(*)>100, count(*)%8, min(bytes) FROM t;
            PRAGMA openftl_statistics;
            DELETE FROM t WHERE id>900; PRAGMA integrity_check;
            INSERT INTO t SELECT value+100000, randomblob(4000) FROM generate_series(1, 8); SELECT count(*) FROM t WHERE id>=100000;\n";
        let output = drive.output("data.db", "", &commands);
        let (text, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(log.contains("database or disk is full"), "{text} {log}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[1]), ("ok", "1|1|kept"), "{text}");
        assert!(figure(lines[2], "used_bytes") <= figure(lines[2], "capacity_bytes"));
        assert_eq!(lines[3..], ["ok", "8"], "{text}");
        let lines = drive.sql("data.db", "PRAGMA integrity_check; SELECT count(*) FROM t WHERE id>=100000;");
        assert_eq!(lines, "ok\n8");
    }
}

#[test]
fn a_second_process_hears_who_has_the_store() {
    if !runs_here(SQLITE) {
        return;
    }
    let drive = Drive::new("64MiB");
    let mut first = drive.start();
    let mut input = first.stdin.take().expect("it has an input");
    let text = drive.opening("data.db", "") + "CREATE TABLE t(n);\n.shell touch opened\n";
    input.write_all(text.as_bytes()).expect("it listens");
    while !drive.folder().join("opened").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let text = errors(&drive, "", "SELECT 1;");
    let who = format!("is in use by process {} (sqlite3): one process has a store", first.id());
    assert!(text.contains(&who), "{text}");
    assert!(text.contains("database is locked"), "{text}");
    drop(input);
    assert!(first.wait().expect("it ends").success());
    assert_eq!(drive.sql("data.db", "SELECT count(*) FROM t;"), "0");
}

#[test]
fn what_is_no_store_is_refused_with_a_reason() {
    if !runs_here(SQLITE) {
        return;
    }
    let drive = Drive::new("64MiB");
    let reason = "compress=best is no compression; choose lz4, zstd or none";
    let text = errors(&drive, "&compress=best", "SELECT 1;");
    assert!(text.contains(reason) && text.contains("unable to open database"), "{text}");
    let write =
        |name: &str, text: &str| std::fs::write(drive.folder().join(name), text).expect("a file can be written");
    write("text", "no drive\n");
    write("ram.toml", "[media]\nprofile = \"cosmos\"\ncapacity = \"64MiB\"\n[ftl]\nkind = \"pages\"\n");
    write("block.toml", "[media]\nprofile = \"cosmos\"\n");
    for (parameters, reason) in [
        ("vfs=openftl", "data.db: no store; name it in the URI (store=PATH), or in the environment (OPENFTL_STORE)"),
        ("vfs=openftl&store=nowhere.oftl", "the store nowhere.oftl cannot be opened: No such file"),
        ("vfs=openftl&store=text", "text"),
        ("vfs=openftl&store=ram.toml", "its flash is in memory"),
        ("vfs=openftl&store=block.toml", "ftl.kind is not \"pages\""),
        (
            "vfs=openftl&store=nvme-tcp://127.0.0.1:1",
            "nvme-tcp://127.0.0.1:1: nobody answers at 127.0.0.1:1: Connection refused",
        ),
        ("vfs=openftl&store=nvme-tcp://:1", "there is no machine, or no port"),
        ("vfs=openftl&store=http://127.0.0.1:1", "it does not begin with nvme-tcp://"),
        ("vfs=openftl&mode=rw&store=eleos.oftl", "unable to open"),
        ("vfs=openftl&mode=ro&store=eleos.oftl", "unable to open"),
    ] {
        let file = drive.folder().join("commands");
        let text =
            format!(".log stderr\n.load {}\n.open 'file:data.db?{parameters}'\nSELECT 1;\n", library().display());
        std::fs::write(&file, text).expect("a file can be written");
        let mut command = std::process::Command::new(SQLITE);
        command.args(["-batch", "-bail"]).current_dir(drive.folder());
        let output = command.stdin(std::fs::File::open(&file).expect("it is there")).output().expect("sqlite3 runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(reason) && text.contains("unable to open database"), "{parameters}: {text}");
    }
}

#[test]
fn pages_of_others_and_damaged_ones_are_errors_and_no_rows() {
    if !runs_here(SQLITE) {
        return;
    }
    let put = |drive: &Drive, lpid: u64, bytes: &[u8]| {
        let store = open_stored(&drive.disk(), Access::ReadWrite).expect("it opens");
        let (session, last) = store.open_session(SessionId(*b"another program!")).expect("there is room");
        store.stage(session, last + 1, lpid, Change::Put(&[bytes]), None).expect("there is room");
        store.commit(session, last + 1, Durability::Durable).expect("it is sound");
        store.close().expect("it closes");
    };
    let drive = Drive::new("64MiB");
    drive.sql("data.db", "CREATE TABLE t(bytes); INSERT INTO t VALUES(randomblob(20000));");
    for (page, bytes, reason) in [
        (3, &[0; 4096][..], "page 3 of file 1 in the store is none of 4096 bytes"),
        (3, &[1, 2, 3][..], "page 3 of file 1 in the store is none of 4096 bytes"),
        (0, b"something else, and longer than a head", "the head of a file in the store is none"),
    ] {
        put(&drive, 1 << 32 | page, bytes);
        let text = errors(&drive, "", "SELECT length(bytes), hex(bytes) FROM t;");
        assert!(text.contains(reason) && text.contains("disk I/O error"), "{text}");
    }
    put(&drive, 0, b"no directory at all, but some other text");
    let text = errors(&drive, "", "SELECT 1;");
    assert!(text.contains("the directory of the store is none"), "{text}");
    let other = Drive::new("64MiB");
    put(&other, 5 << 32, b"pages that are somebody's");
    let text = errors(&other, "", "SELECT 1;");
    assert!(text.contains("the store has pages of another program"), "{text}");
}
