//! A table of orders with an index, and small transactions on it: what SQLite is measured with, on whatever it stands.

use std::fmt::Write;

/// Rows before the first transaction.
pub const ROWS: u64 = 20_000;

/// The SQL that makes the table and fills it.
#[must_use]
pub fn rows() -> String {
    format!(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, note TEXT); CREATE INDEX tk ON t(k);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{ROWS})\n\
         INSERT INTO t SELECT i, i*7919%20011, 'order ' || i || ' of customer ' || (i*31%977) || ', to be sent by rail' FROM n;\n"
    )
}

/// The SQL of so many transactions: each changes a row and its place in the index, and adds a row.
#[must_use]
pub fn transactions(count: u64) -> String {
    let mut text = String::new();
    for at in 0..count {
        let row = at * 7919 % ROWS + 1;
        writeln!(
            text,
            "BEGIN; UPDATE t SET k=k+1, note='changed in {at}' WHERE id={row}; \
             INSERT INTO t(k, note) VALUES({row}*31%20011, 'added in transaction {at}'); COMMIT;"
        )
        .expect("a string takes all");
    }
    text
}
