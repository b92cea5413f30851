// What openftl.h says, in memory: a drive without a device, to try the plugin on. It is strict where the interface is, so
// that what works here works on a drive that does no more than it promises.
//
//   openftl:///srv/folder     a folder of the host that exists: holds what is durable, and the next process finds it
//   openftl://anything-else   memory only, gone with the last openftl_close
//
// In a folder, data and names are written when they are synced, and all of them when the drive is closed. A process that dies
// loses the rest, as with a drive that no server has open. One process has a folder open at a time.
//
//   names     one line for each: kind, id, bytes, time, path
//   <id>      bytes of a file
//
// OPENFTL_MODEL_BYTES bounds what files take (OPENFTL_NO_SPACE); OPENFTL_MODEL_TRACE names a file of the host that is told
// about every call that writes, or makes or changes a name.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "openftl.h"

namespace {

// A file or a folder, for as long as it has a name or is open.
struct Node {
  openftl_kind kind = OPENFTL_FOLDER;
  uint64_t id = 0;
  std::string data;
  uint64_t modified_s = 0;
  uint64_t durable = 0;      // bytes that the host has
  bool whole = true;         // false: a table that nobody may see yet
  bool replaced = false;     // what the host has is to be written anew
};

FILE* TraceFile() {
  static FILE* const file = [] {
    const char* const path = std::getenv("OPENFTL_MODEL_TRACE");
    return path == nullptr ? nullptr : std::fopen(path, "a");
  }();
  return file;
}

void Trace(const char* format, ...) __attribute__((format(printf, 1, 2)));
void Trace(const char* format, ...) {
  if (FILE* const file = TraceFile()) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(file, format, arguments);
    va_end(arguments);
    std::fflush(file);
  }
}

openftl_status Fail(openftl_error* error, openftl_status status, const std::string& message) {
  Trace("failed: %s (%d)\n", message.c_str(), status);
  if (error != nullptr) {
    std::snprintf(error->message, sizeof(error->message), "%s", message.c_str());
  }
  return status;
}

std::mutex everything;  // the model is slow and sure: one call at a time

}  // namespace

struct openftl_drive {
  std::string uri;
  std::string folder;  // of the host; empty: memory only
  int folder_lock = -1;
  uint64_t users = 0;
  uint64_t open_files = 0;
  uint64_t next_id = 1;
  uint64_t bytes_max = UINT64_MAX;
  std::map<std::string, std::shared_ptr<Node>> names;
  std::vector<std::shared_ptr<Node>> committed;  // tables that the next sync keeps
  std::set<std::string> locks;

  uint64_t Bytes() const {
    uint64_t bytes = 0;
    for (const auto& [path, node] : names) {
      bytes += node->data.size();
    }
    return bytes;
  }

  std::shared_ptr<Node> Find(const std::string& path) const {
    const auto found = names.find(path);
    return found == names.end() ? nullptr : found->second;
  }

  std::string HostPath(uint64_t id) const { return folder + "/" + std::to_string(id); }

  // Brings the bytes of a file to the host.
  void Keep(Node* node) {
    if (folder.empty() || node->kind == OPENFTL_FOLDER) {
      return;
    }
    FILE* const file = std::fopen(HostPath(node->id).c_str(), node->durable == 0 || node->replaced ? "wb" : "r+b");
    if (file == nullptr) {
      std::perror("openftl model: cannot write to its folder");
      std::abort();
    }
    const uint64_t from = node->replaced ? 0 : std::min<uint64_t>(node->durable, node->data.size());
    std::fseek(file, static_cast<long>(from), SEEK_SET);
    std::fwrite(node->data.data() + from, 1, node->data.size() - from, file);
    std::fclose(file);
    node->durable = node->data.size();
    node->replaced = false;
  }

