//! RocksDB on table drives, on zones and on ALFS: its own programs, unmodified, with the plugin loaded into them.

use crate::drive::{openftl, run_openftl};
use crate::environment::{Need, rocksdb, runs_here};
use crate::program::{Ended, Running, run, wait_for};
use openftl_media::Profile;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Times that a database is cut off. `OPENFTL_ROUNDS` asks for more.
fn rounds(few: usize) -> usize {
    std::env::var("OPENFTL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// What the files of a drive are on, as a drive description has it.
const TABLES: &str = "kind = \"tables\"\nlog_area = \"64MiB\"\n";
/// Small zones, so that there are many on a small drive.
const ZONES: &str = "kind = \"zones\"\nzone_width = 1\n";

/// As small segments, for a file system.
const SEGMENTS: &str = "kind = \"segments\"\nsegment_width = 1\nmax_open_segments = 8\n";

/// All of them.
const STORES: [&str; 3] = [TABLES, ZONES, SEGMENTS];

/// A drive with files in a folder of its own.
struct FileDrive {
    folder: tempfile::TempDir,
    /// Its drive description.
    file: PathBuf,
}

impl FileDrive {
    /// A new one with this FTL.
    fn create(ftl: &str, profile: &str, capacity: &str, timing: &str) -> FileDrive {
        let folder = tempfile::tempdir().expect("a folder for the drive");
        let file = folder.path().join("lsm.toml");
        let text = format!(
            "[media]\nprofile = \"{profile}\"\ncapacity = \"{capacity}\"\nstore = \"file\"\npath = \"lsm.oftl\"\ntiming = \"{timing}\"\n\
             [ftl]\n{ftl}"
        );
        std::fs::write(&file, text).expect("the folder can be written");
        let drive = FileDrive { folder, file };
        run_openftl(["create", drive.disk().to_str().unwrap(), "--drive", drive.file.to_str().unwrap()]).succeeded();
        drive
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("lsm.oftl")
    }

    fn uri(&self) -> String {
        format!("openftl://{}", self.file.display())
    }

    /// Runs a program of RocksDB's with the plugin loaded; `environment` is more of what it finds there.
    fn start(&self, program: &str, environment: &[&str], arguments: &[&str]) -> Running {
        start(program, environment, &self.uri(), arguments)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Ended {
        self.start(program, &[], arguments).wait()
    }

    fn files(&self) -> Ended {
        run_openftl(["files", self.file.to_str().unwrap()])
    }
}

fn start(program: &str, environment: &[&str], uri: &str, arguments: &[&str]) -> Running {
    let folder = rocksdb().expect("the test needs it");
    let preload = format!("LD_PRELOAD={}", folder.join("libopenftl_rocksdb.so").display());
    // Programs that Debian's packages lack, or all of a RocksDB of its own, are beside the plugin.
    let found =
        [program, &format!("tools/{program}"), &format!("db_stress_tool/{program}")].map(|name| folder.join(name));
    let program = found.iter().find(|file| file.is_file()).map_or(program.into(), |file| file.display().to_string());
    let uri = format!("--fs_uri={uri}");
    let words = environment.iter().copied().chain([preload.as_str(), &program, &uri]).chain(arguments.iter().copied());
    Running::start("env", words)
}

const BENCH: [&str; 5] = [
    "--db=/db",
    "--compression_type=none",
    "--value_size=500",
    "--write_buffer_size=2000000",
    "--target_file_size_base=2000000",
];

fn bench(drive: &FileDrive, benchmarks: &str, more: &[&str]) -> Ended {
    let benchmarks = format!("--benchmarks={benchmarks}");
    let arguments: Vec<&str> = BENCH.iter().copied().chain([benchmarks.as_str()]).chain(more.iter().copied()).collect();
    drive.run("db_bench", &arguments)
}

#[test]
fn its_programs_fill_read_and_look_at_a_database_that_is_there_the_next_time() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    for ftl in STORES {
        programs_fill_read_and_look_at_a_database_on(ftl);
    }
}

fn programs_fill_read_and_look_at_a_database_on(ftl: &str) {
    let drive = FileDrive::create(ftl, "cosmos", "256MiB", "instant");
    let filled = bench(&drive, "fillrandom,overwrite,readrandom,deleterandom,compact,verifychecksum", &["--num=20000"]);
    filled.succeeded().printing(&["fillrandom", "verifychecksum"]);
    bench(&drive, "readseq,seekrandom,multireadrandom", &["--num=20000", "--use_existing_db=1", "--reads=2000"])
        .succeeded();
    let direct = ["--num=20000", "--use_direct_reads", "--use_direct_io_for_flush_and_compaction", "--threads=4"];
    bench(&drive, "fillseq,readwhilewriting,verifychecksum", &direct).succeeded();
    drive.run("ldb", &["--db=/db", "scan", "--hex", "--max_keys=3"]).succeeded().printing(&["0x"]);
    drive.run("ldb", &["--db=/db", "checkconsistency"]).succeeded().printing(&["OK"]);
    drive.run("sst_dump", &["--file=/db", "--command=check"]).succeeded();
    drive.files().succeeded().printing(&["/db/CURRENT", ".sst"]);
}

#[test]
fn every_operation_of_its_file_system_does_what_it_should() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    for ftl in STORES {
        every_operation_does_what_it_should_on(ftl);
    }
}

fn every_operation_does_what_it_should_on(ftl: &str) {
    let drive = FileDrive::create(ftl, "cosmos", "256MiB", "instant");
    own_program("operations", &[&drive.uri(), "--durable"]);
}

/// Runs one of the test programs that are built with the plugin.
fn own_program(name: &str, arguments: &[&str]) {
    let program = rocksdb().expect("the test needs it").join(name);
    run(program.to_str().unwrap(), arguments.iter().copied()).succeeded();
}

/// What `db_stress` does, with every write synced: whatever it was told is done has to be there.
const STRESS: [&str; 34] = [
    "--db=/db",
    "--sync=1",
    "--threads=2",
    "--max_key=5000",
    "--ops_per_thread=100000000",
    "--value_size_mult=33",
    "--compression_type=none",
    "--column_families=1",
    "--reopen=0",
    "--write_buffer_size=500000",
    "--target_file_size_base=500000",
    "--max_bytes_for_level_base=2000000",
    "--readpercent=25",
    "--prefixpercent=5",
    "--writepercent=55",
    "--delpercent=10",
    "--delrangepercent=0",
    "--iterpercent=5",
    "--clear_column_family_one_in=0",
    "--checkpoint_one_in=0",
    "--backup_one_in=0",
    "--ingest_external_file_one_in=0",
    "--read_fault_one_in=0",
    "--write_fault_one_in=0",
    "--sync_fault_injection=0",
    // What only newer versions know.
    "--metadata_read_fault_one_in=0",
    "--metadata_write_fault_one_in=0",
    "--open_read_fault_one_in=0",
    "--open_write_fault_one_in=0",
    "--open_metadata_read_fault_one_in=0",
    "--open_metadata_write_fault_one_in=0",
    "--compression_manager=none",
    "--remote_compaction_worker_threads=0",
    "--undefok=metadata_read_fault_one_in,metadata_write_fault_one_in,open_read_fault_one_in,open_write_fault_one_in,\
     open_metadata_read_fault_one_in,open_metadata_write_fault_one_in,compression_manager,remote_compaction_worker_threads",
];

/// One run of it that goes on until it is cut off.
fn stress(drive: &FileDrive, expected: &Path, is_first: bool, environment: &[&str], more: &[&str]) -> Running {
    let expected = format!("--expected_values_dir={}", expected.display());
    let destroy = format!("--destroy_db_initially={}", u32::from(is_first));
    let all = STRESS.iter().copied().chain([expected.as_str(), destroy.as_str()]).chain(more.iter().copied());
    drive.start("db_stress", environment, &all.collect::<Vec<_>>())
}

/// Cuts a database off again and again by `cut`, and has it verified each time, and at the end.
fn survives(drive: &FileDrive, rounds: usize, mut cut: impl FnMut(usize, &dyn Fn(&[&str]) -> Running)) {
    let expected = drive.folder.path().join("expected");
    std::fs::create_dir(&expected).expect("the folder can be written");
    for round in 0..rounds {
        cut(round, &|environment| stress(drive, &expected, round == 0, environment, &[]));
    }
    let last = stress(drive, &expected, false, &[], &["--ops_per_thread=200"]).wait().succeeded();
    assert!(last.stdout.contains("Crash-recovery verification passed"), "{last}");
}

#[test]
fn nothing_that_was_synced_is_lost_when_its_process_is_killed() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    for ftl in STORES {
        nothing_that_was_synced_is_lost_by_a_kill_on(ftl);
    }
}

