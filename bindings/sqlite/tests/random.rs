//! The same SQL, drawn from a seed, on a file of the system and in a store: the databases are the same.

use crate::world::{Drive, SQLITE, runs_here};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt::Write;

const SEEDS: u64 = 12;
const STATEMENTS: u32 = 150;

/// A random number below `below`.
fn draw(random: &mut Xoshiro256PlusPlus, below: u32) -> u32 {
    random.next_u32() % below
}

fn pick<'a>(random: &mut Xoshiro256PlusPlus, of: &[&'a str]) -> &'a str {
    of[draw(random, of.len() as u32) as usize]
}

fn change(random: &mut Xoshiro256PlusPlus, next: &mut u32) -> String {
    let (a, b) = (draw(random, 5000), draw(random, 40));
    let table = pick(random, &["a", "b"]);
    match draw(random, 6) {
        0..3 => {
            let (first, count, bytes) = (*next, draw(random, 60) + 1, draw(random, 3000));
            *next += count;
            format!(
                "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i+1 FROM n WHERE i<{}) \
                 INSERT INTO {table} SELECT i, i*{a}%997, hex(zeroblob({bytes}/(1+i%7))) || i FROM n;",
                first + count - 1
            )
        }
        3 => format!("UPDATE {table} SET k=k+{b}, v=substr(v, 1, {a}) WHERE id%{}=0;", b + 1),
        4 => format!("UPDATE {table} SET v=v||hex(zeroblob({})) WHERE k<{a}%100;", b * 20),
        _ => format!("DELETE FROM {table} WHERE k%{}={};", b + 2, draw(random, 3)),
    }
}

fn script(seed: u64, is_synchronous: bool) -> String {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let random = &mut random;
    let mut text = format!(
        "PRAGMA page_size={}; PRAGMA auto_vacuum={}; PRAGMA journal_mode={}; PRAGMA cache_size={}; PRAGMA synchronous={};
         CREATE TABLE a(id INTEGER PRIMARY KEY, k, v); CREATE INDEX ak ON a(k); CREATE TABLE b(id INTEGER PRIMARY KEY, k, v);\n",
        pick(random, &["512", "1024", "4096", "8192", "65536"]),
        pick(random, &["0", "1", "2"]),
        pick(random, &["delete", "truncate", "persist", "memory"]),
        pick(random, &["3", "20", "-2000"]),
        // A file of the system has the same bytes if nobody waits for them.
        if is_synchronous { ["OFF", "NORMAL", "FULL", "EXTRA"][seed as usize % 4] } else { "OFF" },
    );
    let mut next = 1;
    for _ in 0..STATEMENTS {
        match draw(random, 12) {
            0 => text.push_str("VACUUM;\n"),
            1 => writeln!(text, "PRAGMA page_size={}; VACUUM;", 512 << draw(random, 8)).expect("a string takes all"),
            2 => writeln!(text, "PRAGMA incremental_vacuum({});", draw(random, 9)).expect("a string takes all"),
            3..8 => {
                text.push_str("BEGIN;\n");
                for _ in 0..=draw(random, 4) {
                    text += &change(random, &mut next);
                    if draw(random, 3) == 0 {
                        text += "SAVEPOINT s;";
                        text += &change(random, &mut next);
                        text += pick(random, &["ROLLBACK TO s; RELEASE s;\n", "RELEASE s;\n"]);
                    }
                }
                text += pick(random, &["COMMIT;\n", "COMMIT;\n", "ROLLBACK;\n"]);
            }
            _ => text += &change(random, &mut next),
        }
        if draw(random, 10) == 0 {
            text += "PRAGMA integrity_check; SELECT count(*), sum(k), sum(length(v)) FROM a;\n";
        }
    }
    text + "PRAGMA integrity_check;\nPRAGMA page_count;\n.dump\n"
}

#[test]
fn the_same_sql_makes_the_same_database_as_in_a_file() {
    if !runs_here(SQLITE) {
        return;
    }
    for seed in 0..SEEDS {
        let drive = Drive::new("192MiB");
        let text = script(seed, true);
        let plain = drive.folder().join("plain.sql");
        std::fs::write(&plain, script(seed, false)).expect("a file can be written");
        let mut command = std::process::Command::new(SQLITE);
        command.args(["-batch", "-bail", "plain.db"]).current_dir(drive.folder());
        let output = command.stdin(std::fs::File::open(&plain).expect("it is there")).output().expect("sqlite3 runs");
        let expected = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && expected.contains("\nok\n"), "seed {seed}");
        let compress = if seed % 2 == 0 { "&compress=lz4" } else { "" };
        let made = drive.sql_with("data.db", compress, &text);
        assert!(made == expected.trim_end(), "seed {seed}: the databases differ");
        let again = drive.sql("data.db", "PRAGMA integrity_check;\nPRAGMA page_count;\n.dump");
        assert!(expected.trim_end().ends_with(&again), "seed {seed}: the database differs when it is opened again");
    }
}