  // Brings what was committed and all names to the host. Other files end where they were synced.
  void KeepNames() {
    for (const std::shared_ptr<Node>& node : committed) {
      Keep(node.get());
    }
    committed.clear();
    if (folder.empty()) {
      return;
    }
    const std::string next = folder + "/names.next";
    FILE* const file = std::fopen(next.c_str(), "w");
    if (file == nullptr) {
      std::perror("openftl model: cannot write to its folder");
      std::abort();
    }
    std::set<std::string> kept = {"names", "names.next", "lock"};
    for (const auto& [path, node] : names) {
      // A table is there as a whole or not at all.
      if (node->kind == OPENFTL_TABLE && (!node->whole || node->durable != node->data.size())) {
        continue;
      }
      std::fprintf(file, "%d %llu %llu %llu %s\n", node->kind, static_cast<unsigned long long>(node->id),
                   static_cast<unsigned long long>(std::min<uint64_t>(node->durable, node->data.size())),
                   static_cast<unsigned long long>(node->modified_s), path.c_str());
    }
    std::fclose(file);
    std::rename(next.c_str(), (folder + "/names").c_str());
  }

  void Forget(const std::shared_ptr<Node>& node) {
    if (!folder.empty() && node->kind != OPENFTL_FOLDER) {
      forgotten.push_back(node->id);
    }
  }

  // Names that no longer name them are durable.
  void Sweep() {
    for (const uint64_t id : forgotten) {
      ::unlink(HostPath(id).c_str());
    }
    forgotten.clear();
  }

  void Load() {
    FILE* const file = std::fopen((folder + "/names").c_str(), "r");
    if (file == nullptr) {
      return;
    }
    int kind;
    unsigned long long id, bytes, modified_s;
    char path[OPENFTL_PATH_MAX + 2];
    while (std::fscanf(file, "%d %llu %llu %llu %1024[^\n]", &kind, &id, &bytes, &modified_s, path) == 5) {
      auto node = std::make_shared<Node>();
      node->kind = static_cast<openftl_kind>(kind);
      node->id = id;
      node->modified_s = modified_s;
      node->data.resize(bytes);
      node->durable = bytes;
      if (FILE* const data = bytes == 0 ? nullptr : std::fopen(HostPath(id).c_str(), "rb")) {
        if (std::fread(&node->data[0], 1, bytes, data) != bytes) {
          std::fprintf(stderr, "openftl model: %s is too short\n", path);
          std::abort();
        }
        std::fclose(data);
      }
      next_id = std::max<uint64_t>(next_id, id + 1);
      names[path] = node;
    }
    std::fclose(file);
  }

 private:
  std::vector<uint64_t> forgotten;
};

struct openftl_file {
  openftl_drive* drive = nullptr;
  std::string path;  // as it was opened, for traces
  std::shared_ptr<Node> node;
  bool writes = false;
  bool started = false;  // the first byte was written
  bool ended = false;    // a table that was synced: nothing more can be written
};

