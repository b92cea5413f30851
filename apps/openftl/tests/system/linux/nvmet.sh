# One conversation with a zoned namespace, held with two controllers: OpenFTL's, and the one of Linux (nvmet) on a null_blk
# device of this guest. Both have 16 zones of 1024 blocks, of which 768 can be written; 4 may be open and 6 active.

mount -t configfs none /sys/kernel/config || fail "no configfs: the guest's kernel is older than xtask/linux/config"

# Starts Linux's own target, connects to it, and sets $zones to its disk.
connect_to_nvmet() {
    local nqn=nqn.2026-11.org.example:zones null=/sys/kernel/config/nullb/n0 nvmet=/sys/kernel/config/nvmet name
    mkdir $null || fail "no null_blk: the guest's kernel is older than xtask/linux/config"
    for name in blocksize=4096 size=64 memory_backed=1 zoned=1 zone_size=4 zone_capacity=3 zone_max_open=4 \
        zone_max_active=6 power=1; do
        echo ${name#*=} >$null/${name%=*} || fail "null_blk: $name"
    done
    mkdir $nvmet/subsystems/$nqn && echo 1 >$nvmet/subsystems/$nqn/attr_allow_any_host || fail "no nvmet"
    mkdir $nvmet/subsystems/$nqn/namespaces/1 && cd $nvmet/subsystems/$nqn/namespaces/1 || fail "no namespace"
    echo /dev/n0 >device_path && echo 1 >enable || fail "the namespace of nvmet"
    mkdir $nvmet/ports/1 && cd $nvmet/ports/1 || fail "no port"
    echo tcp >addr_trtype && echo ipv4 >addr_adrfam && echo 127.0.0.1 >addr_traddr && echo 4420 >addr_trsvcid &&
        ln -s $nvmet/subsystems/$nqn subsystems/$nqn || fail "the port of nvmet"
    cd "$OLDPWD" && cd "$FOLDER" || fail cd
    nvme connect --transport=tcp --traddr=127.0.0.1 --trsvcid=4420 --nqn=$nqn >&2 || fail "nvme connect to nvmet"
    until_true subsystem_disk $nqn
}

# The disk of namespace 1 of a subsystem. It has the subsystem's number where the kernel knows of several paths.
subsystem_disk() {
    local folder
    for folder in /sys/class/nvme-subsystem/*; do
        [ "$(cat $folder/subsysnqn)" = $1 ] || continue
        zones=/dev/nvme${folder##*-subsys}n1
        [ -b $zones ] && [ "$(cat /sys/block/${zones##*/}/size)" -gt 0 ] && return 0
    done
    return 1
}

# Zones that are not empty, with their states and write pointers. Where a full one has it is not specified.
states() {
    local line zone=0
    while read -r line; do
        [[ $line =~ wptr\ 0x([0-9a-f]+)\ .*\((..)\) ]] || fail "blkzone says: $line"
        case ${BASH_REMATCH[2]} in
            em) ;;
            fu) echo -n "zone $zone full; " ;;
            *) echo -n "zone $zone ${BASH_REMATCH[2]} $((16#${BASH_REMATCH[1]} / 8)); " ;;
        esac
        zone=$((zone + 1))
    done < <(blkzone report $zones)
    [ $zone = 16 ] || fail "blkzone reports $zone zones"
    echo
}

