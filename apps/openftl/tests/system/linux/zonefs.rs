//! zonefs, in which each zone is a file, on a zoned drive.
//!
//! Its `mkzonefs` is in no package registry, so the superblock is made here.

use super::zoned::{Limits, Shape, Zoned};
use super::{Linux, Told, boots_here, rounds};
use crate::drive::{openftl, run_openftl};
use crate::network::Network;
use crate::program::Running;

/// Zone 0 has the superblock, so there is a file less.
const SHAPE: Shape = Shape { width: 3, zones: 16, limits: Limits { open: 8, active: 12 } };

const BLOCK_BYTES: usize = 4096;
const FILE_BYTES_MAX: usize = 3 << 20;

/// A drive, and the superblock of a zonefs beside it.
struct Disk {
    drive: Zoned,
    superblock: String,
}

impl Disk {
    fn create() -> Disk {
        let drive = Zoned::alone(&SHAPE);
        let superblock = drive.write("superblock", &superblock());
        Disk { drive, superblock }
    }

    /// Boots a guest that runs `script`, in which the functions of `zonefs.sh` are known.
    fn boot(&self, network: &Network, engine: &str, script: &str) -> Linux {
        let names = format!("SUPER={} ENGINE={engine}\n", self.superblock);
        Linux::boot(network, &[&names, include_str!("zonefs.sh"), script].concat())
    }
}

/// The first block of a zonefs (`fs/zonefs/zonefs.h` in Linux): magic, CRC, label, UUID, features, owner, group and
/// permissions of files.
fn superblock() -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &0x5a4f_4653_u32.to_le_bytes());
    put(8, b"openftl");
    put(72, b"files are zones.");
    put(104, &0o640_u32.to_le_bytes());
    let crc = crc32_without_inversion(&block);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
    block
}

