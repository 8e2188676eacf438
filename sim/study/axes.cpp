#include "sim/study/axes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "sim/config/config.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"

namespace spillway {
namespace {

/// Splits `text` at commas outside brackets.
std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = trimmed(part);
  return parts;
}

/// The range lo:hi:step or lo:hi:xK.
struct Range {
  double low = 0.0;
  double high = 0.0;
  double step = 0.0;
  bool multiplies = false;

  /// The number of values. The tolerance absorbs rounding: 0.1 + 0.1 + ... falls short of the exact sum.
  [[nodiscard]] std::int64_t count() const {
    constexpr double kTolerance = 1e-9;
    if (high < low) return 0;
    const double steps = multiplies ? std::log(high / low) / std::log(step) : (high - low) / step;
    constexpr double kMost = 1e18;
    return static_cast<std::int64_t>(std::min(std::floor(steps + kTolerance), kMost)) + 1;
  }
  [[nodiscard]] double value(std::int64_t index) const {
    const auto steps = static_cast<double>(index);
    return multiplies ? low * std::pow(step, steps) : low + steps * step;
  }
};

/// Why a range is invalid; empty when the range is valid.
std::string range_fault(const Range& range) {
  if (range.multiplies && !(range.step > 1.0)) return "its factor must be above 1";
  if (range.multiplies && !(range.low > 0.0)) return "a range with a factor must begin above 0";
  if (!(range.step > 0.0)) return "its step must be above 0";
  if (range.count() == 0) return "its end is below its start, so it holds no value";
  if (range.count() > kMostRangeValues) {
    return fmt::format("it holds {} values, more than {}", range.count(), kMostRangeValues);
  }
  return {};
}

class AxisReader {
 public:
  AxisReader(const Parameter& parameter, const std::string& where, std::vector<Problem>& problems)
      : parameter_(parameter), where_(where), problems_(problems) {}

  [[nodiscard]] std::int64_t count(const std::string& text) const {
    std::int64_t values = 0;
    for (const std::string& part : parts(text)) {
      const auto range = is_numeric(parameter_) ? read_range(part) : std::nullopt;
      // The message states the count even of a range that is too long.
      const bool counts = range && range->step > (range->multiplies ? 1.0 : 0.0) && range->count() > 0 &&
                          !(range->multiplies && range->low <= 0.0);
      values += counts ? std::min(range->count(), std::numeric_limits<std::int64_t>::max() - values) : 1;
    }
    return values;
  }

  std::vector<std::string> read(const std::string& text) {
    for (const std::string& part : parts(text)) read_part(part, text);
    if (faulty_) return {};
    refuse_repeated();
    return faulty_ ? std::vector<std::string>() : std::move(values_);
  }

 private:
  [[nodiscard]] std::vector<std::string> parts(const std::string& text) const {
    std::error_code ignored;
    const bool file = parameter_.type == ParameterType::text && std::filesystem::exists(text, ignored);
    const bool one = parameter_.takes_list || parameter_.unit == kListUnit || file;
    return one ? std::vector<std::string>{text} : split_list(text);
  }

  void read_part(const std::string& part, const std::string& all) {
    if (part.empty() && !all.empty())
      return complain(fmt::format("\"{}\" has an empty value", brief(all)), "remove a comma");
    const auto range = is_numeric(parameter_) ? read_range(part) : std::nullopt;
    if (!range) {
      values_.push_back(part);
      return;
    }
    if (const std::string fault = range_fault(*range); !fault.empty()) {
      return complain(fmt::format("\"{}\" is not a range: {}", brief(part), fault),
                      "write lo:hi:step, as in 2:8:2, or lo:hi:xK, as in 1:16:x2");
    }
    for (std::int64_t i = 0; i < range->count(); ++i) values_.push_back(numeric_text(parameter_, range->value(i)));
  }

  /// Empty when the text is a single value.
  [[nodiscard]] std::optional<Range> read_range(std::string_view part) const {
    const std::size_t first = part.find(':');
    const std::size_t second = part.find(':', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos) return std::nullopt;
    std::string_view step = trimmed(part.substr(second + 1));
    Range range;
    range.multiplies = step.starts_with('x');
    if (range.multiplies) step.remove_prefix(1);
    const auto low = numeric_value(parameter_, trimmed(part.substr(0, first)));
    const auto high = numeric_value(parameter_, trimmed(part.substr(first + 1, second - first - 1)));
    const auto by = range.multiplies ? parse_number(step) : numeric_value(parameter_, step);
    if (!low || !high || !by) return std::nullopt;
    range.low = *low;
    range.high = *high;
    range.step = *by;
    return range;
  }

  void refuse_repeated() {
    std::set<std::string_view> seen;
    for (const std::string& value : values_) {
      if (!seen.insert(value).second)
        return complain(fmt::format("the value {} is given twice", brief(value)), "keep one");
    }
  }

  void complain(const std::string& what, const std::string& fix) {
    problems_.push_back({fmt::format("{}: {}", parameter_.name, what), where_, fix});
    faulty_ = true;
  }

