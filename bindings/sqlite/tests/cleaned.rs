//! A small store that is overwritten many times: chunks are cleaned below the databases.

use crate::world::{Drive, SQLITE, figure, runs_here};

#[test]
fn a_small_store_is_overwritten_many_times() {
    if !runs_here(SQLITE) {
        return;
    }
    for compress in ["none", "lz4"] {
        let drive = Drive::new("24MiB");
        let more = format!("&compress={compress}");
        let mut text = String::from(
            "PRAGMA secure_delete=OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE TABLE u(id INTEGER PRIMARY KEY, v);
             INSERT INTO t SELECT value, hex(randomblob(1500)) FROM generate_series(1, 5000);
             INSERT INTO u SELECT value, 0 FROM generate_series(1, 5000);\n",
        );
        for round in 0..150 {
            text += &format!("UPDATE t SET v=hex(randomblob(1500)) WHERE (id*{}+{round})%37=0;\n", round % 36 + 1);
            text += &format!("UPDATE u SET v=v+1 WHERE id%101={};\n", round % 101);
        }
        text += "PRAGMA integrity_check; SELECT count(*), sum(length(v)) FROM t; SELECT sum(v)>0 FROM u; PRAGMA openftl_statistics;";
        let found = drive.sql_with("data.db", &more, &text);
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines[..4], ["0", "ok", "5000|15000000", "1"]);
        assert!(figure(lines[4], "nand_relocation_bytes") > 0 || compress == "lz4", "{found}");
        assert!(figure(lines[4], "bytes_put") > 2 * figure(lines[4], "capacity_bytes") || compress == "lz4", "{found}");
        assert_eq!(
            drive.sql("data.db", "PRAGMA integrity_check; SELECT count(*), sum(length(v)) FROM t;"),
            "ok\n5000|15000000"
        );
    }
}
