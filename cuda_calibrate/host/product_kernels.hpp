// Products of float32 matrices on one thread, by Eigen: compiled once for each vector extension.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::calibrate {

struct ProductKernel {
  std::string_view extension;  // avx512, avx2, neon, sse2
  /// y[row][output] = sum over inputs of x[row][input] weights[output][input]. Rows of x and weights follow each other
  /// without a gap; rows of y are `stride` numbers apart.
  void (*multiply)(const float* x, const float* weights, std::int64_t rows, std::int64_t inputs, std::int64_t outputs,
                   float* y, std::int64_t stride);
};

/// The kernels that this processor can run, the fastest first.
[[nodiscard]] const std::vector<ProductKernel>& product_kernels();

/// "eigen-3.4.0-avx512".
[[nodiscard]] std::string name_of(const ProductKernel& kernel);

/// For any processor of the architecture.
[[nodiscard]] ProductKernel baseline_product_kernel();
#if defined(__x86_64__)
[[nodiscard]] ProductKernel avx2_product_kernel();    // needs AVX2 and FMA
[[nodiscard]] ProductKernel avx512_product_kernel();  // needs AVX-512F and FMA
#endif

}  // namespace spillway::calibrate
