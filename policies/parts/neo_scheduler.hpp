// NEO's scheduler and where its requests attend: queues, memory and budget around neo_choose().
//
// Source: NEO (Jiang et al., MLSys 2025), section 3.2 and appendix A; its public code (NEO-MLSys25/NEO, b55aaab),
// swiftllm/server/scheduler.py.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policies/parts/neo_choice.hpp"
#include "policies/parts/paged_space.hpp"
#include "sim/api/registry.hpp"

namespace spillway {

/// KV is as a whole on the GPU or on the host. Its scheduler says where, just before a request joins or resumes.
class NeoSpace final : public PagedSpace {
 public:
  NeoSpace(const View& view, CopyMechanism copies);
  /// Requests that join or resume from now on attend there, and prompts take what the prefix cache holds, or nothing.
  void attend_on(TierId tier, bool take_prefix = true) {
    tier_ = tier;
    takes_prefix_ = take_prefix;
  }
  [[nodiscard]] TierId attends(const View& view, const RequestView& request) const override;
  [[nodiscard]] bool takes_prefix(const View& view, const RequestView& request) const override;
  void returns(const View& view, const RequestView& request, Placement& placement) override;

 private:
  TierId tier_ = kGpuTier;
  bool takes_prefix_ = true;
};

/// Blocks up to which requests come back to the GPU: 95% of its blocks, rounded half to even as by Python's round().
[[nodiscard]] Blocks neo_swap_in_limit(Blocks gpu);

/// Requests whose KV is on the host, in the order in which they may come to the GPU. Each iteration reads all of them,
/// so each of their figures is a list of its own.
class NeoHostQueue {
 public:
  /// One that does not run is in this sub-batch.
  static constexpr std::int8_t kRests = NeoChoice::kRests;

  explicit NeoHostQueue(Tokens block_tokens) : block_(block_tokens) {}
  [[nodiscard]] std::size_t size() const { return ids_.size(); }
  [[nodiscard]] bool empty() const { return ids_.empty(); }
  [[nodiscard]] RequestId id(std::size_t at) const { return ids_[at]; }
  [[nodiscard]] Tokens known(std::size_t at) const { return known_[at]; }
  [[nodiscard]] std::int8_t sub_batch(std::size_t at) const { return sub_batch_[at]; }
  [[nodiscard]] bool runs(std::size_t at) const { return sub_batch_[at] != kRests; }
  /// Known tokens, and sub-batches, in order.
  [[nodiscard]] const std::vector<Tokens>& contexts() const { return known_; }
  [[nodiscard]] const std::vector<std::int8_t>& sub_batches() const { return sub_batch_; }
  /// Blocks of the known tokens.
  [[nodiscard]] Blocks blocks() const { return blocks_; }
  /// Known tokens of those that run.
  [[nodiscard]] Tokens running() const { return running_; }
  [[nodiscard]] std::int64_t count_running() const { return count_running_; }

  void push_front(RequestId id, Tokens known) { insert(0, id, known, kRests); }
  void push_back(RequestId id, Tokens known, std::int8_t sub_batch) { insert(size(), id, known, sub_batch); }
  void erase(std::size_t at);
  /// O(size). False: it is not in the queue.
  bool erase(RequestId id);
  void place(std::size_t at, std::int8_t sub_batch);
  /// Each one that runs has taken a token. O(size).
  void step();

 private:
  void insert(std::size_t at, RequestId id, Tokens known, std::int8_t sub_batch);
  void count(std::size_t at, std::int64_t sign);

