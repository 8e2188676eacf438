#include "cuda_calibrate/host/system_files.hpp"

#include <charconv>
#include <fstream>
#include <iterator>

namespace spillway::calibrate {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// Removes a whole number from the front of the text.
template <class Integer>
std::optional<Integer> take_number(std::string_view& text) {
  Integer value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return std::string(trimmed(text));
}

std::optional<std::int64_t> number_of(const std::string& path) {
  const std::string text = text_of(path);
  std::string_view rest = text;
  return take_number<std::int64_t>(rest);
}

std::vector<int> cpu_list(std::string_view text) {
  constexpr int kMost = 1 << 16;
  std::vector<int> cpus;
  do {
    const auto first = take_number<int>(text);
    if (!first) break;
    const auto last = take(text, '-') ? take_number<int>(text) : first;
    if (!last || *first < 0 || *last > kMost) break;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  } while (take(text, ','));
  return cpus;
}

std::string field_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && trimmed(line.substr(0, colon)) == key) {
      return std::string(trimmed(line.substr(colon + 1)));
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return {};
}

}  // namespace spillway::calibrate
