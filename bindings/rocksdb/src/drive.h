// A drive that is open. The file system and every open file share it, so that it is closed after the last of them, in
// whichever order a program lets go of them.
#pragma once

#include <memory>
#include <string>

#include "openftl.h"
#include "rocksdb/io_status.h"

namespace openftl {

class Drive {
 public:
  static rocksdb::IOStatus Open(const std::string& uri, std::shared_ptr<Drive>* drive);
  ~Drive();

  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  openftl_drive* get() const { return drive_; }

 private:
  explicit Drive(openftl_drive* drive) : drive_(drive) {}

  openftl_drive* const drive_;
};

}  // namespace openftl
