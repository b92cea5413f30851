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

// Flush or compaction as RocksDB says it with each write, in the versions that do.
template <typename Options>
auto ActivityOf(const Options& options, int) -> decltype(options.io_activity, openftl_activity()) {
  using Activity = decltype(options.io_activity);
  switch (options.io_activity) {
    case Activity::kFlush:
      return OPENFTL_ACTIVITY_FLUSH;
    case Activity::kCompaction:
      return OPENFTL_ACTIVITY_COMPACTION;
    default:
      return OPENFTL_ACTIVITY_UNKNOWN;
  }
}
template <typename Options>
openftl_activity ActivityOf(const Options&, long) {
  return OPENFTL_ACTIVITY_UNKNOWN;
}

// The same by the priority against the rate limiter, which all versions give to tables. While writes stall both have that
// of the user.
openftl_activity ActivityOf(Env::IOPriority priority) {
  switch (priority) {
    case Env::IO_HIGH:
      return OPENFTL_ACTIVITY_FLUSH;
    case Env::IO_LOW:
      return OPENFTL_ACTIVITY_COMPACTION;
    default:
      return OPENFTL_ACTIVITY_UNKNOWN;
  }
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

void WritableFile::HintActivity(const IOOptions& options) {
  if (activity_hinted_ || kind_ != OPENFTL_TABLE) {
    return;
  }
  activity_hinted_ = true;
  openftl_activity activity = ActivityOf(options, 0);
  if (activity == OPENFTL_ACTIVITY_UNKNOWN) {
    activity = ActivityOf(io_priority_);
  }
  openftl_hint_activity(file_, activity);
}

IOStatus WritableFile::Append(const Slice& data, const IOOptions& options, IODebugContext*) {
  HintActivity(options);
  changed_ = true;
  return Call(path_, [&](openftl_error* error) { return openftl_append(file_, data.data(), data.size(), error); });
}

IOStatus WritableFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options, IODebugContext*) {
  HintActivity(options);
  changed_ = true;
  return Call(path_, [&](openftl_error* error) {
    return openftl_write_at(file_, offset, data.data(), data.size(), error);
  });
}

IOStatus WritableFile::Truncate(uint64_t size, const IOOptions&, IODebugContext*) {
  if (size == openftl_size(file_)) {
    return IOStatus::OK();
  }
  changed_ = true;
  return Call(path_, [&](openftl_error* error) { return openftl_truncate(file_, size, error); });
}

IOStatus WritableFile::Flush(const IOOptions&, IODebugContext*) {
  return Call(path_, [&](openftl_error* error) { return openftl_flush(file_, error); });
}

IOStatus WritableFile::Sync(const IOOptions&, IODebugContext*) {
  changed_ = false;
  const IOStatus status = Call(path_, [&](openftl_error* error) { return openftl_sync(file_, error); });
  if (!status.ok()) {
    changed_ = true;
  }
  return status;
}

IOStatus WritableFile::Close(const IOOptions& options, IODebugContext* debug) {
  if (file_ == nullptr) {
    return IOStatus::OK();
  }
  IOStatus synced;
  if (kind_ == OPENFTL_TABLE && changed_) {
    synced = Sync(options, debug);
  }
  openftl_file* const file = std::exchange(file_, nullptr);
  IOStatus closed = Call(path_, [&](openftl_error* error) { return openftl_close_file(file, error); });
  return synced.ok() ? closed : synced;
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
