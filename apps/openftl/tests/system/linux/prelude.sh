# What every script of a guest begins with.
set -u

# Ends the script: $* says why.
fail() { echo "failed: $*" >&2; exit 1; }

# Waits until a command succeeds. If it never does, the test ends the guest and says where it stood.
until_true() { echo "waits for: $*" >&2; until "$@"; do sleep 0.02; done; }

# Connects with more flags of `nvme connect`. $controller is then /dev/nvmeN.
reach() {
    local answer
    answer=$(nvme connect --transport=tcp --traddr="$SERVER" --trsvcid="$PORT" --nqn="$NQN" --hostnqn="$HOST_NQN" \
        --hostid="$HOST_ID" --output-format=json "$@") || fail "nvme connect $*"
    controller=/dev/$(sed -n 's/.*"device" *: *"\([^"]*\)".*/\1/p' <<<"$answer")
    [ -c "$controller" ] || fail "nvme connect names no controller: $answer"
}

# The same, and $disk is then the block device of namespace 1.
connect() {
    reach "$@"
    until_true has_disk
}

# The disk of namespace $1 is there; $found is then its name. A name alone would also be there as a file.
sees() {
    local folder
    for folder in /sys/block/nvme*; do
        [ -e "$folder/nsid" ] && [ "$(cat "$folder/nsid")" = "$1" ] || continue
        found=/dev/${folder##*/}
        [ -b "$found" ] && [ "$(cat "$folder/size")" -gt 0 ] && return 0
    done
    return 1
}
sees_not() { ! sees "$1"; }
has_disk() { sees 1 && disk=$found; }

disconnect() { nvme disconnect --nqn="$NQN" >&2 || fail disconnect; }

# What the kernel calls the state of the connection: live, connecting, resetting …
state() { cat "/sys/class/nvme/${controller##*/}/state"; }
is_live() { [ "$(state)" = live ]; }
is_not_live() { ! is_live; }

# Writes of the disk that have ended.
writes() { awk '{ print $5 }' "/sys/block/${disk##*/}/stat"; }
has_written() { [ "$(writes)" -ge "$1" ]; }

# Random writes that fio reads again and verifies.
verified() { fio --name=job --filename="$disk" --direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 --verify_state_save=0 "$@" >&2; }

# A block of 4 KiB: of zeroes, or the same for the same name.
zeroes() { head -c 4096 /dev/zero; }
block() { yes "$1" | head -c 4096; }
