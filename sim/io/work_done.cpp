#include "sim/io/work_done.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace spillway {
namespace {

struct WorkDone {
  std::mutex mutex;
  bool simulated = false;
  std::int64_t files = 0;
  std::string first_file;
  std::vector<std::string> ignored;  // folders
};

WorkDone& of_process() {
  static WorkDone work;
  return work;
}

}  // namespace

void note_simulation() {
  WorkDone& work = of_process();
  const std::lock_guard lock(work.mutex);
  work.simulated = true;
}

void note_written(const std::string& path) {
  WorkDone& work = of_process();
  const std::lock_guard lock(work.mutex);
  if (std::any_of(work.ignored.begin(), work.ignored.end(),
                  [&](const std::string& folder) { return path.starts_with(folder + "/"); })) {
    return;
  }
  if (work.files++ == 0) work.first_file = path;
}

void ignore_written_below(const std::string& folder) {
  WorkDone& work = of_process();
  const std::lock_guard lock(work.mutex);
  work.ignored.push_back(folder);
}

std::string work_done(std::string_view idle) {
  WorkDone& work = of_process();
  const std::lock_guard lock(work.mutex);
  if (work.files == 1) return fmt::format("1 file was written: {}", work.first_file);
  if (work.files > 1) return fmt::format("{} files were written, the first is {}", work.files, work.first_file);
  return work.simulated ? "nothing was written" : std::string(idle);
}

}  // namespace spillway
