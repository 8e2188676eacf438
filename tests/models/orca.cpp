// Orca from its rule (Yu et al., OSDI 2022, Algorithm 1): iteration-level first come, first served; a request that
// joins reserves all the memory that it may ever need, so nothing is preempted; no watermark, no token budget, prompts
// beside decodes.
#include <memory>

#include "tests/models/plain_policy.hpp"
#include "tests/models/plain_space.hpp"

namespace spillway::oracle {
namespace {

class PlainOrca final : public Scheduler {
 public:
  explicit PlainOrca(const Settings& settings) : settings_(settings) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId id, Outcome) override {
    remove(waiting_, id);
    remove(running_, id);
  }

  void decide(const View& view, const KvSpace&, Decision& decision) override {
    std::int64_t decodes = 0;
    for (const RequestId id : running_) decodes += view.request(id).phase == Phase::decoding ? 1 : 0;
    decision.decodes(decodes);
    // Request-level batching: nobody joins a batch that has begun.
    if (settings_.get<std::string>("policy.batching") == "request" && !running_.empty()) return;
    while (!waiting_.empty()) {
      const RequestView head = view.request(waiting_.front());
      const bool longest = settings_.get<std::string>("policy.reserve") == "max_model_len";
      const Tokens reserved = longest ? view.max_model_len() : head.input + head.max_new_tokens;
      if (static_cast<std::int64_t>(running_.size()) >= settings_.get<std::int64_t>("engine.max_num_seqs")) {
        return decision.blocked(Blocked::batch_size);
      }
      if (blocks_taken(view, head.id, reserved.count()) > free_blocks(view)) {
        return decision.blocked(Blocked::kv_capacity);
      }
      remove(waiting_, head.id);
      running_.push_back(head.id);
      decision.join(head.id);
      decision.reserve(head.id, reserved);
      decision.chunk(head.id, view.request(head.id).remaining());
    }
  }

 private:
  const Settings settings_;
  Ids waiting_;
  Ids running_;
};

const RegisterPlain kRegistered{
    PlainPolicy{.name = "orca",
                .make =
                    [](const PolicyContext& context) {
                      return Policy{std::make_unique<PlainOrca>(context.settings), std::make_unique<UnaskedSpace>()};
                    },
                .explains_waiting = true}};

}  // namespace
}  // namespace spillway::oracle
