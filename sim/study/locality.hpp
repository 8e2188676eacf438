// What a result says of experts.locality: which share it assumed, and what half and twice of it would do.
//
// The share decides how often a policy finds an expert where it was used before, and measurements of it differ between
// models by more than a factor of two. So `run` and `compare` run the configuration twice more.
#pragma once

#include <algorithm>
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/config/config.hpp"
#include "sim/metrics/metrics.hpp"

namespace spillway {

inline constexpr const char* kLocalityKey = "experts.locality";

/// The locality of a run whose policy places experts.
struct ExpertLocality {
  double value = 0.0;
  bool given = false;       // by the user; false: the default
  std::string source{};     // of the default; empty: it was given
  std::string no_effect{};  // why half and twice of it would give the same result; empty: they may not
  bool operator==(const ExpertLocality&) const = default;
};

/// Of a model whose layers have `experts` experts, of which a token uses `top_k`.
[[nodiscard]] ExpertLocality assumed_locality(const Settings& settings, std::int64_t experts, std::int64_t top_k);
/// The same for a configuration: of its policy, if that places experts, or of each of its instances whose policy does.
/// Throws ConfigError or DataError when the model of a configuration without instances cannot be read.
[[nodiscard]] std::vector<ExpertLocality> assumed_localities(const ResolvedConfig& config);
/// Half and twice of them may give another result.
[[nodiscard]] bool may_matter(const std::vector<ExpertLocality>& assumed);

inline constexpr std::array kLocalityTimes{0.5, 2.0};
/// So many times the locality, but at most 1.
[[nodiscard]] constexpr double locality_times(double times, double locality) { return std::min(1.0, times * locality); }
/// With each of kLocalityTimes.
[[nodiscard]] std::array<double, 2> half_and_twice(double locality);

/// The figures that are compared, by their metrics.
inline constexpr const char* kTokensPerSecond = "output_throughput_tokens_per_s";
inline constexpr const char* kTpot = "p50_tpot_ms";

/// The figures of one run, means over its replications.
struct LocalityRun {
  double times = 1.0;
  std::optional<double> locality{};  // empty: instances of several kinds have different ones
  std::optional<double> output_tokens_per_s{};
  std::optional<double> p50_tpot_ms{};
};
[[nodiscard]] LocalityRun locality_run(double times, const std::optional<ExpertLocality>& assumed,
                                       const std::vector<Metric>& metrics);

/// "12.3", or "-" for none.
[[nodiscard]] std::string shown_figure(const std::optional<double>& value);

/// The runs with kLocalityTimes, or why there are none.
struct LocalityCheck {
  std::vector<LocalityRun> runs{};
  std::string not_run{};
};

/// "0.4 (default)".
[[nodiscard]] std::string assumed_text(const ExpertLocality& assumed);
/// "0.4 (default): 12.3 output tokens/s, p50 TPOT 81 ms; at 0.2: 11.1 and 90.2; at 0.8: 14 and 71.2", where `assumed`
/// comes first; of different localities, "at half of each" and "at twice of each". Without a check, `assumed` alone.
[[nodiscard]] std::string locality_text(const std::string& assumed, const LocalityRun& base,
                                        const std::optional<LocalityCheck>& check);

/// {"value", "origin": given | default, "source", "no_effect"}, without empty texts.
[[nodiscard]] nlohmann::ordered_json assumed_locality_json(const ExpertLocality& assumed);
[[nodiscard]] std::optional<ExpertLocality> read_assumed_locality(const nlohmann::ordered_json& setup);
/// assumed_text() of a result; of instances that assume different ones "a 0.4 (default), b 0.6 (given)"; or empty.
[[nodiscard]] std::string read_assumed_text(const nlohmann::ordered_json& result);
/// {"runs": [{"times", "value", "output_throughput_tokens_per_s", "p50_tpot_ms"}]} or {"not_run": reason}; "value" only
/// where there is one.
[[nodiscard]] nlohmann::ordered_json locality_check_json(const LocalityCheck& check);
/// From a result with the key other_localities; empty without it.
[[nodiscard]] std::optional<LocalityCheck> read_locality_check(const nlohmann::ordered_json& result);

}  // namespace spillway
