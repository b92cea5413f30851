//! SQLite on ext4 on the drive: what of its transactions reaches the flash, to compare with a store of pages.
//!
//! `cargo test --release -p openftl --test system small_transactions -- --nocapture` prints it.

use super::{Linux, boots_here, serve};
use crate::drive::Drive;
use crate::network::Network;
use openftl_experiments::order_table;
use serde_json::Value;

const TRANSACTIONS: u64 = 500;

/// Megabytes written meanwhile: by the host, and to the flash with padding.
fn written(before: &Value, after: &Value) -> (f64, f64) {
    let blocks = |stats: &Value, path: &str| stats.pointer(path).and_then(Value::as_u64).expect("a count of blocks");
    let megabytes = |path: &str| (blocks(after, path) - blocks(before, path)) as f64 * 4096.0 / 1e6;
    (megabytes("/statistics/host_blocks_written"), megabytes("/nand_blocks_written"))
}

#[test]
fn small_transactions_of_sqlite_on_ext4_are_written_several_times() {
    if !boots_here(&["mkfs.ext4", "sqlite3"]) {
        return;
    }
    let mut least = f64::MAX;
    for journal in ["delete", "wal"] {
        let (drive, network) = (Drive::create(), Network::new());
        let server = serve(&drive, &network, &[]);
        let script = format!(
            r#"
            connect
            mkfs.ext4 -q -F $disk >&2 || fail mkfs
            mount -t ext4 $disk /mnt || fail mount
            cat >rows.sql <<'END'
PRAGMA journal_mode={journal};
{}
END
            cat >transactions.sql <<'END'
PRAGMA synchronous=full;
{}
END
            sqlite3 /mnt/data.db <rows.sql >&2 || fail rows
            sync
            touch filled
            until_true test -e go
            sqlite3 /mnt/data.db <transactions.sql >&2 || fail transactions
            sync
            touch changed
            until_true test -e end
            sqlite3 /mnt/data.db 'PRAGMA integrity_check' >check
            umount /mnt || fail umount
            "#,
            order_table::rows(),
            order_table::transactions(TRANSACTIONS),
        );
        let mut linux = Linux::boot(&network, &script);
        linux.reaches("filled");
        let before = drive.ask(&["stats"]);
        linux.tell("go");
        linux.reaches("changed");
        let after = drive.ask(&["stats"]);
        linux.tell("end");
        let told = linux.wait().succeeded();
        assert_eq!(told.text("check").trim(), "ok");
        server.stop();
        let (host, nand) = written(&before, &after);
        println!(
            "{TRANSACTIONS} transactions, journal_mode={journal}: {host:.1} MB written by ext4, {nand:.1} MB to the flash"
        );
        least = least.min(nand);
    }
    // A store of pages takes less than half of that, as `figures.rs` of `bindings/sqlite` shows.
    assert!(least > 45.0, "{least} MB");
}
