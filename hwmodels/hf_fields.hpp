// Values of a model from the fields of its architecture, each with the source that `explain` prints.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hwmodels/hf_architectures.hpp"
#include "hwmodels/hf_object.hpp"

namespace spillway::hwmodels {

// Bounds that keep every product of shapes within int64.
inline constexpr std::int64_t kMostLayers = 1000;  // of layers, heads and the width of a head
inline constexpr std::int64_t kMostExperts = 10'000;
inline constexpr std::int64_t kMostWidth = 1'000'000;
inline constexpr std::int64_t kMostRows = 10'000'000;
inline constexpr std::int64_t kMostPositions = 1'000'000'000;

class HfFields {
 public:
  /// `architecture` may be null where only note_from() is called. All arguments must outlive this.
  HfFields(HfObject& root, const HfArchitecture* architecture, LlmModel& llm)
      : root_(root), architecture_(architecture), llm_(llm) {}

  [[nodiscard]] HfObject& root() const { return root_; }
  [[nodiscard]] const HfArchitecture& architecture() const { return *architecture_; }
  [[nodiscard]] LlmModel& llm() const { return llm_; }

  /// Adds a value of the model with its source: the field where the file has it, else the default of the class.
  void note(const char* key, std::string value, const char* unit, std::string_view field);
  void note_from(const char* key, std::string value, const char* unit, std::string citation,
                 const char* kind = "datasheet");
  /// Removes the value of that key, for a note that takes its place.
  void forget(std::string_view key);

  /// The name under which the file has the shape.
  [[nodiscard]] std::string_view used(const HfShape& shape) const;
  /// Reads and notes a shape. `derived` is the value of null, and of a field that is left out where the class has no
  /// default of its own; 0: null is refused.
  std::int64_t count(const char* key, const HfShape& shape, std::int64_t most, std::int64_t derived,
                     const char* unit = "1");
  /// The shape as the file states it, in each layer the same. Empty when it is absent or refused.
  std::optional<std::int64_t> stated(const HfShape& shape, std::int64_t low, std::int64_t most,
                                     Null null = Null::absent);
  bool choice(const HfFlag& flag);

  /// Calls read(fields) for the object in that field, empty where the file has none. Fields of it that `read` has not
  /// asked for are refused if their names hold one of `refused`, and else ignored with a warning.
  void within(std::string_view field, std::span<const std::string_view> refused,
              const std::function<void(HfFields&)>& read);

 private:
  HfObject& root_;
  const HfArchitecture* architecture_;
  LlmModel& llm_;
};

}  // namespace spillway::hwmodels
