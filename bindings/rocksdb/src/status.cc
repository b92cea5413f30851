#include "status.h"

namespace openftl {

using rocksdb::IOStatus;

IOStatus Failure(openftl_status status, const std::string& path, const openftl_error& error) {
  const char* const message = error.message;
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
    case OPENFTL_EXISTS:
    case OPENFTL_TOO_LARGE:
    case OPENFTL_IO_ERROR:
    case OPENFTL_READ_ONLY:
      break;
  }
  return IOStatus::IOError(path, message);
}

}  // namespace openftl
