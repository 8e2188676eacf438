#include "sim/study/result_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "sim/core/error.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/io/output.hpp"

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
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The name that AtomicFile gives what is not complete yet: NAME.part and the process's number.
bool is_unfinished(const std::string& name) {
  constexpr std::string_view kMark = ".part";
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string::npos || mark + kMark.size() == name.size()) return false;
  return name.find_first_not_of("0123456789", mark + kMark.size()) == std::string::npos;
}

/// Temporary files of a process that was killed. Whoever calls this holds the lock, so nobody writes them any more.
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
                      "choose a folder that may be written to and has room");
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
  std::error_code error;
  fs::create_directories(points, error);
  if (error) {
    throw ConfigError(fmt::format("cannot create the folder {}: {}", points.string(), error.message()), directory_,
                      "choose a place that may be written to");
  }
  lock_ = lock(directory_);
  try {
    remove_unfinished(directory_);
    remove_unfinished(points);
    const auto there = read(kStamp);
    if (!there) {
      if (!fs::is_empty(points)) {
        throw ConfigError(
            fmt::format("{} holds points but no {}: it does not say which version they are of", directory_, kStamp),
            directory_, "choose another folder");
      }
      write(kStamp, stamp());
    } else if (*there != stamp()) {
      throw ConfigError(
          fmt::format("{} holds results of {}, and this is {}: they may differ", directory_,
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

std::optional<std::string> ResultStore::load(const std::string& id) const { return read_text(point_path(id)); }

void ResultStore::save(const std::string& id, std::string_view text) const {
  const std::lock_guard lock(saving_);  // two points may be the same, and then write the same file
  write_file(point_path(id), text);
}

void ResultStore::write(const std::string& name, std::string_view text) const {
  write_file((fs::path(directory_) / name).string(), text);
}

std::optional<std::string> ResultStore::read(const std::string& name) const {
  return read_text((fs::path(directory_) / name).string());
}

}  // namespace spillway
