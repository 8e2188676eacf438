// The dense decoder-only architectures whose Hugging Face config.json is understood: which field holds which shape.
//
// Source: the configuration and modelling classes of Hugging Face transformers (InternLM2: the code beside its
// weights), from memory; tests/unit/hf_config_test.cpp holds the rows against published parameter counts. Defaults are
// those of the class, which holds when a file leaves a field out. A row states what differs from Llama.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {

/// A count. A name of "" is no field: the value is `absent`, always.
struct HfShape {
  std::string_view name;
  std::int64_t absent = 0;      // default of the class; 0: derived from others, as the reader says
  std::string_view alias = {};  // second name of the same field
};

/// A choice. A name of "" is no field: the value is `absent`, always.
struct HfFlag {
  std::string_view name;
  bool absent = false;   // default of the class
  bool negated = false;  // true in the file means false here
};

enum class HfPositions { rotary, learned, alibi };

/// What a row cannot say.
enum class HfSpecial { none, opt, falcon, mpt };

struct HfArchitecture {
  std::string_view name;  // in `architectures`
  std::string_view model_type;

  HfShape layers{"num_hidden_layers", 32};
  HfShape hidden{"hidden_size", 4096};
  HfShape heads{"num_attention_heads", 32};
  HfShape kv_heads{"num_key_value_heads"};  // derived: as many as heads
  HfFlag one_kv_head{""};                   // when set, there is one KV head
  HfShape head_dim{"head_dim"};             // derived: hidden / heads
  HfShape ffn{"intermediate_size", 11008};  // derived: 4 hidden
  HfShape vocabulary{"vocab_size", 32000};
  HfShape positions{"max_position_embeddings", 2048};
  bool positions_scaled = false;  // the field counts rope_scaling in
  bool gated = true;
  HfFlag tied{"tie_word_embeddings"};

  HfFlag qkv_bias{""};
  HfFlag output_bias{""};
  HfFlag mlp_bias{""};
  HfFlag head_bias{""};

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
  HfShape rotary_dim{""};  // the same as a width; 0: by fraction

  std::int64_t window = 0;       // default of sliding_window; 0: none
  bool window_used = true;       // default of use_sliding_window
  std::int64_t full_layers = 0;  // default of max_window_layers, the first layer with a window; 0: no such field
  HfSpecial special = HfSpecial::none;
};

/// In alphabetical order of names.
[[nodiscard]] std::span<const HfArchitecture> hf_architectures();

}  // namespace spillway::hwmodels
