// How the file system comes into a program: by its URI, by a call from C++, or by one from C.
//
// When the plugin is loaded it looks at whom it was loaded into. RocksDB keeps no binary interface between versions: with
// another version than the one whose headers it was built with, the program ends here, with a word why, and not later
// without one.

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "../openftl_file_system.h"
#include "file_system.h"
#include "rocksdb/convenience.h"
#include "rocksdb/utilities/object_registry.h"
#include "rocksdb/version.h"

namespace openftl {

using rocksdb::Env;
using rocksdb::ObjectLibrary;
using rocksdb::Status;

Status NewFileSystem(const std::string& uri, std::shared_ptr<rocksdb::FileSystem>* file_system) {
  std::shared_ptr<Drive> drive;
  const Status status = Drive::Open(uri, &drive);
  if (status.ok()) {
    file_system->reset(new FileSystem(std::move(drive)));
  }
  return status;
}

Status NewEnv(const std::string& uri, std::unique_ptr<Env>* env) {
  std::shared_ptr<rocksdb::FileSystem> file_system;
  const Status status = NewFileSystem(uri, &file_system);
  if (status.ok()) {
    *env = rocksdb::NewCompositeEnv(file_system);
  }
  return status;
}

namespace {

// Ends the program if the plugin was built for another one.
void CheckVersions() {
  const std::string built = std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR) + "." +
                            std::to_string(ROCKSDB_PATCH);
  const std::string found = rocksdb::GetRocksVersionAsString(true);
  if (built != found) {
    std::fprintf(stderr,
                 "openftl: this plugin was built for RocksDB %s, but this program uses RocksDB %s, and these do not fit. "
                 "Build it with the headers of %s: cmake -DROCKSDB_INCLUDE_DIR=…\n",
                 built.c_str(), found.c_str(), found.c_str());
    _exit(1);
  }
  if (openftl_abi_version() != OPENFTL_ABI_VERSION) {
    std::fprintf(stderr,
                 "openftl: this plugin was built for version %u of OpenFTL's interface, but the library has version %u. "
                 "Build the plugin again with the openftl.h of the library.\n",
                 static_cast<unsigned>(OPENFTL_ABI_VERSION), static_cast<unsigned>(openftl_abi_version()));
    _exit(1);
  }
}

// Makes RocksDB know what openftl:// means.
void Register() {
  ObjectLibrary::Default()->AddFactory<rocksdb::FileSystem>(
      ObjectLibrary::PatternEntry("openftl", false).AddSeparator("://"),
      [](const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard, std::string* message) {
        std::shared_ptr<Drive> drive;
        const Status status = Drive::Open(uri, &drive);
        if (status.ok()) {
          guard->reset(new FileSystem(std::move(drive)));
        } else {
          *message = status.ToString();
        }
        return guard->get();
      });
}

const struct Plugin {
  Plugin() {
    CheckVersions();
    Register();
  }
} plugin;

}  // namespace

}  // namespace openftl

// RocksDB's interface for C keeps this to itself, and has no way to make one from an environment of C++. The definition has
// to be the one of its db/c.cc; versions 7.8 to 11.12 agree.
struct rocksdb_env_t {
  rocksdb::Env* rep;
  bool is_default;
};

extern "C" rocksdb_env_t* openftl_rocksdb_env(const char* uri, char** error) {
  std::unique_ptr<rocksdb::Env> env;
  const rocksdb::Status status = openftl::NewEnv(uri, &env);
  if (!status.ok()) {
    *error = strdup(status.ToString().c_str());
    return nullptr;
  }
  return new rocksdb_env_t{env.release(), false};
}