/// The CRC-32 of Ethernet as Linux computes it with `crc32(~0, …)`: the result is not inverted.
fn crc32_without_inversion(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

#[test]
fn the_check_value_of_the_crc_is_that_of_its_catalogue() {
    assert_eq!(!crc32_without_inversion(b"123456789"), 0xcbf4_3926);
}

#[test]
fn files_of_zonefs_are_zones_that_grow_with_each_append_and_are_reset_and_finished_by_truncating() {
    if !boots_here(&["blkzone", "truncate"]) {
        return;
    }
    let (disk, network) = (Disk::create(), Network::new());
    let server = disk.drive.serve(&network);
    let told = disk.boot(
        &network,
        "libaio",
        r#"
        connect_zones
        make_zonefs
        mount_zonefs
        [ "$(ls /mnt/disk) $(ls $seq | wc -l)" = "seq 15" ] || fail "files: $(ls /mnt/disk/*)"
        for file in $(seq 0 14); do is $file 0 em; done
        [ $(($(stat -c %b $seq/3) * 512)) = $capacity ] || fail "a file may have $(stat -c %b $seq/3) sectors"

        append 0 1 1 && append 1 2 100 && append 2 3 33 --fsync=8 || fail append
        is 0 4096 oi; is 1 409600 oi; is 2 135168 oi; is 3 0 em
        ENGINE=io_uring append 0 4 20 || fail "append by io_uring"
        is 0 86016 oi
        append 3 5 768 || fail "append to the end of the zone"
        is 3 $capacity fu
        refused "File too large" append 3 6 1
        is 3 $capacity fu
        refused "Invalid argument" dd if=/dev/zero of=$seq/1 bs=4k count=1 seek=3 conv=notrunc oflag=direct
        refused "Invalid argument" dd if=/dev/zero of=$seq/1 bs=4k count=1 seek=200 conv=notrunc oflag=direct
        refused "Operation not permitted" truncate -s 4096 $seq/1
        refused "Operation not permitted" rm $seq/1
        is 1 409600 oi

        truncate -s 0 $seq/2 || fail "truncate to nothing"
        is 2 0 em
        append 2 7 5 || fail "append after a reset"
        is 2 20480 oi
        truncate -s $capacity $seq/0 || fail "truncate to all"
        is 0 $capacity fu
        truncate -s $capacity $seq/4 || fail "truncate an empty file to all"
        is 4 $capacity fu

        umount /mnt/disk || fail umount
        mount_zonefs
        # Linux closes the zones that it finds open.
        is 0 $capacity fu; is 1 409600 cl; is 2 20480 cl; is 3 $capacity fu; is 4 $capacity fu; is 5 0 em
        for file in 0 1 2 3; do dd if=$seq/$file of=file-$file bs=1M status=none || fail "read $file"; done

        # A file that is open for writing has its zone open, up to the drive's limit.
        for file in 0 1 2 3 4; do truncate -s 0 $seq/$file || fail "truncate $file"; done
        umount /mnt/disk || fail umount
        mount_zonefs -o explicit-open
        exec 11<>$seq/1 && is 1 0 oe
        append 1 8 2 || fail "append to an open file"
        is 1 8192 oe
        for file in $(seq 2 8); do eval "exec 1$((file + 0))<>$seq/$file" && is $file 0 oe || fail "open $file"; done
        refused "Device or resource busy" bash -c "exec 5<>$seq/9"
        exec 11>&- 12>&-
        is 1 8192 cl; is 2 0 em
        exec 12<>$seq/9 || fail "a place is free"
        is 9 0 oe
        exec 12>&- 13>&- 14>&- 15>&- 16>&- 17>&- 18>&-
        is 9 0 em
        umount /mnt/disk || fail umount

        # At the limit of active zones, a write to an empty file fails, and the file system is read-only from then on.
        for zones_of in "-o 24576 -c 8" "-o 90112 -c 3"; do
            blkzone open $zones_of $zones && blkzone close $zones_of $zones || fail "twelve active zones"
        done
        mount_zonefs
        refused "Value too large" append 13 9 1
        is 13 0 em
        refused "Read-only file system" append 1 10 1
        umount /mnt/disk || fail umount
        # With this option it is the opening of the file that fails.
        mount_zonefs -o explicit-open
        refused "Value too large" bash -c "exec 5<>$seq/13"
        append 1 11 1 || fail "append to a file whose zone is active"
        truncate -s 0 $seq/2 || fail "truncate a file whose zone is active"
        append 13 12 1 || fail "append where a zone is free"
        is 13 4096 cl
        is_live || fail "the connection is $(state)"
        "#,
    );
    let told = told.wait().succeeded();
    let written = |file: usize, parts: &[(u32, usize)]| {
        let blocks = parts.iter().flat_map(|(generation, count)| std::iter::repeat_n(*generation, *count));
        let expected: Vec<u8> = blocks.enumerate().flat_map(|(index, generation)| block(generation, index)).collect();
        let found = told.bytes(&format!("file-{file}"));
        let (data, rest) = found.split_at(expected.len());
        assert!(data == expected, "file {file} has other data");
        assert!(rest.iter().all(|byte| *byte == 0), "file {file} has something behind its data");
        found.len()
    };
    assert_eq!(written(0, &[(1, 1), (4, 20)]), FILE_BYTES_MAX, "it is finished");
    assert_eq!(written(1, &[(2, 100)]), 100 * BLOCK_BYTES);
    assert_eq!(written(2, &[(7, 5)]), 5 * BLOCK_BYTES);
    assert_eq!(written(3, &[(5, 768)]), FILE_BYTES_MAX);
    server.stop();
    disk.drive.check();
}

/// A block as `append` writes it.
fn block(generation: u32, index: usize) -> Vec<u8> {
    let unit = [&generation.to_be_bytes()[..], &((index * BLOCK_BYTES) as u64).to_le_bytes()].concat();
    unit.into_iter().cycle().take(BLOCK_BYTES).collect()
}

/// Writes until the guest is ended. What is to become of a file is in `journal` before it happens, and what is synced
/// after it has. Files 0 to 3 are synced; at the same time 4 to 6 are only written and truncated.
const WORK: &str = r#"
    note() { echo "$*" >>$journal; sync $journal; }
    # Appends to a file until it is nearly full, then begins with its next generation: file, blocks, more for fio.
    generation=$((ROUND * 10000))
    declare -A current
    grow() {
        local size=$(stat -c %s $seq/$1)
        if [ $((size + $2 * 4096)) -gt $capacity ] || [ -z "${current[$1]:-}" ] || [ $((RANDOM % 8)) = 0 ]; then
            if [ $size != 0 ]; then note begins $1; truncate -s 0 $seq/$1 || fail truncate; fi
            generation=$((generation + 1))
            current[$1]=$generation
        fi
        append $1 ${current[$1]} ${@:2} || fail append
    }
    (
        journal=others
        generation=$((generation + 5000))
        while :; do grow $((4 + RANDOM % 3)) $((RANDOM % 200 + 1)); done
    ) &
    journal=synced
    touch synced others works
    number=0
    while :; do
        number=$((number + 1))
        file=$((number % 4))
        grow $file $((RANDOM % 40 + 1)) --end_fsync=1
        note synced $file ${current[$file]} $(stat -c %s $seq/$file)
        if [ $((number % 7)) = 0 ]; then
            note finishes $file
            truncate -s $capacity $seq/$file && sync $seq/$file || fail finish
            note finished $file
        fi
    done
"#;

/// Copies of all files that are written to, and their zones.
const COPY: &str = r#"
    for file in $(seq 0 6); do
        [ "$(zone $file)" = "fu 4194304" ] || is $file $(stat -c %s $seq/$file) $(set -- $(zone $file); echo $1)
        echo $(zone $file) $(stat -c %s $seq/$file) >>zones
        dd if=$seq/$file of=file-$file bs=1M conv=fsync status=none || fail "read $file"
    done
    sync zones
"#;

/// What is known of a file.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    /// The generation that was synced last, and how much of it.
    generation: u32,
    bytes: usize,
    /// A reset has begun since.
    may_be_reset: bool,
    /// It was to be finished since, and that was synced.
    may_be_full: bool,
    is_full: bool,
}

