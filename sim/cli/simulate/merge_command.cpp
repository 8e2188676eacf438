// `spillway merge`: the shards of a sweep -> the sweep.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "sim/cli/simulate/sweep_command.hpp"
#include "sim/cli/table_metrics.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/io/output.hpp"
#include "sim/io/whole_file.hpp"
#include "sim/report/sweep.hpp"
#include "sim/study/points.hpp"
#include "sim/study/result_store.hpp"

namespace spillway::cli {
namespace {

namespace fs = std::filesystem;

struct Part {
  std::string folder;
  SweepManifest manifest;
};

std::optional<std::string> read_text(const fs::path& path) {
  WholeFile file = read_whole_file(path.string());
  return file.ok() ? std::optional(std::move(file.bytes)) : std::nullopt;
}

std::int64_t stored_points(const std::string& folder) {
  std::error_code ignored;
  std::int64_t points = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / "points", ignored)) {
    points += entry.path().extension() == ".json" ? 1 : 0;
  }
  return points;
}

class Merger {
 public:
  explicit Merger(std::vector<Problem> problems) : problems_(std::move(problems)) {}

  Sweep read(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) read_part(folder);
    if (!parts_.empty()) check_kinship();
    throw_if_any();
    check_coverage();
    throw_if_any();
    Sweep sweep = parts_.front().manifest.sweep;
    sweep.shard.reset();
    sweep.rows.clear();
    for (const Part& part : parts_) read_points(part, sweep);
    throw_if_any();
    sweep.sort();
    return sweep;
  }
  /// The points' files by id. Requires read().
  [[nodiscard]] const std::map<std::string, std::string>& files() const { return files_; }

 private:
  void complain(const std::string& what, const std::string& where, const std::string& fix) {
    problems_.push_back({what, where, fix});
  }
  void throw_if_any() {
    if (!problems_.empty()) throw DataError(std::move(problems_));
  }

  void read_part(const std::string& folder) {
    const std::string path = (fs::path(folder) / "sweep.json").string();
    const auto text = read_text(path);
    if (!text) {
      return complain(fmt::format("{} does not contain a sweep: there is no {}", folder, path), folder,
                      "give the folders that spillway sweep --shard wrote");
    }
    try {
      parts_.push_back({folder, parse_sweep_manifest(*text, path)});
    } catch (const DataError& error) {
      problems_.insert(problems_.end(), error.problems().begin(), error.problems().end());
    }
  }

  /// Checks that all parts belong to one sweep and to this version of spillway.
  void check_kinship() {
    const Sweep& first = parts_.front().manifest.sweep;
    for (const Part& part : parts_) {
      const Sweep& sweep = part.manifest.sweep;
      if (sweep.tool_version != tool_version() || sweep.tool_build != tool_build()) {
        complain(fmt::format("{} was written by spillway {}, build {}, but this is {}, build {}", part.folder,
                             sweep.tool_version, sweep.tool_build, tool_version(), tool_build()),
                 part.folder, "merge with the program that ran the sweep");
      } else if (sweep.definition != first.definition) {
        complain(fmt::format("{} and {} are of different sweeps", part.folder, parts_.front().folder), part.folder,
                 "merge shards of one sweep: the same configuration and axes");
      } else if (!sweep.shard) {
        complain(fmt::format("{} is not a shard: it contains a whole sweep", part.folder), part.folder, "leave it out");
      } else if (first.shard && sweep.shard->count != first.shard->count) {
        complain(fmt::format("{} is one of {} shards, but {} is one of {}", part.folder, sweep.shard->count,
                             parts_.front().folder, first.shard->count),
                 part.folder, "merge shards that were run with the same n in --shard i/n");
      }
    }
  }

  /// Checks that each shard is present once and has ended.
  void check_coverage() {
    const std::int64_t count = parts_.front().manifest.sweep.shard->count;
    std::map<std::int64_t, const Part*> by_index;
    for (const Part& part : parts_) {
      const Shard& shard = *part.manifest.sweep.shard;
      const auto [other, added] = by_index.emplace(shard.index, &part);
      if (!added) {
        complain(fmt::format("shard {}/{} is given twice: in {} and {}", shard.index, count, other->second->folder,
                             part.folder),
                 part.folder, "give each shard once");
      }
      if (!part.manifest.complete) {
        complain(fmt::format("shard {}/{} was interrupted: {} of its {} points are in {}", shard.index, count,
                             stored_points(part.folder), shard.size(part.manifest.sweep.points), part.folder),
                 part.folder, "run its command again: it continues from there");
      }
    }
    std::vector<std::string> missing;
    for (std::int64_t i = 1; i <= count; ++i) {
      if (!by_index.contains(i)) missing.push_back(fmt::format("{}/{}", i, count));
    }
    if (!missing.empty()) {
      complain(fmt::format("these shards are missing: {}", fmt::join(missing, ", ")), "merge",
               "run them, or give their folders too");
    }
  }

  void read_points(const Part& part, Sweep& sweep) {
    const Sweep& shard = part.manifest.sweep;
    if (std::ssize(shard.rows) != shard.shard->size(shard.points)) {
      return complain(fmt::format("{} lists {} points instead of {}", part.folder, shard.rows.size(),
                                  shard.shard->size(shard.points)),
                      part.folder, "run the shard again");
    }
    for (const SweepRow& row : shard.rows) {
      if (!shard.shard->holds(row.point)) {
        complain(
            fmt::format("point {} does not belong to shard {}/{}", row.point, shard.shard->index, shard.shard->count),
            part.folder, "run the shard again");
      } else if (!row.error.empty()) {
        SweepRow failed{.point = row.point, .values = row.values};
        failed.error = row.error;
        sweep.add(std::move(failed), {});
      } else {
        read_point(part, row, sweep);
      }
    }
  }

  void read_point(const Part& part, const SweepRow& row, Sweep& sweep) {
    const std::string path = (fs::path(part.folder) / "points" / (row.id + ".json")).string();
    auto text = read_text(path);
    if (!text) {
      return complain(fmt::format("point {} is missing: there is no {}", row.point, path), path, "run the shard again");
    }
    if (sha256_hex(*text) != row.sha256) {
      return complain(
          fmt::format("the result of point {} was changed after the run: the hash of {} differs", row.point, path),
          path, "delete the file and run the shard again");
    }
    try {
      check_inputs(*text, path);
      const PointOutcome outcome = outcome_from_json(*std::move(text), path);
      if (outcome.id != row.id) {
        return complain(fmt::format("{} contains the result of another point", path), path, "run the shard again");
      }
      add_outcome(sweep, {.point = row.point, .values = row.values}, outcome);
      files_.emplace(row.id, path);
    } catch (const DataError& error) {
      problems_.insert(problems_.end(), error.problems().begin(), error.problems().end());
    }
  }

  /// Checks that every machine used the same trace, profile and model files.
  void check_inputs(const std::string& text, const std::string& path) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("inputs")) return;  // outcome_from_json reports this
    for (const auto& input : json["inputs"]) {
      const std::string name = input.value("role", "") + " " + input.value("name", "");
      const std::string hash = input.value("sha256", "");
      const auto [first, added] = inputs_.try_emplace(name, Input{hash, path});
      if (added || first->second.sha256 == hash || !differing_.insert(name).second) continue;
      complain(fmt::format("{} was not the same file for all shards: its hashes in {} and {} differ", name,
                           first->second.path, path),
               path, "run all shards with the same file");
    }
  }

  struct Input {
    std::string sha256;
    std::string path;
  };
  std::vector<Problem> problems_;
  std::vector<Part> parts_;
  std::map<std::string, Input> inputs_;  // by role and name
  std::set<std::string> differing_;      // each file is reported once
  std::map<std::string, std::string> files_;
};

}  // namespace

ExitCode merge(const MergeOptions& options) {
  std::vector<Problem> problems;
  std::vector<std::string> metrics = parse_metrics(options.metrics, problems);
  if (metrics.empty()) metrics = standard_metrics({});
  Merger merger(std::move(problems));
  const Sweep sweep = merger.read(options.folders);
  try {
    const ResultStore store(options.directory);
    for (const auto& [id, path] : merger.files()) store.save(id, read_text(path).value_or(""));
    write_results(store, sweep);
  } catch (const UserError& error) {
    print_problems(error.problems(), "the shards are unchanged");
    return error.code();
  }
  print_result(render(sweep, options.format, metrics));
  const std::int64_t failed = sweep.failed();
  fmt::print(stderr, "{} points of {} shards in {}{}\n", sweep.rows.size(), options.folders.size(),
             printable(options.directory), failed > 0 ? fmt::format(", {} failed", failed) : "");
  return failed > 0 ? ExitCode::partial : ExitCode::ok;
}

}  // namespace spillway::cli
