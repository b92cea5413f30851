// The file system that RocksDB sees: names on the drive, and the files behind them.
//
//   RocksDB ── FileSystem ── WritableFile · RandomAccessFile · SequentialFile · Directory ── openftl.h ── drive
//
// Every call goes straight to the drive; nothing is kept here but the drive itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drive.h"
#include "rocksdb/file_system.h"

namespace openftl {

class FileSystem : public rocksdb::FileSystem {
 public:
  explicit FileSystem(std::shared_ptr<Drive> drive) : drive_(std::move(drive)) {}

  const char* Name() const override { return "openftl"; }

  // Files.
  rocksdb::IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* result,
                                      rocksdb::IODebugContext*) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path, const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                        rocksdb::IODebugContext*) override;
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* result, rocksdb::IODebugContext*) override;
  // A new file in place of the old one: nothing is gained by writing over what is there.
  rocksdb::IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                                      const rocksdb::FileOptions& options, std::unique_ptr<rocksdb::FSWritableFile>* result,
                                      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomRWFile(const std::string& path, const rocksdb::FileOptions&,
                                    std::unique_ptr<rocksdb::FSRandomRWFile>* result, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus NewMemoryMappedFileBuffer(const std::string& path,
                                              std::unique_ptr<rocksdb::MemoryMappedFileBuffer>* result) override;
  rocksdb::IOStatus NewLogger(const std::string& path, const rocksdb::IOOptions& options,
                              std::shared_ptr<rocksdb::Logger>* result, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Truncate(const std::string& path, size_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  // Since RocksDB 11.
  virtual rocksdb::IOStatus SyncFile(const std::string& path, const rocksdb::FileOptions& file_options,
                                     const rocksdb::IOOptions& options, bool use_fsync, rocksdb::IODebugContext* debug);

  // Names.
  rocksdb::IOStatus FileExists(const std::string& path, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  // Folders as well: a checkpoint is made beside its place.
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  // RocksDB copies instead.
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to, const rocksdb::IOOptions&,
                             rocksdb::IODebugContext*) override;
  rocksdb::IOStatus NumFileLinks(const std::string& path, const rocksdb::IOOptions&, uint64_t* count,
                                 rocksdb::IODebugContext*) override;
  rocksdb::IOStatus AreFilesSame(const std::string& first, const std::string& second, const rocksdb::IOOptions&, bool* same,
                                 rocksdb::IODebugContext*) override;
  rocksdb::IOStatus GetFileSize(const std::string& path, const rocksdb::IOOptions&, uint64_t* size,
                                rocksdb::IODebugContext*) override;
  rocksdb::IOStatus GetFileModificationTime(const std::string& path, const rocksdb::IOOptions&, uint64_t* seconds,
                                            rocksdb::IODebugContext*) override;
  rocksdb::IOStatus LockFile(const std::string& path, const rocksdb::IOOptions&, rocksdb::FileLock** lock,
                             rocksdb::IODebugContext*) override;
  rocksdb::IOStatus UnlockFile(rocksdb::FileLock* lock, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;

  // Folders.
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions&,
                                 std::unique_ptr<rocksdb::FSDirectory>* result, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus GetChildren(const std::string& path, const rocksdb::IOOptions&, std::vector<std::string>* names,
                                rocksdb::IODebugContext*) override;
  rocksdb::IOStatus GetChildrenFileAttributes(const std::string& path, const rocksdb::IOOptions&,
                                              std::vector<rocksdb::FileAttributes>* children,
                                              rocksdb::IODebugContext*) override;
  rocksdb::IOStatus CreateDir(const std::string& path, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  // Makes the folders above it as well.
  rocksdb::IOStatus CreateDirIfMissing(const std::string& path, const rocksdb::IOOptions& options,
                                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteDir(const std::string& path, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override;
  rocksdb::IOStatus IsDirectory(const std::string& path, const rocksdb::IOOptions&, bool* is_directory,
                                rocksdb::IODebugContext*) override;

  // The drive.
  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions&, uint64_t* bytes,
                                 rocksdb::IODebugContext*) override;
  rocksdb::IOStatus GetAbsolutePath(const std::string& path, const rocksdb::IOOptions&, std::string* absolute,
                                    rocksdb::IODebugContext*) override;
  rocksdb::IOStatus GetTestDirectory(const rocksdb::IOOptions& options, std::string* path,
                                     rocksdb::IODebugContext* debug) override;
  // Nothing that is optional: asynchronous reads and prefetching are RocksDB's own. Since RocksDB 8.
  virtual void SupportedOps(int64_t& supported);

 private:
  rocksdb::IOStatus Stat(const std::string& path, openftl_attributes* attributes) const;

  // Moves what is in a folder into a new one. A power cut may leave some of it in either; a database is moved so that
  // it cannot be opened before all of it is there.
  rocksdb::IOStatus RenameFolder(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                                 rocksdb::IODebugContext* debug);

  const std::shared_ptr<Drive> drive_;
};

}  // namespace openftl
