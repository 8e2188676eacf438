#include "hwmodels/json_messages.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

namespace spillway::hwmodels {

using nlohmann::json;

std::string json_fault(const std::exception& error) {
  const std::string_view text = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
  const std::size_t end = text.find("] ");
  return std::string(text.starts_with("[json.exception.") && end != text.npos ? text.substr(end + 2) : text);
}

std::string shown(const json& value) {
  constexpr std::size_t kMost = 60;
  const std::string text = value.dump(-1, ' ', true);  // in ASCII, so that a cut splits no character
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace spillway::hwmodels
