//! Programs that are killed: what they have reported as committed is there, and databases of one transaction agree.

use crate::world::{Drive, PYTHON, SQLITE, figure, library, runs_here};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Transactions on two databases, each reported when it is committed.
const WRITER: &str = "
import sqlite3, sys
loader = sqlite3.connect(':memory:')
loader.enable_load_extension(True)
loader.load_extension(LIBRARY)
c = sqlite3.connect(URI, uri=True, isolation_level=None)
c.execute(\"attach 'other.db' as other\")
c.execute('pragma cache_size=4')
c.execute('pragma journal_mode=' + MODE)
for name in ('main', 'other'):
    c.execute('create table if not exists %s.t(n integer primary key, bytes, times default 0)' % name)
    c.execute('create index if not exists %s.by_bytes on t(bytes)' % name)
for name in ('main', 'other'):
    c.execute('pragma %s.synchronous=%s' % (name, 'FULL' if DURABLE else 'OFF'))
print('ready', flush=True)
for n in range(FIRST, FIRST + 200):
    c.execute('begin')
    c.execute('insert into main.t(n, bytes) values(?, hex(zeroblob(?)) || ?)', (n, n * 37 % 900, n))
    c.execute('update main.t set times = times + 1 where n % 10 = ?', (n % 10,))
    if TWO:
        c.execute('insert into other.t(n, bytes) values(?, ?)', (n, n))
    c.execute('commit')
    print(n, flush=True)
";

/// How the program writes.
#[derive(Clone, Copy)]
struct Writer {
    mode: &'static str,
    has_two: bool,
    is_durable: bool,
}

fn kill_and_look(Writer { mode, has_two, is_durable }: Writer, seed: u64) {
    let python = |is: bool| if is { "True" } else { "False" };
    let drive = Drive::new("64MiB");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut next, mut killed) = (0, 0);
    for round in 0..10 {
        let compress = if round % 2 == 0 { "&compress=lz4" } else { "" };
        let head = format!(
            "LIBRARY = {:?}\nURI = '{}{compress}'\nMODE = '{mode}'\nFIRST = {next}\nTWO = {}\nDURABLE = {}\n",
            library().display().to_string(),
            drive.uri("data.db"),
            python(has_two),
            python(is_durable)
        );
        let mut command = Command::new(PYTHON);
        command.args(["-c", &(head + WRITER)]).current_dir(drive.folder()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("Python runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it has an output")).lines();
        assert_eq!(lines.next().expect("it opens the database").expect("text"), "ready", "round {round}");
        std::thread::sleep(Duration::from_micros(u64::from(random.next_u32() % 150_000)));
        child.kill().expect("it can be killed");
        let is_killed = !child.wait().expect("it ends").success();
        let reported = lines.map_while(Result::ok).filter_map(|line| line.parse::<u64>().ok()).last();
        let least = reported.map_or(next, |last| last + 1);
        let text = "SELECT coalesce(max(n)+1, 0), count(*), coalesce(min(n), 0) FROM t; PRAGMA integrity_check;";
        let found = drive.sql("data.db", text);
        let there: u64 = found.split('|').next().and_then(|number| number.parse().ok()).expect("a number");
        // One more may be there than was reported.
        let is_possible = there <= least + 1 && (there >= least || !is_durable && there >= next);
        assert!(is_possible, "round {round}: {reported:?} was reported, {found} is there");
        let first = if there == 0 { 0 } else { there };
        assert_eq!(found, format!("{there}|{first}|0\nok"), "round {round}");
        if has_two {
            assert_eq!(drive.sql("other.db", text), found, "round {round}: databases of one transaction agree");
        }
        next = there;
        killed += u32::from(is_killed);
    }
    assert!(killed > 3 && (next > 0 || !is_durable), "{killed} were killed, {next} transactions are there");
    // What the killed programs had staged is free again.
    drive.sql("other.db", "DROP TABLE t; VACUUM;");
    let text = drive.sql("data.db", "PRAGMA journal_mode=delete; DROP TABLE t; VACUUM; PRAGMA openftl_statistics;");
    assert!(figure(&text, "used_bytes") < 100_000, "{text}");
}

#[test]
fn what_a_killed_program_has_reported_is_there() {
    if runs_here(PYTHON) && runs_here(SQLITE) {
        for (mode, seed) in [("delete", 1), ("persist", 2), ("memory", 3), ("wal", 8)] {
            kill_and_look(Writer { mode, has_two: false, is_durable: true }, seed);
        }
    }
}

#[test]
fn databases_of_one_transaction_agree_after_a_kill() {
    if runs_here(PYTHON) && runs_here(SQLITE) {
        for (mode, seed) in [("delete", 4), ("truncate", 5)] {
            kill_and_look(Writer { mode, has_two: true, is_durable: true }, seed);
        }
    }
}

#[test]
fn without_syncs_a_kill_loses_the_last_transactions_and_no_others() {
    if runs_here(PYTHON) && runs_here(SQLITE) {
        kill_and_look(Writer { mode: "delete", has_two: false, is_durable: false }, 6);
        kill_and_look(Writer { mode: "delete", has_two: true, is_durable: false }, 7);
        kill_and_look(Writer { mode: "wal", has_two: false, is_durable: false }, 9);
    }
}
