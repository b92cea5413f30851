// A path of a drive as it is named on the drive: absolute, with one "/" between names.
#pragma once

#include <string>

#include "openftl.h"

namespace openftl {

// A path as RocksDB says it: relative ones start at "/", doubled and trailing "/" go, "." stays and ".." goes up.
std::string Normalise(const std::string& path);

// The folder that a normalised path is in; of "/" it is "/".
std::string FolderOf(const std::string& path);

// The kind of file that RocksDB means by a name: tables (.sst) and blob files (.blob) are written once.
openftl_kind KindOf(const std::string& path);

}  // namespace openftl
