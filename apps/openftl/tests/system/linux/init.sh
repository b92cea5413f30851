#!/bin/sh
# The guest's first program. Runs `script` in the folder that the kernel's command line names; what it prints, and how it
# ends, is kept there. All other files of the machine can only be read.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
mount -t proc none /proc
mount -t sysfs none /sys
grep -q " /dev " /proc/mounts || mount -t devtmpfs none /dev
mount -t tmpfs none /run
mount -t tmpfs none /mnt
mkdir /dev/shm /run/nvme
ln -s /proc/self/fd /dev/fd
mount -t tmpfs none /dev/shm
mount -t hostfs -o "$OPENFTL_FOLDER" none "$OPENFTL_FOLDER"
# The guest has one core, and a clock that ticks a hundred times a second. Until the next tick nobody takes the core from a
# worker that sends requests on a broken link, and it can use up hundreds of retries. It prints a line for each of them:
# a millisecond for a line makes that ten.
echo 1 >/proc/sys/kernel/printk_delay
ip link set lo up
ip addr add "$OPENFTL_ADDRESS/24" dev vec0
ip link set vec0 up
cd "$OPENFTL_FOLDER" || echo "no folder $OPENFTL_FOLDER"
bash -c '. ./prelude && . ./script' >stdout 2>stderr </dev/null
echo $? >status.new && mv status.new status
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
