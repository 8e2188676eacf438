// Least KV: the replica whose requests hold the smallest share of its KV blocks; of equal ones the one with fewer
// requests that have not ended, and of these the first. O(replicas) per request, as a gateway that compares metrics.
//
// Source: Kubernetes' gateway API inference extension, scorer of KV-cache utilisation.
#include <algorithm>
#include <tuple>

#include "sim/api/router.hpp"

namespace spillway {
namespace {

class LeastKv final : public Router {
 public:
  explicit LeastKv(const RouterContext& context) : replicas_(context.replicas) {}
  [[nodiscard]] std::size_t choose(const RequestSpec&) override {
    const auto load = [&](std::size_t replica) {
      return std::tuple(replicas_.kv_used(replica), replicas_.outstanding(replica));
    };
    return *std::ranges::min_element(replicas_.up(), {}, load);
  }

 private:
  const Replicas& replicas_;
};

const RegisterRouter kRegistered(RouterInfo{
    .name = "least-kv",
    .summary = "The replica whose requests hold the smallest share of its KV blocks",
    .source = "Kubernetes gateway API inference extension: scorer of KV-cache utilisation",
    .parameters = {},
    .make = [](const RouterContext& context) { return std::make_unique<LeastKv>(context); }});

}  // namespace
}  // namespace spillway
