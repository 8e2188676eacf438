#include "traces/tokenizers/tokenizer_file.hpp"

#include <fmt/format.h>

#include <utility>

#include "sim/core/error.hpp"
#include "sim/io/file_reader.hpp"
#include "sim/io/whole_file.hpp"

namespace spillway::traces {

std::string read_tokenizer_file(const std::string& path) {
  check_readable(path, {"tokenizer file", "token"});
  WholeFile file = read_whole_file(path);
  if (!file.ok()) {
    throw DataError(fmt::format("the tokenizer file cannot be read: {}", file.fault), path,
                    "check its permissions and its disk");
  }
  if (file.bytes.empty()) throw DataError("the file is empty", path, "check that it was copied whole");
  return std::move(file.bytes);
}

}  // namespace spillway::traces
