// Defaults of experts.* that depend on the number of experts of a layer.
#pragma once

#include <cstdint>

namespace spillway {

struct ExpertDefault {
  double value = 0.0;
  const char* source = "";
};

/// Up to so many experts of a layer are few.
inline constexpr std::int64_t kFewExperts = 16;
inline constexpr ExpertDefault kSkewOfFew{0.3, "fit to expert counts of Mixtral-8x7B (efeslab/fiddler)"};
inline constexpr ExpertDefault kSkewOfMany{
    0.65, "fit to a model of 64 experts (Hugging Face, mkvn/quantization-cache-amplification)"};
inline constexpr ExpertDefault kLocalityOfFew{0.2, "LRU hit rates of Mixtral-8x7B"};
inline constexpr ExpertDefault kLocalityOfMany{
    0.4, "a sixth to two fifths are reused in a model of 64 experts, and more in one of 512 (llama.cpp PR 27861)"};

}  // namespace spillway
