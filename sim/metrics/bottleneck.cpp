// Names what limits a run, and what to try next.
#include <fmt/format.h>

#include "sim/metrics/metrics.hpp"

namespace spillway {
namespace {

struct Verdict {
  Resource resource{};
  std::string_view name;      // in result.json
  std::string_view sentence;  // {} is the share of time
  std::string_view advice;
  std::string_view advice_below_batch_limit{};  // when the batch never reached engine.max_num_seqs; empty: the same
};

constexpr std::array<Verdict, kResources> kVerdicts{{
    {Resource::load, "load", "The load is light: the GPU had nothing to do for {} of the time.",
     "Raise workload.rate to find the limit, or try smaller hardware or a lower tensor_parallel."},
    {Resource::kv_capacity, "kv_capacity",
     "KV capacity limits: for {} of the time requests waited because the GPU's KV memory was full.",
     "Raise memory.gpu_kv or engine.gpu_memory_utilization, use a smaller memory.kv_dtype or a higher tensor_parallel, "
     "or a policy that keeps KV on the host (list policies); a lower workload.rate relieves it too."},
    {Resource::compute, "compute", "The GPU's arithmetic limits: {} of the time was bound by compute.",
     "Raise tensor_parallel or try faster hardware; with shared prompts engine.prefix_caching=true saves prefill; else "
     "lower workload.rate."},
    {Resource::memory, "memory", "The GPU's memory bandwidth limits: {} of the time was bound by HBM.",
     "Raise engine.max_num_seqs (and memory.gpu_kv for it) so that each read of the weights serves more requests, use "
     "a smaller memory.kv_dtype, or raise tensor_parallel.",
     "Use a smaller memory.kv_dtype, or raise tensor_parallel."},
    {Resource::network, "network", "Communication between GPUs limits: it took {} of the time.",
     "Lower tensor_parallel, or try hardware whose GPUs have faster links."},
    {Resource::h2d, "h2d", "The host-to-GPU link limits: computing waited for it for {} of the time.",
     "Raise memory.gpu_kv so that less has to come back, lower memory.host_cache, try "
     "engine.preemption=recompute or another policy, or hardware with a faster link."},
    {Resource::d2h, "d2h", "The GPU-to-host link limits: computing waited for it for {} of the time.",
     "Raise memory.gpu_kv so that less has to leave, try engine.preemption=recompute or another policy, or hardware "
     "with a faster link."},
    {Resource::host, "host", "The host (CPU) limits: kernel launches and the engine's own work took {} of the time.",
     "Try an engine with less overhead (engine=none shows the GPU alone), raise engine.max_num_seqs so that each "
     "iteration serves more requests, or lower tensor_parallel.",
     "Try an engine with less overhead (engine=none shows the GPU alone), or lower tensor_parallel."},
    {Resource::cpu_attention, "cpu_attention", "Attention on the CPU limits: the GPU waited for it for {} of the time.",
     "Keep more KV on the GPU (raise memory.gpu_kv, or lower the policy's share of KV on the host), copy KV to the GPU "
     "instead (policy.cpu_attention=false), or try a host with more memory bandwidth."},
    {Resource::cpu_experts, "cpu_experts", "Experts on the CPU limit: the GPU waited for them for {} of the time.",
     "Keep more experts on the GPU (a smaller memory.gpu_kv, weights of fewer bits), or try a host with more memory "
     "bandwidth."},
    {Resource::peer, "peer", "The links between GPUs limit: computing waited for copies over them for {} of the time.",
     "Raise memory.gpu_kv so that less has to move, or try hardware whose GPUs have faster links."},
}};

/// Where the link carries layers, or experts of them.
constexpr std::string_view kOffloadLess =
    "Let the policy offload less (its keys: explain NAME), use weights or KV of fewer bits, serve more requests with "
    "each copy, or try hardware with a faster link.";

constexpr bool in_order_of_resource() {
  for (std::size_t i = 0; i < kVerdicts.size(); ++i) {
    if (kVerdicts[i].resource != static_cast<Resource>(i)) return false;
  }
  return true;
}
static_assert(in_order_of_resource());

/// Which stream the batches are bound by while requests wait for KV memory; empty: nothing ran then.
std::string bound_meanwhile(const EngineTotals& totals) {
  const auto& time = totals.time_short_of_kv;
  const auto most = std::max_element(time.begin(), time.end());
  if (*most <= 0.0) return {};
  const auto named = [](Resource resource) -> std::string_view {
    switch (resource) {
      case Resource::compute:
        return "the GPU's arithmetic";
      case Resource::memory:
        return "the GPU's memory bandwidth";
      case Resource::network:
        return "communication between GPUs";
      case Resource::host:
        return "the host's CPU time";
      default:
        return "attention on the CPU";
    }
  };
  const double whole = totals.resource_time[static_cast<std::size_t>(Resource::kv_capacity)];
  return fmt::format(" {:.0f}% of that time went to {}.", *most / whole * 100.0,
                     named(static_cast<Resource>(most - time.begin())));
}

}  // namespace

std::string_view resource_name(Resource resource) { return kVerdicts[static_cast<std::size_t>(resource)].name; }

Bottleneck find_bottleneck(const RunStatistics& statistics, std::int64_t max_num_seqs) {
  const auto& time = statistics.engine.resource_time;
  const Verdict& verdict =
      kVerdicts[static_cast<std::size_t>(std::max_element(time.begin(), time.end()) - time.begin())];
  Bottleneck bottleneck;
  bottleneck.resource = verdict.resource;
  if (statistics.span.count() <= 0) {
    bottleneck.sentence = "Nothing limits: no time was measured.";
    bottleneck.advice = "Lower warmup, or raise workload.requests.";
    return bottleneck;
  }
  bottleneck.share = time[static_cast<std::size_t>(verdict.resource)] / statistics.replica_time();
  bottleneck.sentence = fmt::format(fmt::runtime(verdict.sentence), fmt::format("{:.0f}%", bottleneck.share * 100.0));
  if (bottleneck.resource == Resource::kv_capacity) bottleneck.sentence += bound_meanwhile(statistics.engine);
  const bool below_limit = statistics.engine.peak_batch < max_num_seqs && !verdict.advice_below_batch_limit.empty();
  bottleneck.advice = below_limit ? verdict.advice_below_batch_limit : verdict.advice;
  const std::optional<LayerTotals>& layers = statistics.engine.layers;
  const double of_link = time[static_cast<std::size_t>(Resource::h2d)];
  if (bottleneck.resource == Resource::h2d && layers && layers->stall_time > 0.5 * of_link) {
    bottleneck.advice = kOffloadLess;
  }
  const OutcomeCounts& measured = statistics.measured;
  if (measured.rejected * 100 > measured.submitted) {
    bottleneck.sentence = fmt::format("{} of {} requests were rejected, so the figures are those of the others. {}",
                                      measured.rejected, measured.submitted, bottleneck.sentence);
  }
  const std::int64_t lost = measured.timed_out + measured.rejected + measured.lost;
  if (bottleneck.resource == Resource::load && lost * 10 > measured.submitted) {
    bottleneck.advice = fmt::format(
        "{} of {} requests timed out, were rejected or were lost, so the load is light only because work is missing. "
        "See the "
        "warnings, engine.request_timeout and engine.max_model_len first.",
        lost, measured.submitted);
  }
  return bottleneck;
}

}  // namespace spillway