# Something asked: its name, and the command. Whether a status comes with an entry of the error log (bit 13) is left out.
ask() {
    local answer code
    answer=$("${@:2}" 2>&1)
    code=$?
    while [[ $answer =~ ^(.*\(0x)6([0-9a-f]{3}\).*)$ ]]; do answer=${BASH_REMATCH[1]}4${BASH_REMATCH[2]}; done
    while [[ $answer =~ ^(.*\(0x)2([0-9a-f]{3}\).*)$ ]]; do answer=${BASH_REMATCH[1]}0${BASH_REMATCH[2]}; done
    answer=${answer//$zones/DISK}
    echo "## $1"
    echo "${answer//${zones##*/}/DISK}"
    echo "exit $code"
}
# The same, and the zones after it.
step() { ask "$@"; states; }

# Makes zones what a step needs: they are named by their numbers, and one that is written gets a block.
reset_all() { blkzone reset $zones || fail "reset of all zones of $zones"; }
put() { dd if=blocks of=$zones bs=4k count=1 seek=$(($1 * 1024)) oflag=direct conv=notrunc status=none || fail "put $1"; }
make() { blkzone $1 -o $(($2 * 8192)) -c ${3:-1} $zones || fail "$1 $2"; }

# Zone Management Send: an action, zones.
send() {
    local zone
    for zone in "${@:2}"; do nvme zns zone-mgmt-send $zones --zsa=$1 --start-lba=$((zone * 1024)) || code=$?; done
    return ${code:-0}
}
send_all() { nvme zns zone-mgmt-send $zones --zsa=$1 --start-lba=${2:-0} --select-all; }
# Zone Management Receive: first block, bytes, the last dword. nvmet leaves reserved bytes of the header as they were in its
# memory.
receive() {
    local answer code line zeroes=" 00 00 00 00 00 00 00 00"
    answer=$(nvme io-passthru $zones --opcode=0x7a --namespace-id=1 --read --data-len=$2 --cdw10=$(($1 & 0xffffffff)) \
        --cdw11=$((($1 >> 32) & 0xffffffff)) --cdw12=$(($2 / 4 - 1)) --cdw13=$3 2>&1)
    code=$?
    while IFS= read -r line; do
        line=${line%% \"*}
        case $target:$line in
            nvmet:0000:*) line=${line:0:29}$zeroes ;;
            nvmet:00[123]0:*) line=${line:0:5}$zeroes$zeroes ;;
        esac
        echo "$line"
    done <<<"$answer"
    return $code
}
# Blocks: where, and how many. What is read is shown as runs of one byte.
write() { nvme write $zones -s $1 -c $(($2 - 1)) -z $(($2 * 4096)) -d blocks; }
append() { nvme zns zone-append $zones -s $1 -z $(($2 * 4096)) -d blocks "${@:3}"; }
read_back() {
    rm -f read
    nvme read $zones -s $1 -c $(($2 - 1)) -z $(($2 * 4096)) -d read && od -A n -t x1 -w1 -v read | uniq -c
}
# The lines of an answer that match.
only() { "${@:2}" | grep -E "$1"; }
conversation() {
    local action filter zone
    reset_all
    ask "identify: namespace" only '^(nsze|ncap|nuse|nlbaf|flbas|mc|dpc|dps|dlfeat|lbaf)' nvme id-ns $zones
    ask "identify: command set of the namespace" only csi nvme ns-descs $zones
    ask "identify: zoned namespace" nvme zns id-ns $zones
    ask "identify: zoned controller" nvme zns id-ctrl $zones
    ask "identify: command sets" nvme id-iocs $zones
    ask "identify: zoned namespaces" nvme list-ns $zones --csi=2
    ask "effects of zoned commands" only IOCS nvme effects-log $zones --csi=2

    # Empty, implicitly open, explicitly open, closed, full.
    put 1 && put 3 && make close 3 && make open 2 && make finish 4
    ask "report: as nvme-cli prints it" nvme zns report-zones $zones
    ask "report: four zones" receive 0 320 0
    ask "report: two of sixteen, all counted" receive 0 192 0
    ask "report: two of sixteen, partial" receive 0 192 0x10000
    ask "report: the last two" receive 14336 192 0
    ask "report: the header alone" receive 0 64 0
    ask "report: not even the header" receive 0 32 0
    ask "report: from within a zone" receive 1030 128 0x10000
    ask "report: from the end of the namespace" receive 16384 128 0
    ask "report: from far away" receive 0xffffffffffffffff 128 0
    for filter in 1 2 3 4 5; do ask "report: filter $filter" receive 0 128 $((filter * 256)); done
    for filter in 6 7; do ask "report: filter $filter" receive 0 64 $((filter * 256)); done
    ask "report: filter 1, partial" receive 0 128 0x10100
    ask "report: filter 8" receive 0 128 0x0800
    ask "report: another action" receive 0 128 2
    ask "report: extended" receive 0 128 1

    for action in 1 2 3 4 5; do
        reset_all
        put 1 && put 2 && put 3 && make open 2 && make close 3 && make finish 4
        step "action $action: on an empty, implicitly open, explicitly open, closed, full zone" send $action 0 1 2 3 4
    done
    reset_all
    make open 5
    step "close: an open zone without data" send 1 5

    reset_all
    step "write: at the write pointer" write 1024 2
    step "write: behind it" write 1024 1
    step "write: beyond it" write 1027 1
    step "write: into the middle of an empty zone" write 2049 1
    step "write: behind the capacity" write 1792 1
    step "write: from the end of the namespace" write 16384 1
    step "append: to a zone" append 1024 2
    step "append: not to its first block" append 1026 1
    step "append: from the end of the namespace" append 16384 1
    step "append: to an empty zone" append 2048 1 --force-unit-access
    ask "read: what was written" read_back 1024 4
    ask "read: what was not" read_back 1028 2
    ask "read: across the write pointer" read_back 1026 4
    ask "read: across the capacity" read_back 1790 4
    ask "read: across two zones" read_back 1023 2
    ask "read: of an empty zone" read_back 15360 8
    ask "read: beyond the namespace" read_back 16383 2
    dd if=blocks of=$zones bs=1M count=2 seek=12 oflag=direct conv=notrunc status=none || fail "a zone nearly full"
    write 3584 244 >/dev/null 2>&1 || fail "a zone nearly full"
    step "write: longer than the rest" write 3828 13
    step "append: longer than the rest" append 3072 13
    step "append: the rest" append 3072 12
    step "append: to a full zone" append 3072 1
    step "write: to a full zone" write 3839 1
    ask "read: of a full zone" read_back 3820 20
    step "append: remapped tags without protection" append 2048 1 --piremap

    reset_all
    for zone in 0 1 2 3 4; do put $zone; done
    ask "limits: zones that are open by themselves make room" states
    reset_all
    make open 0 4
    step "limits: open a fifth" send 3 4
    step "limits: write to a fifth" write 4096 1
    step "limits: append to a fifth" append 4096 1
    step "limits: finish an empty fifth" send 2 4
    reset_all
    for zone in 0 1 2 3 4 5; do put $zone && make close $zone; done
    step "limits: write to a seventh" write 6144 1
    step "limits: append to a seventh" append 6144 1
    step "limits: open a seventh" send 3 6
    step "limits: finish an active one" send 2 0
    step "limits: write where there is room" write 7168 1
    step "limits: finish an empty seventh" send 2 6
    step "limits: open all, two too many" send_all 3

    reset_all
    put 0 && make open 0 && put 1 && put 2 && make close 2 && make finish 3
    step "all: close" send_all 1
    step "all: open" send_all 3
    step "all: close, with an address that is ignored" send_all 1 77
    step "all: finish" send_all 2
    step "all: offline" send_all 5
    step "all: reset" send_all 4
    step "all: close nothing" send_all 1

    put 0
    for action in 1 2 3 4; do
        ask "address: action $action within a zone" nvme zns zone-mgmt-send $zones --zsa=$action --start-lba=1
        ask "address: action $action at the end of the namespace" send $action 16
    done
    for action in 0 6 0x12; do ask "action $action" send $action 0; done
    ask "descriptor extension" nvme zns set-zone-desc $zones -s 1024 -d blocks
    ask "random write area: flush" nvme zns zrwa-flush-zone $zones -l 0
    step "random write area: open" nvme zns open-zone $zones -s 1024 -r
    reset_all
    ask "log of changed zones" nvme zns changed-zone-list $zones
    ask "opcode: flush" nvme flush $zones -n 1
    step "opcode: write zeroes" nvme write-zeroes $zones -s 0 -c 0
    reset_all
    ask "opcode: deallocate" nvme dsm $zones -n 1 -d -s 0 -b 1
    ask "opcode: write uncorrectable" nvme write-uncor $zones -s 0 -c 0
    ask "opcode: copy" nvme copy $zones -d 0 -b 0 -s 1024
    ask "opcode: compare" nvme compare $zones -s 0 -c 0 -z 4096 -d blocks
    step "opcode: verify" nvme verify $zones -s 0 -c 0
}

FOLDER=$PWD
connect
zones=$disk
head -c 4210688 /dev/zero | tr '\0' 'x' >blocks
target=openftl
conversation >ours
connect_to_nvmet
target=nvmet
conversation >theirs
