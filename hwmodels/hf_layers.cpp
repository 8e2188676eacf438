#include "hwmodels/hf_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "hwmodels/json_messages.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

// Of an object of experts: parts of the names of fields that change what is computed, and fields that do not.
constexpr auto kChangingExperts = std::to_array<std::string_view>({"expert", "moe", "shared"});
constexpr std::string_view kHarmlessOfExperts =
    "ffn_act_fn model_type moe_jitter_eps moe_loss_weight moe_normalize_expert_weights uniform_expert_assignment";

class LayerReader {
 public:
  explicit LayerReader(HfFields& fields)
      : fields_(fields), root_(fields.root()), row_(fields.architecture()), llm_(fields.llm()) {}

  void read(const std::vector<std::int64_t>& windows) {
    std::vector<LayerKind> each(windows.size());
    for (std::size_t i = 0; i < windows.size(); ++i) each[i].window = windows[i];
    if (!row_.experts.object.empty()) {
      fields_.within(row_.experts.object, kChangingExperts, [&](HfFields& inner) {
        LayerReader(inner).read_experts(each);
        inner.root().understood(kHarmlessOfExperts);
      });
    } else if (!row_.experts.count.name.empty()) {
      read_experts(each);
    }
    if (!root_.findings().problems.empty()) return;
    llm_.set_layers(each);
    if (!llm_.kinds.empty() || llm_.experts) note_kinds();
  }

 private:
  /// A count that may be 0. Where the class has no such field, `absent` of the row.
  std::int64_t number(const HfShape& shape, std::int64_t most) {
    if (shape.name.empty()) return shape.absent;
    return fields_.stated(shape, 0, most).value_or(root_.contains(fields_.used(shape)) ? 0 : shape.absent);
  }

  void read_experts(std::vector<LayerKind>& each) {
    const HfExperts& row = row_.experts;
    Experts experts;
    experts.count = fields_.count("experts", row.count, kMostExperts, 0);
    experts.top_k = fields_.count("experts_per_token", row.top_k, kMostExperts, 0);
    const bool own_width = !row.width.name.empty();
    const std::int64_t derived = row.width.absent == 0 ? llm_.ffn : 0;
    experts.width = own_width ? fields_.count("expert_ffn", row.width, kMostWidth, derived) : llm_.ffn;
    if (!own_width) fields_.note("expert_ffn", fmt::format("{}", experts.width), "1", fields_.used(row_.shapes.ffn));
    if (experts.top_k > experts.count) {
      root_.fail(fields_.used(row.top_k),
                 fmt::format("{} experts per token are more than the {} of a layer", experts.top_k, experts.count));
    }
    const std::int64_t stated = number(row.shared, kMostExperts) + row.always_shared;
    const std::int64_t shared = fields_.choice(row.has_shared) ? stated : 0;
    experts.shared_width =
        shared * (row.shared_as_ffn ? llm_.ffn : experts.width) + number(row.shared_width, kMostWidth);
    experts.shared_gate = row.shared_gate && experts.shared_width > 0;
    experts.router_bias = fields_.choice(row.router_bias);
    fields_.note("shared_expert_ffn", fmt::format("{}", experts.shared_width), "1",
                 row.shared.name.empty() ? row.shared_width.name : row.shared.name);
    find_routed_layers(each);
    llm_.experts = experts;
    const bool dense = std::ranges::any_of(each, [](const LayerKind& kind) { return !kind.routed; });
    if (!dense) {
      set_ffn(0, "no layer has a dense MLP");
    } else if (!row.dense_width.name.empty()) {
      const std::int64_t width = root_.integer(row.dense_width.name, 1, kMostWidth).value_or(row.dense_width.absent);
      set_ffn(width, fmt::format("config.json: {}", row.dense_width.name));
    }
    if (!row.dense_width.name.empty()) root_.understood(row.dense_width.name);
  }

  void set_ffn(std::int64_t width, std::string citation) {
    llm_.ffn = width;
    fields_.forget("ffn");
    fields_.note_from("ffn", fmt::format("{}", width), "1", std::move(citation));
  }

