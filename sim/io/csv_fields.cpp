#include "sim/io/csv_fields.hpp"

#include <cstring>
#include <utility>

namespace spillway {

std::string_view bare_field(std::string_view field) {
  while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
  while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"') field = field.substr(1, field.size() - 2);
  return field;
}

bool next_field(std::string_view& rest, std::string_view& field) {
  if (rest.data() == nullptr) return false;
  std::size_t from = 0;
  if (!rest.empty() && rest.front() == '"') {
    const std::size_t close = rest.find('"', 1);
    from = close == std::string_view::npos ? rest.size() : close;
  }
  const void* comma = from < rest.size() ? std::memchr(rest.data() + from, ',', rest.size() - from) : nullptr;
  if (comma == nullptr) {
    field = std::exchange(rest, {});
    return true;
  }
  const auto length = static_cast<std::size_t>(static_cast<const char*>(comma) - rest.data());
  field = rest.substr(0, length);
  rest.remove_prefix(length + 1);
  return true;
}

}  // namespace spillway
