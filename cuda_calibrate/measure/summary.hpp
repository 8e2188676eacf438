// Plans, runs and measurements as text for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/document.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/runner.hpp"

namespace spillway::calibrate {

/// The best measured values of a machine's main figures; empty: not measured. Bytes/s and FLOP/s.
struct Headlines {
  std::optional<double> h2d;  // pinned, contiguous, largest size
  std::optional<double> d2h;
  std::optional<double> duplex;      // sum of both directions, for the largest equal sizes
  std::optional<double> gemm;        // 2-byte numbers, first heuristic choice
  std::optional<double> decode;      // KV bytes, without skew
  std::optional<double> host;        // host memory without copies
  std::optional<double> cpu_decode;  // KV bytes, attention on the CPU
  std::optional<double> cpu_gemm;    // fp32 products on one socket
};
[[nodiscard]] Headlines headlines_of(const Document& document);

/// Sections with status, points and time, then the headline figures.
[[nodiscard]] std::string summary_text(const Document& document);

/// The plan of a run.
[[nodiscard]] std::string plan_text(const Plan& plan, const MachineFacts& facts, std::int64_t gpu);
[[nodiscard]] nlohmann::ordered_json plan_json(const Plan& plan, const MachineFacts& facts, std::int64_t gpu);

/// "gemm 12/48 points, about 31 s left".
[[nodiscard]] std::string progress_text(const RunProgress& progress);
/// "gemm: done, 48 of 48 points in 5.2 s", followed by one line per note.
[[nodiscard]] std::string section_text(const SectionResult& result);

}  // namespace spillway::calibrate
