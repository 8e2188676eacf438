// Orca from its rule (Yu et al., OSDI 2022, Algorithm 1): iteration-level first come, first served; a request that
// joins reserves all the memory that it may ever need, so nothing is preempted; no watermark, no token budget, prompts
// beside decodes. A buddy allocator is a row of blocks here, of which each is taken or free.
#include <map>
#include <memory>
#include <vector>

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
    for (std::int64_t block : places_[id.serial]) taken_.at(static_cast<std::size_t>(block)) = false;
    places_.erase(id.serial);
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
      Tokens reserved = longest ? view.max_model_len() : head.input + head.max_new_tokens;
      const bool buddy = settings_.get<std::string>("policy.allocator") == "buddy";
      if (buddy) {
        std::int64_t chunk = 1;
        while (chunk * view.block_tokens().count() < reserved.count()) chunk *= 2;
        reserved = chunk * view.block_tokens();
        if (taken_.empty()) taken_.resize(static_cast<std::size_t>(view.tier(kGpuTier).total.count()));
        if (chunk > view.tier(kGpuTier).total.count()) {
          remove(waiting_, head.id);
          decision.reject(head.id);
          continue;
        }
      }
      if (static_cast<std::int64_t>(running_.size()) >= settings_.get<std::int64_t>("engine.max_num_seqs")) {
        return decision.blocked(Blocked::batch_size);
      }
      if (blocks_taken(view, head.id, reserved.count()) > free_blocks(view)) {
        return decision.blocked(Blocked::kv_capacity);
      }
      if (buddy) {
        const std::int64_t chunk = reserved.count() / view.block_tokens().count();
        const std::int64_t address = place_for(chunk);
        if (address < 0) return decision.blocked(Blocked::kv_capacity);
        for (std::int64_t block = address; block < address + chunk; ++block) {
          taken_.at(static_cast<std::size_t>(block)) = true;
          places_[head.id.serial].push_back(block);
        }
      }
      remove(waiting_, head.id);
      running_.push_back(head.id);
      decision.join(head.id);
      decision.reserve(head.id, reserved);
      decision.chunk(head.id, view.request(head.id).remaining());
    }
  }

 private:
  /// Whether these blocks exist and are all free.
  [[nodiscard]] bool is_free(std::int64_t address, std::int64_t blocks) const {
    if (address + blocks > static_cast<std::int64_t>(taken_.size())) return false;
    for (std::int64_t block = address; block < address + blocks; ++block) {
      if (taken_.at(static_cast<std::size_t>(block))) return false;
    }
    return true;
  }
  /// A free chunk is a free run at a multiple of its size that is not a half of a larger one. The smallest that is
  /// large enough, the first of them; -1: there is none.
  [[nodiscard]] std::int64_t place_for(std::int64_t blocks) const {
    for (std::int64_t size = blocks; size <= static_cast<std::int64_t>(taken_.size()); size *= 2) {
      for (std::int64_t at = 0; at < static_cast<std::int64_t>(taken_.size()); at += size) {
        if (is_free(at, size) && !is_free(at / (2 * size) * 2 * size, 2 * size)) return at;
      }
    }
    return -1;
  }

  std::vector<bool> taken_;
  std::map<std::int64_t, std::vector<std::int64_t>> places_;
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
