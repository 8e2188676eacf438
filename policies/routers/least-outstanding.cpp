// Least outstanding: the replica with the fewest requests that have not ended; of equal ones the first.
//
// Source: NGINX's least_conn and Envoy's LEAST_REQUEST of all hosts; vllm-project/production-stack counts requests in
// the same way.
#include "policies/parts/outstanding.hpp"
#include "sim/api/router.hpp"

namespace spillway {
namespace {

class LeastOutstanding final : public Router {
 public:
  explicit LeastOutstanding(const RouterContext& context) : outstanding_(context.replicas.count()) {}
  [[nodiscard]] std::size_t choose(const RequestSpec&) override {
    const std::size_t chosen = outstanding_.least();
    outstanding_.sent(chosen);
    return chosen;
  }
  void sent_on(const RequestSpec&, std::size_t replica) override { outstanding_.sent(replica); }
  void ended(std::size_t replica) override { outstanding_.ended(replica); }
  void changed(std::size_t replica, bool up) override { outstanding_.set_up(replica, up); }

 private:
  Outstanding outstanding_;
};

const RegisterRouter kRegistered(RouterInfo{
    .name = "least-outstanding",
    .summary = "The replica with the fewest requests that have not ended",
    .source = "NGINX least_conn; Envoy LEAST_REQUEST over all hosts",
    .parameters = {},
    .make = [](const RouterContext& context) { return std::make_unique<LeastOutstanding>(context); }});

}  // namespace
}  // namespace spillway
