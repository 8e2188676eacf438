#include "sim/io/temporary_folder.hpp"

#include <fmt/format.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp is POSIX

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "sim/core/error.hpp"
#include "sim/io/work_done.hpp"

namespace spillway {

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::temp_directory_path(error);
  path_ = (place / "spillway-XXXXXX").string();
  if (error || ::mkdtemp(path_.data()) == nullptr) {
    throw ConfigError(
        fmt::format("cannot create a temporary folder: {}", error ? error.message() : std::strerror(errno)), path_,
        "set TMPDIR to a writable folder");
  }
  ignore_written_below(path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // the system clears its temporary folder
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace spillway
