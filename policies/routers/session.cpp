// Session: all turns of a conversation go to the same replica, by jump consistent hashing of its number. Requests
// without a conversation go to the replica with the fewest requests that have not ended.
//
// Source: vllm-project/production-stack, session router (consistent hashing, least loaded without a session); Lamping
// and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", arXiv 1406.2294.
#include <algorithm>

#include "policies/parts/outstanding.hpp"
#include "sim/api/router.hpp"

namespace spillway {
namespace {

/// One of `buckets` for a key. With one bucket more, a key keeps its bucket or moves to the new one.
std::size_t jump_hash(std::uint64_t key, std::size_t buckets) {
  std::int64_t bucket = -1;
  std::int64_t next = 0;
  while (next < static_cast<std::int64_t>(buckets)) {
    bucket = next;
    key = key * 2862933555777941757U + 1;
    next =
        static_cast<std::int64_t>(static_cast<double>(bucket + 1) * (0x1p31 / static_cast<double>((key >> 33U) + 1)));
  }
  return static_cast<std::size_t>(bucket);
}

class Session final : public Router {
 public:
  explicit Session(const RouterContext& context)
      : replicas_(context.replicas), outstanding_(context.replicas.count()) {}
  [[nodiscard]] std::size_t choose(const RequestSpec& request) override {
    const std::int64_t conversation = request.traits.conversation;
    const std::size_t chosen = conversation < 0 ? outstanding_.least() : home(static_cast<std::uint64_t>(conversation));
    outstanding_.sent(chosen);
    return chosen;
  }
  void sent_on(const RequestSpec&, std::size_t replica) override { outstanding_.sent(replica); }
  void ended(std::size_t replica) override { outstanding_.ended(replica); }
  void changed(std::size_t replica, bool up) override { outstanding_.set_up(replica, up); }

 private:
  /// Of a conversation. While it is down, its conversations are spread over those that are up, and no other one moves.
  [[nodiscard]] std::size_t home(std::uint64_t conversation) const {
    std::uint64_t key = split_mix(conversation);
    const std::span<const std::size_t> up = replicas_.up();
    const std::size_t chosen = jump_hash(key, replicas_.count());
    return std::ranges::binary_search(up, chosen) ? chosen : up[jump_hash(split_mix(key), up.size())];
  }
  const Replicas& replicas_;
  Outstanding outstanding_;
};

const RegisterRouter kRegistered(RouterInfo{
    .name = "session",
    .summary = "All turns of a conversation go to the same replica",
    .source = "vllm-project/production-stack: session router; Lamping and Veach, arXiv 1406.2294",
    .parameters = {},
    .make = [](const RouterContext& context) { return std::make_unique<Session>(context); }});

}  // namespace
}  // namespace spillway
