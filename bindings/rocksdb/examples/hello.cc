// A database on a drive: opens it, puts, gets, iterates, closes. The drive is named by its URI: hello openftl:///srv/lsm.toml
#include <cstdio>
#include <memory>
#include <string>

#include "openftl_file_system.h"
#include "rocksdb/db.h"

static void Check(const rocksdb::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str()), std::exit(1);
}

int main(int count, char** arguments) {
  std::unique_ptr<rocksdb::Env> env;  // outlives the database
  Check(openftl::NewEnv(count > 1 ? arguments[1] : "openftl://lsm.toml", &env));
  rocksdb::Options options;
  options.env = env.get();
  options.create_if_missing = true;
  rocksdb::DB* opened = nullptr;
  Check(rocksdb::DB::Open(options, "/hello", &opened));
  const std::unique_ptr<rocksdb::DB> db(opened);
  Check(db->Put(rocksdb::WriteOptions(), "greeting", "hello"));
  Check(db->Flush(rocksdb::FlushOptions()));
  std::string value;
  Check(db->Get(rocksdb::ReadOptions(), "greeting", &value));
  const std::unique_ptr<rocksdb::Iterator> iterator(db->NewIterator(rocksdb::ReadOptions()));
  for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next())
    std::printf("%s: %s\n", iterator->key().ToString().c_str(), iterator->value().ToString().c_str());
  Check(db->Close());
}
