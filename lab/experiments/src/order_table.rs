//! A table of orders with an index, and small transactions on it: what SQLite is measured with, on whatever it stands.

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

/// The SQL of transaction `at`: it changes a row and its place in the index, and adds a row.
#[must_use]
pub fn transaction(at: u64) -> String {
    let row = at * 7919 % ROWS + 1;
    let [changed, added] = notes(at);
    format!(
        "BEGIN; UPDATE t SET k=k+1, note='{changed}' WHERE id={row}; INSERT INTO t(k, note) VALUES({row}*31%20011, '{added}'); COMMIT;"
    )
}

/// The SQL of so many transactions, one a line.
#[must_use]
pub fn transactions(count: u64) -> String {
    (0..count).map(|at| transaction(at) + "\n").collect()
}

/// Bytes of the columns that transaction `at` writes: texts, and 8 for each of three numbers.
#[must_use]
pub fn changed_bytes(at: u64) -> u64 {
    notes(at).iter().map(|note| note.len() as u64).sum::<u64>() + 3 * 8
}

fn notes(at: u64) -> [String; 2] {
    [format!("changed in {at}"), format!("added in transaction {at}")]
}
