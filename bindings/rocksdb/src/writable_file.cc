#include "writable_file.h"

#include <utility>

#include "file_id.h"
#include "path.h"
#include "status.h"

namespace openftl {

using rocksdb::Env;
using rocksdb::FileOptions;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

// Whether RocksDB says that it flushes or compacts, in the versions that do.
template <typename Options>
auto IsFlushOrCompaction(const Options& options, int) -> decltype(options.io_activity, bool()) {
  using Activity = decltype(options.io_activity);
  return options.io_activity == Activity::kFlush || options.io_activity == Activity::kCompaction;
}
template <typename Options>
bool IsFlushOrCompaction(const Options&, long) {
  return false;
}

openftl_lifetime LifetimeOf(Env::WriteLifeTimeHint hint) {
  switch (hint) {
    case Env::WLTH_SHORT:
      return OPENFTL_LIFETIME_SHORT;
    case Env::WLTH_MEDIUM:
      return OPENFTL_LIFETIME_MEDIUM;
    case Env::WLTH_LONG:
      return OPENFTL_LIFETIME_LONG;
    case Env::WLTH_EXTREME:
      return OPENFTL_LIFETIME_EXTREME;
    case Env::WLTH_NOT_SET:
    case Env::WLTH_NONE:
      break;
  }
  return OPENFTL_LIFETIME_UNKNOWN;
}

}  // namespace

IOStatus WritableFile::Create(std::shared_ptr<Drive> drive, const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result) {
  openftl_file* file = nullptr;
  const IOStatus status = Call(path, [&](openftl_error* error) {
    return openftl_create(drive->get(), path.c_str(), KindOf(path), &file, error);
  });
  result->reset(status.ok() ? new WritableFile(std::move(drive), path, file, options) : nullptr);
  return status;
}

IOStatus WritableFile::Reopen(std::shared_ptr<Drive> drive, const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result) {
  openftl_file* file = nullptr;
  const IOStatus status = Call(path, [&](openftl_error* error) {
    return openftl_append_to(drive->get(), path.c_str(), &file, error);
  });
  result->reset(status.ok() ? new WritableFile(std::move(drive), path, file, options) : nullptr);
  return status;
}

WritableFile::WritableFile(std::shared_ptr<Drive> drive, const std::string& path, openftl_file* file,
                           const FileOptions& options)
    : FSWritableFile(options),
      drive_(std::move(drive)),
      path_(path),
      kind_(KindOf(path)),
      direct_(options.use_direct_writes),
      file_(file) {}

WritableFile::~WritableFile() {
  // Whoever wanted to know how it ended has called Close.
  if (file_ != nullptr) {
    openftl_close_file(file_, nullptr);
  }
}

bool WritableFile::IsForManifest(const IOOptions& options) const {
  if (kind_ != OPENFTL_TABLE) {
    return false;
  }
  // All versions give flushes and compactions a priority against the rate limiter, but for those that writes wait for.
  return IsFlushOrCompaction(options, 0) || io_priority_ == Env::IO_HIGH || io_priority_ == Env::IO_LOW;
}

IOStatus WritableFile::Append(const Slice& data, const IOOptions&, IODebugContext*) {
  return Call(path_, [&](openftl_error* error) { return openftl_append(file_, data.data(), data.size(), error); });
}

IOStatus WritableFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, IODebugContext*) {
  return Call(path_, [&](openftl_error* error) {
    return openftl_write_at(file_, offset, data.data(), data.size(), error);
  });
}

IOStatus WritableFile::Truncate(uint64_t size, const IOOptions&, IODebugContext*) {
  if (size == openftl_size(file_)) {
    return IOStatus::OK();
  }
  return Call(path_, [&](openftl_error* error) { return openftl_truncate(file_, size, error); });
}

IOStatus WritableFile::Flush(const IOOptions&, IODebugContext*) {
  return Call(path_, [&](openftl_error* error) { return openftl_flush(file_, error); });
}

IOStatus WritableFile::Sync(const IOOptions& options, IODebugContext*) {
  const auto sync = IsForManifest(options) ? openftl_commit : openftl_sync;
  return Call(path_, [&](openftl_error* error) { return sync(file_, error); });
}

IOStatus WritableFile::Close(const IOOptions&, IODebugContext*) {
  if (file_ == nullptr) {
    return IOStatus::OK();
  }
  openftl_file* const file = std::exchange(file_, nullptr);
  return Call(path_, [&](openftl_error* error) { return openftl_close_file(file, error); });
}

uint64_t WritableFile::GetFileSize(const IOOptions&, IODebugContext*) { return openftl_size(file_); }

size_t WritableFile::GetUniqueId(char* id, size_t max_size) const { return FileId(*drive_, file_, id, max_size); }

void WritableFile::SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) {
  FSWritableFile::SetWriteLifeTimeHint(hint);
  openftl_hint_lifetime(file_, LifetimeOf(hint));
}

void WritableFile::SetPreallocationBlockSize(size_t size) {
  FSWritableFile::SetPreallocationBlockSize(size);
  // It bounds the size of a table. For a log it is no more than a guess.
  if (kind_ == OPENFTL_TABLE) {
    openftl_hint_size(file_, size);
  }
}

}  // namespace openftl
