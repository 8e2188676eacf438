// CMake compiles this file for AVX2 and FMA. It includes Eigen under another name: see eigen_product.hpp.
#if defined(__x86_64__)

#define Eigen EigenAvx2

#include "cuda_calibrate/host/eigen_product.hpp"
#include "cuda_calibrate/host/product_kernels.hpp"

namespace spillway::calibrate {
namespace {

struct Avx2;

}  // namespace

ProductKernel avx2_product_kernel() { return {"avx2", eigen_product<Avx2>}; }

}  // namespace spillway::calibrate

#endif
