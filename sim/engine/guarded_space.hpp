// The memory for KV as a scheduler sees it beside layers that are streamed.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/api/registry.hpp"
#include "sim/api/scheduler.hpp"

namespace spillway {

/// Whether the parts of a policy that stream layers admit a request.
[[nodiscard]] inline bool layers_admit(const Policy& policy, const RequestView& request) {
  return (!policy.layers || policy.layers->admits(request)) && (!policy.weights || policy.weights->admits(request));
}

/// The space of a policy, which answers Fit::never for a request that has memory and that the layers refuse. For one
/// decision. The policy must outlive it.
class GuardedSpace final : public KvSpace {
 public:
  explicit GuardedSpace(const Policy& policy) : policy_(policy) {}

  [[nodiscard]] Fit admits(const RequestView& request, Tokens upto) const override {
    const Fit fit = policy_.space->admits(request, upto);
    return fit == Fit::now && !layers_admit(policy_, request) ? Fit::never : fit;
  }
  [[nodiscard]] Fit grows(const RequestView& request, Tokens upto) const override {
    return policy_.space->grows(request, upto);
  }
  [[nodiscard]] Fit decodes(std::int64_t count) const override { return policy_.space->decodes(count); }
  [[nodiscard]] Fit resumes(const RequestView& request, Tokens upto) const override {
    return policy_.space->resumes(request, upto);
  }
  [[nodiscard]] Leave preempts(const RequestView& request) const override { return policy_.space->preempts(request); }
  [[nodiscard]] bool suspends_whole(const RequestView& request) const override {
    return policy_.space->suspends_whole(request);
  }
  [[nodiscard]] std::int64_t together(const View& view, const std::function<RequestId()>& next) const override {
    return policy_.space->together(view, next);
  }

 private:
  const Policy& policy_;
};

}  // namespace spillway
