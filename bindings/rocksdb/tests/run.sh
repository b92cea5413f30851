#!/bin/sh
# Runs RocksDB's own programs on a drive, and looks whether they say that all is well.
#
#   tests/run.sh PLUGIN URI [TOOLS]
#
# PLUGIN is libopenftl_rocksdb.so, with the test `operations` beside it; URI is a new drive that the next process finds again
# (for the model: openftl:// and an empty folder); TOOLS is the folder of a build of RocksDB (db_bench, tools/ldb,
# tools/sst_dump, db_stress_tool/db_stress), and without it Debian's programs are run. STRESS=100000 is the number
# of operations in each of four threads of db_stress, where there is one. SMALL is the URI of a drive of at most 100 MB,
# that is filled (for the model: openftl://small).
set -eu
[ $# -ge 2 ] || { sed -n '2,10p' "$0"; exit 1; }
plugin=$1 uri=$2 tools=${3:-}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
tool() { # name, folder in a build of RocksDB
    if [ -n "$tools" ]; then echo "$tools/$2$1"; else echo "$1"; fi
}
bench=$(tool db_bench "") ldb=$(tool ldb tools/) sst_dump=$(tool sst_dump tools/) stress=$(tool db_stress db_stress_tool/)

# Runs a program with the plugin; its output is $here/out. With `kills` it is killed after as many seconds.
kills=0
on_drive() {
    echo "- ${1##*/} $*" | sed "s# $1# #" | cut -c 1-128
    limit="600"
    [ $kills = 0 ] || limit="-s KILL $kills"
    timeout $limit env LD_PRELOAD="$plugin" "$@" --fs_uri="$uri" >"$here/out" 2>&1 || {
        status=$?
        [ $kills = 0 ] || [ $status != 137 ] || return 0
        tail -n 30 "$here/out"
        echo "FAILED with $status: $*"
        exit 1
    }
}
expect() { # what the last program has to have said
    tr '\r' '\n' <"$here/out" | grep -q -e "$1" || {
        tail -n 30 "$here/out"
        echo "FAILED: it does not say \"$1\""
        exit 1
    }
}

echo "- operations"
timeout 600 "$(dirname "$plugin")/operations" "$uri" --durable

for direct in "" "--use_direct_reads --use_direct_io_for_flush_and_compaction"; do
    for blobs in "" "--enable_blob_files --min_blob_size=50 --enable_blob_garbage_collection"; do
        on_drive "$bench" --db=/db/bench --num=200000 --reads=50000 --threads=2 --value_size=100 --compression_type=none \
            --write_buffer_size=4000000 --target_file_size_base=4000000 --max_bytes_for_level_base=16000000 \
            --multiread_batched --batch_size=16 $direct $blobs \
            --benchmarks=fillseq,readseq,readrandom,fillrandom,overwrite,multireadrandom,deleterandom,compact,verifychecksum
        for benchmark in fillseq readseq readrandom fillrandom overwrite multireadrandom deleterandom compact verifychecksum; do
            expect "^$benchmark *:"
        done
        on_drive "$bench" --db=/db/bench --num=200000 --reads=20000 --use_existing_db --compression_type=none $direct $blobs \
            --benchmarks=readrandom,seekrandom,readreverse,verifychecksum --async_io --seek_nexts=100
        expect "^readrandom *:"
    done
done
on_drive "$bench" --db=/db/sync --num=2000 --sync --benchmarks=fillrandom,readrandom --compression_type=none
expect "^readrandom *:"

on_drive "$ldb" --db=/db/small --create_if_missing put apple red
on_drive "$ldb" --db=/db/small put pear green
on_drive "$ldb" --db=/db/small batchput plum blue quince yellow
on_drive "$ldb" --db=/db/small delete pear
on_drive "$ldb" --db=/db/small get apple
expect '^red$'
on_drive "$ldb" --db=/db/small scan
expect 'quince.*yellow'
on_drive "$ldb" --db=/db/small compact
on_drive "$ldb" --db=/db/small checkconsistency
expect '^OK$'
on_drive "$ldb" --db=/db/small list_column_families
expect default
on_drive "$ldb" --db=/db/small manifest_dump
on_drive "$ldb" --db=/db/small list_live_files_metadata
on_drive "$ldb" --db=/db/small checkpoint --checkpoint_dir=/db/checkpoint
on_drive "$ldb" --db=/db/checkpoint get plum
expect '^blue$'
on_drive "$ldb" --db=/db/small repair
on_drive "$ldb" --db=/db/small get quince
expect '^yellow$'
on_drive "$sst_dump" --file=/db/bench --command=check --verify_checksum
on_drive "$ldb" --db=/db/small backup --backup_fs_uri="$uri" --backup_dir=/db/backup
on_drive "$ldb" --db=/db/restored restore --backup_fs_uri="$uri" --backup_dir=/db/backup
on_drive "$ldb" --db=/db/restored get apple
expect '^red$'
echo 'cherry ==> black' | on_drive "$ldb" --db=/db/small write_extern_sst /db/extern.sst
on_drive "$ldb" --db=/db/small ingest_extern_sst /db/extern.sst
on_drive "$ldb" --db=/db/small get cherry
expect '^black$'

# db_stress compares every value with what it noted on the host. Its own remote compactions fail without any plugin, and
# what it restores it opens on the host.
stress() {
    on_drive "$stress" "$@" --db="$here/db" --expected_values_dir="$here/expected" --threads=4 --max_key=20000 \
        --value_size_mult=32 --write_buffer_size=1000000 --target_file_size_base=1000000 --max_bytes_for_level_base=4000000 \
        --compression_type=none --bottommost_compression_type=none --compression_manager=none --sync_fault_injection=0 \
        --read_fault_one_in=0 --write_fault_one_in=0 --metadata_read_fault_one_in=0 --metadata_write_fault_one_in=0 \
        --open_metadata_read_fault_one_in=0 --open_metadata_write_fault_one_in=0 --open_read_fault_one_in=0 \
        --open_write_fault_one_in=0 --remote_compaction_worker_threads=0 --clear_column_family_one_in=0 --backup_one_in=0 \
        --checkpoint_one_in=10000 --flush_one_in=5000 --compact_files_one_in=5000 --verify_checksum_one_in=20000 \
        --ingest_external_file_one_in=5000 --get_live_files_apis_one_in=5000 --recycle_log_file_num=2
}
anew() { # with nothing on the drive, and nothing expected
    rm -rf "$here/expected"
    mkdir "$here/expected"
    stress --destroy_db_initially=1 "$@"
}
if [ -n "$tools" ] && [ -x "$stress" ]; then
    operations=${STRESS:-100000}
    anew --ops_per_thread="$operations" --reopen=3 --sync_wal_one_in=1000 --manual_wal_flush_one_in=1000
    expect 'Verification successful'
    anew --ops_per_thread="$operations" --reopen=3 --async_io=1 --use_direct_reads=1 \
        --use_direct_io_for_flush_and_compaction=1 --mmap_read=0 --enable_blob_files=1 --min_blob_size=64 \
        --enable_blob_garbage_collection=1 --sync_wal_one_in=0 --ingest_external_file_one_in=0
    expect 'Verification successful'
    # Killed again and again; every write had been synced.
    kills=6
    anew --ops_per_thread=100000000 --reopen=0 --sync=1
    for round in 2 3 4; do
        stress --destroy_db_initially=0 --ops_per_thread=100000000 --reopen=0 --sync=1
        expect 'Starting database operations'
    done
    kills=0
    stress --destroy_db_initially=0 --ops_per_thread=1000 --reopen=0
    expect 'Verification successful'
fi
if [ -n "${SMALL:-}" ]; then
    echo "- db_bench on a drive that is too small"
    status=0
    OPENFTL_MODEL_BYTES=50000000 timeout 600 env LD_PRELOAD="$plugin" "$bench" --fs_uri="$SMALL" --db=/db --num=4000000 \
        --compression_type=none --benchmarks=fillrandom --write_buffer_size=1000000 >"$here/out" 2>&1 || status=$?
    expect 'No space left on device'
    [ $status = 1 ] || { echo "FAILED: it ends with $status instead of an error"; exit 1; }
fi
echo "RocksDB's programs run on $uri"
