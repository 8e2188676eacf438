#include "sim/study/result_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/core/error.hpp"
#include "sim/core/text.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/io/output.hpp"
#include "sim/io/whole_file.hpp"

namespace spillway {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStamp = "store.json";

std::string stamp() {
  const nlohmann::ordered_json json{{"tool_version", tool_version()}, {"tool_build", tool_build()}};
  return json.dump(2) + "\n";
}

/// "spillway 0.1.0, build 0123456789abcdef"
std::string program(const nlohmann::json& json) {
  const auto text = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string("unknown");
  };
  return fmt::format("spillway {}, build {}", text("tool_version"), text("tool_build"));
}

std::optional<std::string> read_text(const std::string& path) {
  WholeFile file = read_whole_file(path);
  return file.ok() ? std::optional(std::move(file.bytes)) : std::nullopt;
}

/// A line in the format of sha256sum, so that `cd points && sha256sum -c ../checksums/*` checks a folder.
std::string checksum_line(const std::string& id, std::string_view text) {
  return fmt::format("{}  {}.json\n", sha256_hex(text), id);
}

/// Whether AtomicFile wrote this incomplete file: NAME.part and the process id.
bool is_unfinished(const std::string& name) {
  constexpr std::string_view kMark = ".part";
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string::npos || mark + kMark.size() == name.size()) return false;
  return name.find_first_not_of("0123456789", mark + kMark.size()) == std::string::npos;
}

/// Removes temporary files of killed processes. The caller has the lock, so no process still writes them.
void remove_unfinished(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_unfinished(entry.path().filename().string())) fs::remove(entry.path(), ignored);
  }
}

int lock(const std::string& directory) {
  const std::string path = (fs::path(directory) / ".lock").string();
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) {
    throw ConfigError(fmt::format("cannot create the file {}: {}", path, std::strerror(errno)), directory,
                      "choose a folder that is writable and has free space");
  }
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  const int reason = errno;
  ::close(file);
  if (reason == EWOULDBLOCK) {
    throw ConfigError(fmt::format("another spillway process is writing to {}", directory), directory,
                      "wait for it, or choose another folder");
  }
  throw ConfigError(fmt::format("cannot lock {}: {}", path, std::strerror(reason)), directory,
                    "choose a folder on a file system with locks");
}

}  // namespace

ResultStore::ResultStore(std::string directory) : directory_(std::move(directory)) {
  const fs::path points = fs::path(directory_) / "points";
  const fs::path checksums = fs::path(directory_) / "checksums";
  for (const fs::path& folder : {points, checksums}) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      throw ConfigError(fmt::format("cannot create the folder {}: {}", folder.string(), error.message()), directory_,
                        "choose a writable folder");
    }
  }
  lock_ = lock(directory_);
  try {
    remove_unfinished(directory_);
    remove_unfinished(points);
    remove_unfinished(checksums);
    const auto there = read(kStamp);
    if (!there) {
      if (!fs::is_empty(points)) {
        throw ConfigError(fmt::format("{} contains points but no {}, so their version is unknown", directory_, kStamp),
                          directory_, "choose another folder");
      }
      write(kStamp, stamp());
    } else if (*there != stamp()) {
      throw ConfigError(
          fmt::format("{} contains results of {}, but this is {}: their results may differ", directory_,
                      program(nlohmann::json::parse(*there, nullptr, false)), program(nlohmann::json::parse(stamp()))),
          directory_, "choose another folder, or delete this one");
    }
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

ResultStore::~ResultStore() { ::close(lock_); }

std::string ResultStore::point_path(const std::string& id) const {
  return (fs::path(directory_) / "points" / (id + ".json")).string();
}

std::string ResultStore::checksum_path(const std::string& id) const {
  return (fs::path(directory_) / "checksums" / (id + ".sha256")).string();
}

std::optional<std::string> ResultStore::load(const std::string& id) const {
  auto text = read_text(point_path(id));
  if (!text) return std::nullopt;
  if (read_text(checksum_path(id)) == checksum_line(id, *text)) return text;
  print_warning(fmt::format("{} was changed after it was written; its point runs again", point_path(id)));
  return std::nullopt;
}

void ResultStore::save(const std::string& id, std::string_view text) const {
  const std::lock_guard lock(saving_);  // equal points write one file
  // Write the checksum first: a process killed here leaves no point without a checksum.
  write_file(checksum_path(id), checksum_line(id, text));
  write_file(point_path(id), text);
}

void ResultStore::write(const std::string& name, std::string_view text) const {
  write_file((fs::path(directory_) / name).string(), text);
}

std::optional<std::string> ResultStore::read(const std::string& name) const {
  return read_text((fs::path(directory_) / name).string());
}

}  // namespace spillway
