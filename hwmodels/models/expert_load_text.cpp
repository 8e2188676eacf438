#include "hwmodels/models/expert_load_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "hwmodels/data_file.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

constexpr const char* kKey = "expert_load";
constexpr const char* kKnown = "use balanced, dealt, power_law:ALPHA with ALPHA from 0 to 4, or a JSON file of shares";

ExpertLoad read_power_law(std::string_view alpha) {
  double value = 0.0;
  const char* const end = alpha.data() + alpha.size();
  const auto [rest, fault] = std::from_chars(alpha.data(), end, value);
  const bool number = fault == std::errc() && rest == end && value >= 0.0 && value <= 4.0;
  if (!number) throw ConfigError(fmt::format("power_law:{} has no exponent from 0 to 4", alpha), kKey, kKnown);
  return ExpertLoad::power_law(value);
}

std::vector<double> equal_shares(std::int64_t experts) {
  return std::vector<double>(static_cast<std::size_t>(experts), 1.0 / static_cast<double>(experts));
}

ExpertLoad read_shares(const std::string& path, std::int64_t experts) {
  const json document = json::parse(read_file(path), nullptr, false);
  const auto is_share = [](const json& value) { return value.is_number(); };
  if (!document.is_array() || !std::ranges::all_of(document, is_share)) {
    throw DataError("must hold a JSON list of numbers, the share of each expert", path);
  }
  if (std::ssize(document) != experts) {
    throw ConfigError(
        fmt::format("{} has {} shares, and a layer of the model has {} experts", path, document.size(), experts), kKey,
        "give one share for each expert of a layer");
  }
  return ExpertLoad::shares(document.get<std::vector<double>>());
}

}  // namespace

ExpertLoad read_expert_load(const std::string& text, std::int64_t experts) {
  constexpr std::string_view kPowerLaw = "power_law:";
  if (text == "balanced") return ExpertLoad::shares(equal_shares(experts));
  if (text == "dealt") return ExpertLoad::balanced();
  if (text.starts_with(kPowerLaw)) return read_power_law(std::string_view(text).substr(kPowerLaw.size()));
  if (text.find('/') == std::string::npos && !text.ends_with(".json")) {
    throw ConfigError(fmt::format("unknown {} \"{}\"", kKey, text), kKey, kKnown);
  }
  return read_shares(text, experts);
}

}  // namespace spillway::hwmodels