fn nothing_that_was_synced_is_lost_by_a_kill_on(ftl: &str) {
    let drive = FileDrive::create(ftl, "cosmos", "256MiB", "instant");
    survives(&drive, rounds(3), |round, start| {
        let mut running = start(&[]);
        // It says how far it is, in steps of a hundred.
        let far = format!("finished {} ops", 300 * (round + 1));
        crate::program::wait_for("db_stress to get somewhere", || {
            assert!(running.ended().is_none_or(|ended| panic!("{ended}")));
            (running.stdout() + &running.stderr()).contains(&far).then_some(())
        });
        running.kill();
    });
}

#[test]
fn nothing_that_was_synced_is_lost_when_the_power_of_its_drive_is_cut() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    for ftl in STORES {
        nothing_that_was_synced_is_lost_by_a_power_cut_on(ftl);
    }
}

fn nothing_that_was_synced_is_lost_by_a_power_cut_on(ftl: &str) {
    // Paired pages, and a cache that does not outlive the power: half of the times what was being programmed is torn.
    // A file system needs 64 segments, and a chunk here has 16 MiB.
    let capacity = if ftl == SEGMENTS { "2GiB" } else { "256MiB" };
    let drive = FileDrive::create(ftl, "westlake", capacity, "wall-clock");
    survives(&drive, rounds(4), |round, start| {
        let commands = 400 + 700 * round;
        let torn = if round % 2 == 0 { "" } else { ",torn" };
        let ended = start(&[&format!("OPENFTL_POWER_CUT={commands}{torn}")]).wait();
        assert!(ended.status.code().is_none(), "its own drive ends it: {ended}");
        assert!(!ended.stdout.contains("Verification failed") && !ended.stderr.contains("orruption"), "{ended}");
    });
}

