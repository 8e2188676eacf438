// The dense decoder-only architectures whose Hugging Face config.json is understood: which field holds which shape.
//
// Source: the configuration and modelling classes of Hugging Face transformers (InternLM2: the code published with its
// weights), from memory. tests/unit/hf_config_test.cpp compares the rows with published parameter counts. A default
// applies when a file leaves the field out. A row states only what differs from Llama.
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
};

/// A choice. A name of "" means that there is no field: the value is always `absent`.
struct HfFlag {
  std::string_view name;
  bool absent = false;   // default of the class
  bool negated = false;  // true in the file means false here
};

enum class HfPositions { rotary, learned, alibi };

/// Architectures with rules of their own, which the reader knows.
enum class HfSpecial { none, opt, falcon, mpt };

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

  std::int64_t window = 0;       // default of sliding_window; 0: none
  bool window_used = true;       // default of use_sliding_window
  std::int64_t full_layers = 0;  // default of max_window_layers, the first layer with a window; 0: no such field
  HfSpecial special = HfSpecial::none;
};

/// All architectures, in alphabetical order of their names.
[[nodiscard]] std::span<const HfArchitecture> hf_architectures();

}  // namespace spillway::hwmodels
