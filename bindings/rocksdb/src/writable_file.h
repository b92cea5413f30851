// A file that RocksDB writes: a table from front to back, or a log that goes on and on.
//
//   create ── hints ── Append or PositionedAppend … ── Truncate (direct I/O: the padding of the last page goes) ── Sync ── Close
//
// A table is durable when it has been closed, whether or not it was synced before: RocksDB may want to sync it later by its
// name (SyncFile), when the drive no longer has it open.
#pragma once

#include <memory>
#include <string>

#include "drive.h"
#include "rocksdb/file_system.h"

namespace openftl {

class WritableFile : public rocksdb::FSWritableFile {
 public:
  // Makes a file, in place of one that has its name.
  static rocksdb::IOStatus Create(std::shared_ptr<Drive> drive, const std::string& path, const rocksdb::FileOptions& options,
                                  std::unique_ptr<rocksdb::FSWritableFile>* result);

  // Goes on with a log file, or makes it.
  static rocksdb::IOStatus Reopen(std::shared_ptr<Drive> drive, const std::string& path, const rocksdb::FileOptions& options,
                                  std::unique_ptr<rocksdb::FSWritableFile>* result);

  ~WritableFile() override;

  using rocksdb::FSWritableFile::Append;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset, const rocksdb::IOOptions& options,
                                     rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset, const rocksdb::IOOptions& options,
                                     const rocksdb::DataVerificationInfo&, rocksdb::IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Flush(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;

  bool IsSyncThreadSafe() const override { return true; }
  bool use_direct_io() const override { return direct_; }
  size_t GetRequiredBufferAlignment() const override { return kAlignment; }
  uint64_t GetFileSize(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  size_t GetUniqueId(char* id, size_t max_size) const override;

  void SetWriteLifeTimeHint(rocksdb::Env::WriteLifeTimeHint hint) override;
  void SetPreallocationBlockSize(size_t size) override;

  // A drive allocates by itself, and in whole write units.
  void PrepareWrite(size_t, size_t, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {}
  rocksdb::IOStatus Allocate(uint64_t, uint64_t, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::OK();
  }
  // What is appended is on its way already; nothing lies about that would have to be written back.
  rocksdb::IOStatus RangeSync(uint64_t, uint64_t, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::OK();
  }
  // There is no cache on the way.
  rocksdb::IOStatus InvalidateCache(size_t, size_t) override { return rocksdb::IOStatus::OK(); }

  // What direct I/O is aligned to.
  static constexpr size_t kAlignment = 4096;

 private:
  WritableFile(std::shared_ptr<Drive> drive, const std::string& path, openftl_file* file, const rocksdb::FileOptions& options);

  // Whether this is a table of a flush or a compaction. It means nothing before the MANIFEST names it, whose sync comes later and
  // makes both durable.
  bool IsForManifest(const rocksdb::IOOptions& options) const;

  const std::shared_ptr<Drive> drive_;
  const std::string path_;
  const openftl_kind kind_;
  const bool direct_;
  openftl_file* file_;  // null once it is closed
};

}  // namespace openftl
