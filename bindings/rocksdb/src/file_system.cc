#include "file_system.h"

#include <algorithm>

#include "info_log.h"
#include "path.h"
#include "readable_file.h"
#include "status.h"
#include "writable_file.h"

namespace openftl {

using rocksdb::DirFsyncOptions;
using rocksdb::FileLock;
using rocksdb::FileOptions;
using rocksdb::FSDirectory;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSRandomRWFile;
using rocksdb::FSSequentialFile;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

namespace {

// A folder, open so that its names can be made durable.
class Directory : public FSDirectory {
 public:
  Directory(std::shared_ptr<Drive> drive, const std::string& path) : drive_(std::move(drive)), path_(path) {}

  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug, const DirFsyncOptions& why) override {
    // The sync of a file is that of its name, or comes with that of the MANIFEST.
    return why.reason == DirFsyncOptions::kNewFileSynced ? IOStatus::OK() : Fsync(options, debug);
  }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return Call(path_, [&](openftl_error* error) { return openftl_sync_folder(drive_->get(), path_.c_str(), error); });
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  const std::shared_ptr<Drive> drive_;
  const std::string path_;
};

class Lock : public FileLock {
 public:
  explicit Lock(const std::string& path) : path_(path) {}
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace

IOStatus FileSystem::NewSequentialFile(const std::string& path, const FileOptions& options,
                                       std::unique_ptr<FSSequentialFile>* result, IODebugContext*) {
  std::unique_ptr<ReadableFile> file;
  const IOStatus status = ReadableFile::Open(drive_, Normalise(path), &file);
  result->reset(status.ok() ? new SequentialFile(std::move(file), options) : nullptr);
  return status;
}

IOStatus FileSystem::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                         std::unique_ptr<FSRandomAccessFile>* result, IODebugContext*) {
  std::unique_ptr<ReadableFile> file;
  const IOStatus status = ReadableFile::Open(drive_, Normalise(path), &file);
  result->reset(status.ok() ? new RandomAccessFile(std::move(file), options) : nullptr);
  return status;
}

IOStatus FileSystem::NewWritableFile(const std::string& path, const FileOptions& options,
                                     std::unique_ptr<FSWritableFile>* result, IODebugContext*) {
  return WritableFile::Create(drive_, Normalise(path), options, result);
}

IOStatus FileSystem::ReopenWritableFile(const std::string& path, const FileOptions& options,
                                        std::unique_ptr<FSWritableFile>* result, IODebugContext*) {
  return WritableFile::Reopen(drive_, Normalise(path), options, result);
}

IOStatus FileSystem::ReuseWritableFile(const std::string& path, const std::string& old_path, const FileOptions& options,
                                       std::unique_ptr<FSWritableFile>* result, IODebugContext* debug) {
  const IOStatus status = NewWritableFile(path, options, result, debug);
  if (!status.ok()) {
    return status;
  }
  return DeleteFile(old_path, options.io_options, debug);
}

IOStatus FileSystem::NewRandomRWFile(const std::string& path, const FileOptions&, std::unique_ptr<FSRandomRWFile>* result,
                                     IODebugContext*) {
  result->reset();
  return IOStatus::NotSupported(path, "a file of a table drive is written from front to back: it cannot be written at random");
}

IOStatus FileSystem::NewMemoryMappedFileBuffer(const std::string& path,
                                               std::unique_ptr<rocksdb::MemoryMappedFileBuffer>* result) {
  result->reset();
  return IOStatus::NotSupported(path, "a file of a table drive cannot be mapped into memory");
}

IOStatus FileSystem::NewLogger(const std::string& path, const IOOptions&, std::shared_ptr<rocksdb::Logger>* result,
                               IODebugContext* debug) {
  std::unique_ptr<FSWritableFile> file;
  const IOStatus status = NewWritableFile(path, FileOptions(), &file, debug);
  if (status.ok()) {
    result->reset(new InfoLog(std::move(file)));
  }
  return status;
}

IOStatus FileSystem::Truncate(const std::string& path, size_t size, const IOOptions& options, IODebugContext* debug) {
  std::unique_ptr<FSWritableFile> file;
  IOStatus status = ReopenWritableFile(path, FileOptions(), &file, debug);
  if (!status.ok()) {
    return status;
  }
  status = file->Truncate(size, options, debug);
  const IOStatus closed = file->Close(options, debug);
  return status.ok() ? closed : status;
}

IOStatus FileSystem::SyncFile(const std::string& path, const FileOptions& file_options, const IOOptions& options, bool,
                              IODebugContext* debug) {
  openftl_attributes attributes;
  IOStatus status = Stat(path, &attributes);
  if (!status.ok() || attributes.kind == OPENFTL_TABLE) {
    return status;  // a table has been durable since it was closed
  }
  std::unique_ptr<FSWritableFile> file;
  status = ReopenWritableFile(path, file_options, &file, debug);
  if (!status.ok()) {
    return status;
  }
  status = file->Sync(options, debug);
  const IOStatus closed = file->Close(options, debug);
  return status.ok() ? closed : status;
}

IOStatus FileSystem::Stat(const std::string& path, openftl_attributes* attributes) const {
  const std::string normal = Normalise(path);
  return Call(normal, [&](openftl_error* error) {
    return openftl_stat(drive_->get(), normal.c_str(), attributes, error);
  });
}

IOStatus FileSystem::FileExists(const std::string& path, const IOOptions&, IODebugContext*) {
  openftl_attributes attributes;
  const IOStatus status = Stat(path, &attributes);
  return status.IsPathNotFound() ? IOStatus::NotFound(path) : status;
}

IOStatus FileSystem::DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) {
  const std::string normal = Normalise(path);
  return Call(normal, [&](openftl_error* error) { return openftl_delete(drive_->get(), normal.c_str(), error); });
}

