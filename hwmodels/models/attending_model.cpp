#include "hwmodels/models/attending_model.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace spillway::hwmodels {
namespace {

class AttendingModel final : public ExecutionModel {
 public:
  AttendingModel(std::unique_ptr<ExecutionModel> model, const CpuAttention& attention, const OpScales& scales)
      : model_(std::move(model)),
        threads_(attention.threads),
        block_tokens_(attention.block_tokens),
        token_bytes_(2 * attention.kv_width * attention.element_bytes),
        query_bytes_((attention.query_width + 2 * attention.kv_width) * attention.element_bytes),
        output_bytes_(4 * attention.query_width),
        launch_(round_seconds(scales.cpu * attention.call_seconds + scales.host * attention.kernel_launch_seconds)),
        token_seconds_(scales.cpu * static_cast<double>(token_bytes_) / attention.bandwidth) {}

  [[nodiscard]] std::int32_t layers() const override { return model_->layers(); }
  [[nodiscard]] const LayerKinds& layer_kinds() const override { return model_->layer_kinds(); }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override { return model_->iteration(shape); }
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes,
                              CopyMechanism mechanism) const override {
    return model_->copy(direction, copies, bytes, mechanism);
  }
  [[nodiscard]] Duration copy_start(Stream direction, std::int64_t copies, Bytes bytes,
                                    CopyMechanism mechanism) const override {
    return model_->copy_start(direction, copies, bytes, mechanism);
  }
  [[nodiscard]] CpuAttentionTime cpu_attention(std::int64_t sequences, Tokens context) const override {
    const std::int64_t blocks = blocks_for(context, block_tokens_).count();
    const std::int64_t each = quotient(blocks + threads_ - 1, threads_);  // of the thread with the most blocks
    const Tokens read = block_tokens_ * (each * threads_);
    return {.launch = launch_,
            .attention = round_seconds(static_cast<double>(read.count()) * token_seconds_),
            .kv = Bytes(token_bytes_ * context.count()),
            .queries = Bytes(query_bytes_ * sequences),
            .outputs = Bytes(output_bytes_ * sequences)};
  }
  [[nodiscard]] CopySharing copy_sharing() const override { return model_->copy_sharing(); }
  [[nodiscard]] std::optional<SustainedClock> sustained_clock() const override { return model_->sustained_clock(); }
  [[nodiscard]] std::vector<RangeUse> range_uses() const override { return model_->range_uses(); }

 private:
  std::unique_ptr<ExecutionModel> model_;
  std::int64_t threads_;
  Tokens block_tokens_;
  std::int64_t token_bytes_;
  std::int64_t query_bytes_;   // of one sequence, with its new keys and values
  std::int64_t output_bytes_;  // of one sequence
  Duration launch_;
  double token_seconds_;
};

}  // namespace

std::unique_ptr<ExecutionModel> make_attending_model(std::unique_ptr<ExecutionModel> model,
                                                     const CpuAttention& attention, const OpScales& scales) {
  return std::make_unique<AttendingModel>(std::move(model), attention, scales);
}

}  // namespace spillway::hwmodels
