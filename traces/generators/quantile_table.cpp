#include "traces/generators/quantile_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "sim/core/error.hpp"
#include "traces/length.hpp"

namespace spillway::traces {
namespace {

using Json = nlohmann::json;
using Point = QuantileCurve::Point;

/// The smallest value that rounds to one token.
constexpr double kMinPoint = 0.5;

/// With a larger mean a conversation would not end within a run, and 1 - 1/mean would lose its digits.
constexpr double kMaxMeanTurns = 1e6;

/// The number of rising `knots` that are at most u. The loop has no branch to mispredict, so for a dozen knots it is
/// faster than a search.
std::size_t count_up_to(const std::vector<double>& knots, double u) {
  std::size_t count = 0;
  for (const double knot : knots) count += knot <= u ? 1U : 0U;
  return count;
}

/// Reads members of the file's objects and collects problems.
class TableFile {
 public:
  explicit TableFile(const std::string& path) : path_(path) {}
  [[nodiscard]] std::vector<Problem>& problems() { return problems_; }

  void problem(std::string what, const std::string& pointer) {
    problems_.push_back({std::move(what), fmt::format("{} at {}", path_, pointer.empty() ? "/" : pointer), {}});
  }

  const Json* member(const Json& object, const std::string& pointer, const std::string& key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || it == object.end()) {
      problem(fmt::format("\"{}\" is missing", key), pointer);
      return nullptr;
    }
    return &*it;
  }

  double number(const Json& object, const std::string& pointer, const std::string& key) {
    const Json* value = member(object, pointer, key);
    if (value == nullptr) return 0.0;
    if (value->is_number()) return value->get<double>();
    problem("must be a number", pointer + "/" + key);
    return 0.0;
  }

  std::string text(const Json& object, const std::string& key) {
    const Json* value = member(object, "", key);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    problem("must be a text", "/" + key);
    return {};
  }

  /// Empty when the file lacks the member.
  std::string optional_text(const Json& object, const std::string& key) {
    return object.is_object() && object.contains(key) ? text(object, key) : std::string();
  }

  std::vector<std::string> texts(const Json& object, const std::string& key) {
    const Json* value = member(object, "", key);
    if (value == nullptr) return {};
    const auto is_text = [](const Json& element) { return element.is_string(); };
    if (value->is_array() && std::all_of(value->begin(), value->end(), is_text)) {
      return value->get<std::vector<std::string>>();
    }
    problem("must be a list of texts", "/" + key);
    return {};
  }

  QuantileTable::Statistics statistics(const Json& root, const std::string& key) {
    const Json* all = member(root, "", "statistics");
    const Json* one = all == nullptr ? nullptr : member(*all, "/statistics", key);
    if (one == nullptr) return {};
    const std::string pointer = "/statistics/" + key;
    return {number(*one, pointer, "mean"), number(*one, pointer, "p50"), number(*one, pointer, "p90"),
            number(*one, pointer, "p99"), number(*one, pointer, "max")};
  }

  std::optional<double> optional_number(const Json& object, const std::string& pointer, const std::string& key) {
    if (!object.is_object() || !object.contains(key)) return std::nullopt;
    return number(object, pointer, key);
  }

  std::optional<double> mean_turns(const Json& root) {
    if (!root.is_object() || !root.contains("turns")) return std::nullopt;
    const std::string pointer = "/turns";
    const Json& turns = root["turns"];
    const Json* distribution = member(turns, pointer, "distribution");
    if (distribution != nullptr && *distribution != "geometric") {
      problem("must be \"geometric\"", pointer + "/distribution");
    }
    const Json* mean = member(turns, pointer, "mean");
    if (mean == nullptr) return std::nullopt;
    if (mean->is_number() && *mean >= 1.0 && *mean <= kMaxMeanTurns) return mean->get<double>();
    problem(fmt::format("must be a number from 1 to {}", kMaxMeanTurns), pointer + "/mean");
    return std::nullopt;
  }

  std::optional<QuantileCurve> curve(const Json& stratum, const std::string& stratum_pointer, const std::string& key) {
    const Json* list = member(stratum, stratum_pointer, key);
    if (list == nullptr) return std::nullopt;
    const std::string pointer = stratum_pointer + "/" + key;
    std::vector<Point> points;
    for (const Json& pair : *list) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number() || !pair[1].is_number()) {
        problem("must be a pair [q, tokens]", fmt::format("{}/{}", pointer, points.size()));
        return std::nullopt;
      }
      const Point point{pair[0].get<double>(), pair[1].get<double>()};
      if (!points.empty() && (point.q <= points.back().q || point.tokens < points.back().tokens)) {
        problem("q must rise and tokens must not fall from point to point",
                fmt::format("{}/{}", pointer, points.size()));
        return std::nullopt;
      }
      points.push_back(point);
    }
    if (points.size() < 2 || points.front().q != 0.0 || points.back().q != 1.0) {
      problem("must run from q = 0 to q = 1", pointer);
      return std::nullopt;
    }
    if (points.front().tokens < kMinPoint || points.back().tokens > static_cast<double>(kMaxTokens)) {
      problem(fmt::format("tokens must be from {} to {}", kMinPoint, kMaxTokens), pointer);
      return std::nullopt;
    }
    return QuantileCurve(std::move(points));
  }

 private:
  std::string path_;
  std::vector<Problem> problems_;
};

}  // namespace

