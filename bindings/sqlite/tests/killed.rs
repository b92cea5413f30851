//! Programs that are killed: what they have reported as committed is there, and databases of one transaction agree.

use crate::world::{Drive, PYTHON, SQLITE, library, runs_here};
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

fn kill_and_look(mode: &str, has_two: bool, seed: u64) {
    let drive = Drive::new("64MiB");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut next, mut killed) = (0, 0);
    for round in 0..10 {
        let compress = if round % 2 == 0 { "&compress=lz4" } else { "" };
        let head = format!(
            "LIBRARY = {:?}\nURI = '{}{compress}'\nMODE = '{mode}'\nFIRST = {next}\nTWO = {}\n",
            library().display().to_string(),
            drive.uri("data.db"),
            if has_two { "True" } else { "False" }
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
        assert!(there == least || there == least + 1, "round {round}: {reported:?} was reported, {found} is there");
        let first = if there == 0 { 0 } else { there };
        assert_eq!(found, format!("{there}|{first}|0\nok"), "round {round}");
        if has_two {
            assert_eq!(drive.sql("other.db", text), found, "round {round}: databases of one transaction agree");
        }
        next = there;
        killed += u32::from(is_killed);
    }
    assert!(killed > 3 && next > 0, "{killed} were killed, {next} transactions are there");
}

#[test]
fn what_a_killed_program_has_reported_is_there() {
    if runs_here(PYTHON) && runs_here(SQLITE) {
        kill_and_look("delete", false, 1);
        kill_and_look("persist", false, 2);
        kill_and_look("memory", false, 3);
    }
}

#[test]
fn databases_of_one_transaction_agree_after_a_kill() {
    if runs_here(PYTHON) && runs_here(SQLITE) {
        kill_and_look("delete", true, 4);
        kill_and_look("truncate", true, 5);
    }
}
