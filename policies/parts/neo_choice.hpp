// NEO's choice of an iteration: which requests run, in one batch on the GPU or in two sub-batches that use the CPU,
// too.
//
// Source: NEO (Jiang et al., MLSys 2025), section 3.2 and appendix A; its public code (NEO-MLSys25/NEO, b55aaab),
// swiftllm/server/scheduler.py, _decide_mode_and_gen_batch. It is a pure function of what is queued.
//
//   batch 0   prompts, decodes on the GPU, decodes on the CPU     S_0 tokens, pref, gdec, cdec_0
//   batch 1   decodes on the CPU                                  S_1 tokens, cdec_1
//   A layer has two stages. In one the GPU computes the linear layers of batch 0 while the CPU attends for batch 1. In
//   the other the GPU computes those of batch 1 and attends for batch 0, while the CPU attends for batch 0.
//
//   slack_0 = linear(S_1) + pref + gdec - (cdec_0 + launch)      the code; the paper has neither pref nor launch
//   slack_1 = linear(S_0)               - (cdec_1 + launch)
//
// Not in the original: a prompt whose first c tokens are cached counts as its other tokens, and its attention as
// prompt(length) - prompt(c), which is exact where the table is a sum over pairs of tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/parts/neo_predictor.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Which of several rules choose.
enum class NeoRules : std::uint8_t {
  code,        // of the public code
  paper,       // as printed
  fastdecode,  // FastDecode+: every decode of the queue runs, where more slack is, whatever the slacks are
  symmetric,   // FastDecode: likewise, in two halves of equal context
  no_overlap,  // everything in one batch: the GPU waits for the CPU in every layer
};

/// A prompt, whose first `cached` tokens the prefix cache holds: the rest is computed.
struct NeoPrompt {
  Tokens length{};
  Tokens cached{};
  [[nodiscard]] Tokens computed() const { return length - cached; }
};

struct NeoCandidates {
  std::span<const NeoPrompt> gpu_prompts{};  // their KV stays on the GPU
  std::span<const NeoPrompt> cpu_prompts{};  // theirs goes to the host, in order
  std::int64_t gpu_decodes = 0;
  Tokens gpu_context{};                   // that they attend to
  std::span<const Tokens> cpu_decodes{};  // context of each, in the order of their queue
  std::int64_t budget = 0;                // decodes on the CPU that may run: seats and tokens that are left
};

struct NeoChoice {
  static constexpr std::int8_t kRests = -1;
  bool pipelined = false;                // decodes on the CPU run
  std::size_t cpu_prompts = 0;           // the first ones of them run
  std::vector<std::int8_t> sub_batch{};  // of each decode on the CPU; kRests: it does not run
  double predicted = 0.0;                // time of a layer
  std::array<double, 2> slack{};         // of the sub-batches, once they were complete
  /// What was compared: sequences and time of a layer.
  struct Mode {
    std::int64_t sequences = 0;
    double time = 0.0;
  };
  Mode gpu_only{};
  Mode both{};
};

/// `launch`: in the predictor's unit. O(prompts + decodes on the CPU) predictions. The result is valid for the same
/// predictor only.
void neo_choose(const NeoCandidates& candidates, NeoRules rules, const NeoPredictor& predictor, double launch,
                NeoChoice& choice);
/// The same, without a virtual call for each prediction.
void neo_choose(const NeoCandidates& candidates, NeoRules rules, const NeoTables& predictor, double launch,
                NeoChoice& choice);

}  // namespace spillway