  const Parameter& parameter_;
  const std::string& where_;
  std::vector<Problem>& problems_;
  std::vector<std::string> values_;
  bool faulty_ = false;
};

}  // namespace

bool is_numeric(const Parameter& parameter) {
  switch (parameter.type) {
    case ParameterType::integer:
    case ParameterType::real:
    case ParameterType::duration:
    case ParameterType::bytes:
      return true;
    case ParameterType::text:
      return parameter.unit == "tokens";  // a length is a number or a distribution
    default:
      return false;
  }
}

std::optional<double> numeric_value(const Parameter& parameter, std::string_view text) {
  if (parameter.type == ParameterType::duration) {
    const auto duration = parse_duration(text);
    return duration ? std::optional(static_cast<double>(duration->count())) : std::nullopt;
  }
  if (parameter.type == ParameterType::bytes) {
    const auto bytes = parse_bytes(text);
    return bytes ? std::optional(static_cast<double>(bytes->count())) : std::nullopt;
  }
  return parse_number(text);
}

std::string numeric_text(const Parameter& parameter, double value) {
  if (parameter.type == ParameterType::duration) return format_duration(Duration(std::llround(value)));
  if (parameter.type == ParameterType::bytes) return format_bytes(Bytes(std::llround(value)));
  return fmt::format("{:.12g}", value);
}

std::vector<std::string> axis_values(const Parameter& parameter, const std::string& text, const std::string& where,
                                     std::vector<Problem>& problems) {
  return AxisReader(parameter, where, problems).read(text);
}

std::int64_t axis_size(const Parameter& parameter, const std::string& text) {
  std::vector<Problem> problems;
  const std::string where;
  return AxisReader(parameter, where, problems).count(text);
}

std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return a > kMost / b ? kMost : a * b;
}

void zip_axes(const std::string& zip, const std::string& where, std::vector<Axis>& axes,
              std::vector<Problem>& problems) {
  const std::string fix = "name two or more keys that have several values each, as in model,tensor_parallel";
  const std::vector<std::string> keys = split_list(zip);
  std::vector<std::size_t> places;
  for (const std::string& key : keys) {
    const auto axis = std::find_if(axes.begin(), axes.end(), [&](const Axis& a) {
      return std::find(a.keys.begin(), a.keys.end(), key) != a.keys.end();
    });
    const auto place = static_cast<std::size_t>(axis - axes.begin());
    if (axis == axes.end()) {
      problems.push_back(
          {fmt::format("\"{}\" does not have several values, so it cannot be zipped", brief(key)), where, fix});
      return;
    }
    if (axis->keys.size() > 1 || std::find(places.begin(), places.end(), place) != places.end()) {
      problems.push_back({fmt::format("\"{}\" is zipped twice", brief(key)), where, fix});
      return;
    }
    places.push_back(place);
  }
  if (places.size() < 2) {
    problems.push_back({fmt::format("\"{}\" is one key, so there is nothing to zip it with", brief(zip)), where, fix});
    return;
  }
  Axis& joined = axes[places.front()];
  for (std::size_t i = 1; i < places.size(); ++i) {
    const Axis& other = axes[places[i]];
    if (other.values.size() != joined.values.size()) {
      problems.push_back({fmt::format("{} has {} values and {} has {}, so they cannot be zipped", joined.keys.front(),
                                      joined.values.size(), other.keys.front(), other.values.size()),
                          where, "give them the same number of values"});
      return;
    }
    joined.keys.push_back(other.keys.front());
    for (std::size_t v = 0; v < joined.values.size(); ++v) joined.values[v].push_back(other.values[v].front());
  }
  std::vector<std::size_t> gone(places.begin() + 1, places.end());
  std::sort(gone.rbegin(), gone.rend());
  for (const std::size_t place : gone) axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(place));
}

std::vector<std::string> Grid::keys() const {
  std::vector<std::string> keys;
  for (const Axis& axis : axes_) keys.insert(keys.end(), axis.keys.begin(), axis.keys.end());
  return keys;
}

std::int64_t Grid::size() const {
  std::int64_t size = 1;
  for (const Axis& axis : axes_) {
    const auto values = static_cast<std::int64_t>(axis.values.size());
    if (values == 0) return 0;
    size = saturating_product(size, values);
  }
  return size;
}

std::vector<std::string> Grid::values(std::int64_t index) const {
  std::vector<std::size_t> positions(axes_.size());
  for (std::size_t a = axes_.size(); a-- > 0;) {
    const auto count = static_cast<std::int64_t>(axes_[a].values.size());
    positions[a] = static_cast<std::size_t>(index % count);
    index /= count;
  }
  std::vector<std::string> values;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const std::vector<std::string>& here = axes_[a].values[positions[a]];
    values.insert(values.end(), here.begin(), here.end());
  }
  return values;
}

std::string Grid::label(std::int64_t index) const {
  std::vector<std::string> parts = keys();
  const std::vector<std::string> texts = values(index);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] += "=" + texts[i];
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace spillway
