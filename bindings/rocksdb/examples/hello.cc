// A database on a drive: opens it, puts, gets, iterates, closes. hello openftl:///srv/lsm.toml
#include <cstdio>

#include "openftl_file_system.h"
#include "rocksdb/db.h"
#include "rocksdb/version.h"

static void Check(const rocksdb::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str()), std::exit(1);
}

int main(int, char** arguments) {
  std::unique_ptr<rocksdb::Env> env;  // outlives the database
  Check(openftl::NewEnv(arguments[1], &env));
  rocksdb::Options options;
  options.env = env.get();
  options.create_if_missing = true;
  std::conditional_t<ROCKSDB_MAJOR < 11, rocksdb::DB*, std::unique_ptr<rocksdb::DB>> opened;
  Check(rocksdb::DB::Open(options, "/hello", &opened));
  const std::unique_ptr<rocksdb::DB> db(std::move(opened));
  Check(db->Put(rocksdb::WriteOptions(), "greeting", "hello"));
  std::string value;
  Check(db->Get(rocksdb::ReadOptions(), "greeting", &value));
  std::unique_ptr<rocksdb::Iterator> iterator(db->NewIterator(rocksdb::ReadOptions()));
  for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next())
    std::printf("%s: %s\n", iterator->key().ToString().c_str(), iterator->value().ToString().c_str());
  iterator.reset();
  Check(db->Close());
}
