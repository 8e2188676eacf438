// Round robin: each replica in turn, whatever it has to do.
//
// Source: vllm-project/router and sglang-router, policy "round_robin".
#include <algorithm>

#include "sim/api/router.hpp"

namespace spillway {
namespace {

class RoundRobin final : public Router {
 public:
  explicit RoundRobin(const RouterContext& context) : replicas_(context.replicas) {}
  [[nodiscard]] std::size_t choose(const RequestSpec&) override {
    const std::span<const std::size_t> up = replicas_.up();
    const auto found = std::ranges::lower_bound(up, next_);
    const std::size_t chosen = found == up.end() ? up.front() : *found;
    next_ = chosen + 1;
    return chosen;
  }

 private:
  const Replicas& replicas_;
  std::size_t next_ = 0;
};

const RegisterRouter kRegistered(RouterInfo{
    .name = "round-robin",
    .summary = "Each replica in turn, whatever it has to do",
    .source = "vllm-project/router and sglang-router: round_robin",
    .parameters = {},
    .make = [](const RouterContext& context) { return std::make_unique<RoundRobin>(context); }});

}  // namespace
}  // namespace spillway
