#include "info_log.h"

#include <sys/time.h>

#include <cstdio>
#include <ctime>
#include <string>

namespace openftl {

using rocksdb::IOOptions;
using rocksdb::Status;

InfoLog::~InfoLog() {
  if (!closed_) {
    closed_ = true;
    CloseFile().PermitUncheckedError();
  }
}

void InfoLog::Logv(const char* format, va_list arguments) {
  timeval now;
  gettimeofday(&now, nullptr);
  tm parts;
  localtime_r(&now.tv_sec, &parts);
  char day[32];
  std::strftime(day, sizeof(day), "%Y/%m/%d-%H:%M:%S", &parts);
  char head[80];
  const int head_bytes = std::snprintf(head, sizeof(head), "%s.%06ld %llu ", day, static_cast<long>(now.tv_usec),
                                       static_cast<unsigned long long>(rocksdb::Env::Default()->GetThreadID()));

  va_list again;
  va_copy(again, arguments);
  const int message_bytes = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (head_bytes < 0 || message_bytes < 0) {
    return;
  }
  std::string line(head, static_cast<size_t>(head_bytes));
  line.resize(line.size() + static_cast<size_t>(message_bytes) + 1);
  std::vsnprintf(&line[static_cast<size_t>(head_bytes)], static_cast<size_t>(message_bytes) + 1, format, arguments);
  line.pop_back();  // the 0 at its end
  if (line.back() != '\n') {
    line += '\n';
  }

  const std::lock_guard<std::mutex> guard(mutex_);
  if (file_ != nullptr) {
    file_->Append(line, IOOptions(), nullptr).PermitUncheckedError();
  }
}

void InfoLog::Flush() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (file_ != nullptr) {
    file_->Flush(IOOptions(), nullptr).PermitUncheckedError();
  }
}

size_t InfoLog::GetLogFileSize() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return file_ == nullptr ? 0 : file_->GetFileSize(IOOptions(), nullptr);
}

Status InfoLog::CloseFile() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (file_ == nullptr) {
    return Status::OK();
  }
  const Status status = file_->Close(IOOptions(), nullptr);
  file_.reset();
  return status;
}

}  // namespace openftl