impl Known {
    /// Takes in what a journal says.
    fn learn(files: &mut [Known], journal: &str) {
        for line in journal.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            // The last line may be cut off.
            let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok());
            let Some(file) = number(1).map(|file| &mut files[file]) else { continue };
            match words[0] {
                "begins" => *file = Known { may_be_reset: true, ..*file },
                "synced" => {
                    if let (Some(generation), Some(bytes)) = (number(2), number(3)) {
                        *file = Known { generation: generation as u32, bytes, ..Known::default() };
                    }
                }
                "finishes" => file.may_be_full = true,
                "finished" => file.is_full = true,
                word => panic!("a journal says {word}"),
            }
        }
    }

    /// Compares the file with what it may be.
    fn allows(self, bytes: &[u8]) -> Result<(), String> {
        let blocks: Vec<&[u8]> = bytes.chunks(BLOCK_BYTES).collect();
        let generation = bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let written = blocks.iter().take_while(|block| block.iter().any(|byte| *byte != 0)).count();
        if let Some(at) = (0..written).find(|at| block(generation, *at) != blocks[*at]) {
            return Err(format!("block {at} is not of generation {generation} and its place"));
        }
        if blocks[written..].iter().any(|block| block.iter().any(|byte| *byte != 0)) {
            return Err("there is a hole".to_owned());
        }
        let padded = bytes.len() > written * BLOCK_BYTES;
        if generation == self.generation || written == 0 && self.bytes > 0 && !self.may_be_reset {
            if written * BLOCK_BYTES < self.bytes {
                return Err(format!("it has {written} blocks"));
            }
            let full = bytes.len() == FILE_BYTES_MAX;
            if padded && !(self.may_be_full && full) || self.is_full && !self.may_be_reset && !full {
                return Err(format!("it has {} bytes, {written} blocks of which are written", bytes.len()));
            }
            return Ok(());
        }
        // A later one, or nothing: of that nothing was synced. It may have been finished, too.
        match generation > self.generation || written == 0 {
            true if self.generation == 0 || self.may_be_reset => Ok(()),
            _ => Err(format!("it is of generation {generation}")),
        }
    }
}

