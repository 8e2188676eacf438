// The order in which the prefix cache gives up blocks, as a policy chooses it: hits by hand.
#include <utility>
#include <vector>

#include "policies/parts/paged_space.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

/// vLLM with another order of the free blocks; empty: its own, LRU.
PolicyInfo vllm(const Retention& retention) {
  PolicyInfo info = *PolicyRegistry::instance().find("vllm");
  info.make = [make = info.make, retention](const PolicyContext& context) {
    Policy policy = make(context);
    policy.space = std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{.retention = retention});
    return policy;
  };
  return info;
}

/// Prompts of whole blocks and one token, with one token of output, one after another: 5 blocks of 16 tokens on the
/// GPU. Returns the cached tokens of the last one.
Tokens hits_of_last(const Retention& retention, const std::vector<std::vector<std::uint64_t>>& prompts) {
  std::vector<RequestSpec> requests;
  for (const std::vector<std::uint64_t>& ids : prompts) {
    requests.push_back(request(1000 * std::ssize(requests), 16 * std::ssize(ids) + 1, 1));
    requests.back().prefix_ids = ids;
  }
  const KvLayout kv{Blocks(5), Blocks(0), Tokens(16), Bytes(1000), 1, true};
  const WatchingModel model;
  return replay(vllm(retention), {}, kv, requests, model).of(prompts.size() - 1).cached;
}

// A = {1, 2} comes twice, then B = {5, 6}, then C = {7, 8}, then A again. Each takes 3 blocks: 2 with content.
//   LRU: after A and B the free blocks are, in this order, those of A, an empty one, those of B. C takes A's.
//   LFU: A's blocks had a hit each and B's none. C takes the empty block and B's. A finds both blocks: 32 tokens.
TEST(Retention, LeastFrequentlyUsed_KeepsWhatWasHit) {
  const std::vector<std::vector<std::uint64_t>> prompts{{1, 2}, {1, 2}, {5, 6}, {7, 8}, {1, 2}};
  EXPECT_EQ(hits_of_last({}, prompts), Tokens(0));
  const auto lfu = [](const View&, const FreedBlock& block) { return static_cast<double>(block.hits); };
  EXPECT_EQ(hits_of_last(lfu, prompts), Tokens(32));
}

// A = {1, 2}, then B = {5, 6}, then C = {7}, which takes 2 blocks, then A again.
//   LRU: C takes both blocks of A.
//   Deepest first: C takes the empty block, and the second block of A, which was freed before that of B. A finds its
//   first block: 16 tokens.
TEST(Retention, DeepestFirst_KeepsTheStartsOfContexts) {
  const std::vector<std::vector<std::uint64_t>> prompts{{1, 2}, {5, 6}, {7}, {1, 2}};
  EXPECT_EQ(hits_of_last({}, prompts), Tokens(0));
  const auto deepest_first = [](const View&, const FreedBlock& block) {
    return -static_cast<double>(block.position.count());
  };
  EXPECT_EQ(hits_of_last(deepest_first, prompts), Tokens(16));
}

// Of A = {1, 2} and B = {5, 6} A is worth more. C = {7, 8} takes B's blocks, although A's were freed before.
TEST(Retention, ByTheRequestThatLeaves) {
  const std::vector<std::vector<std::uint64_t>> prompts{{1, 2}, {5, 6}, {7, 8}, {1, 2}};
  EXPECT_EQ(hits_of_last({}, prompts), Tokens(0));
  const auto first_last = [](const View&, const FreedBlock& block) {
    return block.request.arrival == SimTime(0) ? 1.0 : 0.0;
  };
  EXPECT_EQ(hits_of_last(first_last, prompts), Tokens(32));
}

}  // namespace
}  // namespace spillway
