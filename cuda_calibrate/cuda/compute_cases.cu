#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "cuda_calibrate/cuda/attention_op.hpp"
#include "cuda_calibrate/cuda/cases.hpp"
#include "cuda_calibrate/cuda/cudnn_attention.hpp"
#include "cuda_calibrate/cuda/kernels.hpp"

namespace spillway::calibrate::gpu {
namespace {

std::vector<std::int32_t> narrow(const std::vector<std::int64_t>& numbers) {
  std::vector<std::int32_t> narrowed(numbers.size());
  std::transform(numbers.begin(), numbers.end(), narrowed.begin(),
                 [](std::int64_t number) { return static_cast<std::int32_t>(number); });
  return narrowed;
}

class ComputeCase : public Case {
 public:
  ComputeCase(Gpu& gpu, std::unique_ptr<ComputeOp> op)
      : gpu_(gpu),
        op_(std::move(op)),
        lane_{&gpu, gpu.stream(StreamOf::compute), [this] { op_->enqueue(lane_.stream); }, kEntries} {
    lane_.enqueue();
    gpu_.finish();
  }
  std::vector<double> sample(std::int64_t calls) override {
    gpu_.use();
    return {seconds_alone(&gpu_.gate(), lane_, calls)};
  }
  [[nodiscard]] std::int64_t most_calls() const override { return kMostBehindGate / kEntries; }
  [[nodiscard]] std::string kernel() const override { return op_->kernel(); }
  [[nodiscard]] std::string note() const override { return op_->note(); }

 private:
  Gpu& gpu_;
  std::unique_ptr<ComputeOp> op_;
  Lane lane_;
};

class ElementwiseOp : public ComputeOp {
 public:
  ElementwiseOp(Gpu& gpu, const Elementwise& point) {
    constexpr std::int64_t kHead = 128;  // head size for rope
    const std::int64_t multiple = point.kind == ElementwiseKind::rope ? kHead : 8;
    if (point.width % multiple != 0) {
      throw Unsupported(fmt::format("a row of {} numbers is not a multiple of {}", point.width, multiple));
    }
    out_bytes_ = point.tokens * point.width * 2;
    in_bytes_ = point.kind == ElementwiseKind::silu_mul ? 2 * out_bytes_ : out_bytes_;
    places_ = rotation(in_bytes_ + out_bytes_, gpu.l2_bytes());
    x_ = gpu.random_memory(places_ * in_bytes_);
    y_ = gpu.random_memory(places_ * out_bytes_);
    if (point.kind == ElementwiseKind::rms_norm) aux_ = gpu.random_memory(point.width * 2);
    if (point.kind == ElementwiseKind::rope) aux_ = gpu.random_memory(point.tokens * kHead * 4, Number::fp32);
    call_ = {point.kind, nullptr, aux_.data(), nullptr, point.tokens, point.width};
  }
  void enqueue(cudaStream_t stream) override {
    call_.x = x_.data() + next_ * in_bytes_;
    call_.y = y_.data() + next_ * out_bytes_;
    next_ = (next_ + 1) % places_;
    enqueue_elementwise(call_, stream);
  }
  [[nodiscard]] std::string kernel() const override { return "spillway"; }

