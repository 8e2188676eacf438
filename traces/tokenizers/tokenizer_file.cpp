#include "traces/tokenizers/tokenizer_file.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "sim/core/error.hpp"

namespace spillway::traces {

std::string read_tokenizer_file(const std::string& path) {
  std::error_code ignored;  // status() also gives the type in case of an error
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind == std::filesystem::file_type::not_found) {
    throw DataError("there is no such file", path, "check the path; it is relative to the current folder");
  }
  if (kind == std::filesystem::file_type::directory) {
    throw DataError("this is a folder, not a tokenizer file", path, "name one file in it");
  }
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    throw DataError("the tokenizer file cannot be read", path, "check its permissions and the disk it is on");
  }
  if (content.empty()) throw DataError("the file is empty", path, "check that it was copied whole");
  return content;
}

}  // namespace spillway::traces