#[test]
fn a_full_drive_is_an_error_and_the_database_goes_on_after_deletes() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    for ftl in STORES {
        a_full_drive_is_an_error_on(ftl);
    }
}

fn a_full_drive_is_an_error_on(ftl: &str) {
    let drive = FileDrive::create(ftl, "cosmos", "64MiB", "instant");
    let full = bench(&drive, "fillrandom", &["--num=400000", "--disable_auto_compactions=0"]).failed();
    assert!((full.stdout.clone() + &full.stderr).to_lowercase().contains("no space"), "{full}");
    // A new database in place of the full one: its files are deleted first.
    bench(&drive, "fillseq,readseq", &["--num=20000"]).succeeded();
}

#[test]
fn a_compaction_that_finds_no_room_is_an_error_and_the_same_process_goes_on_after_deletes() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    for ftl in STORES {
        a_compaction_that_finds_no_room_is_an_error_on(ftl);
    }
}

fn a_compaction_that_finds_no_room_is_an_error_on(ftl: &str) {
    let drive = FileDrive::create(ftl, "cosmos", "256MiB", "instant");
    own_program("full_drive", &[&drive.uri()]);
}

/// Two databases at a time on a drive that is served at `endpoint`, and what is found in them afterwards.
fn programs_share_a_drive_served_at(endpoint: &str, drive: &FileDrive) {
    let text = std::fs::read_to_string(&drive.file).unwrap();
    std::fs::write(&drive.file, format!("{text}[host]\nfiles = \"{endpoint}\"\n")).unwrap();
    let mut server = Running::start(&openftl(), ["serve", "--drive", drive.file.to_str().unwrap()]);
    wait_for("the server to listen", || {
        assert!(server.ended().is_none_or(|ended| panic!("{ended}")));
        server.stdout().contains("Ctrl-C ends it").then_some(())
    });
    let fill = ["--benchmarks=fillrandom,overwrite,compact,verifychecksum", "--num=20000", "--compression_type=none"];
    let small = ["--value_size=500", "--write_buffer_size=2000000", "--target_file_size_base=2000000"];
    let databases = ["--db=/one", "--db=/other"];
    let fillers = databases.map(|database| {
        let arguments: Vec<&str> = [database].iter().chain(&fill).chain(&small).copied().collect();
        drive.start("db_bench", &[], &arguments)
    });
    for filler in fillers {
        filler.wait().succeeded().printing(&["verifychecksum"]);
    }
    kill_process(Pid::from_child(&server.child), Signal::TERM).expect("our own child takes a signal");
    server.wait().succeeded().printing(&["is closed"]);
    // Nobody serves it now, so that the program opens it itself.
    for database in databases {
        drive
            .run(
                "db_bench",
                &[
                    database,
                    "--benchmarks=verifychecksum,readseq",
                    "--num=20000",
                    "--use_existing_db=1",
                    "--compression_type=none",
                ],
            )
            .succeeded();
    }
}

