// CMake compiles this file for AVX-512F and FMA. It includes Eigen under another name: see eigen_product.hpp.
#if defined(__x86_64__)

#if !defined(__clang__)
// GCC 12's intrinsics start from vectors that are undefined on purpose, and GCC warns of its own intrinsics.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define Eigen EigenAvx512

#include "cuda_calibrate/host/eigen_product.hpp"
#include "cuda_calibrate/host/product_kernels.hpp"

namespace spillway::calibrate {
namespace {

struct Avx512;

}  // namespace

ProductKernel avx512_product_kernel() { return {"avx512", eigen_product<Avx512>}; }

}  // namespace spillway::calibrate

#endif
