// The text that RocksDB writes about itself (LOG), as a log file on the drive.
//
// RocksDB's own logger for file systems like this one must not be used after a write of it has failed: on a full drive
// it ends programs whose assertions are on. A line that cannot be written is lost here, and the database goes on.
#pragma once

#include <cstdarg>
#include <memory>
#include <mutex>

#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

namespace openftl {

class InfoLog : public rocksdb::Logger {
 public:
  explicit InfoLog(std::unique_ptr<rocksdb::FSWritableFile> file) : file_(std::move(file)) {}
  ~InfoLog() override;

  // A line: time, thread, message. Says the time as RocksDB's other loggers do, for those who read them.
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override;
  void Flush() override;
  size_t GetLogFileSize() const override;

 protected:
  rocksdb::Status CloseImpl() override { return CloseFile(); }

 private:
  rocksdb::Status CloseFile();

  mutable std::mutex mutex_;
  std::unique_ptr<rocksdb::FSWritableFile> file_;  // null once it is closed
};

}  // namespace openftl