#[test]
fn several_programs_use_a_drive_that_is_served_at_a_socket_or_over_tcp() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    let drive = FileDrive::create(TABLES, "cosmos", "256MiB", "instant");
    programs_share_a_drive_served_at(&format!("unix:{}", drive.folder.path().join("lsm.sock").display()), &drive);
    let drive = FileDrive::create(TABLES, "cosmos", "256MiB", "instant");
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    programs_share_a_drive_served_at(&format!("127.0.0.1:{port}"), &drive);
}

#[test]
fn programs_and_resets_that_fail_and_blocks_that_are_weak_under_flushes_and_compactions_lose_nothing() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    for ftl in STORES {
        failing_flash_loses_nothing_on(ftl);
    }
}

fn failing_flash_loses_nothing_on(ftl: &str) {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("failing.toml");
    let mut failing = Profile::builtin("cosmos").unwrap();
    failing.faults.program_fail = 0.003;
    failing.faults.erase_fail = 0.15;
    failing.faults.read_retry = 0.01;
    failing.faults.high_ecc = 0.01;
    std::fs::write(&profile, failing.to_toml()).unwrap();
    let drive = FileDrive::create(ftl, profile.to_str().unwrap(), "512MiB", "instant");
    let statistics = folder.path().join("statistics.json");
    let counted = format!("OPENFTL_STATISTICS={}", statistics.display());
    let load = ["--benchmarks=fillrandom,overwrite,overwrite,compact,verifychecksum", "--num=60000"];
    let arguments: Vec<&str> = BENCH.iter().chain(&load).copied().collect();
    drive.start("db_bench", &[&counted], &arguments).wait().succeeded().printing(&["verifychecksum"]);
    let counts: Value = serde_json::from_str(&std::fs::read_to_string(&statistics).unwrap()).unwrap();
    for what in ["program_failures", "reset_failures", "blocks_moved"] {
        assert!(counts[what].as_u64().unwrap() > 0, "no {what}: {counts}");
    }
    assert_eq!(counts["read_failures"], 0, "{counts}");
    bench(&drive, "verifychecksum,readseq", &["--num=60000", "--use_existing_db=1"]).succeeded();
    run_openftl(["check", drive.disk().to_str().unwrap()]).succeeded().printing(&["sound"]);
}

