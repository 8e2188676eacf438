#include "sim/io/atomic_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/work_done.hpp"

namespace spillway {

namespace fs = std::filesystem;

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(path_) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored))
    throw ConfigError(brief(path_) + " is a folder", brief(path_), "give the name of a file");
  if (fs::is_symlink(path_, ignored)) target_ = fs::weakly_canonical(path_, ignored).string();
  if (!fs::exists(target_, ignored) || fs::is_regular_file(target_, ignored)) {
    temporary_ = target_ + ".part" + std::to_string(::getpid());
  }
  errno = 0;
  stream_.open(temporary_.empty() ? target_ : temporary_, std::ios::binary | std::ios::trunc);
  if (!stream_) {
    temporary_.clear();
    fail("create");
  }
}

AtomicFile::~AtomicFile() {
  if (temporary_.empty()) return;
  stream_.close();
  std::error_code ignored;
  fs::remove(temporary_, ignored);
}

void AtomicFile::write(std::string_view text) {
  errno = 0;
  if (!stream_.write(text.data(), static_cast<std::streamsize>(text.size()))) fail("write");
}

void AtomicFile::commit() {
  errno = 0;
  stream_.close();
  if (!stream_) fail("write");
  if (!temporary_.empty()) {
    std::error_code error;
    fs::rename(temporary_, target_, error);
    if (error) {
      errno = error.value();
      fail("replace");
    }
    temporary_.clear();
  }
  note_written(path_);
}

void AtomicFile::fail(const std::string& action) const {
  const std::string reason = errno != 0 ? std::strerror(errno) : "unknown reason";
  throw ConfigError("cannot " + action + " the file " + brief(path_) + ": " + reason, brief(path_),
                    "choose a folder that exists, is writable and has free space");
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace spillway