namespace {

std::map<std::string, std::unique_ptr<openftl_drive>>& Drives() {
  static auto* const drives = new std::map<std::string, std::unique_ptr<openftl_drive>>;
  return *drives;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

openftl_status CheckPath(const std::string& path, openftl_error* error) {
  if (path.empty() || path[0] != '/' || path.size() > OPENFTL_PATH_MAX) {
    return Fail(error, OPENFTL_INVALID, "path \"" + path + "\": wants to be absolute, and of at most 1024 bytes");
  }
  if (path.find("//") != std::string::npos || (path.size() > 1 && path.back() == '/')) {
    return Fail(error, OPENFTL_INVALID, "path \"" + path + "\": has an empty name");
  }
  return OPENFTL_OK;
}

openftl_status CheckFolderAbove(openftl_drive* drive, const std::string& path, openftl_error* error) {
  const std::shared_ptr<Node> folder = drive->Find(FolderOf(path));
  if (folder == nullptr || folder->kind != OPENFTL_FOLDER) {
    return Fail(error, OPENFTL_NOT_FOUND, "folder \"" + FolderOf(path) + "\": is not there; make it first");
  }
  return OPENFTL_OK;
}

void Changed(Node* node) { node->modified_s = static_cast<uint64_t>(std::time(nullptr)); }

openftl_file* Open(openftl_drive* drive, const std::string& path, std::shared_ptr<Node> node, bool writes) {
  auto* const file = new openftl_file;
  file->drive = drive;
  file->path = path;
  file->node = std::move(node);
  file->writes = writes;
  drive->open_files++;
  return file;
}

openftl_status Write(openftl_file* file, uint64_t offset, const void* data, size_t bytes, openftl_error* error) {
  Node& node = *file->node;
  if (!file->writes) {
    return Fail(error, OPENFTL_INVALID, file->path + ": is open for reading, and was written");
  }
  if (file->ended) {
    return Fail(error, OPENFTL_NOT_SUPPORTED, file->path + ": is a table that was synced; nothing can be added to it");
  }
  // A whole page of padding is written over as well as a part of one.
  if (offset > node.data.size() || node.data.size() - offset > OPENFTL_REWRITE_MAX) {
    return Fail(error, OPENFTL_INVALID,
                file->path + ": written at " + std::to_string(offset) + ", but it ends at " + std::to_string(node.data.size()));
  }
  const uint64_t end = std::max<uint64_t>(node.data.size(), offset + bytes);
  if (file->drive->Bytes() - node.data.size() + end > file->drive->bytes_max) {
    return Fail(error, OPENFTL_NO_SPACE, file->path + ": no room; delete files");
  }
  if (offset < node.durable) {
    node.replaced = true;
  }
  node.data.resize(end);
  std::memcpy(&node.data[0] + offset, data, bytes);
  file->started = true;
  Changed(&node);
  return OPENFTL_OK;
}

void End(openftl_file* file) {
  if (file->writes && file->node->kind == OPENFTL_TABLE) {
    file->node->whole = true;
    file->ended = true;
    file->drive->committed.push_back(file->node);
  }
}

}  // namespace

extern "C" {

uint32_t openftl_abi_version(void) { return OPENFTL_ABI_VERSION; }

openftl_status openftl_open(const char* uri, openftl_drive** drive, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  const std::string scheme = "openftl://";
  if (std::strncmp(uri, scheme.c_str(), scheme.size()) != 0 || uri[scheme.size()] == 0) {
    return Fail(error, OPENFTL_INVALID, std::string("URI \"") + uri + "\": wants to be openftl:// and a path");
  }
  std::unique_ptr<openftl_drive>& opened = Drives()[uri];
  if (opened == nullptr) {
    auto made = std::make_unique<openftl_drive>();
    made->uri = uri;
    if (const char* const bytes = std::getenv("OPENFTL_MODEL_BYTES")) {
      made->bytes_max = std::strtoull(bytes, nullptr, 10);
    }
    auto root = std::make_shared<Node>();
    made->names["/"] = root;
    struct stat host;
    const std::string path = uri + scheme.size();
    if (::stat(path.c_str(), &host) == 0) {
      if (!S_ISDIR(host.st_mode)) {
        Drives().erase(uri);
        return Fail(error, OPENFTL_INVALID, path + ": is a file; the model keeps drives in folders");
      }
      made->folder = path;
      made->folder_lock = ::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      if (::flock(made->folder_lock, LOCK_EX | LOCK_NB) != 0) {
        ::close(made->folder_lock);
        Drives().erase(uri);
        return Fail(error, OPENFTL_BUSY, path + ": another process has the drive open");
      }
      made->Load();
    }
    opened = std::move(made);
  }
  opened->users++;
  *drive = opened.get();
  Trace("open drive %s\n", uri);
  return OPENFTL_OK;
}

openftl_status openftl_close(openftl_drive* drive, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  if (drive->users > 1) {
    drive->users--;
    return OPENFTL_OK;
  }
  if (drive->open_files != 0) {
    return Fail(error, OPENFTL_INVALID, std::to_string(drive->open_files) + " files are open; close them first");
  }
  Trace("close drive %s\n", drive->uri.c_str());
  for (const auto& [path, node] : drive->names) {
    if (node->durable != node->data.size() || node->replaced) {
      drive->Keep(node.get());
    }
  }
  drive->KeepNames();
  drive->Sweep();
  if (drive->folder_lock >= 0) {
    ::close(drive->folder_lock);
  }
  Drives().erase(std::string(drive->uri));
  return OPENFTL_OK;
}

openftl_status openftl_space(openftl_drive* drive, uint64_t* free_bytes, uint64_t* all_bytes, openftl_error*) {
  const std::lock_guard<std::mutex> guard(everything);
  *all_bytes = std::min<uint64_t>(drive->bytes_max, uint64_t{1} << 40);
  *free_bytes = *all_bytes - std::min(*all_bytes, drive->Bytes());
  return OPENFTL_OK;
}

openftl_status openftl_statistics(openftl_drive*, char** json, openftl_error*) {
  *json = strdup("{}");
  return OPENFTL_OK;
}

void openftl_free_text(char* text) { std::free(text); }

openftl_status openftl_create(openftl_drive* drive, const char* path, openftl_kind kind, openftl_file** file,
                              openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  openftl_status status = CheckPath(path, error);
  if (status == OPENFTL_OK) {
    status = CheckFolderAbove(drive, path, error);
  }
  if (status != OPENFTL_OK) {
    return status;
  }
  if (kind != OPENFTL_TABLE && kind != OPENFTL_LOG) {
    return Fail(error, OPENFTL_INVALID, std::string(path) + ": a file is a table or a log");
  }
  std::shared_ptr<Node>& node = drive->names[path];
  if (node != nullptr) {
    if (node->kind == OPENFTL_FOLDER) {
      return Fail(error, OPENFTL_EXISTS, std::string(path) + ": is a folder");
    }
    drive->Forget(node);
  }
  node = std::make_shared<Node>();
  node->kind = kind;
  node->id = drive->next_id++;
  node->whole = kind == OPENFTL_LOG;
  Changed(node.get());
  *file = Open(drive, path, node, true);
  Trace("create %s %s\n", kind == OPENFTL_TABLE ? "table" : "log", path);
  return OPENFTL_OK;
}

openftl_status openftl_append_to(openftl_drive* drive, const char* path, openftl_file** file, openftl_error* error) {
  {
    const std::lock_guard<std::mutex> guard(everything);
    const openftl_status status = CheckPath(path, error);
    if (status != OPENFTL_OK) {
      return status;
    }
    if (const std::shared_ptr<Node> node = drive->Find(path)) {
      if (node->kind != OPENFTL_LOG) {
        return Fail(error, OPENFTL_NOT_SUPPORTED, std::string(path) + ": is not a log file; nothing can be added to it");
      }
      *file = Open(drive, path, node, true);
      (*file)->started = true;
      Trace("append to %s\n", path);
      return OPENFTL_OK;
    }
  }
  return openftl_create(drive, path, OPENFTL_LOG, file, error);
}

static void Hinted(openftl_file* file, const char* what, uint64_t value) {
  const std::lock_guard<std::mutex> guard(everything);
  Trace("hint %s %llu%s %s\n", what, static_cast<unsigned long long>(value), file->started ? " (late)" : "",
        file->path.c_str());
}
void openftl_hint_size(openftl_file* file, uint64_t expected_bytes) { Hinted(file, "size", expected_bytes); }
void openftl_hint_lifetime(openftl_file* file, openftl_lifetime lifetime) { Hinted(file, "lifetime", lifetime); }

openftl_status openftl_append(openftl_file* file, const void* data, size_t bytes, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  Trace("append %zu %s\n", bytes, file->path.c_str());
  return Write(file, file->node->data.size(), data, bytes, error);
}

openftl_status openftl_write_at(openftl_file* file, uint64_t offset, const void* data, size_t bytes, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  Trace("write %zu at %llu of %zu %s\n", bytes, static_cast<unsigned long long>(offset), file->node->data.size(),
        file->path.c_str());
  return Write(file, offset, data, bytes, error);
}

openftl_status openftl_truncate(openftl_file* file, uint64_t bytes, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  Node& node = *file->node;
  Trace("truncate %zu to %llu %s\n", node.data.size(), static_cast<unsigned long long>(bytes), file->path.c_str());
  if (!file->writes || bytes > node.data.size()) {
    return Fail(error, OPENFTL_INVALID,
                file->path + ": cut to " + std::to_string(bytes) + ", but it has " + std::to_string(node.data.size()));
  }
  if (file->ended) {
    return Fail(error, OPENFTL_NOT_SUPPORTED, file->path + ": is a table that was synced; it cannot be cut");
  }
  if (bytes < node.durable) {
    node.replaced = true;
  }
  node.data.resize(bytes);
  Changed(&node);
  return OPENFTL_OK;
}

openftl_status openftl_flush(openftl_file* file, openftl_error*) {
  const std::lock_guard<std::mutex> guard(everything);
  Trace("flush %zu %s\n", file->node->data.size(), file->path.c_str());
  return OPENFTL_OK;
}

openftl_status openftl_commit(openftl_file* file, openftl_error*) {
  const std::lock_guard<std::mutex> guard(everything);
  Trace("commit %zu %s\n", file->node->data.size(), file->path.c_str());
  End(file);
  return OPENFTL_OK;
}

openftl_status openftl_sync(openftl_file* file, openftl_error*) {
  const std::lock_guard<std::mutex> guard(everything);
  Trace("sync %zu %s\n", file->node->data.size(), file->path.c_str());
  End(file);
  file->drive->Keep(file->node.get());
  file->drive->KeepNames();
  return OPENFTL_OK;
}

uint64_t openftl_size(const openftl_file* file) {
  const std::lock_guard<std::mutex> guard(everything);
  return file->node->data.size();
}

openftl_status openftl_close_file(openftl_file* file, openftl_error*) {
  const std::lock_guard<std::mutex> guard(everything);
  if (file->writes) {
    Trace("close %zu %s\n", file->node->data.size(), file->path.c_str());
  }
  End(file);
  file->drive->open_files--;
  delete file;
  return OPENFTL_OK;
}

openftl_status openftl_open_read(openftl_drive* drive, const char* path, openftl_file** file, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  const openftl_status status = CheckPath(path, error);
  if (status != OPENFTL_OK) {
    return status;
  }
  const std::shared_ptr<Node> node = drive->Find(path);
  if (node == nullptr || !node->whole) {
    return Fail(error, OPENFTL_NOT_FOUND, std::string(path) + ": is not there");
  }
  if (node->kind == OPENFTL_FOLDER) {
    return Fail(error, OPENFTL_INVALID, std::string(path) + ": is a folder");
  }
  *file = Open(drive, path, node, false);
  return OPENFTL_OK;
}

openftl_status openftl_read(openftl_file* file, uint64_t offset, size_t bytes, void* buffer, size_t* got, openftl_error*) {
  const std::lock_guard<std::mutex> guard(everything);
  const std::string& data = file->node->data;
  *got = offset >= data.size() ? 0 : std::min<uint64_t>(bytes, data.size() - offset);
  if (*got != 0) {
    std::memcpy(buffer, data.data() + offset, *got);
  }
  return OPENFTL_OK;
}

openftl_status openftl_read_many(openftl_file* file, openftl_read_request* requests, size_t count, openftl_error* error) {
  openftl_status first = OPENFTL_OK;
  for (size_t i = 0; i < count; i++) {
    requests[i].status = openftl_read(file, requests[i].offset, requests[i].bytes, requests[i].buffer, &requests[i].got, error);
    if (first == OPENFTL_OK) {
      first = requests[i].status;
    }
  }
  return first;
}

uint64_t openftl_file_id(const openftl_file* file) { return file->node->id; }

openftl_status openftl_stat(openftl_drive* drive, const char* path, openftl_attributes* attributes, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  const openftl_status status = CheckPath(path, error);
  if (status != OPENFTL_OK) {
    return status;
  }
  const std::shared_ptr<Node> node = drive->Find(path);
  if (node == nullptr || !node->whole) {
    return Fail(error, OPENFTL_NOT_FOUND, std::string(path) + ": is not there");
  }
  *attributes = {node->data.size(), node->modified_s, node->kind};
  return OPENFTL_OK;
}

openftl_status openftl_list(openftl_drive* drive, const char* folder, openftl_each each, void* context,
                            openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  openftl_status status = CheckPath(folder, error);
  if (status != OPENFTL_OK) {
    return status;
  }
  const std::shared_ptr<Node> node = drive->Find(folder);
  if (node == nullptr || node->kind != OPENFTL_FOLDER) {
    return Fail(error, OPENFTL_NOT_FOUND, std::string(folder) + ": is not a folder");
  }
  for (const auto& [path, child] : drive->names) {
    if (path != "/" && FolderOf(path) == folder && child->whole) {
      const openftl_attributes attributes = {child->data.size(), child->modified_s, child->kind};
      each(context, path.c_str() + path.rfind('/') + 1, &attributes);
    }
  }
  return OPENFTL_OK;
}

openftl_status openftl_delete(openftl_drive* drive, const char* path, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  openftl_status status = CheckPath(path, error);
  if (status != OPENFTL_OK) {
    return status;
  }
  const std::shared_ptr<Node> node = drive->Find(path);
  if (node == nullptr) {
    return Fail(error, OPENFTL_NOT_FOUND, std::string(path) + ": is not there");
  }
  if (node->kind == OPENFTL_FOLDER) {
    return Fail(error, OPENFTL_INVALID, std::string(path) + ": is a folder");
  }
  Trace("delete %s\n", path);
  drive->Forget(node);
  drive->names.erase(path);
  return OPENFTL_OK;
}

openftl_status openftl_rename(openftl_drive* drive, const char* from, const char* to, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  openftl_status status = CheckPath(from, error);
  if (status == OPENFTL_OK) {
    status = CheckPath(to, error);
  }
  if (status == OPENFTL_OK) {
    status = CheckFolderAbove(drive, to, error);
  }
  if (status != OPENFTL_OK) {
    return status;
  }
  Trace("rename %s %s\n", from, to);
  const std::shared_ptr<Node> node = drive->Find(from);
  if (node == nullptr) {
    return Fail(error, OPENFTL_NOT_FOUND, std::string(from) + ": is not there");
  }
  if (node->kind == OPENFTL_FOLDER) {
    return Fail(error, OPENFTL_INVALID, std::string(from) + ": is a folder, and keeps its name");
  }
  const std::shared_ptr<Node> old = drive->Find(to);
  if (old != nullptr && old != node) {
    if (old->kind == OPENFTL_FOLDER) {
      return Fail(error, OPENFTL_EXISTS, std::string(to) + ": is a folder");
    }
    drive->Forget(old);
  }
  drive->names.erase(from);
  drive->names[to] = node;
  return OPENFTL_OK;
}

openftl_status openftl_make_folder(openftl_drive* drive, const char* path, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  openftl_status status = CheckPath(path, error);
  if (status == OPENFTL_OK) {
    status = CheckFolderAbove(drive, path, error);
  }
  if (status != OPENFTL_OK) {
    return status;
  }
  if (drive->Find(path) != nullptr) {
    return Fail(error, OPENFTL_EXISTS, std::string(path) + ": is there already");
  }
  Trace("make folder %s\n", path);
  auto node = std::make_shared<Node>();
  Changed(node.get());
  drive->names[path] = node;
  return OPENFTL_OK;
}

openftl_status openftl_delete_folder(openftl_drive* drive, const char* path, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  openftl_status status = CheckPath(path, error);
  if (status != OPENFTL_OK) {
    return status;
  }
  const std::shared_ptr<Node> node = drive->Find(path);
  if (node == nullptr || node->kind != OPENFTL_FOLDER) {
    return Fail(error, OPENFTL_NOT_FOUND, std::string(path) + ": is not a folder");
  }
  for (const auto& [name, child] : drive->names) {
    if (name != "/" && FolderOf(name) == path) {
      return Fail(error, OPENFTL_BUSY, std::string(path) + ": is not empty");
    }
  }
  Trace("delete folder %s\n", path);
  drive->names.erase(path);
  return OPENFTL_OK;
}

openftl_status openftl_sync_folder(openftl_drive* drive, const char* path, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  const std::shared_ptr<Node> node = drive->Find(path);
  if (node == nullptr || node->kind != OPENFTL_FOLDER) {
    return Fail(error, OPENFTL_NOT_FOUND, std::string(path) + ": is not a folder");
  }
  Trace("sync folder %s\n", path);
  drive->KeepNames();
  drive->Sweep();
  return OPENFTL_OK;
}

openftl_status openftl_lock(openftl_drive* drive, const char* path, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  const openftl_status status = CheckPath(path, error);
  if (status != OPENFTL_OK) {
    return status;
  }
  if (!drive->locks.insert(path).second) {
    return Fail(error, OPENFTL_BUSY, std::string(path) + ": is locked");
  }
  Trace("lock %s\n", path);
  return OPENFTL_OK;
}

openftl_status openftl_unlock(openftl_drive* drive, const char* path, openftl_error* error) {
  const std::lock_guard<std::mutex> guard(everything);
  if (drive->locks.erase(path) == 0) {
    return Fail(error, OPENFTL_INVALID, std::string(path) + ": is not locked");
  }
  Trace("unlock %s\n", path);
  return OPENFTL_OK;
}

}  // extern "C"
