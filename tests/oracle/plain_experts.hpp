// The policies that place experts, by their published rules, as recurrences over whole
// nanoseconds. It shares no code with policies/ or sim/exec/: no streams, no events, no copies that end.
//
// Readings, where the rules are silent
//  * A copy that ends at the instant of a gate has arrived, and the next copy has started.
//  * Dense layers have no gate. "The next layer" is the next one that has experts.
//  * 8.2, 8.5: copies never wait for a slot, even if a layer uses more experts than it has slots. 8.3 has a slot
//    for each expert of a layer and one more, so a load always finds one.
//  * 8.2: an expert is one copy, elsewhere one copy for each matrix. A prompt of 8.1 copies the experts of a layer
//    together, one copy for each matrix.
//  * 8.2 to 8.5: the GPU computes one expert after the other; 8.1: all of a layer at once, with their weights read
//    or all their arithmetic as the longer part. The CPU computes all of a layer at once, except in 8.4.
//  * 8.2: "Prefill: none, since all experts are active" is read by its reason: nothing is loaded ahead where a
//    layer uses all of its experts, in a prompt or not. A prompt that leaves some out loads ahead.
//  * 8.2: a load ahead in use that has not started is a load like any other: in the order of numbers, and
//    demanded. What has been loaded ahead is used after the residents, in the order of arrival.
//  * 8.3: at first the experts of the first layers are there, by number. They compute as in 8.2: what is there by
//    number, then in the order of arrival. An expert on its way does not leave.
//  * 8.3: "a wrong one" is the matrix of the next kind of requests. A batch has the mean of its requests'
//    matrices, by tokens. Shares are rounded to a billionth. Of equal experts of a layer the one with the lowest
//    number is loaded first, and leaves last.
//  * 8.3, step 1: the matched layers count with the one whose gate has opened. The layer that runs is the one of
//    the last gate, until the next one. So nothing is loaded ahead between the last gate of an iteration and the
//    next.
//  * 8.3, step 2: the order is that of step 1, the worth of a slot that of step 3. An expert that is not worth a
//    slot is passed over for one that is. One is loaded at a time, so a gate may change what comes next.
//  * 8.3: a load ahead is for nothing if the router of its layer does not choose it, or if it has left before
//    that.
//  * 8.3, public code: locked is what the running layer uses, from its gate on. Its other experts may leave. Uses
//    count from when an expert has come, this one included. They are 0 at first.
//  * 8.5: GPU and CPU compute side by side. Uploads start when the layer has ended, the most tokens first. They
//    take their slots then, also that of an expert on its way, and are missing until they have arrived.
//  * 8.1: the draw has no router weights. Of a layer's experts on the CPU, by number, the expected number of those
//    that may wait is deferred, rounded to the nearest: one with n tokens may wait with probability (d / k)^n.
//  * 8.1, step 4: in the recurrence every layer waits for the way to the CPU and back. A layer that has no
//    immediate expert there, with deferred ones or none, and comes after a layer without deferred ones, waits for
//    no outputs.
//  * 8.1: a prompt that uses fewer experts than a layer has slots leaves the slots as they are.
//  * 8.4, 8.5: outputs of the CPU and copies of experts use one link, in the order in which they are ready.
//  * 8.4, step 4: its sum has transfers of hidden states for each expert on the CPU. Here those of all of a
//    layer's go there together and come back together, and the threads start once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/api/experts.hpp"