IOStatus FileSystem::RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                                IODebugContext* debug) {
  const std::string normal = Normalise(from);
  const std::string target = Normalise(to);
  openftl_attributes attributes;
  const IOStatus status = Stat(normal, &attributes);
  if (status.ok() && attributes.kind == OPENFTL_FOLDER) {
    return RenameFolder(normal, target, options, debug);
  }
  return Call(normal, [&](openftl_error* error) {
    return openftl_rename(drive_->get(), normal.c_str(), target.c_str(), error);
  });
}

IOStatus FileSystem::RenameFolder(const std::string& from, const std::string& to, const IOOptions& options,
                                  IODebugContext* debug) {
  if (to == from) {
    return IOStatus::OK();
  }
  if (to.compare(0, from.size() + 1, from + "/") == 0) {
    return IOStatus::InvalidArgument(from, "a folder cannot be moved into itself, to " + to);
  }
  std::vector<std::string> names;
  IOStatus status = GetChildren(from, options, &names, debug);
  if (status.ok()) {
    status = CreateDir(to, options, debug);
  }
  // Without CURRENT a folder is no database.
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name != "CURRENT"; });
  for (size_t i = 0; status.ok() && i < names.size(); i++) {
    status = RenameFile(from + "/" + names[i], to + "/" + names[i], options, debug);
  }
  return status.ok() ? DeleteDir(from, options, debug) : status;
}

IOStatus FileSystem::LinkFile(const std::string& from, const std::string&, const IOOptions&, IODebugContext*) {
  return IOStatus::NotSupported(from, "a file of a table drive has one name");
}

IOStatus FileSystem::NumFileLinks(const std::string& path, const IOOptions&, uint64_t* count, IODebugContext*) {
  openftl_attributes attributes;
  *count = 1;
  return Stat(path, &attributes);
}

IOStatus FileSystem::AreFilesSame(const std::string& first, const std::string& second, const IOOptions&, bool* same,
                                  IODebugContext*) {
  openftl_attributes attributes;
  IOStatus status = Stat(first, &attributes);
  if (status.ok()) {
    status = Stat(second, &attributes);
  }
  *same = status.ok() && Normalise(first) == Normalise(second);
  return status;
}

IOStatus FileSystem::GetFileSize(const std::string& path, const IOOptions&, uint64_t* size, IODebugContext*) {
  openftl_attributes attributes;
  const IOStatus status = Stat(path, &attributes);
  *size = status.ok() ? attributes.bytes : 0;
  return status;
}

IOStatus FileSystem::GetFileModificationTime(const std::string& path, const IOOptions&, uint64_t* seconds, IODebugContext*) {
  openftl_attributes attributes;
  const IOStatus status = Stat(path, &attributes);
  *seconds = status.ok() ? attributes.modified_s : 0;
  return status;
}

IOStatus FileSystem::LockFile(const std::string& path, const IOOptions&, FileLock** lock, IODebugContext*) {
  const std::string normal = Normalise(path);
  *lock = nullptr;
  const IOStatus status =
      Call(normal, [&](openftl_error* error) { return openftl_lock(drive_->get(), normal.c_str(), error); });
  if (status.ok()) {
    *lock = new Lock(normal);
  }
  return status;
}

