#include "hwmodels/hf_object.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hwmodels/json_messages.hpp"

namespace spillway::hwmodels {

using nlohmann::json;

namespace {

bool says_something(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();  // true for null as well as for an empty list or object
}

/// Compares unsigned values as unsigned: a cast would turn 2^64 - 1 into -1.
bool within(const json& value, std::int64_t low, std::int64_t high) {
  if (value.is_number_unsigned()) {
    const auto size = value.get<std::uint64_t>();
    return high >= 0 && size <= static_cast<std::uint64_t>(high) &&
           (low <= 0 || size >= static_cast<std::uint64_t>(low));
  }
  return value.is_number_integer() && value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high;
}

}  // namespace

const json* HfObject::find(std::string_view name) {
  understood(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool HfObject::is_set(std::string_view name) const {
  const auto it = object_.find(name);
  return it != object_.end() && says_something(*it);
}

std::optional<std::int64_t> HfObject::integer(std::string_view name, std::int64_t low, std::int64_t high, Null null) {
  understood(name);
  const auto it = object_.find(name);
  if (it == object_.end() || (it->is_null() && null == Null::absent)) return std::nullopt;
  return integer_at(pointer(name), *it, low, high);
}

std::optional<std::int64_t> HfObject::integer_of_layers(std::string_view name, std::int64_t low, std::int64_t high,
                                                        std::int64_t layers, Null null) {
  const json* list = find(name);
  if (list == nullptr || !list->is_array()) return integer(name, low, high, null);
  if (list->empty() || std::ssize(*list) != layers) {
    fail(name, fmt::format("lists {} layers, and the model has {}", list->size(), layers));
    return std::nullopt;
  }
  const auto other = std::ranges::find_if(*list, [&](const json& value) { return value != list->front(); });
  if (other != list->end()) {
    fail(pointer(name) / static_cast<std::size_t>(other - list->begin()),
         fmt::format("{} after {}: layers of different shapes are not modelled", shown(*other), shown(list->front())));
    return std::nullopt;
  }
  return integer_at(pointer(name) / std::size_t{0}, list->front(), low, high);
}

std::optional<std::int64_t> HfObject::integer_at(const json::json_pointer& at, const json& value, std::int64_t low,
                                                 std::int64_t high) {
  if (within(value, low, high)) return value.get<std::int64_t>();
  fail(at, fmt::format("must be an integer between {} and {}, not {}", low, high, shown(value)));
  return std::nullopt;
}

std::optional<double> HfObject::number(std::string_view name, double low, double high) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && value->get<double>() >= low && value->get<double>() <= high) return value->get<double>();
  fail(name, fmt::format("must be a number between {} and {}, not {}", low, high, shown(*value)));
  return std::nullopt;
}

std::optional<bool> HfObject::flag(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, fmt::format("must be true or false, not {}", shown(*value)));
  return std::nullopt;
}

std::optional<std::string> HfObject::text(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail(name, fmt::format("must be a text, not {}", shown(*value)));
  return std::nullopt;
}

void HfObject::fail(std::string_view name, std::string what, std::string fix) {
  fail(pointer(name), std::move(what), std::move(fix));
}

void HfObject::fail(const json::json_pointer& at, std::string what, std::string fix) {
  findings_.problems.push_back(
      {std::move(what), fmt::format("{} at {}", findings_.file, at.to_string()), std::move(fix)});
}

void HfObject::understood(std::string_view names) {
  while (!names.empty()) {
    const std::size_t length = std::min(names.find(' '), names.size());
    understood_.emplace(names.substr(0, length));
    names.remove_prefix(std::min(length + 1, names.size()));
  }
}

void HfObject::refuse_the_rest(std::span<const std::string_view> parts, std::string_view why) {
  for (const auto& [name, value] : object_.items()) {
    if (understood_.contains(name) || !says_something(value)) continue;
    const bool named =
        std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != std::string::npos; });
    if (named) fail(name, std::string(why));
  }
}

void HfObject::warn_of_the_rest() const {
  constexpr std::int64_t kNamed = 10;
  std::int64_t count = 0;
  for (const auto& [name, value] : object_.items()) {
    if (understood_.contains(name) || !says_something(value) || ++count > kNamed) continue;
    findings_.warnings.push_back(
        fmt::format("{} at {} is not understood and was ignored", findings_.file, pointer(name).to_string()));
  }
  if (count <= kNamed) return;
  findings_.warnings.push_back(fmt::format("{}: {} more field{} not understood and {} ignored", findings_.file,
                                           count - kNamed, count - kNamed == 1 ? " is" : "s are",
                                           count - kNamed == 1 ? "was" : "were"));
}

}  // namespace spillway::hwmodels
