#include "policies/parts/flexgen_layers.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "policies/parts/borrowing.hpp"
#include "policies/parts/layer_figures.hpp"
#include "policies/parts/single_copy.hpp"

namespace spillway {
namespace {

TierId lender_of(const PolicyContext& context) {
  return borrows_memory(context.settings) ? context.graph.find(kPeerTier) : kNoTier;
}

}  // namespace

FlexgenLayers::FlexgenLayers(const PolicyContext& context, const FlexgenPlan& plan)
    : deployment_(context.deployment),
      view_(context.view),
      plan_(plan),
      needs_(deployment_, context.settings, plan),
      cpu_attention_(context.settings.get<bool>("policy.cpu_attention")),
      padding_(flexgen_padding(context.settings)),
      weights_(load_of_weights(context.settings.get<bool>("policy.pin_weights"))),
      prompts_(static_cast<std::size_t>(plan.gpu_batch), PrefillChunk{padding_.input, Tokens(0)}),
      tensors_(view_, lender_of(context), deployment_.block_bytes, context.settings.get<Duration>(kLenderPollKey)),
      on_host_(needs_.host() - (lender_of(context) == kNoTier ? 0.0 : needs_.host_cache())) {}

std::span<const SubBatchShape> FlexgenLayers::split(const BatchShape& shape) {
  prefills_ = !shape.chunks.empty();
  if (prefills_) {
    block_ = static_cast<std::int64_t>(shape.chunks.size());
    generated_ = 0;
  }
  context_ = prefills_ ? Tokens(0) : shape.decode_longest;  // the same for all requests
  sub_batches_.clear();
  for (std::int64_t left = block_; left > 0; left -= plan_.gpu_batch) {
    sub_batches_.push_back(sub_batch(std::min(left, plan_.gpu_batch)));
  }
  return sub_batches_;
}

LayerRule* FlexgenLayers::begin(const BatchShape& /*shape*/, const LayerCompute& /*compute*/) {
  Copy moved;
  if (prefills_) {
    rule_.end_block();
    tensors_.allocate(FlexgenNeeds::part(real(block_) / real(plan_.block()), needs_.host_cache()));
  } else if (tensors_.poll()) {
    moved = relocation();
  }
  if (!tensors_.lent()) on_host_ = needs_.host();
  ++generated_;
  copies_.clear();
  const std::int64_t last = block_ - plan_.gpu_batch * static_cast<std::int64_t>(sub_batches_.size() - 1);
  const ZigzagCopies full = step(std::min(block_, plan_.gpu_batch), prefills_, context_);
  const ZigzagCopies rest = last == plan_.gpu_batch ? full : step(last, prefills_, context_);
  for (std::int32_t layer = 0; layer < deployment_.layers; ++layer) {
    copies_.insert(copies_.end(), sub_batches_.size() - 1, full);
    copies_.push_back(rest);
  }
  std::optional<ZigzagCopies> next;
  if (!ends_block()) {
    const Tokens attended = prefills_ ? padding_.input + Tokens(1) : context_ + Tokens(1);
    next = step(std::min(block_, plan_.gpu_batch), false, attended);
  }
  rule_.begin_iteration(deployment_.layers, static_cast<std::int32_t>(sub_batches_.size()), copies_, next,
                        !prefills_ && attends_on_cpu(), moved);
  return &rule_;
}

void FlexgenLayers::iteration_ended(const LayerReport& /*report*/) {
  if (ends_block()) tensors_.release();
}

Figures FlexgenLayers::figures() const { return {{kPeakHostLayers, std::round(on_host_)}}; }

SubBatchShape FlexgenLayers::sub_batch(std::int64_t requests) const {
  SubBatchShape part;
  part.shape.sampled_sequences = requests;
  if (prefills_) {
    part.shape.chunks = std::span(prompts_).first(static_cast<std::size_t>(requests));
    return part;
  }
  const double attended = real(requests * context_.count());
  part.shape.decode_sequences = requests;
  part.shape.decode_context = Tokens(requests * context_.count());
  if (!attends_on_cpu()) return part;
  const double on_host = plan_.cache_host * attended;
  // A sequence attends to at least one token on the GPU, its newest.
  part.shape.decode_context = std::max(Tokens(requests), Tokens(std::llround(attended - on_host)));
  const Bytes read = FlexgenNeeds::part(needs_.token_cache(), on_host);
  part.cpu_attention = round_seconds(flexgen_cpu_attention(deployment_, bytes_of(read)));
  return part;
}

ZigzagCopies FlexgenLayers::step(std::int64_t requests, bool prefills, Tokens context) const {
  ZigzagCopies copies;
  copies.weights = weights_;
  const double computed = real(requests) * (prefills ? real(padding_.input.count()) : 1.0);
  if (plan_.cache_host > 0.0) {
    const double token = plan_.cache_host * needs_.token_cache();
    if (!prefills && !cpu_attention_) {
      const Stream in = tensors_.lent() ? Stream::peer_in : Stream::h2d;
      copies.kv_load = copy(in, token * real(requests * (context.count() - 1)));
    }
    if (!ends_block()) copies.kv_store = copy(tensors_.lent() ? Stream::peer_out : Stream::d2h, token * computed);
  }
  if (plan_.hidden_host > 0.0 && sub_batches_.size() > 1) {
    const double states = plan_.hidden_host * needs_.token_hidden() * computed;
    copies.hidden_load = copy(Stream::h2d, states);
    copies.hidden_store = copy(Stream::d2h, states);
  }
  return copies;
}

Copy FlexgenLayers::load_of_weights(bool pinned) const {
  const Bytes bytes = needs_.layer_on_host();
  if (bytes == Bytes(0)) return {};
  const CopyTime time = deployment_.model->copy(Stream::h2d, needs_.weights_on_host().matrices, bytes,
                                                pinned ? CopyMechanism::single : CopyMechanism::relay);
  return {.stream = Stream::h2d, .bytes = bytes, .launch = time.launch, .transfer = time.transfer};
}

Copy FlexgenLayers::relocation() const {
  const Stream stream = tensors_.lent() ? Stream::h2d : Stream::d2h;
  const std::int64_t tensors = std::int64_t{2} * deployment_.layers;  // keys and values of each layer
  const CopyTime time = deployment_.model->copy(stream, tensors, tensors_.bytes(), CopyMechanism::single);
  return {.stream = stream, .bytes = tensors_.bytes(), .launch = time.launch, .transfer = time.transfer};
}

Copy FlexgenLayers::copy(Stream stream, double amount) const {
  const Bytes bytes = FlexgenNeeds::part(1.0, amount);
  if (bytes == Bytes(0)) return {};
  return single_copy(*deployment_.model, stream, bytes);
}

}  // namespace spillway
