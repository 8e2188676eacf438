#include "hwmodels/hf_positions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "hwmodels/json_messages.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

class PositionReader {
 public:
  PositionReader(HfFields& fields, const HfLayerTypes& types)
      : fields_(fields), root_(fields.root()), row_(fields.architecture()), llm_(fields.llm()), types_(types) {}

  std::vector<std::int64_t> read() {
    llm_.max_positions = fields_.count("max_positions", row_.shapes.positions, kMostPositions, 0, "tokens");
    if (row_.position_kind == HfPositions::learned) {
      llm_.learned_position_rows = llm_.max_positions + row_.extra_position_rows;
      fields_.note("learned_position_rows", fmt::format("{}", llm_.learned_position_rows), "1",
                   fields_.used(row_.shapes.positions));
    }
    const bool alibi = row_.position_kind == HfPositions::alibi || fields_.choice(row_.alibi);
    if (alibi) {
      llm_.rotary_dim = 0;
    } else if (row_.position_kind == HfPositions::rotary) {
      read_rotation();
    }
    fields_.note("rotated_dim", fmt::format("{}", llm_.rotated_dim()), "1",
                 row_.rotary_dim.name.empty() ? row_.rotary_fraction : row_.rotary_dim.name);
    root_.understood("rope_scaling rope_parameters");
    if (!row_.positions_scaled) scale_positions();
    return windows();
  }

 private:
  void read_rotation() {
    if (!row_.rotary_dim.name.empty()) {
      llm_.rotary_dim =
          std::min(llm_.head_dim, root_.integer(row_.rotary_dim.name, 1, kMostLayers).value_or(row_.rotary_dim.absent));
    } else if (!row_.rotary_fraction.empty()) {
      const double fraction = root_.number(row_.rotary_fraction, 0.0, 1.0).value_or(row_.rotary_fraction_absent);
      llm_.rotary_dim = static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(llm_.head_dim)));
    }
  }

  /// vLLM's rule. transformers 5 always writes rope_parameters. Earlier versions write rope_scaling when positions
  /// scale.
  void scale_positions() {
    const std::string_view field = root_.is_set("rope_scaling") ? "rope_scaling" : "rope_parameters";
    if (!root_.is_set(field)) return;
    const json* value = root_.find(field);
    if (!value->is_object()) return root_.fail(field, fmt::format("must be an object, not {}", shown(*value)));
    HfObject scaling(*value, root_.pointer(field), root_.findings());
    const std::string_view type_field = scaling.contains("rope_type") ? "rope_type" : "type";
    const std::string type = scaling.text(type_field).value_or("default");
    static const std::vector<std::string> kKept{"default", "llama3", "longrope", "su"};
    static const std::vector<std::string> kScaled{"linear", "dynamic", "yarn"};
    if (std::find(kKept.begin(), kKept.end(), type) != kKept.end()) return;
    if (std::find(kScaled.begin(), kScaled.end(), type) == kScaled.end()) {
      return scaling.fail(type_field, fmt::format("\"{}\" is not understood", type),
                          fmt::format("known: {}, {}", fmt::join(kKept, ", "), fmt::join(kScaled, ", ")));
    }
    if (scaling.find("factor") == nullptr) return scaling.fail("factor", "missing");
    const double factor = scaling.number("factor", 1.0, 1000.0).value_or(1.0);
    const auto original = scaling.integer("original_max_position_embeddings", 1, kMostPositions);
    const std::int64_t base = type == "yarn" ? original.value_or(llm_.max_positions) : llm_.max_positions;
    set_positions(std::min(kMostPositions, static_cast<std::int64_t>(static_cast<double>(base) * factor)),
                  fmt::format("config.json: {}, {} of factor {}", field, type, factor));
  }

  /// Qwen's rule: without layer_types, the first max_window_layers attend to everything.
  std::int64_t first_windowed() {
    if (row_.windows.full_layers == 0) return 0;
    return root_.integer("max_window_layers", 0, kMostPositions).value_or(row_.windows.full_layers);
  }

  /// Every n-th layer attends to everything; 0: no layer does.
  std::int64_t full_every() {
    if (row_.windows.full_every.name.empty()) return row_.windows.full_every.absent;
    return root_.integer(row_.windows.full_every.name, 0, kMostLayers).value_or(row_.windows.full_every.absent);
  }

  std::vector<std::int64_t> windows() {
    std::vector<std::int64_t> each(static_cast<std::size_t>(llm_.layers), 0);
    if (row_.windows.tokens == 0 && !root_.is_set(row_.windows.field)) return each;
    std::int64_t window = row_.windows.tokens;
    if (root_.contains(row_.windows.field)) window = root_.integer(row_.windows.field, 0, kMostPositions).value_or(0);
    const bool on = root_.flag("use_sliding_window").value_or(row_.windows.used);
    const std::int64_t first = first_windowed();
    const std::int64_t period = full_every();
    if (!types_.empty() && std::ssize(types_) != llm_.layers) {
      root_.fail("layer_types", fmt::format("lists {} layers, and the model has {}", types_.size(), llm_.layers));
      return each;
    }
    if (!on || window == 0 || window >= llm_.max_positions) return each;
    bool any = false;
    for (std::int64_t i = 0; i < llm_.layers; ++i) {
      const auto layer = static_cast<std::size_t>(i);
      const bool windowed = types_.empty() ? i >= first && (period == 0 || (i + 1) % period != 0) : types_[layer];
      each[layer] = windowed ? window : 0;
      any = any || windowed;
    }
    if (any) note_window(window);
    return each;
  }

  void note_window(std::int64_t window) {
    fields_.note_from("window", fmt::format("{}", window), "tokens",
                      root_.contains(row_.windows.field)
                          ? fmt::format("config.json: {}", row_.windows.field)
                          : fmt::format("transformers default of {}: {}", row_.name, row_.windows.field));
  }

  void set_positions(std::int64_t positions, std::string citation) {
    llm_.max_positions = positions;
    fields_.forget("max_positions");
    fields_.note_from("max_positions", fmt::format("{}", positions), "tokens", std::move(citation));
  }

  HfFields& fields_;
  HfObject& root_;
  const HfArchitecture& row_;
  LlmModel& llm_;
  const HfLayerTypes& types_;
};

}  // namespace

std::vector<std::int64_t> read_positions(HfFields& fields, const HfLayerTypes& types) {
  return PositionReader(fields, types).read();
}

}  // namespace spillway::hwmodels
