#include "sim/io/whole_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

namespace spillway {
namespace {

std::string system_reason(const std::error_code& error) { return fmt::format("the system says: {}", error.message()); }

/// Why a file cannot be opened; empty when it can.
std::string kind_fault(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  switch (status.type()) {
    case std::filesystem::file_type::regular:
      return {};
    case std::filesystem::file_type::not_found:
      return "it does not exist";
    case std::filesystem::file_type::directory:
      return "it is a folder";
    case std::filesystem::file_type::none:
      return system_reason(error);
    default:
      return "it is not a regular file";
  }
}

std::error_code last_error() { return {errno, std::generic_category()}; }

}  // namespace

WholeFile read_whole_file(const std::string& path, std::size_t most) {
  WholeFile file{{}, kind_fault(path)};
  if (!file.ok()) return file;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(path.c_str(), "rb"), std::fclose);
  if (stream == nullptr) return {{}, system_reason(last_error())};
  std::vector<char> buffer(std::size_t{64} << 10U);
  errno = 0;
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), stream.get())) {
    file.bytes.append(buffer.data(), got);
    if (file.bytes.size() > most) return {{}, fmt::format("it is larger than {} MiB", most >> 20U)};
  }
  // /proc/self/mem, for example, is a regular file that cannot be read.
  if (std::ferror(stream.get()) != 0) return {{}, system_reason(last_error())};
  return file;
}

}  // namespace spillway