QuantileCurve::QuantileCurve(std::vector<Point> points) : points_(std::move(points)) {
  for (std::size_t i = 0; i + 1 < points_.size(); ++i) {
    const Point& from = points_[i];
    const Point& to = points_[i + 1];
    segments_.push_back({from.q, from.tokens, (to.tokens - from.tokens) / (to.q - from.q)});
    if (i > 0) knots_.push_back(from.q);
  }
}

Tokens QuantileCurve::at(double u) const {
  const Segment& segment = segments_[count_up_to(knots_, u)];
  return Tokens(static_cast<std::int64_t>(segment.tokens + (u - segment.q) * segment.slope + 0.5));
}

QuantileTable QuantileTable::parse(std::string_view json, const std::string& path) {
  Json root;
  try {
    root = Json::parse(json);
  } catch (const Json::exception& error) {  // a number too large for a double is not a parse_error
    throw DataError(fmt::format("the file is not JSON: {}", error.what()), path, "check that it was copied whole");
  }
  TableFile file(path);
  QuantileTable table;
  if (file.number(root, "", "schema_version") != 1.0) {
    file.problem("this version of spillway reads schema_version 1", "/schema_version");
  }
  table.name_ = file.text(root, "name");
  table.summary_ = file.text(root, "summary");
  table.source_ = file.text(root, "source");
  table.licence_ = file.optional_text(root, "licence");
  table.derivation_ = file.optional_text(root, "derivation");
  table.published_ = file.texts(root, "published");
  table.assumed_ = file.texts(root, "assumed");
  table.input_ = file.statistics(root, "input_tokens");
  table.output_ = file.statistics(root, "output_tokens");
  const Json statistics = root.is_object() ? root.value("statistics", Json()) : Json();
  table.requests_ = file.optional_number(statistics, "/statistics", "requests");
  table.rank_correlation_ = file.optional_number(statistics, "/statistics", "rank_correlation");
  table.spread_ = file.optional_number(root, "", "spread");
  if (table.spread_ && !(*table.spread_ > 0.0 && *table.spread_ < 1.0)) {
    file.problem("must be above 0 and below 1", "/spread");
  }
  table.mean_turns_ = file.mean_turns(root);
  table.think_time_ = file.optional_text(root, "think_time");
  if (!table.think_time_.empty() && !root.contains("turns"))
    file.problem("has no use without \"turns\"", "/think_time");
  double total = 0.0;
  const Json* strata = file.member(root, "", "strata");
  for (std::size_t i = 0; strata != nullptr && i < strata->size(); ++i) {
    const std::string pointer = fmt::format("/strata/{}", i);
    const Json& stratum = strata->is_array() ? (*strata)[i] : *strata;
    const double weight = file.number(stratum, pointer, "weight");
    if (!(weight > 0.0)) file.problem("must be above 0", pointer + "/weight");
    auto input = file.curve(stratum, pointer, "input");
    auto output = file.curve(stratum, pointer, "output");
    if (i > 0) table.knots_.push_back(total);
    total += weight;
    if (input && output) table.strata_.push_back({weight, std::move(*input), std::move(*output)});
  }
  if (std::abs(total - 1.0) > 1e-9) file.problem(fmt::format("the weights add up to {}, not 1", total), "/strata");
  if (!file.problems().empty()) throw DataError(std::move(file.problems()));
  return table;
}

Lengths QuantileTable::sample(RandomStream& stream) const {
  const Stratum& stratum = strata_[count_up_to(knots_, stream.uniform())];
  const Tokens input = stratum.input.at(stream.uniform());
  const Tokens output = stratum.output.at(stream.uniform());
  return {input, output};
}

std::int64_t QuantileTable::sample_turns(RandomStream& stream) const {
  const double u = stream.uniform();
  // A mean of 1 divides by ln 0 = -infinity, which gives 0.
  const double others = portable_log(1.0 - u) / portable_log(1.0 - 1.0 / mean_turns_.value_or(1.0));
  return 1 + static_cast<std::int64_t>(others);
}

namespace {

std::string_view name_of(const EmbeddedFile& file) {
  const std::string_view name = file.path.substr(file.path.rfind('/') + 1);
  return name.substr(0, name.rfind('.'));
}

}  // namespace

std::vector<std::string> bundled_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) names.emplace_back(name_of(file));
  std::sort(names.begin(), names.end());
  return names;
}

const EmbeddedFile* bundled_file(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (name_of(file) == name) return &file;
  }
  return nullptr;
}

}  // namespace spillway::traces