IOStatus FileSystem::UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) {
  const std::unique_ptr<Lock> held(static_cast<Lock*>(lock));
  return Call(held->path(), [&](openftl_error* error) {
    return openftl_unlock(drive_->get(), held->path().c_str(), error);
  });
}

IOStatus FileSystem::NewDirectory(const std::string& path, const IOOptions&, std::unique_ptr<FSDirectory>* result,
                                  IODebugContext*) {
  result->reset();
  openftl_attributes attributes;
  const IOStatus status = Stat(path, &attributes);
  if (!status.ok()) {
    return status;
  }
  if (attributes.kind != OPENFTL_FOLDER) {
    return IOStatus::IOError(path, "is a file, not a folder");
  }
  result->reset(new Directory(drive_, Normalise(path)));
  return IOStatus::OK();
}

IOStatus FileSystem::GetChildrenFileAttributes(const std::string& path, const IOOptions&,
                                               std::vector<rocksdb::FileAttributes>* children, IODebugContext*) {
  children->clear();
  const std::string normal = Normalise(path);
  const openftl_each keep = [](void* context, const char* name, const openftl_attributes* attributes) {
    auto* const kept = static_cast<std::vector<rocksdb::FileAttributes>*>(context);
    kept->push_back({name, attributes->bytes});
  };
  const IOStatus status = Call(normal, [&](openftl_error* error) {
    return openftl_list(drive_->get(), normal.c_str(), keep, children, error);
  });
  return status.IsPathNotFound() ? IOStatus::NotFound(path) : status;
}

IOStatus FileSystem::GetChildren(const std::string& path, const IOOptions& options, std::vector<std::string>* names,
                                 IODebugContext* debug) {
  std::vector<rocksdb::FileAttributes> children;
  const IOStatus status = GetChildrenFileAttributes(path, options, &children, debug);
  names->clear();
  for (rocksdb::FileAttributes& child : children) {
    names->push_back(std::move(child.name));
  }
  return status;
}

IOStatus FileSystem::CreateDir(const std::string& path, const IOOptions&, IODebugContext*) {
  const std::string normal = Normalise(path);
  return Call(normal, [&](openftl_error* error) { return openftl_make_folder(drive_->get(), normal.c_str(), error); });
}

IOStatus FileSystem::CreateDirIfMissing(const std::string& path, const IOOptions& options, IODebugContext* debug) {
  const std::string normal = Normalise(path);
  openftl_attributes attributes;
  IOStatus status = Stat(normal, &attributes);
  if (status.ok()) {
    return attributes.kind == OPENFTL_FOLDER ? status : IOStatus::IOError(path, "is a file, not a folder");
  }
  if (!status.IsPathNotFound()) {
    return status;
  }
  status = CreateDirIfMissing(FolderOf(normal), options, debug);
  if (!status.ok()) {
    return status;
  }
  return Call(normal, [&](openftl_error* error) {
    // Another thread may have been faster.
    const openftl_status made = openftl_make_folder(drive_->get(), normal.c_str(), error);
    return made == OPENFTL_EXISTS ? OPENFTL_OK : made;
  });
}

IOStatus FileSystem::DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) {
  const std::string normal = Normalise(path);
  return Call(normal, [&](openftl_error* error) { return openftl_delete_folder(drive_->get(), normal.c_str(), error); });
}

IOStatus FileSystem::IsDirectory(const std::string& path, const IOOptions&, bool* is_directory, IODebugContext*) {
  openftl_attributes attributes;
  const IOStatus status = Stat(path, &attributes);
  *is_directory = status.ok() && attributes.kind == OPENFTL_FOLDER;
  return status;
}

IOStatus FileSystem::GetFreeSpace(const std::string& path, const IOOptions&, uint64_t* bytes, IODebugContext*) {
  uint64_t all_bytes = 0;
  *bytes = 0;
  return Call(path, [&](openftl_error* error) { return openftl_space(drive_->get(), bytes, &all_bytes, error); });
}

IOStatus FileSystem::GetAbsolutePath(const std::string& path, const IOOptions&, std::string* absolute, IODebugContext*) {
  *absolute = Normalise(path);
  return IOStatus::OK();
}

IOStatus FileSystem::GetTestDirectory(const IOOptions& options, std::string* path, IODebugContext* debug) {
  *path = "/test";
  return CreateDirIfMissing(*path, options, debug);
}

void FileSystem::SupportedOps(int64_t& supported) { supported = 0; }

}  // namespace openftl
