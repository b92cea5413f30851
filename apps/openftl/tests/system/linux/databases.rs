//! SQLite on ext4 on the drive: what of its transactions reaches the flash.

use super::{Linux, boots_here, serve};
use crate::drive::Drive;
use crate::network::Network;
use openftl_lab::order_table;
use serde_json::Value;

const TRANSACTIONS: u64 = 500;

/// Megabytes between two answers to `ctl stats`, by what was written.
fn megabytes(before: &Value, after: &Value, name: &str) -> f64 {
    let blocks = |stats: &Value| stats[name].as_u64().unwrap_or_else(|| panic!("no {name}: {stats}"));
    (blocks(after) - blocks(before)) as f64 * 4096.0 / 1e6
}

#[test]
fn small_transactions_of_sqlite_on_ext4_are_written_several_times() {
    if !boots_here(&["mkfs.ext4", "sqlite3"]) {
        return;
    }
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
            sqlite3 /mnt/data.db 'PRAGMA integrity_check' >&2
            umount /mnt
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
        println!("{journal}: {before}\n{after}");
        linux.wait().succeeded();
        server.stop();
    }
}
