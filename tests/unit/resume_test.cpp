// A swapped request that resumes as a decode, by hand.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "policies/parts/paged_space.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {
namespace {

/// Computes a prompt, drops it, computes it again up to its last token with room for all of it, swaps it out and in.
class ThereAndBack final : public Scheduler {
 public:
  explicit ThereAndBack(std::vector<std::int64_t>& free) : free_(free) {}
  void arrived(const RequestView& request) override { id_ = request.id; }
  void ended(RequestId, Outcome) override {}
  void decide(const View& view, const KvSpace&, Decision& decision) override {
    free_.push_back(view.tier(kGpuTier).free.count());
    switch (++step_) {
      case 1:
        decision.join(id_);
        decision.chunk(id_, Tokens(16));
        break;
      case 2:
        decision.leave(id_, Leave::preempt_recompute);
        break;
      case 3:
        decision.join(id_);
        decision.reserve(id_, Tokens(17));
        decision.chunk(id_, Tokens(16));
        break;
      case 4:
        decision.leave(id_, Leave::preempt_swap);
        break;
      case 5:
        decision.resume(id_);
        break;
      default:
        break;
    }
  }

 private:
  std::vector<std::int64_t>& free_;
  RequestId id_{};
  int step_ = 0;
};

// Ten blocks of 16 tokens. The prompt of 16 takes one; its first token makes 17 known ones. Dropped, ten are free.
// Computed again with room for 17, it holds two, the second without KV, when it leaves. Back as a decode it holds two:
// the step that computes token 17 needs one block more than the 16 computed ones. A third would be lost for the rest of
// the run.
TEST(Resume, ABlockWithoutKvIsNotTakenTwice) {
  std::vector<std::int64_t> free;
  PolicyInfo policy;
  policy.name = "toy";
  policy.make = [&free](const PolicyContext& context) {
    return Policy{std::make_unique<ThereAndBack>(free),
                  std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{})};
  };
  const WatchingModel model(Duration(100));
  const Replay run =
      replay(policy, {{"engine.preemption", std::string("swap")}}, layout(10, 10), {request(0, 16, 20)}, model);
  ASSERT_GE(free.size(), 6U);
  EXPECT_EQ(std::vector(free.begin(), free.begin() + 6), (std::vector<std::int64_t>{10, 9, 10, 8, 10, 8}));

  ASSERT_EQ(run.records.size(), 1U);
  EXPECT_EQ(run.records.front().outcome, Outcome::finished);
}

}  // namespace
}  // namespace spillway
