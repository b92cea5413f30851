//! A database of SQLite in a served store of pages, of which several processes insert rows at once, and some are killed: every row whose commit was
//! reported is there once.

use crate::drive::run_openftl;
use crate::environment::{Need, runs_here, sqlite_library};
use crate::mounted::text;
use crate::pages::serve;
use crate::program::{Running, run};
use std::collections::BTreeSet;
use std::path::Path;

const PROCESSES: usize = 3;
const ROWS: usize = 12;

const STORE: &str = "[media]\nprofile = \"cosmos\"\ncapacity = \"64MiB\"\nstore = \"file\"\npath = \"pages.oftl\"\n\
     timing = \"instant\"\ndurability = \"process\"\n[ftl]\nkind = \"pages\"\n";

/// What SQLite's shell says to this.
fn sql(folder: &Path, statements: &str) -> String {
    let init = folder.join("open.sql");
    run("sqlite3", ["-init", text(&init), "-batch", ":memory:", ".timeout 60000", statements]).succeeded().stdout
}

/// A process that inserts rows one by one, and says which are committed. Each shell that it starts is a process with a connection of its own; with
/// `kills` some of these are killed at work.
fn insert(folder: &Path, process: usize, kills: bool) -> Running {
    let killed = if kills { "timeout -s KILL 0.0$((RANDOM % 9 + 1))" } else { "" };
    let line = format!(
        "cd {} && for row in $(seq {ROWS}); do \
           {killed} sqlite3 -init open.sql -batch :memory: '.timeout 60000' \
             \"INSERT INTO t(name) VALUES('{process}-$row'); SELECT '{process}-$row';\" 2>>errors || true; \
         done",
        folder.display()
    );
    Running::start("bash", ["-c", &line])
}

#[test]
fn processes_that_share_a_database_lose_no_row_whoever_is_killed() {
    if !runs_here(&[Need::Sqlite]) {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let path = |name: &str| text(&folder.join(name)).to_owned();
    std::fs::write(path("pages.toml"), STORE).unwrap();
    let disk = path("pages.oftl");
    run_openftl(["create", &disk, "--drive", &path("pages.toml")]).succeeded();
    let (mut server, uri) = serve(folder, &disk);
    let library = sqlite_library().expect("it was asked whether there is one");
    for journal in ["delete", "wal"] {
        let open =
            format!(".log stderr\n.load {}\n.open 'file:{journal}.db?vfs=openftl&store={uri}'\n", library.display());
        std::fs::write(path("open.sql"), open).unwrap();
        sql(
            folder,
            &format!("PRAGMA journal_mode={journal}; CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE);"),
        );
        let workers: Vec<Running> = (0..PROCESSES).map(|process| insert(folder, process, process == 0)).collect();
        let told: Vec<String> = workers.into_iter().map(|worker| worker.wait().succeeded().stdout).collect();
        let committed: BTreeSet<&str> = told.iter().flat_map(|told| told.lines()).collect();
        let rows = sql(folder, "SELECT name FROM t;");
        let there: BTreeSet<&str> = rows.lines().collect();
        let errors = std::fs::read_to_string(path("errors")).unwrap_or_default();
        assert!(committed.is_subset(&there), "{committed:?} were committed, {there:?} are there: {errors}");
        assert!(committed.len() >= (PROCESSES - 1) * ROWS, "{} of {journal}: {errors}", committed.len());
        assert_eq!(sql(folder, "PRAGMA integrity_check;"), "ok\n");
    }
    server.kill();
    run_openftl(["check", &disk]).succeeded();
}
