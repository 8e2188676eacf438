// The decoder-only architectures whose Hugging Face config.json is understood: which field holds which shape.
//
// Source: the configuration and modelling classes of Hugging Face transformers (InternLM2 and MiniMax-M2: the code
// published with the weights), from memory. tests/unit/hf_config_test.cpp compares the rows with published parameter
// counts. A default applies when a file leaves the field out. A row states only what differs from Llama.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {

/// A count. A name of "" means that there is no field: the value is always `absent`.
struct HfShape {
  std::string_view name;
  std::int64_t absent = 0;      // default of the class; 0: derived from other fields, see HfShapes
  std::string_view alias = {};  // second name of the same field
  bool per_layer = false;       // may be a list with a number for each layer
};

/// A choice. A name of "" means that there is no field: the value is always `absent`.
struct HfFlag {
  std::string_view name;
  bool absent = false;   // default of the class
  bool negated = false;  // true in the file means false here
};

enum class HfPositions { rotary, learned, alibi };

/// Architectures with rules of their own, which the reader knows.
enum class HfSpecial { none, opt, falcon, mpt, dbrx, hunyuan };

/// The shapes, by the names and defaults of Llama.
struct HfShapes {
  HfShape layers{"num_hidden_layers", 32};
  HfShape hidden{"hidden_size", 4096};
  HfShape heads{"num_attention_heads", 32};
  HfShape kv_heads{"num_key_value_heads"};  // derived: as many as heads
  HfShape head_dim{"head_dim"};             // derived: hidden / heads
  HfShape ffn{"intermediate_size", 11008};  // derived: 4 hidden
  HfShape vocabulary{"vocab_size", 32000};
  HfShape positions{"max_position_embeddings", 2048};
};

/// Which linear layers add a bias vector.
struct HfBiases {
  HfFlag qkv{""};
  HfFlag output{""};
  HfFlag mlp{""};
  HfFlag head{""};
};

/// Routed experts and which layers have them. A `count` of "" means that there are none.
struct HfExperts {
  std::string_view object = {};  // field: the object that holds the other fields; empty: they are beside it
  HfShape count{""};
  HfShape top_k{"num_experts_per_tok", 2};
  HfShape width{""};        // of one expert; no name: the width of `ffn`, and no layer has a dense MLP of that field;
                            // derived: the width of `ffn`
  HfShape dense_width{""};  // of the dense MLPs, where `ffn` is not their field
  HfShape shared{""};       // how many shared experts, each as wide as a routed one
  bool shared_as_ffn = false;  // each as wide as `ffn` instead
  HfFlag has_shared{"", true};
  HfShape shared_width{""};        // their width together, where the file states it
  std::int64_t always_shared = 0;  // shared experts that every model of the class has
  bool shared_gate = false;
  HfFlag router_bias{""};
  HfShape first_dense{""};              // the first layers with a dense MLP instead
  std::string_view last_routed = {};    // field: the last layer with experts; -1, or no such field: the last of all
  HfShape step{""};                     // then every step-th layer has experts
  bool step_from_one = false;           // layers counted from 1: layer i has experts if (i + 1) % step is 0
  std::string_view dense_layers = {};   // field: a list of layers with a dense MLP
  std::string_view routed_layers = {};  // field: a list of the layers with experts
};

/// Which layers attend over a window.
struct HfWindows {
  std::int64_t tokens = 0;  // default of the field; 0: none
  std::string_view field = "sliding_window";
  HfShape full_every{""};        // every n-th layer attends to all tokens; 0: none does
  bool used = true;              // default of use_sliding_window
  std::int64_t full_layers = 0;  // default of max_window_layers, the first layer with a window; 0: no such field
};

/// One architecture; the defaults are those of Llama.
struct HfArchitecture {
  std::string_view name;  // in `architectures`
  std::string_view model_type;

  HfShapes shapes{};
  HfFlag one_kv_head{""};         // when set, there is one KV head
  bool positions_scaled = false;  // max_position_embeddings includes the factor of rope_scaling
  bool gated = true;
  HfFlag tied{"tie_word_embeddings"};
  HfBiases biases{};

  HfFlag norm_weights{"", true};
  HfFlag norm_bias{""};
  std::int64_t layer_norms = 2;
  HfFlag parallel{""};  // when set, attention and MLP share one norm
  std::int64_t outer_norms = 1;
  QkNorm qk_norm_kind = QkNorm::none;  // when qk_norm is set
  HfFlag qk_norm{"", true};

  HfPositions position_kind = HfPositions::rotary;
  HfFlag alibi{""};                       // when set, ALiBi instead of rotary positions
  std::int64_t extra_position_rows = 0;   // of learned positions
  std::string_view rotary_fraction = {};  // field: rotated part of a head
  double rotary_fraction_absent = 1.0;
  HfShape rotary_dim{""};  // rotated part of a head as a width; 0: by fraction

  bool attention_sinks = false;
  HfExperts experts{};
  bool latent = false;  // multi-head latent attention, by the field names of DeepSeek

  HfWindows windows{};
  HfSpecial special = HfSpecial::none;
};

/// All architectures, in alphabetical order of their names.
[[nodiscard]] std::span<const HfArchitecture> hf_architectures();

}  // namespace spillway::hwmodels
