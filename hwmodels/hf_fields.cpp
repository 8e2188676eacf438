#include "hwmodels/hf_fields.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "hwmodels/json_messages.hpp"

namespace spillway::hwmodels {

void HfFields::note(const char* key, std::string value, const char* unit, std::string_view field) {
  note_from(key, std::move(value), unit,
            !field.empty() && root_.contains(field) ? fmt::format("config.json: {}", field)
                                                    : fmt::format("transformers default of {}", architecture_->name));
}

void HfFields::note_from(const char* key, std::string value, const char* unit, std::string citation, const char* kind) {
  llm_.file.entries.push_back({key, std::move(value), unit, kind, std::move(citation)});
}

void HfFields::forget(std::string_view key) {
  std::erase_if(llm_.file.entries, [&](const Entry& entry) { return entry.key == key; });
}

std::string_view HfFields::used(const HfShape& shape) const {
  return !shape.alias.empty() && !root_.contains(shape.name) ? shape.alias : shape.name;
}

std::int64_t HfFields::count(const char* key, const HfShape& shape, std::int64_t most, std::int64_t derived,
                             const char* unit) {
  std::string_view field = used(shape);
  std::int64_t value = shape.absent > 0 ? shape.absent : derived;
  if (!field.empty() && root_.contains(field)) {
    value = stated(shape, 1, most, derived > 0 ? Null::absent : Null::refused).value_or(derived);
  } else if (!field.empty() && shape.absent > 0) {
    root_.findings().warnings.push_back(
        fmt::format("{} does not state {}: {} is used, the default of {} in transformers", root_.findings().file,
                    shape.name, value, architecture_->name));
  }
  note(key, fmt::format("{}", value), unit, field);
  return value;
}

std::optional<std::int64_t> HfFields::stated(const HfShape& shape, std::int64_t low, std::int64_t most, Null null) {
  const std::string_view field = used(shape);
  return shape.per_layer ? root_.integer_of_layers(field, low, most, llm_.layers, null)
                         : root_.integer(field, low, most, null);
}

bool HfFields::choice(const HfFlag& flag) {
  const bool value = flag.name.empty() ? flag.absent : root_.flag(flag.name).value_or(flag.absent);
  return value != flag.negated;
}

void HfFields::within(std::string_view field, std::span<const std::string_view> refused,
                      const std::function<void(HfFields&)>& read) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  const nlohmann::json* value = root_.find(field);
  if (value == nullptr) value = &kEmpty;
  if (!value->is_object()) return root_.fail(field, fmt::format("must be an object, not {}", shown(*value)));
  HfObject object(*value, root_.pointer(field), root_.findings());
  HfFields inner(object, architecture_, llm_);
  read(inner);
  object.refuse_the_rest(refused, "is not known, and its name suggests that it changes what the model computes");
  object.warn_of_the_rest();
}

}  // namespace spillway::hwmodels
