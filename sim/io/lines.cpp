#include "sim/io/lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "sim/core/printable.hpp"
#include "sim/core/utf8.hpp"

namespace spillway {
std::string figure(double value) {
  const double size = std::abs(value);
  if (size >= 1e8) return fmt::format("{:.4g}", value);
  if (size >= 1000.0 || value == std::floor(value)) return fmt::format("{:.0f}", value);
  if (size >= 100.0) return fmt::format("{:.1f}", value);
  if (size >= 1.0) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3g}", value);
}
std::string figure_with_interval(const std::optional<double>& value, const std::optional<double>& half_width) {
  if (!value) return "-";
  return figure(*value) + (half_width ? " +-" + figure(*half_width) : "");
}
std::string shown(const std::string& text) {
  std::string buffer;
  return printable(repaired_utf8(text, buffer));
}
std::string percent(double fraction) { return fmt::format("{:.1f}%", fraction * 100.0); }
std::string signed_percent(const std::optional<double>& fraction) {
  constexpr double kLeastShown = 0.0005;
  if (!fraction) return "-";
  return std::abs(*fraction) < kLeastShown ? "0.0%" : fmt::format("{:+.1f}%", *fraction * 100.0);
}

void Lines::add(std::string_view label, const std::string& text) {
  std::string line = fmt::format("{:<{}}", label, kLabel);
  bool empty = true;
  std::istringstream words(printable(text));
  for (std::string word; words >> word;) {
    if (!empty && line.size() + 1 + word.size() > kColumns) {
      lines_.push_back(line);
      line.assign(kLabel, ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  lines_.push_back(line);
}

void Lines::add_short(std::string_view label, const std::string& text) {
  Lines one;
  one.add(label, text);
  one.shorten(1, " ...");
  append(one);
}

void Lines::shorten(std::size_t count, const std::string& more) {
  if (lines_.size() <= count) return;
  lines_.resize(count);
  std::string& last = lines_.back();
  if (last.size() + more.size() > kColumns) last.resize(last.rfind(' ', kColumns - more.size()));
  last += more;
}

std::string Lines::text() const { return fmt::format("{}\n", fmt::join(lines_, "\n")); }

}  // namespace spillway
