// Admission by the worst case of all running requests, as in S-LoRA and LightLLM.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/api/scheduler.hpp"

namespace spillway {

/// A request may join when the worst case of all running requests still fits. With requests sorted by the tokens left
/// to generate, r_1 >= r_2 >= ..., the pool is fullest at the end of some request i: it then holds the present tokens
/// of the first i requests, and i times r_i more. Memory counts in tokens. With larger blocks every request may waste
/// all but one token of its last block.
///
/// Source: VTC-artifact (192c2e2), slora/server/router/req_queue.py, _can_add_new_req.
///
/// The scheduler reports which requests run and when all of them have taken a token. O(running) per call.
class TokenPool final : public OffloadPolicy {
 public:
  explicit TokenPool(const View& view) : view_(view) {}

  [[nodiscard]] Fit admits(const RequestView& request, Tokens /*upto*/) const override {
    const std::int64_t pool = view_.tier(kGpuTier).total.count() * view_.block_tokens().count();
    const Running fresh = running(request);
    if (fresh.has + fresh.left >= pool) return Fit::never;
    return worst_case(fresh) < pool ? Fit::now : Fit::later;
  }
  [[nodiscard]] Fit grows(const RequestView&, Tokens) const override { return Fit::now; }
  [[nodiscard]] Fit decodes(std::int64_t) const override { return Fit::now; }
  [[nodiscard]] Fit resumes(const RequestView&, Tokens) const override { return Fit::never; }
  [[nodiscard]] Leave preempts(const RequestView&) const override { return Leave::preempt_recompute; }

  void joined(const RequestView& request) {
    fresh_.push_back(running(request));
    insert(fresh_.back());
  }
  /// The mini-batch is complete. Its iteration gives every request its first token. The code counts that token as still
  /// to come only while it builds the mini-batch.
  void prefilled() {
    for (Running request : fresh_) {
      left(request.id);
      --request.left;
      insert(request);
    }
    fresh_.clear();
  }
  void decoded() { ++steps_; }
  void left(RequestId id) {
    std::erase_if(running_, [&](const Running& request) { return request.id == id; });
  }

 private:
  /// Relative to the decode steps so far, in which every running request takes part: the request now has `has` + steps
  /// tokens, and `left` - steps tokens to generate.
  struct Running {
    RequestId id;
    std::int64_t has = 0;
    std::int64_t left = 0;
  };

  [[nodiscard]] Running running(const RequestView& request) const {
    const std::int64_t wasted = view_.block_tokens().count() - 1;
    return {request.id, request.input.count() + 1 + wasted - steps_, request.max_new_tokens.count() - 1 + steps_};
  }
  void insert(const Running& request) {
    const auto after =
        std::find_if(running_.begin(), running_.end(), [&](const Running& other) { return other.left < request.left; });
    running_.insert(after, request);
  }
  /// Tokens in the pool when it is fullest, if `fresh` joins.
  [[nodiscard]] std::int64_t worst_case(const Running& fresh) const {
    std::int64_t most = 0;
    std::int64_t has = 0;
    std::int64_t rank = 0;
    const auto take = [&](const Running& request) {
      has += request.has + steps_;
      most = std::max(most, (request.left - steps_) * ++rank + has);
    };
    bool taken = false;
    for (const Running& request : running_) {
      if (!taken && request.left < fresh.left) {
        take(fresh);
        taken = true;
      }
      take(request);
    }
    if (!taken) take(fresh);
    return most;
  }

  const View& view_;
  std::vector<Running> running_;  // by `left`, the longest first
  std::vector<Running> fresh_;    // the mini-batch under construction
  std::int64_t steps_ = 0;
};

}  // namespace spillway