  Tokens block_;
  std::vector<RequestId> ids_;
  std::vector<Tokens> known_;
  std::vector<std::int64_t> left_;  // tokens that the last block still takes
  std::vector<std::int8_t> sub_batch_;
  Blocks blocks_{};
  Tokens running_{};
  std::int64_t count_running_ = 0;
};

struct NeoOptions {
  NeoRules rules = NeoRules::code;
  bool residents = true;   // false: no request stays on the GPU (FastDecode+)
  double launch = 0.0;     // ns
  double cpu_error = 0.0;  // of the predictor
  /// Where nothing runs although decodes wait on the host, they run alone. False: as in the public code, nothing runs
  /// then for ever.
  bool resolves_livelock = true;
  Tokens tokens{};             // of an iteration
  std::int64_t sequences = 0;  // of an iteration
};

/// The ten steps of an iteration:
///   1  The decodes on the GPU come first: blocks for their next tokens, a seat and a token each.
///   2  While memory or budget falls short, the last of them goes to the head of the host's queue.
///   3  Otherwise the head of the host's queue comes to the GPU while 95% of the GPU's blocks suffice.
///   4  Prompts in order, until one does not fit: it stays on the GPU while blocks are free there, else it goes to the
///      host, and so do all prompts behind it. The host keeps enough memory to take all of the GPU's requests.
///   5-9  neo_choose().
///   10 Only prompts that run leave the queue.
///
/// Differences from the public code:
///  * It never checks that the host has memory for the next tokens of the decodes there. Here the last one of the
///    host's queue is computed again, and so is a request for which the host has no memory when it must leave the GPU.
///  * It asserts that every prompt fits. Here a prompt that can never run is rejected.
///  * It has no prefix cache. Here a prompt computes only what the cache lacks, wherever its KV goes.
///      to the GPU   It shares the cached blocks, as in any engine, and takes those it lacks.
///      to the host  The GPU attends to its prompt, so cached blocks serve it on the GPU while the prompt is computed:
///                   idle ones and blocks that memory.host_cache returns need free memory there for that iteration. If
///                   it is short, the prompt is computed whole. Then all of its KV is on the host, the cached part as a
///                   copy, and the GPU's blocks go back to the cache. Only tokens that are computed pass through the
///                   staging layer.
///    Blocks of the GPU stay in the cache until they are reused. What is computed for the host never fills a block of
///    the GPU. It is in memory.host_cache instead, at the end of the iteration that fills a block: no link copies it.
///    A prompt whose prefix went while prompts before it took blocks waits for the next iteration.
///
/// O(prompts that may run and their cached blocks + decodes on the host) per iteration, O(batch) when a request ends.
class NeoScheduler final : public Scheduler {
 public:
  /// `view`, `space` and `model` outlive it. `model` times the predictor's tables.
  NeoScheduler(const View& view, NeoSpace& space, const ExecutionModel& model, const NeoOptions& options);

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void iteration_ended() override;
  void ended(RequestId id, Outcome outcome) override;
  void decide(const View& view, const KvSpace& kv, Decision& decision) override;
  [[nodiscard]] Figures figures() const override;

 private:
  /// What steps 1 to 4 have found.
  struct Plan {
    Blocks gpu_blocks{};  // of the decodes on the GPU, and of prompts that stay there
    std::int64_t seats = 0;
    Tokens tokens{};
  };

  [[nodiscard]] Blocks blocks(Tokens tokens) const { return blocks_for(tokens, view_.block_tokens()); }
  /// Blocks that requests may keep on the GPU.
  [[nodiscard]] Blocks gpu_capacity() const { return options_.residents ? view_.tier(kGpuTier).total : Blocks(0); }
  [[nodiscard]] Blocks gpu_needed() const;

  [[nodiscard]] Plan count_decodes() const;
  /// Returns true if a request left the GPU.
  bool swap_out(Plan& plan, Decision& decision);
  void swap_in(Plan& plan, Decision& decision);
  void recompute_beyond_host(Decision& decision);
  void find_prompts(Plan& plan, Decision& decision);
  [[nodiscard]] bool never_fits(const RequestView& request) const;
  void choose(const Plan& plan);
  void place_decodes(Decision& decision);
  void start_prompts(Decision& decision);
  /// The next prompt joins. False: it does not, because less of its prefix is cached than planned.
  [[nodiscard]] bool start(const NeoPrompt& prompt, TierId tier, Decision& decision);

  const View& view_;
  NeoSpace& space_;
  const ExecutionModel& model_;
  const NeoOptions options_;
  std::optional<NeoTables> tables_{};  // once the tiers are known

  std::deque<RequestId> waiting_;
  std::vector<RequestId> gpu_;  // in the order in which they came there
  NeoHostQueue host_;

  // Of the last decision. The prompts are the first ones of waiting_ before it.
  std::vector<NeoPrompt> gpu_prompts_;
  std::vector<NeoPrompt> cpu_prompts_;
  NeoChoice choice_;
  std::int64_t host_decodes_ = 0;  // that ran

  // Figures.
  SimTime started_{};
  double predicted_sum_ = 0.0;  // ns
  double lasted_sum_ = 0.0;
  std::int64_t iterations_ = 0;
  std::int64_t pipelined_ = 0;
  std::int64_t swap_outs_ = 0;
  std::int64_t swap_ins_ = 0;
  std::int64_t rests_ = 0;
  std::int64_t cpu_only_ = 0;
  double cpu_tokens_ = 0.0;
};

inline constexpr const char* kNeoLaunchKey = "policy.launch";
inline constexpr const char* kNeoErrorKey = "policy.predictor_error";

/// What the policies that are built of these parts have in common. `options` chooses the rules and where requests stay.
[[nodiscard]] PolicyInfo neo_policy(const std::string& name, NeoOptions (*options)(const Settings&));

}  // namespace spillway
