#include "status.h"

namespace openftl {

using rocksdb::IOStatus;

IOStatus Failure(openftl_status status, const std::string& about, const openftl_error& error) {
  // RocksDB puts the path before the message; once is enough.
  const std::string message = error.message;
  const std::string path = message.find(about) == std::string::npos ? about : "openftl";
  switch (status) {
    case OPENFTL_OK:
      return IOStatus::OK();
    case OPENFTL_NOT_FOUND:
      return IOStatus::PathNotFound(path, message);
    case OPENFTL_NO_SPACE: {
      // There is room again once files have been deleted, so that RocksDB may go on then.
      IOStatus no_space = IOStatus::NoSpace(path, message);
      no_space.SetRetryable(true);
      return no_space;
    }
    case OPENFTL_CORRUPTION:
      return IOStatus::Corruption(path, message);
    case OPENFTL_BUSY:
      return IOStatus::Busy(path, message);
    case OPENFTL_INVALID:
      return IOStatus::InvalidArgument(path, message);
    case OPENFTL_NOT_SUPPORTED:
      return IOStatus::NotSupported(path, message);
    case OPENFTL_CONFLICT:  // of pages alone
    case OPENFTL_EXISTS:
    case OPENFTL_TOO_LARGE:
    case OPENFTL_IO_ERROR:
    case OPENFTL_READ_ONLY:
      break;
  }
  return IOStatus::IOError(path, message);
}

}  // namespace openftl
