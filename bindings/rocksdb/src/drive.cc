#include "drive.h"

#include "status.h"

namespace openftl {

rocksdb::IOStatus Drive::Open(const std::string& uri, std::shared_ptr<Drive>* drive) {
  openftl_drive* opened = nullptr;
  const rocksdb::IOStatus status =
      Call(uri, [&](openftl_error* error) { return openftl_open(uri.c_str(), &opened, error); });
  if (status.ok()) {
    drive->reset(new Drive(opened));
  }
  return status;
}

Drive::~Drive() {
  // Nobody is left who could be told. What was synced is safe without it.
  openftl_close(drive_, nullptr);
}

}  // namespace openftl
