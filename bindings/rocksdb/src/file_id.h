// The identity of a file, for RocksDB's caches: the same as long as the file exists, and of no other file of this process.
#pragma once

#include <cstring>

#include "drive.h"

namespace openftl {

// Fills `id`, and returns its length; 0 if it does not fit. All of them are of one length, so that none begins another.
inline size_t FileId(const Drive& drive, const openftl_file* file, char* id, size_t max_size) {
  const uint64_t words[2] = {reinterpret_cast<uintptr_t>(drive.get()), openftl_file_id(file)};
  if (file == nullptr || max_size < sizeof(words)) {
    return 0;
  }
  std::memcpy(id, words, sizeof(words));
  return sizeof(words);
}

}  // namespace openftl
