// The file that a run writes: measurements.schema.json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/sampler.hpp"

namespace spillway::calibrate {

enum class SectionStatus : std::uint8_t { done, skipped, interrupted, failed, pending };
[[nodiscard]] std::string_view name_of(SectionStatus status);

/// What became of one section.
struct SectionResult {
  std::string id{};
  SectionStatus status = SectionStatus::pending;
  std::string reason{};  // why it was skipped or how it failed; else empty
  double seconds = 0.0;
  std::int64_t points_planned = 0;
  std::int64_t points_done = 0;
  std::string plan{};                                 // plan_digest()
  std::vector<nlohmann::ordered_json> skipped{};      // {"point": its first row, "reason": text}
  std::vector<std::string> notes{};                   // Case::note(), each once
  std::optional<nlohmann::ordered_json> gpu_start{};  // clocks, temperature, throttling; empty without a GPU
  std::optional<nlohmann::ordered_json> gpu_end{};
  std::vector<nlohmann::ordered_json> measurements{};  // complete rows
  std::vector<std::vector<double>> raw{};              // microseconds, by row; empty unless asked for
};

/// What a run is told beside the machine's facts.
struct RunLabels {
  std::string command{};
  std::string started{};  // UTC, "2026-01-31T12:00:00Z"
  std::uint64_t seed = 0;
  std::int64_t gpu = 0;
};

struct Document {
  nlohmann::ordered_json provenance;
  std::vector<SectionResult> sections;  // of the plan, in its order
  bool with_raw = false;

  /// One entry of the schema's form a line, so that files can be compared line by line.
  [[nodiscard]] std::string text() const;
};

/// A document of a plan of which nothing is measured yet.
[[nodiscard]] Document new_document(const Plan& plan, const MachineFacts& facts, const RunLabels& labels,
                                    bool with_raw);

/// Clocks, temperature and throttling of a GPU as they are now; empty when there is no such GPU.
[[nodiscard]] std::optional<nlohmann::ordered_json> gpu_state(const MachineFacts& facts, std::int64_t index);

/// Adds the rows of one point with their figures in microseconds, rounded to 8 digits, and their raw timings if `raw`.
void add_measurements(SectionResult& section, const Point& point, const Timings& timings, const std::string& kernel,
                      bool raw);

/// Takes over from the file at `path` the sections that are done. What the run would measure, on which GPU, with which
/// seed and whether raw timings are kept must be the same: throws ConfigError that names each difference; DataError
/// when the file is no document of this tool. A file that is not there has nothing to take over. Returns how many
/// sections were.
std::int64_t resume_from(const std::string& path, Document& document);

/// Free memory of the host when the run of the file at `path` began: what a run that goes on is planned by, as the same
/// points must come out. Empty when there is no such file or it does not say so.
[[nodiscard]] std::optional<std::int64_t> memory_of_plan(const std::string& path);

/// Writes a file of another name beside it, then renames that. Throws ConfigError when it cannot be written.
void write_document(const std::string& path, const Document& document);

}  // namespace spillway::calibrate