 private:
  std::int64_t in_bytes_ = 0;
  std::int64_t out_bytes_ = 0;
  std::int64_t places_ = 1;
  std::int64_t next_ = 0;
  DeviceMemory x_;
  DeviceMemory y_;
  DeviceMemory aux_;
  ElementwiseCall call_;
};

}  // namespace

AttentionOp::AttentionOp(Gpu& gpu, const Heads& heads, const Sequences& sequences, Number number, std::int64_t sets)
    : heads_(heads), number_(number), kv_lengths_(sequences.kv_tokens) {
  if (number != Number::bf16 && number != Number::fp16) throw Unsupported("attention is measured in bf16 and fp16");
  gpu.need(number);
  if (heads.size != 64 && heads.size != 128) {
    throw Unsupported(fmt::format("the attention kernels need a head size of 64 or 128, not {}", heads.size));
  }
  if (heads.query % heads.kv != 0) {
    throw Unsupported(fmt::format("{} query heads are not a multiple of {} KV heads", heads.query, heads.kv));
  }
  const std::int64_t page_bytes = heads.kv * kPageSize * heads.size * 2;
  const std::int64_t set_pages = static_cast<std::int64_t>(page_table(sequences.kv_tokens, 1, 0).pages.size());
  sets_ = sets > 0 ? sets : rotation(2 * set_pages * page_bytes, gpu.l2_bytes());
  // Allocate the largest arrays first, so that a lack of memory shows at once.
  keys_ = gpu.random_memory(sets_ * set_pages * page_bytes, number);
  values_ = gpu.random_memory(sets_ * set_pages * page_bytes, number);
  table_ = page_table(sequences.kv_tokens, sets_, gpu.next_seed());
  const std::int64_t tokens =
      std::accumulate(sequences.query_tokens.begin(), sequences.query_tokens.end(), std::int64_t{0});
  queries_ = gpu.random_memory(tokens * heads.query * heads.size * 2, number);
  results_ = gpu.random_memory(tokens * heads.query * heads.size * 2, number);

  const AttentionPlan plan = plan_attention(sequences, heads, gpu.sms());
  std::vector<std::int64_t> query_first(sequences.query_tokens.size());
  std::exclusive_scan(sequences.query_tokens.begin(), sequences.query_tokens.end(), query_first.begin(),
                      std::int64_t{0});
  page_first_ = uploaded(table_.first);
  pages_ = uploaded(table_.pages);
  query_first_ = uploaded(narrow(query_first));
  query_tokens_ = uploaded(narrow(sequences.query_tokens));
  kv_tokens_ = uploaded(narrow(sequences.kv_tokens));
  decode_ = uploaded(plan.decode);
  combine_ = uploaded(plan.combine);
  prefill_ = uploaded(plan.prefill);
  if (plan.partials > 0) {
    partial_results_ = DeviceMemory(plan.partials * heads.query * heads.size * 4);
    partial_logs_ = DeviceMemory(plan.partials * heads.query * 4);
  }
  call_ = {.queries = queries_.data(),
           .keys = keys_.data(),
           .values = values_.data(),
           .results = results_.data(),
           .page_first = page_first_.as<std::int32_t>(),
           .pages = pages_.as<std::int32_t>(),
           .query_first = query_first_.as<std::int32_t>(),
           .query_tokens = query_tokens_.as<std::int32_t>(),
           .kv_tokens = kv_tokens_.as<std::int32_t>(),
           .decode = decode_.as<DecodeItem>(),
           .combine = combine_.as<CombineItem>(),
           .prefill = prefill_.as<PrefillItem>(),
           .partial_results = partial_results_.as<float>(),
           .partial_logs = partial_logs_.as<float>(),
           .decode_items = static_cast<std::int32_t>(plan.decode.size()),
           .combine_items = static_cast<std::int32_t>(plan.combine.size()),
           .prefill_items = static_cast<std::int32_t>(plan.prefill.size()),
           .query_heads = static_cast<std::int32_t>(heads.query),
           .kv_heads = static_cast<std::int32_t>(heads.kv),
           .scale = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(heads.size))};
}

void AttentionOp::enqueue(cudaStream_t stream) {
  // Only this per-sequence array differs between sets.
  call_.page_first = page_first_.as<std::int32_t>() + next_ * static_cast<std::int64_t>(kv_lengths_.size());
  next_ = (next_ + 1) % sets_;
  enqueue_attention(call_, heads_.size, number_, stream);
}

std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const DecodeAttention& point) {
  return by_cudnn(gpu, std::make_unique<AttentionOp>(gpu, point.heads, sequences_of(point), point.number));
}
std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const PrefillAttention& point) {
  return std::make_unique<AttentionOp>(gpu, point.heads, sequences_of(point), point.number);
}
std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const MixedAttention& point) {
  return std::make_unique<AttentionOp>(gpu, point.heads, sequences_of(point), point.number);
}
std::unique_ptr<ComputeOp> make_op(Gpu& gpu, const Elementwise& point) {
  return std::make_unique<ElementwiseOp>(gpu, point);
}

std::unique_ptr<Case> compute_case(Gpu& gpu, std::unique_ptr<ComputeOp> op) {
  return std::make_unique<ComputeCase>(gpu, std::move(op));
}

}  // namespace spillway::calibrate::gpu
