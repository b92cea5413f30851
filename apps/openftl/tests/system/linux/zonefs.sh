# zonefs in a guest: $SUPER is a file with its superblock, and $ENGINE how fio writes. Linux 6.1 refuses synchronous direct
# writes to zonefs on every drive, and there are no buffered ones.

seq=/mnt/disk/seq
# Bytes that a zone holds.
capacity=3145728

connect_zones() {
    connect
    zones=$disk
    echo mq-deadline >/sys/block/${zones##*/}/queue/scheduler || fail "no scheduler for writes in order"
}

# A new file system: zone 0 has its superblock, and nothing else.
make_zonefs() {
    blkzone reset $zones && dd if=$SUPER of=$zones bs=4k oflag=direct status=none && blkzone finish -c 1 $zones &&
        sync $zones || fail "a new zonefs"
}

mount_zonefs() {
    mkdir -p /mnt/disk
    mount -t zonefs "$@" $zones /mnt/disk || fail "mount: the guest's kernel is older than xtask/linux/config, or no zonefs"
}

# Appends to a file: its number, a generation, blocks of 4 KiB, and more for fio. A block has the generation, and where it is
# in the file, again and again.
append() {
    fio --name=append --filename=$seq/$1 --file_append=1 --fallocate=none --allow_file_create=0 --direct=1 --rw=write \
        --ioengine=$ENGINE --iodepth=8 --bs=4k --size=$(($3 * 4))k --verify=pattern --do_verify=0 \
        --verify_pattern=0x$(printf %08x $2)%o "${@:4}" --output-format=terse >&2
}

# State and write pointer, in bytes, of the zone of a file.
zone() {
    local state pointer
    read -r pointer state < <(blkzone report -o $((($1 + 1) * 8192)) -c 1 $zones | sed 's/.*wptr 0x\([0-9a-f]*\) .*(\(..\)).*/\1 \2/')
    echo $state $((16#$pointer * 512))
}

# A file has so many bytes, and its zone is in this state, with that write pointer. A full one has the zone's size there.
is() {
    [ $(stat -c %s $seq/$1) = $2 ] || fail "file $1 has $(stat -c %s $seq/$1) bytes, not $2"
    local pointer=$2
    [ $3 != fu ] || pointer=4194304
    [ "$(zone $1)" = "$3 $pointer" ] || fail "zone of file $1: $(zone $1), not $3 $pointer"
}

# $1: words of the error.
refused() {
    local error=$1 said
    shift
    said=$("$@" 2>&1) && fail "succeeds: $*"
    [[ $said = *"$error"* ]] || fail "not '$error': $*: $said"
}
