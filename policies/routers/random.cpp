// Random: each replica with the same probability.
//
// Source: vllm-project/router and sglang-router, policy "random".
#include "sim/api/router.hpp"

namespace spillway {
namespace {

class Random final : public Router {
 public:
  explicit Random(const RouterContext& context) : replicas_(context.replicas), random_(context.random) {}
  [[nodiscard]] std::size_t choose(const RequestSpec&) override {
    const std::span<const std::size_t> up = replicas_.up();
    return up[static_cast<std::size_t>(random_.uniform() * static_cast<double>(up.size()))];
  }

 private:
  const Replicas& replicas_;
  RandomStream random_;
};

const RegisterRouter kRegistered(RouterInfo{
    .name = "random",
    .summary = "Each replica with the same probability",
    .source = "vllm-project/router and sglang-router: random",
    .parameters = {},
    .make = [](const RouterContext& context) { return std::make_unique<Random>(context); }});

}  // namespace
}  // namespace spillway
