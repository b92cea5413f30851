//! The drive as a disk of a Linux host: data that fio verifies, and file systems.

use super::{Linux, PORT, boots_here, serve};
use crate::drive::Drive;
use crate::network::{CABLES, Network};

#[test]
fn fio_finds_what_it_wrote_with_and_without_digests() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    Linux::run(
        &network,
        r#"
        for digests in "" --hdr-digest --data-digest "--hdr-digest --data-digest"; do
            connect $digests
            verified --rw=randwrite --bsrange=4k-64k --size=8m --iodepth=16 || fail "fio with '$digests'"
            verified --rw=randrw --bs=4k --size=4m --iodepth=32 --offset=64m --fsync=64 || fail "fio of both with '$digests'"
            verified --rw=write --bs=1m --size=16m --iodepth=4 --offset=128m || fail "fio in order with '$digests'"
            disconnect
        done
        "#,
    )
    .succeeded();
    server.stop();
    drive.check();
}

#[test]
fn blocks_of_512_bytes_read_back_one_by_one() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &["--nvme-format", "512"]);
    Linux::run(
        &network,
        r#"
        connect
        [ "$(cat /sys/block/${disk##*/}/queue/logical_block_size)" = 512 ] || fail "blocks of another size"
        verified --rw=randwrite --bsrange=512-16k --blockalign=512 --size=2m --iodepth=16 || fail fio
        "#,
    )
    .succeeded();
    server.stop();
    drive.check();
}

#[test]
fn io_uring_and_commands_that_bypass_the_block_layer_read_the_same() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    Linux::run(
        &network,
        r#"
        connect
        job="--bs=4k --size=8m --iodepth=16 --verify=crc32c --randseed=5 --rw=randwrite"
        verified $job --ioengine=io_uring || fail io_uring
        fio --name=job --filename=/dev/ng${disk#/dev/nvme} --ioengine=io_uring_cmd --cmd_type=nvme $job --verify_only=1 \
            --verify_fatal=1 --verify_state_save=0 >&2 || fail "commands of io_uring"
        "#,
    )
    .succeeded();
    server.stop();
    drive.check();
}

#[test]
fn two_hosts_at_work_find_what_they_wrote_and_what_the_other_one_did() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let address = format!("{}:{PORT}", CABLES[1].server);
    let server = serve(&drive, &network, &["--nvme-tcp", &address]);
    let script = |first: u64, second: u64| {
        format!(
            r#"
            connect
            job="--rw=randwrite --bsrange=4k-64k --size=24m --iodepth=16"
            verified $job --offset={first}m --randseed={first} --fsync=32 || fail "fio of this host"
            touch written
            until_true [ -e other ]
            verified $job --offset={second}m --randseed={second} --verify_only=1 || fail "fio of the other host"
            "#
        )
    };
    let mut hosts =
        [Linux::boot_on(&network, &CABLES[0], &script(1, 257)), Linux::boot_on(&network, &CABLES[1], &script(257, 1))];
    hosts.iter_mut().for_each(|host| host.reaches("written"));
    hosts.iter().for_each(|host| host.tell("other"));
    for host in hosts {
        host.wait().succeeded();
    }
    server.stop();
    drive.check();
}

/// A file system is made and filled; a second host finds all of it after the server died and came back.
fn keeps_its_files(make: &[&'static str], kind: &str) {
    if !boots_here(&[&make[..1], &["diff", "blkdiscard"]].concat()) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let make = make.join(" ");
    Linux::run(
        &network,
        &format!(
            r#"
            connect
            {make} $disk >&2 || fail {make}
            mkdir /mnt/disk && mount -t {kind} $disk /mnt/disk || fail mount
            cp -r /usr/lib/*/perl-base /mnt/disk/files || fail cp
            fio --name=job --directory=/mnt/disk --rw=randwrite --bsrange=512-32k --size=16m --verify=crc32c \
                --verify_fatal=1 --verify_state_save=0 --unlink=1 --fsync=32 >&2 || fail "fio on a file"
            rm -r /mnt/disk/files/unicore && sync && fstrim /mnt/disk || fail "what is removed is trimmed"
            sync
            "#
        ),
    )
    .succeeded();
    // The guest ended without unmounting, and so does the server.
    server.kill();
    let server = serve(&drive, &network, &[]);
    Linux::run(
        &network,
        &format!(
            r#"
            connect
            mkdir /mnt/disk && mount -t {kind} $disk /mnt/disk || fail mount
            diff -r --exclude=unicore /usr/lib/*/perl-base /mnt/disk/files || fail "files are others"
            [ ! -e /mnt/disk/files/unicore ] || fail "removed files are there"
            umount /mnt/disk || fail umount
            "#
        ),
    )
    .succeeded();
    server.stop();
    drive.check();
}

#[test]
fn ext4_keeps_its_files() {
    keeps_its_files(&["mkfs.ext4", "-q", "-F"], "ext4");
}

#[test]
fn xfs_keeps_its_files() {
    keeps_its_files(&["mkfs.xfs", "-q", "-f"], "xfs");
}

#[test]
fn btrfs_keeps_its_files() {
    keeps_its_files(&["mkfs.btrfs", "-q", "-f"], "btrfs");
}

#[test]
fn f2fs_keeps_its_files() {
    keeps_its_files(&["mkfs.f2fs", "-q", "-f"], "f2fs");
}
