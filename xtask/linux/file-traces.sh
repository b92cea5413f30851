#!/bin/sh
# The guest's first program: makes the file system FILE_SYSTEM on a disk whose writes are logged, runs PROGRAM on it, and ends.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
fail() { echo "failed: $*"; }

record() {
    echo "0 $(blockdev --getsz /dev/ubda) log-writes /dev/ubda /dev/ubdb" | dmsetup create logged --noudevsync || return
    # ext4 has blocks of 1 KiB on small disks, and writes tables of inodes when it is mounted and has time, unless it is told not to.
    [ "$FILE_SYSTEM" = ext4 ] && set -- -b 4096 -E lazy_itable_init=0,lazy_journal_init=0
    dmsetup mknodes && "mkfs.$FILE_SYSTEM" -q "$FORCE" "$@" /dev/mapper/logged || return
    mkdir /mnt/disk && mount -t "$FILE_SYSTEM" -o discard /dev/mapper/logged /mnt/disk || return
    # What is written goes to the disk soon: a page cache as large as a server's would keep blocks until they are overwritten.
    echo 1048576 >/proc/sys/vm/dirty_background_bytes
    echo 4194304 >/proc/sys/vm/dirty_bytes
    # On disks below 16 GiB F2FS overwrites in place, unless it is told not to.
    for policy in /sys/fs/f2fs/dm-*/ipu_policy; do [ ! -e "$policy" ] || echo 0 >"$policy"; done
    "$PROGRAM" run /mnt/disk "$LOAD" "$BYTES" "$SEED" logged || return
    umount /mnt/disk && dmsetup remove --noudevsync logged
}

mount -t proc none /proc
mount -t sysfs none /sys
grep -q " /dev " /proc/mounts || mount -t devtmpfs none /dev
mount -t tmpfs none /run
mount -t tmpfs none /mnt
record || fail "the recording of $FILE_SYSTEM $LOAD"
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