#[test]
fn what_is_no_table_drive_or_in_use_is_refused_with_a_reason() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    let refused = |uri: &str, words: &[&str]| {
        let ended = start("ldb", &[], uri, &["--db=/db", "scan", "--max_keys=1"]).wait();
        let said = (ended.stdout.clone() + &ended.stderr).to_lowercase();
        for word in words {
            assert!(said.contains(word), "{uri} does not say `{word}`: {ended}");
        }
    };
    let drive = FileDrive::create(TABLES, "tiny", "8MiB", "instant");
    let folder = drive.folder.path();
    refused(&format!("openftl://{}/none.toml", folder.display()), &["none.toml", "no such file"]);
    let block = folder.join("block.toml");
    std::fs::write(&block, "[media]\ncapacity = \"64MiB\"\n").unwrap();
    refused(&format!("openftl://{}", block.display()), &["ftl.kind", "tables", "zones"]);
    let disk = folder.join("block.oftl");
    run_openftl(["create", disk.to_str().unwrap(), "--capacity", "64MiB"]).succeeded();
    std::fs::write(&block, "[media]\nstore = \"file\"\npath = \"block.oftl\"\n[ftl]\nkind = \"tables\"\n").unwrap();
    refused(&format!("openftl://{}", block.display()), &["block drive"]);
    let mut user = drive.start(
        "db_bench",
        &[],
        &["--db=/db", "--benchmarks=fillrandom", "--num=100000000", "--value_size=10", "--compression_type=none"],
    );
    crate::program::wait_for("db_bench to write", || {
        assert!(user.ended().is_none_or(|ended| panic!("{ended}")));
        user.stderr().contains("finished").then_some(())
    });
    drive.files().failed().saying(&["locked by another process"]);
    refused(&drive.uri(), &["locked by another process"]);
    user.kill();
}

#[test]
fn a_replay_names_the_line_that_it_cannot_read_and_the_value_that_is_not_its_keys() {
    if !runs_here(&[Need::RocksDb]) {
        return;
    }
    let drive = FileDrive::create(TABLES, "cosmos", "512MiB", "instant");
    let requests = drive.folder.path().join("requests.txt");
    let replay = |lines: &str| {
        std::fs::write(&requests, lines).unwrap();
        let file = format!("--requests={}", requests.display());
        drive.run("replay", &["--db=/db", &file, "--value_size=16", "--threads=2", "--write_buffer_size=1000000"])
    };
    for wrong in ["", "x 1", "r", "r one", "r 1 2", "s 1", "s 1 2 3", "i 1x"] {
        replay(&format!("i 7\n{wrong}\n")).failed().saying(&["line 2 is", &format!("\"{wrong}\""), "expected"]);
    }
    replay("i 1\ni 2\nu 1\nm 2\n").succeeded().printing(&["4 operations", "replay.missing COUNT : 0"]);
    replay("r 1\nr 2\nr 3\n").succeeded().printing(&["3 operations", "replay.missing COUNT : 1"]);
    // The key of number 1, with the value of number 3.
    let (key, value) = ("0x9E3779B97F4A7C15", "0x03000000000000000000000000000000");
    drive.run("ldb", &["--db=/db", "--hex", "put", key, value]).succeeded();
    for read in ["r 1", "m 1", "s 1 1"] {
        replay(read).failed().saying(&["of key 3", "9E3779B97F4A7C15"]);
    }
}

/// `openftl reproduce` with an experiment on a small scale, in a folder of its own.
struct Experiment {
    running: Running,
    /// What all that it makes and mounts has in its name.
    name: String,
    _out: tempfile::TempDir,
}

impl Experiment {
    fn start(name: &str) -> Experiment {
        let out = tempfile::tempdir().expect("a folder for its files");
        let place = out.path().to_str().unwrap();
        let running = Running::start(&openftl(), ["reproduce", name, "--quick", "--json", "--out", place]);
        let name = format!("openftl-lightlsm-{}-", running.child.id());
        Experiment { running, name, _out: out }
    }

    /// What it tells at its end; nothing of it is left then. What its checks say on a small scale is chance, and so is its exit code.
    fn report(self) -> Value {
        let ended = self.running.wait();
        let report = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
        Experiment::left_nothing(&self.name);
        report
    }

