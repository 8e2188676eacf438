#include "sim/config/not_modelled.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace spillway {
namespace {

struct Unmodelled {
  std::string_view begins;  // of the key, without "engine." and with _ for -
  std::string_view nearest;
};

constexpr std::array kUnmodelled{
    Unmodelled{"pipeline_parallel", "tensor_parallel, which splits every layer instead of the list of layers"},
    Unmodelled{"context_parallel", "tensor_parallel, which splits heads instead of the context"},
    Unmodelled{"sequence_parallel", "tensor_parallel"},
    Unmodelled{"lora", "the base model alone, without the memory and the kernels of adapters"},
    Unmodelled{"enable_lora", "the base model alone, without the memory and the kernels of adapters"},
    Unmodelled{"max_lora", "the base model alone, without the memory and the kernels of adapters"},
    Unmodelled{"speculative", "workload.output_tokens divided by the tokens that a step accepts on average"},
    Unmodelled{"num_speculative_tokens", "workload.output_tokens divided by the tokens that a step accepts on average"},
};

}  // namespace

std::string_view nearest_to_unmodelled(std::string_view key) {
  std::string plain(key);
  std::ranges::replace(plain, '-', '_');
  plain.erase(0, std::min(plain.find_first_not_of('_'), plain.size()));
  if (plain.starts_with("engine.")) plain.erase(0, 7);
  const auto* const found =
      std::ranges::find_if(kUnmodelled, [&](const Unmodelled& one) { return plain.starts_with(one.begins); });
  return found == kUnmodelled.end() ? std::string_view() : found->nearest;
}

}  // namespace spillway
