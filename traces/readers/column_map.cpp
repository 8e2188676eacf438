#include "traces/readers/column_map.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kColumnsKey = "workload.columns";
constexpr const char* kExample =
    "write target=source, e.g. input_tokens=prompt_tokens,output_tokens=gen,arrival_s=ts/1000";

bool is_text(Column column) { return column == Column::client || column == Column::conversation; }

/// The factor behind "ts/1000" or "ts*0.001", which is cut off; 1 without one.
std::optional<double> take_factor(std::string_view& source) {
  const std::size_t at = source.find_last_of("/*");
  if (at == std::string_view::npos) return 1.0;
  const auto number = parse_number(trimmed(source.substr(at + 1)));
  if (!number) return source[at] == '/' ? std::optional(1.0) : std::nullopt;  // a name may hold a slash
  if (!(*number > 0.0) || !std::isfinite(*number)) return std::nullopt;
  const bool divides = source[at] == '/';
  source = trimmed(source.substr(0, at));
  return divides ? 1.0 / *number : *number;
}

}  // namespace

std::vector<MappedColumn> parse_columns(std::string_view text, std::vector<Problem>& problems) {
  std::vector<MappedColumn> columns;
  const auto bad = [&](std::string what, std::string fix) {
    problems.push_back({std::move(what), kColumnsKey, std::move(fix)});
  };
  const auto has = [&](Column column) {
    return std::ranges::any_of(columns, [&](const MappedColumn& one) { return one.target == column; });
  };
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    const std::string_view part = trimmed(text.substr(from, to - from));
    from = to + 1;
    const std::size_t equals = part.find('=');
    std::string_view source = equals == std::string_view::npos ? std::string_view() : trimmed(part.substr(equals + 1));
    if (source.empty()) {
      bad(fmt::format("\"{}\" is not target=source", excerpt(part)), kExample);
      continue;
    }
    const std::string_view target = trimmed(part.substr(0, equals));
    const auto known = std::ranges::find(kColumnTargets, target);
    if (known == kColumnTargets.end()) {
      const std::string near =
          nearest_name(std::string(target), std::vector<std::string>(kColumnTargets.begin(), kColumnTargets.end()));
      bad(fmt::format("there is no target \"{}\"", excerpt(target)),
          near.empty() ? fmt::format("targets: {}", fmt::join(kColumnTargets, ", "))
                       : fmt::format("did you mean \"{}\"?", near));
      continue;
    }
    const auto column = static_cast<Column>(known - kColumnTargets.begin());
    const auto factor = take_factor(source);
    if (!factor || source.empty() || (is_text(column) && *factor != 1.0)) {
      bad(fmt::format("\"{}\" has no number above 0 as its factor", excerpt(part)),
          is_text(column) ? "client and conversation are texts: leave the factor out"
                          : "write /1000 for milliseconds, /1e9 for nanoseconds");
      continue;
    }
    if (has(column)) {
      bad(fmt::format("{} is given twice", target), "keep one");
      continue;
    }
    columns.push_back({column, std::string(source), *factor});
  }
  if (!problems.empty()) return columns;
  for (const Column column : {Column::input_tokens, Column::output_tokens}) {
    if (has(column)) continue;
    bad(fmt::format("{} is missing", kColumnTargets[static_cast<std::size_t>(column)]), kExample);
  }
  const auto either = [&](Column stamp, Column duration) {
    if (has(stamp) && has(duration)) {
      bad(fmt::format("{} and {} say the same", kColumnTargets[static_cast<std::size_t>(stamp)],
                      kColumnTargets[static_cast<std::size_t>(duration)]),
          "keep one of them");
    }
    if (has(stamp) && !has(Column::arrival_s)) {
      bad(fmt::format("{} is a time stamp, so it needs arrival_s of the same clock",
                      kColumnTargets[static_cast<std::size_t>(stamp)]),
          fmt::format("give arrival_s, or {}", kColumnTargets[static_cast<std::size_t>(duration)]));
    }
  };
  either(Column::first_token_s, Column::ttft_s);
  either(Column::end_s, Column::e2e_s);
  if (has(Column::turn) && !has(Column::conversation)) bad("turn needs conversation", "map both");
  return columns;
}

}  // namespace spillway::traces
