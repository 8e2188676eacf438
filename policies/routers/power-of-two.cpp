// Power of two choices: of two replicas drawn at random, the one with fewer requests that have not ended; of equal ones
// the first drawn.
//
// Source: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12(10), 2001;
// vllm-project/router and sglang-router, policy "power_of_two".
#include "sim/api/router.hpp"

namespace spillway {
namespace {

class PowerOfTwo final : public Router {
 public:
  explicit PowerOfTwo(const RouterContext& context) : replicas_(context.replicas), random_(context.random) {}
  [[nodiscard]] std::size_t choose(const RequestSpec&) override {
    const std::span<const std::size_t> up = replicas_.up();
    if (up.size() == 1) return up.front();
    const std::size_t one = below(up.size());
    const std::size_t other = below(up.size() - 1);
    const std::size_t first = up[one];
    const std::size_t second = up[other < one ? other : other + 1];
    return replicas_.outstanding(second) < replicas_.outstanding(first) ? second : first;
  }

 private:
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(random_.uniform() * static_cast<double>(count));
  }
  const Replicas& replicas_;
  RandomStream random_;
};

const RegisterRouter kRegistered(RouterInfo{
    .name = "power-of-two",
    .summary = "Of two replicas drawn at random, the one with fewer requests that have not ended",
    .source = "Mitzenmacher, IEEE TPDS 12(10), 2001; sglang-router: power_of_two",
    .parameters = {},
    .make = [](const RouterContext& context) { return std::make_unique<PowerOfTwo>(context); }});

}  // namespace
}  // namespace spillway
