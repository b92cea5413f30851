// A drive that gets full in the middle of a compaction: RocksDB is told so, keeps what it has, and goes on in the same process
// when something has been deleted. full_drive openftl:///srv/lsm.toml
//
// The drive has to be new and small. A database has two column families: "kept", and "bulk", which is compacted when more than
// half of the drive is full of it.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "openftl_file_system.h"
#include "rocksdb/db.h"
#include "rocksdb/version.h"

using rocksdb::ColumnFamilyHandle;
using rocksdb::Status;

namespace {

constexpr int kKept = 2000;
const std::string kFolder = "/full_drive";

void Fail(const char* what, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  std::exit(1);
}

void Check(const char* what, const Status& status) {
  if (!status.ok()) {
    Fail(what, status);
  }
}

std::string Key(int number) {
  char key[17];
  std::snprintf(key, sizeof(key), "%016d", number);
  return key;
}

std::string Value(int number, int round) { return Key(number) + std::string(1000, static_cast<char>('a' + round)); }

class Database {
 public:
  explicit Database(rocksdb::Env* env) {
    rocksdb::Options options;
    options.env = env;
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    options.compression = rocksdb::kNoCompression;
    options.disable_auto_compactions = true;
    options.level0_slowdown_writes_trigger = 1000;
    options.level0_stop_writes_trigger = 1000;
    options.write_buffer_size = 16 << 20;
    options.target_file_size_base = 16 << 20;
    const rocksdb::ColumnFamilyOptions family(options);
    const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
        {rocksdb::kDefaultColumnFamilyName, family}, {"kept", family}, {"bulk", family}};
    std::conditional_t<ROCKSDB_MAJOR < 11, rocksdb::DB*, std::unique_ptr<rocksdb::DB>> opened;
    Check("open", rocksdb::DB::Open(options, kFolder, families, &handles_, &opened));
    db_ = std::unique_ptr<rocksdb::DB>(std::move(opened));
  }

  ~Database() {
    for (ColumnFamilyHandle* const handle : handles_) {
      if (handle != nullptr) {
        Check("let go of a column family", db_->DestroyColumnFamilyHandle(handle));
      }
    }
    Check("close", db_->Close());
  }

  rocksdb::DB* operator->() { return db_.get(); }
  ColumnFamilyHandle* kept() { return handles_[1]; }
  ColumnFamilyHandle* bulk() { return handles_[2]; }

  void DropBulk() {
    Check("drop what fills the drive", db_->DropColumnFamily(bulk()));
    Check("let go of it", db_->DestroyColumnFamilyHandle(bulk()));
    handles_[2] = nullptr;
  }

  void PutKept(int round) {
    for (int number = 0; number < kKept; number++) {
      Check("put", db_->Put(rocksdb::WriteOptions(), kept(), Key(number), Value(number, round)));
    }
    Check("flush", db_->Flush(rocksdb::FlushOptions(), kept()));
  }

  void ExpectKept(int round) {
    for (int number = 0; number < kKept; number++) {
      std::string value;
      Check("get", db_->Get(rocksdb::ReadOptions(), kept(), Key(number), &value));
      if (value != Value(number, round)) {
        std::fprintf(stderr, "key %d has another value after round %d\n", number, round);
        std::exit(1);
      }
    }
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<ColumnFamilyHandle*> handles_;
};

// Fills three fifths of the drive with tables of level 0, which all overlap.
void Fill(Database* database, rocksdb::FileSystem* fs) {
  uint64_t all = 0;
  Check("free space", fs->GetFreeSpace("/", rocksdb::IOOptions(), &all, nullptr));
  for (uint64_t left = all, number = 0; left > all / 5 * 2; number++) {
    const int key = static_cast<int>(number * 7919 % 400000);
    Check("fill", (*database)->Put(rocksdb::WriteOptions(), database->bulk(), Key(key), Value(key, number % 20)));
    if (number % 1000 == 0) {
      Check("free space", fs->GetFreeSpace("/", rocksdb::IOOptions(), &left, nullptr));
    }
  }
  Check("flush", (*database)->Flush(rocksdb::FlushOptions(), database->bulk()));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "full_drive URI\n");
    return 1;
  }
  std::unique_ptr<rocksdb::Env> env;  // outlives the databases
  Check("open the drive", openftl::NewEnv(arguments[1], &env));
  {
    Database database(env.get());
    database.PutKept(0);
    Fill(&database, env->GetFileSystem().get());
    const Status compacted = database->CompactRange(rocksdb::CompactRangeOptions(), database.bulk(), nullptr, nullptr);
    if (!compacted.IsNoSpace()) {
      Fail("a compaction that does not fit ends with something else than no space", compacted);
    }
    database.ExpectKept(0);
    database.DropBulk();
    Check("resume", database->Resume());
    for (int round = 1; round < 4; round++) {
      database.PutKept(round);
    }
    Check("compact", database->CompactRange(rocksdb::CompactRangeOptions(), database.kept(), nullptr, nullptr));
    database.ExpectKept(3);
  }
  Database database(env.get());
  database.ExpectKept(3);
  std::printf("it goes on\n");
}
