#include <fmt/format.h>

#include <algorithm>

#include "cuda_calibrate/cuda/cases.hpp"
#include "cuda_calibrate/cuda/check.hpp"

namespace spillway::calibrate::gpu {
namespace {

/// A cuBLASLt handle and the call that destroys it.
template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
class LtOwner {
 public:
  LtOwner() = default;
  LtOwner(const LtOwner&) = delete;
  LtOwner& operator=(const LtOwner&) = delete;
  ~LtOwner() {
    if (handle_ != nullptr) (void)kDestroy(handle_);
  }
  [[nodiscard]] Handle get() const { return handle_; }
  [[nodiscard]] Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};
using Lt = LtOwner<cublasLtHandle_t, cublasLtDestroy>;
using Matmul = LtOwner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = LtOwner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = LtOwner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(Number number) {
  return number == Number::bf16 ? CUDA_R_16BF : number == Number::fp16 ? CUDA_R_16F : CUDA_R_8F_E4M3;
}

/// cuBLASLt stores matrices by columns, so it computes y^T[n][m] = w^T^T[n][k] x^T[k][m]: w, whose rows are cuBLASLt's
/// columns of k, is transposed; x is not.
class GemmOp : public ProductOp {
 public:
  GemmOp(Gpu& gpu, const Gemm& point) : point_(point) {
    gpu.need(point.number);
    const std::int64_t width = point.number == Number::fp8 ? 1 : 2;
    // The heuristic assumes that every operand is aligned to 256 bytes.
    weight_stride_ = (point.n * point.k * width + 255) / 256 * 256;
    copies_ = rotation(weight_stride_, gpu.l2_bytes());
    weights_ = gpu.random_memory(copies_ * weight_stride_, point.number);
    x_ = gpu.random_memory(point.m * point.k * width, point.number);
    y_ = gpu.random_memory(point.m * point.n * 2);
    workspace_ = DeviceMemory(kWorkspace);
    describe();
    choose(gpu);
  }

  void enqueue(cudaStream_t stream) override { enqueue(algorithms_.front(), next_weights(), stream); }
  void enqueue_with(const std::byte* weights, cudaStream_t stream) override {
    enqueue(algorithms_.front(), weights, stream);
  }
  [[nodiscard]] std::string kernel() const override { return "cublaslt"; }

  /// The first call reads the first weights.
  [[nodiscard]] const DeviceMemory& weights() const { return weights_; }
  [[nodiscard]] const DeviceMemory& x() const { return x_; }
  [[nodiscard]] const DeviceMemory& y() const { return y_; }

 private:
  static constexpr std::int64_t kWorkspace = std::int64_t{32} << 20;

  void describe() {
    const cudaDataType_t type = type_of(point_.number);
    const cudaDataType_t result = point_.number == Number::fp8 ? CUDA_R_16BF : type;
    check(cublasLtCreate(lt_.out()), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(matmul_.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    if (point_.number == Number::fp8) {
      scale_ = uploaded(std::vector<float>{1.0F});
      const void* one = scale_.data();
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, one);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, one);
    }
    const auto m = static_cast<std::uint64_t>(point_.m);
    const auto n = static_cast<std::uint64_t>(point_.n);
    const auto k = static_cast<std::uint64_t>(point_.k);
    check(cublasLtMatrixLayoutCreate(w_layout_.out(), type, k, n, point_.k), "cublasLtMatrixLayoutCreate");
    check(cublasLtMatrixLayoutCreate(x_layout_.out(), type, k, m, point_.k), "cublasLtMatrixLayoutCreate");
    check(cublasLtMatrixLayoutCreate(y_layout_.out(), result, n, m, point_.n), "cublasLtMatrixLayoutCreate");
  }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(cublasLtMatmulDescSetAttribute(matmul_.get(), attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }

  /// Chooses the heuristic's first algorithm, or the fastest of its first `best_of`.
  void choose(Gpu& gpu) {
    Preference preference;
    const auto workspace = static_cast<std::size_t>(kWorkspace);
    check(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace),
          "cublasLtMatmulPreferenceSetAttribute");
    const auto wanted = static_cast<int>(std::max<std::int64_t>(point_.best_of, 1));
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(wanted));
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(lt_.get(), matmul_.get(), w_layout_.get(), x_layout_.get(), y_layout_.get(),
                                         y_layout_.get(), preference.get(), wanted, found.data(), &count),
          "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < count; ++i) {
      const auto& choice = found[static_cast<std::size_t>(i)];
      if (choice.state == CUBLAS_STATUS_SUCCESS) algorithms_.push_back(choice.algo);
    }
    if (algorithms_.empty()) {
      throw Unsupported(fmt::format("cuBLASLt has no kernel for m {}, n {}, k {}", point_.m, point_.n, point_.k));
    }
    if (wanted == 1) return;
    std::vector<std::pair<double, std::size_t>> times;
    times.reserve(algorithms_.size());
    for (std::size_t i = 0; i < algorithms_.size(); ++i) {
      cudaStream_t stream = gpu.stream(StreamOf::compute);
      const Lane lane{&gpu, stream, [&] { enqueue(algorithms_[i], next_weights(), stream); }, kEntries};
      lane.enqueue();
      gpu.finish();
      std::vector<double> seconds;
      seconds.reserve(kTrials);
      for (std::size_t trial = 0; trial < kTrials; ++trial) seconds.push_back(seconds_alone(&gpu.gate(), lane, 10));
      std::sort(seconds.begin(), seconds.end());
      times.emplace_back(seconds[kTrials / 2], i);
    }
    std::swap(algorithms_.front(), algorithms_[std::min_element(times.begin(), times.end())->second]);
  }

  const std::byte* next_weights() {
    const std::byte* weights = weights_.data() + next_ * weight_stride_;
    next_ = (next_ + 1) % copies_;
    return weights;
  }

  void enqueue(const cublasLtMatmulAlgo_t& algorithm, const std::byte* weights, cudaStream_t stream) {
    const float one = 1.0F;
    const float zero = 0.0F;
    check(cublasLtMatmul(lt_.get(), matmul_.get(), &one, weights, w_layout_.get(), x_.data(), x_layout_.get(), &zero,
                         y_.data(), y_layout_.get(), y_.data(), y_layout_.get(), &algorithm, workspace_.data(),
                         static_cast<std::size_t>(kWorkspace), stream),
          "cublasLtMatmul");
  }

  static constexpr std::size_t kTrials = 3;

  Gemm point_;
  std::int64_t weight_stride_ = 0;
  std::int64_t copies_ = 1;
  std::int64_t next_ = 0;
  DeviceMemory weights_;
  DeviceMemory x_;
  DeviceMemory y_;
  DeviceMemory workspace_;
  DeviceMemory scale_;
  Lt lt_;
  Matmul matmul_;
  Layout w_layout_;
  Layout x_layout_;
  Layout y_layout_;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace

std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const Gemm& point) { return std::make_unique<GemmOp>(gpu, point); }
std::unique_ptr<ProductOp> make_product(Gpu& gpu, const Gemm& point) { return std::make_unique<GemmOp>(gpu, point); }

GemmCheck run_gemm(Gpu& gpu, const Gemm& point) {
  auto op = std::make_unique<GemmOp>(gpu, point);
  op->enqueue(gpu.stream(StreamOf::compute));
  gpu.finish();
  GemmCheck one{nullptr, &op->weights(), &op->x(), &op->y()};
  one.op = std::move(op);
  return one;
}

}  // namespace spillway::calibrate::gpu
