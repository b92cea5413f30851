#!/bin/sh
# The guest's first program: connects to the served drive, makes the file system FILE_SYSTEM on its zones, runs PROGRAM on it, and ends.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
fail() { echo "failed: $*"; }

# The disk of namespace $1.
disk_of() {
    for folder in /sys/block/nvme*; do
        [ -e "$folder/nsid" ] && [ "$(cat "$folder/nsid")" = "$1" ] && [ -b "/dev/${folder##*/}" ] && echo "/dev/${folder##*/}"
    done
}

record() {
    ip link set lo up && ip addr add "$GUEST/24" dev vec0 && ip link set vec0 up || return
    nvme connect --transport=tcp --traddr="$SERVER" --trsvcid="$PORT" --nqn="$NQN" >/dev/null || return
    until [ -n "$(disk_of 1)" ] && [ -n "$(disk_of 2)" ]; do sleep 0.05; done
    blocks=$(disk_of 1) zones=$(disk_of 2)
    echo mq-deadline >"/sys/block/${zones##*/}/queue/scheduler" || return
    mkdir /mnt/disk
    # What is written goes to the disk soon, as in the recordings of disks without zones.
    echo 1048576 >/proc/sys/vm/dirty_background_bytes
    echo 4194304 >/proc/sys/vm/dirty_bytes
    case $FILE_SYSTEM in
    f2fs-zones)
        mkfs.f2fs -q -f -m -c "$zones" "$blocks" >/dev/null && mount -t f2fs "$blocks" /mnt/disk || return
        disks=$blocks,$zones
        ;;
    btrfs-zones)
        # btrfs looks for block groups to clean and to reset after each commit: every 30 s, unless it is told otherwise.
        mkfs.btrfs -q -f -O zoned -d single -m single "$zones" && mount -t btrfs -o commit=1 "$zones" /mnt/disk || return
        disks=$zones
        ;;
    *) return 1 ;;
    esac
    "$PROGRAM" run /mnt/disk "$LOAD" "$BYTES" "$SEED" "$disks" && umount /mnt/disk
}

mount -t proc none /proc
mount -t sysfs none /sys
grep -q " /dev " /proc/mounts || mount -t devtmpfs none /dev
mount -t tmpfs none /run
mount -t tmpfs none /mnt
mkdir /run/nvme
ln -s /proc/self/fd /dev/fd
record || fail "the recording of $FILE_SYSTEM $LOAD"
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