namespace spillway::oracle {

/// Nanoseconds.
struct PlainExpertTimes {
  std::int64_t step = 0;          // of a layer: attention, router and the rest
  std::int64_t gpu_weights = 0;   // the GPU reads an expert
  std::int64_t gpu_row = 0;       // arithmetic of an expert for one token there
  std::int64_t launch = 0;        // of one copy
  std::int64_t copy = 0;          // of the bytes of an expert, page-locked, over the idle link
  std::int64_t cpu_weights = 0;   // the CPU reads an expert
  std::int64_t cpu_row = 0;       // arithmetic of an expert for one token there
  std::int64_t cpu_row_many = 0;  // the same where experts have more than kManyRows tokens on average
  std::int64_t cpu_start = 0;     // the CPU's threads start
  std::int64_t sync = 0;          // fixed time of the way to the CPU, and of the way back
  std::int64_t hidden = 0;        // of the hidden state of one token on each way
};
inline constexpr std::int64_t kManyRows = 8;

struct PlainExpertModel {
  std::int32_t count = 0;  // experts of a layer
  std::int32_t top_k = 0;
  std::int64_t matrices = 3;                          // of an expert
  std::vector<bool> has_experts{};                    // by layer of the model
  std::vector<std::vector<std::int32_t>> rankings{};  // by layer with experts, the most popular first
  std::vector<std::vector<double>> popularity{};      // by layer with experts, by expert
  using Rows = std::vector<std::vector<double>>;      // by layer with experts, by expert
  std::vector<Rows> kinds{};                          // popularity for the requests of each kind; 8.3 alone
  PlainExpertTimes times{};

  [[nodiscard]] std::int32_t expert_layers() const { return static_cast<std::int32_t>(rankings.size()); }
};

/// What the routers of an iteration choose, by layer with experts.
struct PlainExpertStep {
  std::int64_t decodes = 0;  // tokens
  std::int64_t prompt = 0;   // tokens
  std::vector<std::vector<ExpertUse>> used{};
  std::vector<std::vector<std::int32_t>> guesses{};  // the likeliest first
  std::vector<double> shares{};                      // of the tokens, by kind of their requests; 8.3 alone

  [[nodiscard]] std::int64_t tokens() const { return decodes + prompt; }
};

/// Pairs of layer and expert.
struct PlainExpertCounts {
  std::int64_t resident = 0;
  std::int64_t loaded = 0;
  std::int64_t on_cpu = 0;
  std::int64_t late = 0;
  std::int64_t unused = 0;
  std::int64_t demanded = 0;    // experts copied because a router had chosen them
  std::int64_t prefetched = 0;  // experts copied before a router had chosen
  std::int64_t cpu_read = 0;    // experts that the CPU read
  std::int64_t cpu_busy = 0;    // ns

  // Layers in which something special happened. A test that compares must meet each of them.
  std::int64_t dropped = 0;           // a load ahead was dropped before it started
  std::int64_t kept_queued = 0;       // a load ahead that had not started was in use
  std::int64_t beyond_slots = 0;      // more experts in use than slots
  std::int64_t beyond_buffers = 0;    // a guess found no free buffer
  std::int64_t waited_for_cpu = 0;    // the layer ended with the CPU's outputs
  std::int64_t waited_for_gpu = 0;    // the CPU's outputs had been back before
  std::int64_t deferred = 0;          // experts were deferred
  std::int64_t waited_deferred = 0;   // the CPU was still busy with deferred experts of the layer before
  std::int64_t all_deferred = 0;      // a layer's experts on the CPU were all deferred, and it waited for no outputs
  std::int64_t prompts = 0;           // a prompt was computed layer by layer
  std::int64_t arithmetic = 0;        // of a piece of work that is bound by arithmetic
  std::int64_t uploads_cut = 0;       // more missing experts than uploads
  std::int64_t by_tokens = 0;         // layers whose experts were known by tokens: counted by the test
  std::int64_t waited_for_copy = 0;   // the GPU stood still until an expert had arrived
  std::int64_t evicted = 0;           // an expert left for one that a router had chosen
  std::int64_t evicted_of_layer = 0;  // it was one of the running layer
  std::int64_t replaced = 0;          // an expert left for a predicted one
  std::int64_t left_unused = 0;       // a predicted expert left before its layer
  std::int64_t not_worth = 0;         // no predicted expert was worth a slot
  std::int64_t passed_over = 0;       // the likeliest one was not, a less likely one was
  std::int64_t mistaken = 0;          // the requests were taken for others
};

class PlainExpertPolicy {
 public:
  explicit PlainExpertPolicy(PlainExpertModel model) : model_(std::move(model)) {}
  virtual ~PlainExpertPolicy() = default;
  /// Returns the end of an iteration that starts at `start`. Layers go one after the other.
  std::int64_t iterate(std::int64_t start, const PlainExpertStep& step);
  [[nodiscard]] const PlainExpertCounts& counts() const { return counts_; }

