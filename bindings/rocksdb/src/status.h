// What a call of the drive came to, in RocksDB's words.
#pragma once

#include <string>

#include "openftl.h"
#include "rocksdb/io_status.h"

namespace openftl {

// The status of a call that failed, about a path (or a URI).
rocksdb::IOStatus Failure(openftl_status status, const std::string& path, const openftl_error& error);

// Makes a call about a path, and translates what it came to.
template <typename Function>
rocksdb::IOStatus Call(const std::string& path, Function function) {
  openftl_error error;
  error.message[0] = 0;
  const openftl_status status = function(&error);
  return status == OPENFTL_OK ? rocksdb::IOStatus::OK() : Failure(status, path, error);
}

}  // namespace openftl
