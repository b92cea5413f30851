#include "readable_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "file_id.h"
#include "status.h"
#include "writable_file.h"

namespace openftl {

using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

IOStatus ReadableFile::Open(std::shared_ptr<Drive> drive, const std::string& path, std::unique_ptr<ReadableFile>* result) {
  openftl_file* file = nullptr;
  const IOStatus status = Call(path, [&](openftl_error* error) {
    return openftl_open_read(drive->get(), path.c_str(), &file, error);
  });
  result->reset(status.ok() ? new ReadableFile(std::move(drive), path, file) : nullptr);
  return status;
}

ReadableFile::ReadableFile(std::shared_ptr<Drive> drive, const std::string& path, openftl_file* file)
    : drive_(std::move(drive)), path_(path), file_(file) {}

ReadableFile::~ReadableFile() { openftl_close_file(file_, nullptr); }

IOStatus ReadableFile::Read(uint64_t offset, size_t bytes, Slice* result, char* scratch) const {
  if (scratch == nullptr && bytes > 0) {
    // Plain and cuckoo tables want what is in memory already.
    *result = Slice();
    return IOStatus::NotSupported(path_, "is not in memory: a file of a table drive is not mapped; allow_mmap_reads = false");
  }
  size_t got = 0;
  const IOStatus status = Call(path_, [&](openftl_error* error) {
    return openftl_read(file_, offset, bytes, scratch, &got, error);
  });
  *result = Slice(scratch, status.ok() ? got : 0);
  return status;
}

IOStatus RandomAccessFile::MultiRead(FSReadRequest* requests, size_t count, const IOOptions&, IODebugContext*) {
  std::vector<openftl_read_request> reads(count);
  for (size_t i = 0; i < count; i++) {
    // One that the drive does not come to has failed.
    reads[i] = {requests[i].offset, requests[i].len, requests[i].scratch, 0, OPENFTL_IO_ERROR};
  }
  openftl_error error;
  error.message[0] = 0;
  openftl_read_many(file_->get(), reads.data(), count, &error);
  for (size_t i = 0; i < count; i++) {
    const bool ok = reads[i].status == OPENFTL_OK;
    requests[i].result = Slice(requests[i].scratch, ok ? reads[i].got : 0);
    requests[i].status = Failure(reads[i].status, file_->path(), error);
  }
  return IOStatus::OK();
}

size_t RandomAccessFile::GetUniqueId(char* id, size_t max_size) const {
  return FileId(file_->drive(), file_->get(), id, max_size);
}

size_t RandomAccessFile::GetRequiredBufferAlignment() const { return WritableFile::kAlignment; }

IOStatus SequentialFile::Read(size_t bytes, const IOOptions&, Slice* result, char* scratch, IODebugContext*) {
  const IOStatus status = file_->Read(offset_, bytes, result, scratch);
  offset_ += result->size();
  return status;
}

IOStatus SequentialFile::Skip(uint64_t bytes) {
  offset_ = std::min(offset_ + bytes, std::max(offset_, openftl_size(file_->get())));
  return IOStatus::OK();
}

size_t SequentialFile::GetRequiredBufferAlignment() const { return WritableFile::kAlignment; }

}  // namespace openftl