 protected:
  /// The gate of the layer with experts number `layer` opens at `gate`; returns when the layer ends.
  virtual std::int64_t after_gate(std::int64_t gate, std::int32_t layer, const PlainExpertStep& step) = 0;

  /// The GPU computes `experts` in one go, `rows` token-expert pairs in all.
  std::int64_t on_gpu(std::int64_t experts, std::int64_t rows);
  std::int64_t on_gpu(const std::vector<ExpertUse>& uses);
  /// Likewise the CPU, its start left out: it reads them, or its arithmetic takes longer.
  std::int64_t on_cpu(const std::vector<ExpertUse>& uses);
  [[nodiscard]] const PlainExpertTimes& times() const { return model_.times; }

  PlainExpertModel model_;
  PlainExpertCounts counts_{};
};

/// 8.2. `slots` K of each layer, `ahead` p experts.
std::unique_ptr<PlainExpertPolicy> plain_mixtral_paper(const PlainExpertModel& model, std::int32_t slots,
                                                       std::int32_t ahead);
std::unique_ptr<PlainExpertPolicy> plain_mixtral_published(const PlainExpertModel& model, std::int32_t slots);
/// 8.5, expert-level caching. Misses on the CPU, and at most `uploads` per layer and step.
std::unique_ptr<PlainExpertPolicy> plain_cache_on_cpu(const PlainExpertModel& model, std::int32_t slots,
                                                      std::int64_t uploads);
std::unique_ptr<PlainExpertPolicy> plain_cache_awaited(const PlainExpertModel& model, std::int32_t slots);
/// 8.1. The first `layers` layers of the model are on the host. `pageable`: copies take so many times as long.
std::unique_ptr<PlainExpertPolicy> plain_llama_cpp(const PlainExpertModel& model, std::int32_t layers,
                                                   std::int64_t min_batch, std::int64_t pageable);

enum class PlainPlacement : std::uint8_t { uniform, frequency, front_loading };
struct PlainKTransformers {
  std::int32_t on_gpu = 0;  // G of each layer
  PlainPlacement placement = PlainPlacement::uniform;
  std::int64_t deferred = 0;   // d of a token
  std::int64_t threshold = 0;  // tokens; 0: no prompt is computed layer by layer
  bool update = false;
};
std::unique_ptr<PlainExpertPolicy> plain_ktransformers(const PlainExpertModel& model, const PlainKTransformers& with);

struct PlainFiddler {
  std::int64_t on_gpu = 0;       // experts of all layers
  std::int64_t token_time = -1;  // alpha; < 0: the time to read an expert
  bool published = false;        // the choice by the published constants
  bool overlap = false;
  std::int64_t pageable = 1;
};
std::unique_ptr<PlainExpertPolicy> plain_fiddler(const PlainExpertModel& model, const PlainFiddler& with);

struct PlainMoeInfinity {
  std::int64_t slots = 0;    // of all layers
  bool ahead = true;         // predictions load experts
  std::int64_t matched = 3;  // layers whose routers have chosen when a request is known
};
/// 8.3, as in the paper and as in the public code.
std::unique_ptr<PlainExpertPolicy> plain_moe_infinity(const PlainExpertModel& model, const PlainMoeInfinity& with);
std::unique_ptr<PlainExpertPolicy> plain_moe_infinity_published(const PlainExpertModel& model, std::int64_t slots);

}  // namespace spillway::oracle