    /// Asserts that it left nothing mounted, no file, and no process.
    fn left_nothing(name: &str) {
        assert!(!mounts().contains(name), "{}", mounts());
        let names = |folder: &str| -> Vec<String> {
            let entries = std::fs::read_dir(folder).expect("a folder of the system's");
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
        };
        let files = ["/dev/shm", "/tmp"].into_iter().filter(|folder| Path::new(folder).is_dir()).flat_map(names);
        let files: Vec<String> = files.filter(|file| file.starts_with(name)).collect();
        assert!(files.is_empty(), "{files:?}");
        let processes = names("/proc").into_iter().filter(|process| {
            let line = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.contains(name)
        });
        let processes: Vec<String> = processes.collect();
        assert!(processes.is_empty(), "{processes:?}");
    }
}

fn mounts() -> String {
    std::fs::read_to_string("/proc/mounts").expect("a list of what is mounted")
}

const OF_EXT4: [Need; 8] = [
    Need::Command("reproduce"),
    Need::RocksDb,
    Need::Mount,
    Need::Fuse,
    Need::Loop,
    Need::Program("nbdfuse"),
    Need::Program("fusermount3"),
    Need::Program("mkfs.ext4"),
];

#[test]
fn the_experiment_has_figures_of_every_stack_and_leaves_nothing_behind() {
    if !runs_here(&OF_EXT4) {
        return;
    }
    let report = Experiment::start("ox-lightlsm").report();
    let rows = |table: usize| report["tables"][table]["rows"].as_array().unwrap();
    assert_eq!([rows(0).len(), rows(1).len(), rows(2).len()], [3 * 2 * 6, 2 * 6, 4 * 6], "{report}");
    for row in rows(0).iter().chain(rows(2)) {
        let figures = &row.as_array().unwrap()[3..];
        assert!(figures.iter().all(serde_json::Value::is_number), "{row}: every figure is there");
    }
    for stack in ["zones", "ALFS", "ext4 on block"] {
        assert!(rows(2).iter().any(|row| row[2] == stack), "{stack}");
    }
}

#[test]
fn every_store_of_keys_answers_the_same_mixes_of_ycsb() {
    if !runs_here(&OF_EXT4) {
        return;
    }
    let report = Experiment::start("ycsb-rocksdb").report();
    let tables = report["tables"].as_array().unwrap();
    for mix in ["load", "a", "e"] {
        for store in ["values", "RocksDB, tables", "RocksDB, zones", "RocksDB, ALFS", "RocksDB, ext4"] {
            let row = |table: usize| {
                let rows = tables[table]["rows"].as_array().unwrap();
                let found = rows.iter().find(|row| row[0] == mix && row[1] == store);
                found.unwrap_or_else(|| panic!("no row of {mix} on {store}: {report}")).as_array().unwrap()
            };
            let figures = [2, 5, 6, 7, 8].map(|column: usize| &row(0)[column]);
            assert!(figures.iter().all(|figure| figure.is_number()), "{:?}", row(0));
            // A value is programmed once at least; of few values nothing is told.
            assert!(row(0)[4].as_f64().map_or(mix == "e", |waf| waf >= 1.0), "{:?}", row(0));
            assert_eq!(row(0)[8], 0, "a read found nothing: {:?}", row(0));
            assert!(row(1)[if mix == "load" { 5 } else { 2 }].is_number(), "{:?}", row(1));
        }
    }
}

#[test]
fn the_experiment_is_stopped_while_its_file_system_is_mounted_and_takes_it_down() {
    if !runs_here(&OF_EXT4) {
        return;
    }
    let Experiment { mut running, name, _out } = Experiment::start("ox-lightlsm");
    wait_for("a file system of the experiment's", || {
        assert!(running.ended().is_none(), "it goes on until it is stopped");
        mounts().lines().any(|line| line.contains(&name) && line.contains(" ext4 ")).then_some(())
    });
    kill_process(Pid::from_child(&running.child), Signal::INT).expect("our own child takes a signal");
    running.wait().failed().saying(&["stopped"]);
    Experiment::left_nothing(&name);
}