  void find_routed_layers(std::vector<LayerKind>& each) {
    const HfExperts& row = row_.experts;
    const std::int64_t first = number(row.first_dense, kMostLayers);
    const std::int64_t step = row.step.name.empty() ? 1 : number(row.step, kMostLayers);
    if (step == 0) {
      root_.fail(fields_.used(row.step), "must be at least 1");
      return;
    }
    const std::int64_t last = last_routed(std::ssize(each) - 1);
    for (std::int64_t i = 0; i < std::ssize(each); ++i) {
      const bool in_step = (i + (row.step_from_one ? 1 : 0)) % step == 0;
      each[static_cast<std::size_t>(i)].routed = i >= first && i <= last && in_step;
    }
    if (!row.dense_layers.empty()) {
      listed(row.dense_layers, each, [](LayerKind& kind) { kind.routed = false; });
    }
    if (row.routed_layers.empty() || root_.find(row.routed_layers) == nullptr) return;
    for (LayerKind& kind : each) kind.routed = false;
    listed(row.routed_layers, each, [](LayerKind& kind) { kind.routed = true; });
  }

  /// `last`: the last layer of all.
  std::int64_t last_routed(std::int64_t last) {
    const std::string_view field = row_.experts.last_routed;
    if (field.empty()) return last;
    const std::int64_t stated = root_.integer(field, -1, kMostLayers).value_or(-1);
    return stated == -1 ? last : stated;
  }

  /// Calls change(kind) for each layer that a field lists.
  template <class Change>
  void listed(std::string_view field, std::vector<LayerKind>& each, const Change& change) {
    const json* list = root_.find(field);
    if (list == nullptr) return;
    if (!list->is_array()) return root_.fail(field, fmt::format("must be a list of layers, not {}", shown(*list)));
    for (std::size_t i = 0; i < list->size(); ++i) {
      const json& layer = (*list)[i];
      const bool inside = layer.is_number_integer() && layer >= 0 && layer < each.size();
      if (inside) {
        change(each[layer.get<std::size_t>()]);
      } else {
        root_.fail(root_.pointer(field) / i, fmt::format("{} is not one of the {} layers", shown(layer), each.size()));
      }
    }
  }

  void note_kinds() {
    std::string text;
    for (const LlmModel::CountedKind& counted : llm_.counted_kinds()) {
      const auto& [kind, layers] = counted;
      text += fmt::format("{}{} {}, {}", text.empty() ? "" : "; ", layers, kind.routed ? "with experts" : "dense",
                          kind.window == 0 ? std::string("full attention") : fmt::format("window {}", kind.window));
    }
    fields_.note_from("layer_kinds", text, "name", "config.json");
  }

  HfFields& fields_;
  HfObject& root_;
  const HfArchitecture& row_;
  LlmModel& llm_;
};

}  // namespace

void read_latent_attention(HfFields& fields) {
  if (!fields.architecture().latent) return;
  HfObject& root = fields.root();
  LlmModel& llm = fields.llm();
  LatentAttention latent;
  const auto width = [&](const char* key, std::string_view field, std::int64_t absent) {
    return fields.count(key, HfShape{field, absent}, kMostWidth, 0);
  };
  // Null: queries are projected from the hidden state.
  const bool direct = root.contains("q_lora_rank") && root.find("q_lora_rank") == nullptr;
  latent.query_rank = direct ? 0 : width("latent_query", "q_lora_rank", 1536);
  latent.kv_rank = width("latent_kv", "kv_lora_rank", 512);
  latent.rotated = width("rotated_key", "qk_rope_head_dim", 64);
  latent.unrotated = width("unrotated_key", "qk_nope_head_dim", 128);
  latent.value = width("value_head", "v_head_dim", 128);
  llm.kv_heads = llm.heads;
  llm.head_dim = latent.query_width();
  fields.forget("head_dim");
  fields.note_from("head_dim", fmt::format("{}", llm.head_dim), "1", "qk_nope_head_dim + qk_rope_head_dim");
  llm.latent = latent;
}

void read_layers(HfFields& fields, const std::vector<std::int64_t>& windows) { LayerReader(fields).read(windows); }

}  // namespace spillway::hwmodels
