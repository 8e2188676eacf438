// timeseries.csv of a log folder: the engine's load over time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "sim/io/line_reader.hpp"
#include "traces/engine_log_parts.hpp"

namespace spillway::traces {
namespace {

/// Seconds since 1970 for "2026-08-20T23:19:39.992496Z".
std::optional<double> utc_seconds(const std::string& text) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hour = 0;
  int minute = 0;
  double second = 0.0;
  // NOLINTNEXTLINE(cert-err34-c): the checks below refuse values out of range
  if (std::sscanf(text.c_str(), "%d-%u-%uT%d:%d:%lf", &year, &month, &day, &hour, &minute, &second) != 6) return {};
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  if (!date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0.0 || second >= 61.0) return {};
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400.0 + hour * 3600.0 + minute * 60.0 + second;
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  for (;;) {
    const std::size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

}  // namespace

void read_log_load(EngineLog& log, const std::string& path, const std::string& started_at,
                   std::optional<double> first_arrival, Complaints& complaints) {
  const auto started = utc_seconds(started_at);
  const double shift = started && first_arrival ? *first_arrival - *started : 0.0;  // t of the first arrival
  LineReader lines(path, {"log", "sample"});
  std::string_view line;
  if (!lines.next(line)) return;
  const std::vector<std::string_view> names = cells_of(line);
  const auto column = [&](std::string_view name) -> std::optional<std::size_t> {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) return std::nullopt;
    return static_cast<std::size_t>(it - names.begin());
  };
  const std::array<std::optional<std::size_t>, 4> columns{column("t"), column("running"), column("waiting"),
                                                          column("kv_cache_pct")};
  if (!columns[0] || !columns[1] || !columns[2]) {
    return complaints.add("needs the columns t, running and waiting", path + " line 1",
                          "rename its columns, or delete the file");
  }
  const std::size_t width = names.size();
  while (!complaints.full() && lines.next(line)) {
    const std::vector<std::string_view> cells = cells_of(line);
    std::array<double, 4> values{};
    bool good = cells.size() == width;
    for (std::size_t i = 0; i < values.size() && good; ++i) {
      if (!columns[i]) continue;
      const std::string_view cell = cells[*columns[i]];
      const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), values[i]);
      good = error == std::errc() && end == cell.data() + cell.size() && std::isfinite(values[i]) && values[i] >= 0.0;
    }
    if (!good) {
      complaints.add(fmt::format("\"{}\" is not a sample", excerpt(line)), fmt::format("{} line {}", path, lines.row()),
                     "give every column a number of at least 0");
      continue;
    }
    LoggedLoad load{values[0] - shift, values[1], values[2], {}};
    if (columns[3]) load.kv_fraction = values[3] / 100.0;
    log.load.push_back(load);
  }
}

}  // namespace spillway::traces
