#include "hwmodels/data_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "sim/core/error.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::string_view kSuffix = ".json";

/// Refuses devices and pipes: they may never end, and opening a pipe waits for a writer.
void check_regular(const std::string& path) {
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  const bool opens = std::filesystem::is_regular_file(status) || std::filesystem::is_directory(status);
  if (opens || !std::filesystem::exists(status)) return;
  throw DataError("is not a regular file", path, "write it to a file first and name that");
}

}  // namespace

std::vector<std::string> names_of(const Kind& kind) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with(kind.folder)) continue;
    names.emplace_back(file.path.substr(kind.folder.size(), file.path.size() - kind.folder.size() - kSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_path(std::string_view name_or_file) {
  return name_or_file.find('/') != std::string_view::npos || name_or_file.ends_with(kSuffix);
}

std::string read_file(const std::string& path) {
  check_regular(path);
  std::ifstream stream(path, std::ios::binary);
  std::string content;
  std::array<char, 65536> buffer{};
  while (stream.read(buffer.data(), buffer.size()), stream.gcount() > 0) {
    content.append(buffer.data(), static_cast<std::size_t>(stream.gcount()));
    if (content.size() > kMostFileBytes) {
      throw DataError(
          fmt::format("is larger than {} MB, the most that a data file may have", kMostFileBytes / 1'000'000), path,
          "check that it is the file that you mean");
    }
  }
  // A folder opens but cannot be read.
  if (!stream.is_open() || stream.bad()) throw DataError("cannot be read", path, "check the path and its permissions");
  return content;
}

const EmbeddedFile* find_embedded(const Kind& kind, std::string_view name) {
  const std::string path = fmt::format("{}{}{}", kind.folder, name, kSuffix);
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

std::string nearest_and_all(std::string_view word, std::span<const std::string> allowed) {
  const std::string near = nearest_name(word, allowed);
  return (near.empty() ? std::string() : fmt::format("did you mean \"{}\"? ", near)) +
         fmt::format("allowed: {}", fmt::join(allowed, ", "));
}

}  // namespace spillway::hwmodels
