#include "path.h"

namespace openftl {

std::string Normalise(const std::string& path) {
  std::string normal;
  size_t start = 0;
  while (start < path.size()) {
    size_t end = path.find('/', start);
    if (end == std::string::npos) {
      end = path.size();
    }
    const std::string name = path.substr(start, end - start);
    if (name == "..") {
      normal.resize(normal.empty() ? 0 : normal.rfind('/'));
    } else if (!name.empty() && name != ".") {
      normal += '/';
      normal += name;
    }
    start = end + 1;
  }
  return normal.empty() ? "/" : normal;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

static bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

openftl_kind KindOf(const std::string& path) {
  return EndsWith(path, ".sst") || EndsWith(path, ".blob") ? OPENFTL_TABLE : OPENFTL_LOG;
}

}  // namespace openftl
