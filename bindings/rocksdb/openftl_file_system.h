// RocksDB on an OpenFTL table drive.
//
// A program that is not to be changed loads the plugin with LD_PRELOAD and names the drive by a URI
// (db_bench --fs_uri=openftl:///srv/lsm.toml). A program of your own links it and calls one of these.
#pragma once

#include <memory>
#include <string>

#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/status.h"

namespace openftl {

// Opens the drive of a URI ("openftl:///srv/lsm.toml") as a file system. The drive is closed when the file system and all
// of its files are gone.
rocksdb::Status NewFileSystem(const std::string& uri, std::shared_ptr<rocksdb::FileSystem>* file_system);

// The same as an environment: its files are on the drive, its threads and its clock are those of RocksDB's default.
// It has to live until every database that uses it is closed.
rocksdb::Status NewEnv(const std::string& uri, std::unique_ptr<rocksdb::Env>* env);

}  // namespace openftl

// The same for RocksDB's interface for C, and for languages that build on it (Rust: `Env::from_raw`). Null if it failed: then
// `*error` is a text to be freed with free(). The environment is freed with rocksdb_env_destroy.
extern "C" struct rocksdb_env_t* openftl_rocksdb_env(const char* uri, char** error);
