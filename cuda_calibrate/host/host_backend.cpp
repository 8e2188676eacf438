#include "cuda_calibrate/host/host_backend.hpp"

#include <utility>

#include "cuda_calibrate/host/host_attention.hpp"
#include "cuda_calibrate/host/host_facts.hpp"
#include "cuda_calibrate/host/host_gemm.hpp"
#include "cuda_calibrate/host/host_stream.hpp"

namespace spillway::calibrate {
namespace {

class HostBackend final : public Backend {
 public:
  HostBackend(std::uint64_t seed, HostHooks hooks, std::string gpu_reason)
      : seed_(seed), hooks_(std::move(hooks)), gpu_reason_(std::move(gpu_reason)) {}

  MachineFacts facts() override {
    MachineFacts facts;
    facts.host = host_facts();
    facts.gpu_reason = gpu_reason_;
    return facts;
  }

  std::unique_ptr<Case> prepare(const Point& point) override {
    if (const auto* stream = std::get_if<HostStream>(&point)) return make_host_stream(*stream, seed_, hooks_);
    if (const auto* attention = std::get_if<HostAttention>(&point)) return make_host_attention(*attention, seed_);
    if (const auto* gemm = std::get_if<HostGemm>(&point)) return make_host_gemm(*gemm, seed_);
    throw Unsupported(gpu_reason_);
  }

 private:
  std::uint64_t seed_;
  HostHooks hooks_;
  std::string gpu_reason_;
};

}  // namespace

std::unique_ptr<Backend> make_host_backend(std::uint64_t seed, HostHooks hooks, std::string gpu_reason) {
  return std::make_unique<HostBackend>(seed, std::move(hooks), std::move(gpu_reason));
}

}  // namespace spillway::calibrate
