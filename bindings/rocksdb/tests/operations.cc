// Every operation of the file system, called as RocksDB calls it: operations URI [--durable].
//
// The drive may be the model or a real one; it gets a folder /operations, which is emptied before. With --durable a process
// of its own writes first and dies, and what it had synced has to be there.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "openftl_file_system.h"
#include "rocksdb/convenience.h"

using namespace rocksdb;

namespace {

const std::string kFolder = "/operations";
const IOOptions kIo;
constexpr size_t kPage = 4096;

void Fail(int line, const char* what, const std::string& found) {
  std::fprintf(stderr, "tests/operations.cc:%d: %s: found %s\n", line, what, found.c_str());
  std::_Exit(1);
}

std::string Text(const Status& status) { return status.ToString(); }
std::string Text(const std::string& text) { return text.substr(0, 100); }
std::string Text(uint64_t number) { return std::to_string(number); }

#define OK(call)                                       \
  do {                                                 \
    const Status status_ = (call);                     \
    if (!status_.ok()) Fail(__LINE__, #call, Text(status_)); \
  } while (0)
#define IS(call, kind)                                                  \
  do {                                                                  \
    const Status status_ = (call);                                      \
    if (!status_.Is##kind()) Fail(__LINE__, #call " is to be " #kind, Text(status_)); \
  } while (0)
#define EQUAL(value, expected)                                          \
  do {                                                                  \
    const auto value_ = (value);                                        \
    if (!(value_ == (expected))) Fail(__LINE__, #value " == " #expected, Text(value_)); \
  } while (0)
#define TRUE(value) EQUAL(static_cast<uint64_t>(value), 1u)

// Bytes that differ from place to place.
std::string Pattern(size_t bytes, size_t from = 0) {
  std::string pattern(bytes, 0);
  for (size_t i = 0; i < bytes; i++) {
    pattern[i] = static_cast<char>(((from + i) * 2654435761u) >> 13);
  }
  return pattern;
}

class Operations {
 public:
  explicit Operations(std::shared_ptr<FileSystem> fs) : fs_(std::move(fs)) {}

  std::unique_ptr<FSWritableFile> Create(const std::string& name, const FileOptions& options = FileOptions()) {
    std::unique_ptr<FSWritableFile> file;
    OK(fs_->NewWritableFile(Path(name), options, &file, nullptr));
    return file;
  }

  void Write(const std::string& name, const std::string& data) {
    const std::unique_ptr<FSWritableFile> file = Create(name);
    OK(file->Append(data, kIo, nullptr));
    OK(file->Sync(kIo, nullptr));
    OK(file->Close(kIo, nullptr));
  }

  std::unique_ptr<FSRandomAccessFile> Open(const std::string& name, const FileOptions& options = FileOptions()) {
    std::unique_ptr<FSRandomAccessFile> file;
    OK(fs_->NewRandomAccessFile(Path(name), options, &file, nullptr));
    return file;
  }

  static std::string ReadAt(FSRandomAccessFile* file, uint64_t offset, size_t bytes) {
    std::string scratch(bytes, 0);
    Slice result;
    OK(file->Read(offset, bytes, kIo, &result, &scratch[0], nullptr));
    return result.ToString();
  }

  std::string Contents(const std::string& name) {
    std::string data;
    OK(ReadFileToString(fs_.get(), Path(name), &data));
    return data;
  }

  static std::string Path(const std::string& name) { return kFolder + "/" + name; }

  void Empty(const std::string& folder) {
    std::vector<std::string> names;
    if (fs_->GetChildren(folder, kIo, &names, nullptr).IsNotFound()) {
      return;
    }
    for (const std::string& name : names) {
      const std::string path = folder + "/" + name;
      bool is_directory = false;
      OK(fs_->IsDirectory(path, kIo, &is_directory, nullptr));
      if (is_directory) {
        Empty(path);
      } else {
        OK(fs_->DeleteFile(path, kIo, nullptr));
      }
    }
    OK(fs_->DeleteDir(folder, kIo, nullptr));
  }

  void Folders() {
    Empty(kFolder);
    IS(fs_->FileExists(kFolder, kIo, nullptr), NotFound);
    IS(fs_->CreateDir(kFolder + "/deep", kIo, nullptr), PathNotFound);
    OK(fs_->CreateDirIfMissing("operations//deep/./down/", kIo, nullptr));
    OK(fs_->CreateDirIfMissing(kFolder + "/deep/down", kIo, nullptr));
    IS(fs_->CreateDir(kFolder + "/deep", kIo, nullptr), IOError);
    OK(fs_->CreateDir(kFolder + "/deep/../shallow", kIo, nullptr));
    bool is_directory = false;
    OK(fs_->IsDirectory(kFolder + "/shallow", kIo, &is_directory, nullptr));
    TRUE(is_directory);
    IS(fs_->IsDirectory(kFolder + "/nowhere", kIo, &is_directory, nullptr), PathNotFound);
    IS(fs_->DeleteDir(kFolder + "/deep", kIo, nullptr), Busy);
    OK(fs_->DeleteDir(kFolder + "/shallow", kIo, nullptr));
    IS(fs_->DeleteDir(kFolder + "/shallow", kIo, nullptr), PathNotFound);

    Write("b.log", "1234");
    Write("a.sst", "123");
    IS(fs_->CreateDirIfMissing(Path("b.log"), kIo, nullptr), IOError);
    std::vector<std::string> names;
    OK(fs_->GetChildren(kFolder + "/", kIo, &names, nullptr));
    std::sort(names.begin(), names.end());
    EQUAL(names.size(), 3u);
    EQUAL(names[0] + names[1] + names[2], "a.sstb.logdeep");
    std::vector<FileAttributes> children;
    OK(fs_->GetChildrenFileAttributes(kFolder, kIo, &children, nullptr));
    for (const FileAttributes& child : children) {
      if (child.name != "deep") {
        EQUAL(child.size_bytes, child.name == "a.sst" ? 3u : 4u);
      }
    }
    IS(fs_->GetChildren(kFolder + "/nowhere", kIo, &names, nullptr), NotFound);

    std::unique_ptr<FSDirectory> directory;
    OK(fs_->NewDirectory(kFolder, kIo, &directory, nullptr));
    OK(directory->Fsync(kIo, nullptr));
    OK(directory->FsyncWithDirOptions(kIo, nullptr, DirFsyncOptions(DirFsyncOptions::kNewFileSynced)));
    OK(directory->Close(kIo, nullptr));
    IS(fs_->NewDirectory(kFolder + "/nowhere", kIo, &directory, nullptr), PathNotFound);
    IS(fs_->NewDirectory(Path("b.log"), kIo, &directory, nullptr), IOError);
  }

  // As a checkpoint is made: beside its place, and moved there when it is whole.
  void RenamedFolders() {
    OK(fs_->CreateDirIfMissing(kFolder + "/moved.tmp/in", kIo, nullptr));
    Write("moved.tmp/CURRENT", "MANIFEST-000001");
    Write("moved.tmp/000001.sst", "table");
    Write("moved.tmp/in/OPTIONS", "options");
    IS(fs_->RenameFile(kFolder + "/moved.tmp", kFolder + "/moved.tmp/in/itself", kIo, nullptr), InvalidArgument);
    OK(fs_->RenameFile(kFolder + "/moved.tmp", kFolder + "/moved/", kIo, nullptr));
    IS(fs_->FileExists(kFolder + "/moved.tmp", kIo, nullptr), NotFound);
    EQUAL(Contents("moved/CURRENT"), "MANIFEST-000001");
    EQUAL(Contents("moved/000001.sst"), "table");
    EQUAL(Contents("moved/in/OPTIONS"), "options");
    OK(fs_->CreateDir(kFolder + "/other", kIo, nullptr));
    IS(fs_->RenameFile(kFolder + "/other", kFolder + "/moved", kIo, nullptr), IOError);
  }

  void Names() {
    Write("one", "one");
    Write("two", "two");
    OK(fs_->RenameFile(Path("one"), kFolder + "//two", kIo, nullptr));
    IS(fs_->FileExists(Path("one"), kIo, nullptr), NotFound);
    EQUAL(Contents("two"), "one");
    IS(fs_->RenameFile(Path("one"), Path("three"), kIo, nullptr), PathNotFound);
    OK(fs_->RenameFile(Path("two"), Path("two"), kIo, nullptr));
    EQUAL(Contents("two"), "one");

    uint64_t number = 0;
    OK(fs_->GetFileSize(Path("two"), kIo, &number, nullptr));
    EQUAL(number, 3u);
    OK(fs_->GetFileModificationTime(Path("two"), kIo, &number, nullptr));
    TRUE(number > 1500000000);
    OK(fs_->NumFileLinks(Path("two"), kIo, &number, nullptr));
    EQUAL(number, 1u);
    bool same = false;
    OK(fs_->AreFilesSame(Path("two"), kFolder + "/./two", kIo, &same, nullptr));
    TRUE(same);
    Write("one", "one");
    OK(fs_->AreFilesSame(Path("two"), Path("one"), kIo, &same, nullptr));
    TRUE(!same);
    IS(fs_->GetFileSize(Path("nothing"), kIo, &number, nullptr), PathNotFound);
    IS(fs_->GetFileModificationTime(Path("nothing"), kIo, &number, nullptr), PathNotFound);
    IS(fs_->NumFileLinks(Path("nothing"), kIo, &number, nullptr), PathNotFound);
    IS(fs_->AreFilesSame(Path("nothing"), Path("two"), kIo, &same, nullptr), PathNotFound);

    IS(fs_->LinkFile(Path("two"), Path("three"), kIo, nullptr), NotSupported);
    OK(fs_->DeleteFile(Path("two"), kIo, nullptr));
    IS(fs_->DeleteFile(Path("two"), kIo, nullptr), PathNotFound);
    IS(fs_->FileExists(Path("two"), kIo, nullptr), NotFound);

    std::string path;
    OK(fs_->GetAbsolutePath("db//x/../y/", kIo, &path, nullptr));
    EQUAL(path, "/db/y");
    OK(fs_->GetAbsolutePath("../..", kIo, &path, nullptr));
    EQUAL(path, "/");
    OK(fs_->GetTestDirectory(kIo, &path, nullptr));
    OK(fs_->FileExists(path, kIo, nullptr));
    IS(fs_->FileExists("/" + std::string(2000, 'x'), kIo, nullptr), InvalidArgument);
    uint64_t free_bytes = 0;
    OK(fs_->GetFreeSpace(kFolder, kIo, &free_bytes, nullptr));
    TRUE(free_bytes > 0);
  }

  void Locks() {
    FileLock* lock = nullptr;
    OK(fs_->LockFile(Path("LOCK"), kIo, &lock, nullptr));
    FileLock* second = nullptr;
    IS(fs_->LockFile(kFolder + "//LOCK", kIo, &second, nullptr), Busy);
    TRUE(second == nullptr);
    OK(fs_->UnlockFile(lock, kIo, nullptr));
    OK(fs_->LockFile(Path("LOCK"), kIo, &lock, nullptr));
    OK(fs_->UnlockFile(lock, kIo, nullptr));
  }

  void Logs() {
    const std::string data = Pattern(100000);
    std::unique_ptr<FSWritableFile> file = Create("000007.log");
    file->SetWriteLifeTimeHint(Env::WLTH_SHORT);
    file->SetPreallocationBlockSize(1 << 20);
    TRUE(!file->use_direct_io());
    TRUE(file->IsSyncThreadSafe());
    size_t written = 0;
    for (size_t bytes = 1; written + bytes <= data.size(); written += bytes, bytes = bytes * 3 % 4099 + 1) {
      file->PrepareWrite(written, bytes, kIo, nullptr);
      OK(file->Append(Slice(&data[written], bytes), kIo, nullptr));
      OK(file->Flush(kIo, nullptr));
    }
    OK(file->RangeSync(0, written, kIo, nullptr));
    OK(file->Allocate(0, 1 << 20, kIo, nullptr));
    EQUAL(file->GetFileSize(kIo, nullptr), written);
    EQUAL(Contents("000007.log"), data.substr(0, written));  // while it is written
    OK(file->Sync(kIo, nullptr));
    OK(file->Append(Slice(&data[written], data.size() - written), kIo, DataVerificationInfo(), nullptr));
    OK(file->Fsync(kIo, nullptr));
    OK(file->Close(kIo, nullptr));
    file.reset();
    EQUAL(Contents("000007.log"), data);

    // Appended to again, and cut.
    OK(fs_->ReopenWritableFile(Path("000007.log"), FileOptions(), &file, nullptr));
    EQUAL(file->GetFileSize(kIo, nullptr), data.size());
    OK(file->Append("more", kIo, nullptr));
    OK(file->Close(kIo, nullptr));
    EQUAL(Contents("000007.log"), data + "more");
    OK(fs_->Truncate(Path("000007.log"), 5000, kIo, nullptr));
    EQUAL(Contents("000007.log"), data.substr(0, 5000));
    IS(fs_->Truncate(Path("000007.log"), 5001, kIo, nullptr), InvalidArgument);
    OK(fs_->ReopenWritableFile(Path("000008.log"), FileOptions(), &file, nullptr));
    OK(file->Append("new", kIo, nullptr));
    OK(file->Close(kIo, nullptr));
    EQUAL(Contents("000008.log"), "new");

    // Recycled, replaced, and destroyed without Close.
    OK(fs_->ReuseWritableFile(Path("000009.log"), Path("000008.log"), FileOptions(), &file, nullptr));
    OK(file->Append("again", kIo, nullptr));
    file.reset();
    EQUAL(Contents("000009.log"), "again");
    IS(fs_->FileExists(Path("000008.log"), kIo, nullptr), NotFound);
    Write("000009.log", "");
    EQUAL(Contents("000009.log"), "");
    IS(fs_->NewWritableFile("/nowhere/000001.log", FileOptions(), &file, nullptr), PathNotFound);

    // What is appended later is seen by who reads already.
    file = Create("tail.log");
    OK(file->Append("head", kIo, nullptr));
    OK(file->Flush(kIo, nullptr));
    std::unique_ptr<FSSequentialFile> tail;
    OK(fs_->NewSequentialFile(Path("tail.log"), FileOptions(), &tail, nullptr));
    char scratch[16];
    Slice result;
    OK(tail->Read(sizeof(scratch), kIo, &result, scratch, nullptr));
    EQUAL(result.ToString(), "head");
    OK(file->Append(" and tail", kIo, nullptr));
    OK(file->Flush(kIo, nullptr));
    OK(tail->Read(sizeof(scratch), kIo, &result, scratch, nullptr));
    EQUAL(result.ToString(), " and tail");
    OK(file->Close(kIo, nullptr));
  }

  // Synced by one thread while another appends, as SyncWAL does it.
  void ConcurrentSync() {
    const std::string data = Pattern(400000);
    std::unique_ptr<FSWritableFile> file = Create("concurrent.log");
    std::thread syncs([&] {
      for (int i = 0; i < 50; i++) {
        OK(file->Sync(kIo, nullptr));
      }
    });
    for (size_t at = 0; at < data.size(); at += 1000) {
      OK(file->Append(Slice(&data[at], 1000), kIo, nullptr));
    }
    syncs.join();
    OK(file->Close(kIo, nullptr));
    EQUAL(Contents("concurrent.log"), data);
  }

  void Tables() {
    const std::string data = Pattern(3 * 1048576 + 777);
    std::unique_ptr<FSWritableFile> file = Create("000010.sst");
    file->SetIOPriority(Env::IO_HIGH);
    file->SetWriteLifeTimeHint(Env::WLTH_MEDIUM);
    file->SetPreallocationBlockSize(4 << 20);
    for (size_t at = 0; at < data.size(); at += 1048576) {
      OK(file->Append(Slice(&data[at], std::min<size_t>(1048576, data.size() - at)), kIo, nullptr));
      OK(file->Flush(kIo, nullptr));
    }
    OK(file->Sync(kIo, nullptr));
    OK(file->Close(kIo, nullptr));
    OK(file->Close(kIo, nullptr));
    EQUAL(Contents("000010.sst"), data);
    IS(fs_->ReopenWritableFile(Path("000010.sst"), FileOptions(), &file, nullptr), NotSupported);
    IS(fs_->Truncate(Path("000010.sst"), 1, kIo, nullptr), NotSupported);
    Write("000011.sst", "");
    EQUAL(Contents("000011.sst"), "");
    Write("000012.blob", Pattern(5000));
    IS(fs_->ReopenWritableFile(Path("000012.blob"), FileOptions(), &file, nullptr), NotSupported);
    file = Create("000013.sst");
    OK(file->Append("closed without a sync", kIo, nullptr));
    OK(file->Close(kIo, nullptr));
    EQUAL(Contents("000013.sst"), "closed without a sync");
    file = Create("000010.sst");  // in place of the old one
    OK(file->Append("short", kIo, nullptr));
    OK(file->Close(kIo, nullptr));
    EQUAL(Contents("000010.sst"), "short");
    std::unique_ptr<FSRandomRWFile> random;
    IS(fs_->NewRandomRWFile(Path("random"), FileOptions(), &random, nullptr), NotSupported);
    std::unique_ptr<MemoryMappedFileBuffer> mapped;
    IS(fs_->NewMemoryMappedFileBuffer(Path("000010.sst"), &mapped), NotSupported);
  }

  // As RocksDB's writer does it with direct I/O: whole pages, the last one padded, written again when more comes, and cut.
  void DirectTables() {
    FileOptions direct;
    direct.use_direct_writes = true;
    direct.use_direct_reads = true;
    const std::string data = Pattern(20 * kPage + 123);
    std::unique_ptr<FSWritableFile> file = Create("000020.sst", direct);
    TRUE(file->use_direct_io());
    EQUAL(file->GetRequiredBufferAlignment(), kPage);
    const auto page_out = [&](size_t from, size_t end) {
      std::string pages = data.substr(from, end - from);
      pages.resize((pages.size() + kPage - 1) / kPage * kPage);
      OK(file->PositionedAppend(pages, from, kIo, nullptr));
    };
    page_out(0, 7 * kPage + 5);
    page_out(7 * kPage, 15 * kPage);
    page_out(15 * kPage, 15 * kPage + 4095);
    page_out(15 * kPage, data.size());
    page_out(20 * kPage, data.size());
    EQUAL(file->GetFileSize(kIo, nullptr), 21 * kPage);
    OK(file->Truncate(data.size(), kIo, nullptr));
    OK(file->Fsync(kIo, nullptr));
    EQUAL(file->GetFileSize(kIo, nullptr), data.size());
    OK(file->Close(kIo, nullptr));
    const std::unique_ptr<FSRandomAccessFile> reads = Open("000020.sst", direct);
    TRUE(reads->use_direct_io());
    EQUAL(reads->GetRequiredBufferAlignment(), kPage);
    EQUAL(ReadAt(reads.get(), 0, 21 * kPage), data);
    EQUAL(ReadAt(reads.get(), 19 * kPage, 2 * kPage), data.substr(19 * kPage));
    std::unique_ptr<FSSequentialFile> sequential;
    OK(fs_->NewSequentialFile(Path("000020.sst"), direct, &sequential, nullptr));
    TRUE(sequential->use_direct_io());
    std::string scratch(kPage, 0);
    Slice result;
    OK(sequential->PositionedRead(3 * kPage, kPage, kIo, &result, &scratch[0], nullptr));
    EQUAL(result.ToString(), data.substr(3 * kPage, kPage));
  }

  void Reads() {
    const std::string data = Pattern(300000);
    Write("000030.sst", data);
    std::unique_ptr<FSRandomAccessFile> file = Open("000030.sst");
    EQUAL(ReadAt(file.get(), 0, 1), data.substr(0, 1));
    EQUAL(ReadAt(file.get(), 4095, 4101), data.substr(4095, 4101));
    EQUAL(ReadAt(file.get(), 299990, 100), data.substr(299990));
    EQUAL(ReadAt(file.get(), 300000, 100), "");
    EQUAL(ReadAt(file.get(), 400000, 100), "");
    Slice mapped;
    IS(file->Read(0, 100, kIo, &mapped, nullptr, nullptr), NotSupported);
    IS(file->Prefetch(0, 65536, kIo, nullptr), NotSupported);

    std::vector<FSReadRequest> requests(5);
    std::vector<std::string> scratch(requests.size());
    for (size_t i = 0; i < requests.size(); i++) {
      requests[i].offset = i * 74999;
      requests[i].len = 5000 * i + 3;
      scratch[i].resize(requests[i].len);
      requests[i].scratch = &scratch[i][0];
    }
    OK(file->MultiRead(requests.data(), requests.size(), kIo, nullptr));
    for (const FSReadRequest& request : requests) {
      OK(request.status);
      EQUAL(request.result.ToString(), data.substr(request.offset, request.len));
    }

    // An asynchronous read is there at once.
    FSReadRequest& request = requests[1];
    bool called = false;
    void* handle = nullptr;
    std::function<void(void*)> delete_handle;
    const auto callback = [&](const FSReadRequest& done, void* argument) {
      called = argument == &data && done.status.ok() && done.result == Slice(&data[done.offset], done.len);
    };
    OK(file->ReadAsync(request, kIo, callback, const_cast<std::string*>(&data), &handle, &delete_handle, nullptr));
    TRUE(called);
    std::vector<void*> handles;
    OK(fs_->Poll(handles, 0));
    OK(fs_->AbortIO(handles));

    char id[64], other[64];
    const size_t bytes = file->GetUniqueId(id, sizeof(id));
    TRUE(bytes > 10);
    EQUAL(Open("000030.sst")->GetUniqueId(other, sizeof(other)), bytes);
    EQUAL(std::string(id, bytes), std::string(other, bytes));
    Write("000031.sst", data);
    EQUAL(Open("000031.sst")->GetUniqueId(other, sizeof(other)), bytes);
    TRUE(std::string(id, bytes) != std::string(other, bytes));
    EQUAL(file->GetUniqueId(id, 4), 0u);

    // Deleted, renamed and replaced files are read on.
    OK(fs_->DeleteFile(Path("000030.sst"), kIo, nullptr));
    EQUAL(ReadAt(file.get(), 100000, 1000), data.substr(100000, 1000));
    file = Open("000031.sst");
    OK(fs_->RenameFile(Path("000031.sst"), Path("000031.sst.trash"), kIo, nullptr));
    EQUAL(ReadAt(file.get(), 0, data.size()), data);
    Write("000031.sst.trash", "other");
    EQUAL(ReadAt(file.get(), 0, data.size()), data);
    IS(fs_->NewRandomAccessFile(Path("000031.sst"), FileOptions(), &file, nullptr), PathNotFound);

    Write("sequential", data);
    std::unique_ptr<FSSequentialFile> sequential;
    OK(fs_->NewSequentialFile(Path("sequential"), FileOptions(), &sequential, nullptr));
    std::string buffer(100000, 0);
    Slice result;
    OK(sequential->Read(1000, kIo, &result, &buffer[0], nullptr));
    EQUAL(result.ToString(), data.substr(0, 1000));
    OK(sequential->Skip(250000));
    OK(sequential->Read(100000, kIo, &result, &buffer[0], nullptr));
    EQUAL(result.ToString(), data.substr(251000));
    OK(sequential->Skip(1));
    OK(sequential->Read(1, kIo, &result, &buffer[0], nullptr));
    EQUAL(result.size(), 0u);
    IS(fs_->NewSequentialFile(Path("nothing"), FileOptions(), &sequential, nullptr), PathNotFound);
  }

  void Logging() {
    std::shared_ptr<Logger> logger;
    OK(fs_->NewLogger(Path("LOG"), kIo, &logger, nullptr));
    logger->SetInfoLogLevel(InfoLogLevel::INFO_LEVEL);
    Log(InfoLogLevel::INFO_LEVEL, logger, "a word about %d things", 42);
    Log(InfoLogLevel::INFO_LEVEL, logger, "%s", std::string(100000, 'x').c_str());
    logger->Flush();
    TRUE(logger->GetLogFileSize() > 100000);
    OK(logger->Close());
    const std::string text = Contents("LOG");
    TRUE(text.find(" a word about 42 things\n") != std::string::npos);
    TRUE(text.find(" " + std::string(100000, 'x') + "\n") != std::string::npos);
  }

 private:
  const std::shared_ptr<FileSystem> fs_;
};

// Writes, syncs some of it, and dies.
[[noreturn]] void Die(const char* uri) {
  std::shared_ptr<FileSystem> fs;
  OK(openftl::NewFileSystem(uri, &fs));
  Operations operations(fs);
  operations.Empty(kFolder);
  OK(fs->CreateDirIfMissing(kFolder, kIo, nullptr));
  const std::unique_ptr<FSWritableFile> log = operations.Create("synced.log");
  OK(log->Append(Pattern(10001), kIo, nullptr));
  OK(log->Sync(kIo, nullptr));
  OK(log->Append(Pattern(5000, 10001), kIo, nullptr));
  operations.Write("synced.sst", Pattern(100000));
  const std::unique_ptr<FSWritableFile> closed = operations.Create("closed.sst");
  OK(closed->Append(Pattern(50000), kIo, nullptr));
  OK(closed->Close(kIo, nullptr));
  operations.Write("old", "renamed");
  OK(fs->RenameFile(operations.Path("old"), operations.Path("new"), kIo, nullptr));
  std::unique_ptr<FSDirectory> directory;
  OK(fs->NewDirectory(kFolder, kIo, &directory, nullptr));
  OK(directory->Fsync(kIo, nullptr));
  // As a compaction syncs its outputs: they are durable with the MANIFEST.
  const std::unique_ptr<FSWritableFile> committed = operations.Create("committed.sst");
  committed->SetIOPriority(Env::IO_LOW);
  OK(committed->Append(Pattern(70000), kIo, nullptr));
  OK(committed->Sync(kIo, nullptr));
  OK(committed->Close(kIo, nullptr));
  OK(directory->FsyncWithDirOptions(kIo, nullptr, DirFsyncOptions(DirFsyncOptions::kNewFileSynced)));
  operations.Write("MANIFEST-000001", "committed.sst");
  const std::unique_ptr<FSWritableFile> open = operations.Create("open.sst");
  OK(open->Append(Pattern(50000), kIo, nullptr));
  _exit(0);
}

void FoundAfterDeath(FileSystem* fs, Operations* operations) {
  const std::string log = operations->Contents("synced.log");
  TRUE(log.size() >= 10001);
  EQUAL(log, Pattern(15001).substr(0, log.size()));
  EQUAL(operations->Contents("synced.sst"), Pattern(100000));
  EQUAL(operations->Contents("closed.sst"), Pattern(50000));
  EQUAL(operations->Contents("new"), "renamed");
  EQUAL(operations->Contents("committed.sst"), Pattern(70000));
  IS(fs->FileExists(operations->Path("old"), kIo, nullptr), NotFound);
  IS(fs->FileExists(operations->Path("open.sst"), kIo, nullptr), NotFound);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "operations URI [--durable]\n");
    return 1;
  }
  const char* const uri = arguments[1];
  const bool durable = count > 2 && std::string(arguments[2]) == "--durable";
  if (durable) {
    const pid_t child = fork();
    if (child == 0) {
      Die(uri);
    }
    int ended = 0;
    waitpid(child, &ended, 0);
    EQUAL(static_cast<uint64_t>(ended), 0u);
  }
  std::shared_ptr<FileSystem> fs;
  OK(FileSystem::CreateFromString(ConfigOptions(), uri, &fs));  // as --fs_uri does it
  EQUAL(std::string(fs->Name()), "openftl");
  Operations operations(fs);
  if (durable) {
    FoundAfterDeath(fs.get(), &operations);
  }
  operations.Folders();
  operations.Names();
  operations.RenamedFolders();
  operations.Locks();
  operations.Logs();
  operations.ConcurrentSync();
  operations.Tables();
  operations.DirectTables();
  operations.Reads();
  operations.Logging();
  operations.Empty(kFolder);

  std::shared_ptr<FileSystem> none;
  IS(openftl::NewFileSystem("openftl://", &none), InvalidArgument);
  std::printf("every operation does what it should\n");
}