/// How a server loses what is not durable.
#[derive(Clone, Copy)]
enum Loss {
    /// The power of the drive goes, when so many more writes have ended.
    PowerAfterWrites(u64),
    /// `kill -9` of the server, when so many lines are in the journal of what is synced.
    KillAfterLines(usize),
}

/// In each round a guest writes to files and loses its drive; the next one compares the files with what was synced.
fn keeps_what_was_synced(engine: &str, losses: &[Loss]) {
    let (disk, network) = (Disk::create(), Network::new());
    let mut server = disk.drive.serve(&network);
    let mut known = [Known::default(); 7];
    let compare = |known: &[Known], bytes: &dyn Fn(usize) -> Vec<u8>| {
        for (file, known) in known.iter().enumerate() {
            known.allows(&bytes(file)).unwrap_or_else(|error| panic!("file {file}: {error}; {known:?}"));
        }
    };
    for (round, loss) in (1..).zip(losses) {
        let make = if round == 1 { "make_zonefs" } else { "" };
        let script = format!("ROUND={round}\nconnect_zones\n{make}\nmount_zonefs\n{COPY}\n{WORK}");
        let mut linux = disk.boot(&network, engine, &script);
        linux.reaches("works");
        compare(&known, &|file| {
            std::fs::read(linux.folder.path().join(format!("file-{file}"))).expect("the script has copied its files")
        });
        server = match *loss {
            Loss::PowerAfterWrites(writes) => {
                let words = ["power-cut", "--torn", "--after-writes", &writes.to_string()];
                let mut cut = Running::start(&openftl(), [&["ctl", &disk.drive.file()], &words[..]].concat());
                linux.brings_about("the power cut", || cut.ended()).succeeded();
                learn(&mut known, linux);
                run_openftl(["ctl", &disk.drive.file(), "power-on"]).succeeded();
                server
            }
            Loss::KillAfterLines(lines) => {
                let path = linux.folder.path().join("synced");
                let there = || std::fs::read_to_string(&path).unwrap_or_default().lines().count();
                linux.brings_about("files to be synced", || (there() >= lines).then_some(()));
                server.kill();
                learn(&mut known, linux);
                disk.drive.serve(&network)
            }
        };
    }
    assert!(known[..4].iter().any(|file| file.generation > 0), "nothing was synced: {known:?}");
    let told: Told = disk.boot(&network, engine, &format!("connect_zones\nmount_zonefs\n{COPY}")).wait().succeeded();
    compare(&known, &|file| told.bytes(&format!("file-{file}")));
    server.stop();
    disk.drive.check();
}

/// Ends a guest and takes in its journals.
fn learn(known: &mut [Known], linux: Linux) {
    let Linux { running, folder } = linux;
    drop(running);
    for journal in ["synced", "others"] {
        let text = std::fs::read_to_string(folder.path().join(journal)).expect("the script has made its journals");
        Known::learn(known, &text);
    }
}

#[test]
fn zonefs_keeps_what_was_synced_through_power_cuts() {
    if boots_here(&["blkzone", "truncate"]) {
        let losses: Vec<Loss> =
            (0..u64::from(rounds())).map(|round| Loss::PowerAfterWrites(120 + 130 * round % 700)).collect();
        keeps_what_was_synced("libaio", &losses);
    }
}

#[test]
fn zonefs_keeps_what_was_synced_when_the_server_is_killed() {
    if boots_here(&["blkzone", "truncate"]) {
        keeps_what_was_synced("io_uring", &vec![Loss::KillAfterLines(6); rounds() as usize]);
    }
}
