//! Programs of others on a mounted ALFS, a few seconds of each; `cargo xtask file-systems` runs more of them, and for longer.

use crate::alfs::{NEEDS, Volume};
use crate::environment::{Need, runs_here};
use crate::mounted::text;
use crate::pattern::next;
use crate::program::{Ended, run};
use rustix::fs::{Advice, AtFlags, CWD, FallocateFlags, SeekFrom, StatxFlags};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::Path;

/// Bytes of the file of random operations, at most.
const LENGTH_MAX: u64 = 300_000;

/// The mode of a file as the kernel remembers it: nothing else is asked for that would have it ask the file system again.
fn mode(path: &Path) -> u32 {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap();
    u32::from(found.stx_mode) & 0o7777
}

fn as_nobody(program: &str, arguments: &[&str]) -> Ended {
    let who = ["--reuid=65534", "--regid=65534", "--clear-groups", program];
    run("setpriv", who.iter().chain(arguments).copied()).succeeded()
}

#[test]
fn file_that_somebody_changes_loses_its_set_user_id_bit_at_once() {
    if !runs_here(&NEEDS) || !runs_here(&[Need::Mount, Need::Program("setpriv"), Need::Program("fallocate")]) {
        return;
    }
    let volume = Volume::make();
    fs::set_permissions(volume.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let server = volume.mount_for_all();
    let path = volume.mount.join("file");
    let file = text(&path).to_owned();
    let make = |mode: u32| {
        fs::write(&path, b"some bytes").unwrap();
        chown(&path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let of = format!("of={file}");
    let zeroes = ["if=/dev/zero", of.as_str(), "bs=4096", "count=1", "conv=notrunc"];
    let direct = [&zeroes[..], &["oflag=direct"]].concat();
    let changes: [(&str, &[&str]); 6] = [
        ("dd", &zeroes),
        ("dd", &direct),
        ("truncate", &["--size=3", &file]),
        ("cp", &["/dev/null", &file]),
        ("fallocate", &["--length=9999", &file]),
        ("fallocate", &["--punch-hole", "--length=3", &file]),
    ];
    for (program, arguments) in changes {
        make(0o6755);
        assert_eq!(mode(&path), 0o6755);
        as_nobody(program, arguments);
        assert_eq!(mode(&path), 0o755, "{program} {arguments:?}");
        // Without the group's right to execute, set-group-ID is no privilege.
        make(0o6745);
        as_nobody(program, arguments);
        assert_eq!(mode(&path), 0o2745, "{program} {arguments:?}");
    }
    for (program, arguments) in changes {
        make(0o6755);
        run(program, arguments.iter().copied()).succeeded();
        assert_eq!(mode(&path), 0o6755, "root may set these bits: {program} {arguments:?}");
    }
    chown(&path, Some(0), None).unwrap();
    assert_eq!(mode(&path), 0o755, "a new owner has not set them");
    volume.unmount(server);
}

#[test]
fn stressors_find_what_they_wrote() {
    if !runs_here(&NEEDS) || !runs_here(&[Need::Program("stress-ng")]) {
        return;
    }
    let volume = Volume::make();
    let server = volume.mount();
    let stressors = [
        "--hdd",
        "--iomix",
        "--rename",
        "--link",
        "--dentry",
        "--fallocate",
        "--fpunch",
        "--xattr",
        "--utime",
        "--copy-file",
    ];
    let arguments = stressors.into_iter().flat_map(|stressor| [stressor, "1"]);
    let fixed = [
        "--timeout",
        "4s",
        "--verify",
        "--hdd-bytes",
        "16m",
        "--iomix-bytes",
        "16m",
        "--fallocate-bytes",
        "16m",
        "--temp-path",
    ];
    run("stress-ng", arguments.chain(fixed).chain([text(&volume.mount)])).succeeded();
    volume.unmount(server);
}

#[test]
fn clients_of_a_file_server_find_what_they_expect() {
    if !runs_here(&NEEDS) || !runs_here(&[Need::Program("dbench")]) {
        return;
    }
    let volume = Volume::make();
    let server = volume.mount();
    run("dbench", ["-t", "3", "-D", text(&volume.mount), "2"]).succeeded().printing(&["Throughput"]);
    volume.unmount(server);
}

/// As fsx does: through the page cache of the kernel, and around what it has dropped.
#[test]
fn random_operations_on_a_mounted_file_leave_the_bytes_of_a_model() {
    if !runs_here(&NEEDS) {
        return;
    }
    let volume = Volume::make();
    let mut model = Vec::new();
    for seed in 1..=4_u64 {
        let server = volume.mount();
        let path = volume.mount.join("file");
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        assert!(fs::read(&path).unwrap() == model, "at the mount before seed {seed}");
        let mut dice = seed;
        for step in 0..1500 {
            operate(&file, &mut model, &mut dice, &format!("seed {seed}, step {step}"));
        }
        drop(file);
        volume.unmount(server);
    }
}

fn operate(file: &File, model: &mut Vec<u8>, dice: &mut u64, what: &str) {
    let mut below = |bound: u64| next(dice) % bound;
    let offset = below(LENGTH_MAX);
    let bytes = match below(4) {
        0 => below(100) + 1,
        _ => below(40_000) + 1,
    };
    let end = (offset + bytes).min(LENGTH_MAX);
    let range = offset as usize..end as usize;
    let grow = |model: &mut Vec<u8>| {
        let length = model.len().max(range.end);
        model.resize(length, 0);
    };
    match below(10) {
        0..=2 => {
            let byte = below(255) as u8 + 1;
            grow(model);
            model[range.clone()].fill(byte);
            file.write_all_at(&model[range], offset).unwrap();
        }
        3..=5 => {
            let mut found = vec![0; range.len()];
            let read = file.read_at(&mut found, offset).unwrap();
            let wanted = &model[range.start.min(model.len())..range.end.min(model.len())];
            assert!(found[..read] == *wanted, "{what}: {range:?} of {} bytes", model.len());
        }
        6 => {
            file.set_len(offset).unwrap();
            model.resize(range.start, 0);
        }
        7 => {
            let flags = [FallocateFlags::empty(), FallocateFlags::ZERO_RANGE, FallocateFlags::PUNCH_HOLE];
            let flag = flags[below(3) as usize];
            let is_hole = flag == FallocateFlags::PUNCH_HOLE;
            let keeps_size = if is_hole { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
            rustix::fs::fallocate(file, flag | keeps_size, offset, end - offset).unwrap();
            if !is_hole {
                grow(model);
            }
            if !flag.is_empty() {
                let length = model.len();
                model[range.start.min(length)..range.end.min(length)].fill(0);
            }
        }
        8 => {
            file.sync_data().unwrap();
            rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
        }
        _ => match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            // What is skipped has to be zeroes.
            Ok(data) => {
                let skipped = &model[range.start.min(model.len())..(data as usize).min(model.len())];
                assert!(skipped.iter().all(|byte| *byte == 0), "{what}: data of {offset} are said to be at {data}");
            }
            Err(rustix::io::Errno::NXIO) => {
                let rest = &model[range.start.min(model.len())..];
                assert!(rest.iter().all(|byte| *byte == 0), "{what}: there are data behind {offset}");
            }
            Err(error) => panic!("{what}: {error}"),
        },
    }
    assert_eq!(file.metadata().unwrap().len(), model.len() as u64, "{what}");
}
