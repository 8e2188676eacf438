#include "cuda_calibrate/host/product_kernels.hpp"

#include <fmt/format.h>

#include "cuda_calibrate/host/eigen_product.hpp"

namespace spillway::calibrate {
namespace {

struct Baseline;

#if defined(__aarch64__)
constexpr std::string_view kBaseline = "neon";
#else
constexpr std::string_view kBaseline = "sse2";
#endif

std::vector<ProductKernel> runnable() {
  std::vector<ProductKernel> kernels;
#if defined(__x86_64__)
  const bool fma = __builtin_cpu_supports("fma") != 0;
  if (fma && __builtin_cpu_supports("avx512f") != 0) kernels.push_back(avx512_product_kernel());
  if (fma && __builtin_cpu_supports("avx2") != 0) kernels.push_back(avx2_product_kernel());
#endif
  kernels.push_back(baseline_product_kernel());
  return kernels;
}

}  // namespace

const std::vector<ProductKernel>& product_kernels() {
  static const std::vector<ProductKernel> kKernels = runnable();
  return kKernels;
}

std::string name_of(const ProductKernel& kernel) {
  return fmt::format("eigen-{}.{}.{}-{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION,
                     kernel.extension);
}

ProductKernel baseline_product_kernel() { return {kBaseline, eigen_product<Baseline>}; }

}  // namespace spillway::calibrate
