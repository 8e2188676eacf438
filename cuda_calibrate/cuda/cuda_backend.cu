#include <fmt/format.h>

#include <utility>

#include "cuda_calibrate/cuda/cases.hpp"
#include "cuda_calibrate/cuda/gpu_facts.hpp"
#include "cuda_calibrate/cuda/self_test.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate {
namespace gpu {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

/// 13000 means 13.0. In cuBLASLt's format, 130002 means 13.0.2.
std::string runtime_version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }
std::string cublas_version(std::size_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

GpuFacts facts_of(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  GpuFacts facts;
  facts.name = properties.name;
  facts.index = index;
  facts.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  facts.sm_count = properties.multiProcessorCount;
  facts.l2_bytes = properties.l2CacheSize;
  facts.compute_capability = 10 * properties.major + properties.minor;
  facts.bf16 = facts.compute_capability >= 80;
  facts.fp8 = facts.compute_capability >= 89;
  const std::string bus_id = pci_bus_id(index);
  facts.ecc = properties.ECCEnabled != 0;
  facts.numa_node = numa_node_of(bus_id);
  add_nvml_facts(facts, bus_id);
  return facts;
}

class CudaBackend : public Backend {
 public:
  CudaBackend(int index, int count, std::uint64_t seed)
      : count_(count),
        gpu_(index, seed),
        host_(make_host_backend(seed, host_hooks(gpu_), "")),
        sensors_(pci_bus_id(index)) {}

  MachineFacts facts() override {
    MachineFacts facts = host_->facts();
    for (int index = 0; index < count_; ++index) facts.gpus.push_back(facts_of(index));
    facts.gpu_reason.clear();
    facts.driver = driver_version();
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    facts.cuda_runtime = runtime_version(runtime);
    facts.cublas = cublas_version(cublasLtGetVersion());
    facts.cudnn = cudnn_version();
    return facts;
  }

  std::unique_ptr<Case> prepare(const Point& point) override {
    gpu_.use();
    return std::visit(Overloaded{[&](const HostStream&) { return host_->prepare(point); },
                                 [&](const HostAttention&) { return host_->prepare(point); },
                                 [&](const HostGemm&) { return host_->prepare(point); },
                                 [&](const Gemm& one) { return compute_case(gpu_, make_op(gpu_, one)); },
                                 [&](const DecodeAttention& one) { return compute_case(gpu_, make_op(gpu_, one)); },
                                 [&](const PrefillAttention& one) { return compute_case(gpu_, make_op(gpu_, one)); },
                                 [&](const MixedAttention& one) { return compute_case(gpu_, make_op(gpu_, one)); },
                                 [&](const Sustained& one) {
                                   return std::visit(
                                       [&](const auto& work) { return compute_case(gpu_, make_op(gpu_, work)); },
                                       one.compute);
                                 },
                                 [&](const Elementwise& one) { return compute_case(gpu_, make_op(gpu_, one)); },
                                 [&](const auto& one) { return make_case(gpu_, one); }},
                      point);
  }

  std::optional<GpuSensors> sensors() override { return sensors_.read(); }

  std::vector<std::string> self_test() override { return gpu::self_test(gpu_); }

 private:
  int count_;
  Gpu gpu_;
  std::unique_ptr<Backend> host_;
  NvmlSensors sensors_;
};

}  // namespace
}  // namespace gpu

std::unique_ptr<Backend> make_backend(std::int64_t gpu, std::uint64_t seed) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    const char* text = status == cudaSuccess ? "no GPU was found" : cudaGetErrorString(status);
    return make_host_backend(seed, {}, fmt::format("cudaGetDeviceCount: {}", text));
  }
  if (gpu < 0 || gpu >= count) {
    throw DeviceError(fmt::format("there is no GPU {}: this machine has {}, counted from 0", gpu, count), false);
  }
  return std::make_unique<gpu::CudaBackend>(static_cast<int>(gpu), count, seed);
}

}  // namespace spillway::calibrate
