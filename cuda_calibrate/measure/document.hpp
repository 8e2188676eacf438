// The output file of a run: measurements.schema.json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/sampler.hpp"
#include "cuda_calibrate/measure/sustained.hpp"

namespace spillway::calibrate {

enum class SectionStatus : std::uint8_t { done, skipped, interrupted, failed, pending };
[[nodiscard]] std::string_view name_of(SectionStatus status);

/// The outcome of one section.
struct SectionResult {
  std::string id{};
  SectionStatus status = SectionStatus::pending;
  std::string reason{};  // why the section was skipped or failed; else empty
  double seconds = 0.0;
  std::int64_t points_planned = 0;
  std::int64_t points_done = 0;
  std::string plan{};                                 // plan_digest()
  std::vector<nlohmann::ordered_json> skipped{};      // {"point": first row of the point, "reason": text}
  std::vector<std::string> notes{};                   // Case::note(), without repeats
  std::optional<nlohmann::ordered_json> gpu_start{};  // clocks, temperature, throttling; empty without a GPU
  std::optional<nlohmann::ordered_json> gpu_end{};
  std::vector<nlohmann::ordered_json> measurements{};  // complete rows
  std::vector<std::vector<double>> raw{};              // microseconds, by row; empty unless requested
};

/// Facts of a run besides the machine's.
struct RunLabels {
  std::string command{};
  std::string started{};  // UTC, "2026-01-31T12:00:00Z"
  std::uint64_t seed = 0;
  std::int64_t gpu = 0;
};

struct Document {
  nlohmann::ordered_json provenance;
  std::vector<SectionResult> sections;  // sections of the plan, in its order
  bool with_raw = false;

  /// The JSON text with one entry of the schema per line, so that files can be compared line by line.
  [[nodiscard]] std::string text() const;
};

/// The document of a plan before any measurement.
[[nodiscard]] Document new_document(const Plan& plan, const MachineFacts& facts, const RunLabels& labels,
                                    bool with_raw);

/// Current clocks, temperature and throttling of a GPU; empty when the GPU does not exist.
[[nodiscard]] std::optional<nlohmann::ordered_json> gpu_state(const MachineFacts& facts, std::int64_t index);

/// Adds the rows of one point with figures in microseconds, rounded to 8 digits, and with raw timings if `raw`.
void add_measurements(SectionResult& section, const Point& point, const Timings& timings, const std::string& kernel,
                      bool raw);
/// Adds the rows of a sustained run: one for each interval, with what the sensors stated.
void add_sustained(SectionResult& section, const Point& point, const SustainedRun& run, const std::string& kernel,
                   bool raw);

/// Takes over finished sections from the file at `path`. The planned measurements, the GPU, the seed and the keeping of
/// raw timings must be equal. Throws ConfigError that names each difference, and DataError when the file is not a
/// document of this tool. A missing file has no sections. Returns the number of sections kept from the file.
std::int64_t resume_from(const std::string& path, Document& document);

/// Free host memory at the start of the run that wrote the file at `path`. A resumed run must plan with this value to
/// get the same points. Empty when the file does not exist or lacks the value.
[[nodiscard]] std::optional<std::int64_t> memory_of_plan(const std::string& path);

/// Writes a temporary file in the folder and renames it. Throws ConfigError when the file cannot be written.
void write_document(const std::string& path, const Document& document);

}  // namespace spillway::calibrate
