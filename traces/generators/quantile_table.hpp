// Bundled workloads: tables of quantiles of request lengths. They keep a trace's shape without its rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/embedded_file.hpp"
#include "sim/core/random.hpp"
#include "sim/core/units.hpp"

namespace spillway::traces {

/// The JSON files of traces/generators, embedded in the binary by the build.
std::span<const EmbeddedFile> embedded_files();

/// A quantile function: linear between points (q, tokens), q from 0 to 1. Values are rounded. A curve should therefore
/// begin half a token below its smallest length and end half a token above its largest, which gives both their full
/// share.
class QuantileCurve {
 public:
  struct Point {
    double q = 0.0;
    double tokens = 0.0;
  };
  /// Requires at least two points, first q = 0, last q = 1, q rising, tokens >= 0.5 and not falling.
  /// QuantileTable::parse checks this.
  explicit QuantileCurve(std::vector<Point> points);
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }
  /// The value at u in [0, 1), rounded to whole tokens (halves up). O(points).
  [[nodiscard]] Tokens at(double u) const;

 private:
  /// A segment from `q` to the next segment.
  struct Segment {
    double q = 0.0;
    double tokens = 0.0;
    double slope = 0.0;  // tokens per unit of q
  };
  std::vector<Point> points_;
  std::vector<Segment> segments_;
  std::vector<double> knots_;  // q between neighbouring segments
};

/// Input and output length of one request, or of one turn of a conversation, not counting earlier turns.
struct Lengths {
  Tokens input{};
  Tokens output{};
};

/// A joint distribution of input and output lengths: a mixture of strata, independent within each. One stratum means
/// independent lengths; many strata of the input, each with its own outputs, carry their dependence.
///
/// File format, schema_version 1:
///   name, summary, source       texts
///   published, assumed          lists of texts: which figures are known, and what was assumed between them
///   statistics                  {"requests": rows that the table is derived from (may be left out),
///                                "rank_correlation": Spearman's, of input and output (may be left out),
///                                "input_tokens": {"mean", "p50", "p90", "p99", "max"}, "output_tokens": {...}}
///   licence, derivation         texts, may be left out
///   spread                      a share below 1, may be left out: a number in workload.input_tokens or output_tokens
///                               is then the middle of lengths uniform within this share of it
///   turns                       {"distribution": "geometric", "mean": from 1 to 1,000,000}, may be left out: requests
///                               come in conversations of so many turns; lengths are then those of one turn, its new
///                               input (without the turns before it) and its answer
///   think_time                  a text such as "exponential(60s)", may be left out and needs turns: the time from the
///                               end of an answer to the conversation's next turn
///   strata                      [{"weight": share of the requests, "input": [[q, tokens], ...], "output": [...]}, ...]
class QuantileTable {
 public:
  /// Statistics that the file states for one side of the table. Tests check the strata against them.
  struct Statistics {
    double mean = 0.0;
    double p50 = 0.0;
    double p90 = 0.0;
    double p99 = 0.0;
    double max = 0.0;
  };
  struct Stratum {
    double weight = 0.0;
    QuantileCurve input;
    QuantileCurve output;
  };

  /// Throws DataError with every problem of the file: `where` is `path` and a JSON pointer.
  static QuantileTable parse(std::string_view json, const std::string& path);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& summary() const { return summary_; }
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] const std::string& licence() const { return licence_; }
  [[nodiscard]] const std::string& derivation() const { return derivation_; }
  [[nodiscard]] const std::vector<std::string>& published() const { return published_; }
  [[nodiscard]] const std::vector<std::string>& assumed() const { return assumed_; }
  [[nodiscard]] const Statistics& input() const { return input_; }
  [[nodiscard]] const Statistics& output() const { return output_; }
  /// Number of rows behind the table; empty if no rows were available.
  [[nodiscard]] std::optional<double> requests() const { return requests_; }
  /// Spearman's rank correlation of input and output, as the file states it.
  [[nodiscard]] std::optional<double> rank_correlation() const { return rank_correlation_; }
  /// Empty unless a stated length is the middle of a uniform distribution.
  [[nodiscard]] std::optional<double> spread() const { return spread_; }
  /// Average turns of a conversation; empty for single requests.
  [[nodiscard]] std::optional<double> mean_turns() const { return mean_turns_; }
  /// The distribution of think times in the file; empty if the file has none.
  [[nodiscard]] const std::string& think_time() const { return think_time_; }
  [[nodiscard]] const std::vector<Stratum>& strata() const { return strata_; }

  /// One request, from exactly three uniform draws for every table. O(strata + points), no allocation.
  [[nodiscard]] Lengths sample(RandomStream& stream) const;
  /// Turns of one conversation: geometric on 1, 2, ... with mean m = mean_turns() (1 for single requests). P(turns > k)
  /// = (1 - 1/m)^k, by inversion of one uniform draw u: 1 + floor(ln(1 - u) / ln(1 - 1/m)). At most 36.8 m + 1.
  [[nodiscard]] std::int64_t sample_turns(RandomStream& stream) const;

 private:
  QuantileTable() = default;

  std::string name_;
  std::string summary_;
  std::string source_;
  std::string licence_;
  std::string derivation_;
  std::vector<std::string> published_;
  std::vector<std::string> assumed_;
  Statistics input_;
  Statistics output_;
  std::optional<double> requests_;
  std::optional<double> rank_correlation_;
  std::optional<double> spread_;
  std::optional<double> mean_turns_;
  std::string think_time_;
  std::vector<Stratum> strata_;
  std::vector<double> knots_;  // between neighbouring strata: cumulative weights
};

/// Names of the bundled workloads, in alphabetical order.
[[nodiscard]] std::vector<std::string> bundled_names();
/// The file of a bundled workload; nullptr for an unknown name.
[[nodiscard]] const EmbeddedFile* bundled_file(std::string_view name);

}  // namespace spillway::traces
