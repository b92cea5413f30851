// A file that RocksDB reads: at any place (tables), or from front to back (logs, when a database is opened). Both can be
// read until they are closed, also when the file has been deleted.
#pragma once

#include <memory>
#include <string>

#include "drive.h"
#include "rocksdb/file_system.h"

namespace openftl {

// A file of the drive, open for reading until this goes.
class ReadableFile {
 public:
  static rocksdb::IOStatus Open(std::shared_ptr<Drive> drive, const std::string& path, std::unique_ptr<ReadableFile>* result);
  ~ReadableFile();

  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  rocksdb::IOStatus Read(uint64_t offset, size_t bytes, rocksdb::Slice* result, char* scratch) const;

  const Drive& drive() const { return *drive_; }
  openftl_file* get() const { return file_; }
  const std::string& path() const { return path_; }

 private:
  ReadableFile(std::shared_ptr<Drive> drive, const std::string& path, openftl_file* file);

  const std::shared_ptr<Drive> drive_;
  const std::string path_;
  openftl_file* const file_;
};

class RandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(std::unique_ptr<ReadableFile> file, const rocksdb::FileOptions& options)
      : file_(std::move(file)), direct_(options.use_direct_reads) {}

  rocksdb::IOStatus Read(uint64_t offset, size_t bytes, const rocksdb::IOOptions&, rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext*) const override {
    return file_->Read(offset, bytes, result, scratch);
  }
  // All of them at a time. ReadAsync is left to its default, which reads at once; SupportedOps says so.
  rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count, const rocksdb::IOOptions&,
                              rocksdb::IODebugContext*) override;

  // The drive has no cache to prefetch into. RocksDB then prefetches into a buffer of its own.
  rocksdb::IOStatus Prefetch(uint64_t, size_t, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::NotSupported("Prefetch");
  }
  rocksdb::IOStatus InvalidateCache(size_t, size_t) override { return rocksdb::IOStatus::OK(); }

  size_t GetUniqueId(char* id, size_t max_size) const override;
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override;

 private:
  const std::unique_ptr<ReadableFile> file_;
  const bool direct_;
};

class SequentialFile : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(std::unique_ptr<ReadableFile> file, const rocksdb::FileOptions& options)
      : file_(std::move(file)), direct_(options.use_direct_reads) {}

  rocksdb::IOStatus Read(size_t bytes, const rocksdb::IOOptions&, rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext*) override;
  rocksdb::IOStatus PositionedRead(uint64_t offset, size_t bytes, const rocksdb::IOOptions&, rocksdb::Slice* result,
                                   char* scratch, rocksdb::IODebugContext*) override {
    return file_->Read(offset, bytes, result, scratch);
  }
  rocksdb::IOStatus Skip(uint64_t bytes) override;
  rocksdb::IOStatus InvalidateCache(size_t, size_t) override { return rocksdb::IOStatus::OK(); }

  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override;

 private:
  const std::unique_ptr<ReadableFile> file_;
  const bool direct_;
  uint64_t offset_ = 0;
};

}  // namespace openftl
