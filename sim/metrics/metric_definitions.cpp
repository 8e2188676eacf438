// The names of the metrics and what each one means.
#include <fmt/format.h>

#include "sim/metrics/metrics.hpp"

namespace spillway {
namespace {

std::vector<MetricDefinition> latencies() {
  return {
      {"ttft_ms", "ms", "Time to first token: arrival to first token, queueing included. Finished requests.", true},
      {"tpot_ms", "ms",
       "Time per output token: (end-to-end - TTFT) / (output tokens - 1), per finished request; a one-token answer has "
       "none and is not counted.",
       true},
      {"itl_ms", "ms",
       "Inter-token latency: each gap between consecutive tokens of a request, weighted by tokens; every gap that ends "
       "in "
       "the measured span. Quantiles are to 0.1%.",
       true},
      {"e2e_ms", "ms", "End-to-end latency: arrival to last token. Finished requests.", true},
      {"normalised_ms_per_token", "ms/token", "Normalised latency: end-to-end latency / output tokens, per request.",
       true},
      {"queueing_ms_per_token", "ms/token",
       "Queueing latency: the time in which a request was not part of an iteration / its output tokens.", true},
      {"compute_ms_per_token", "ms/token",
       "Compute latency: the total length of the iterations that a request took part in / its output tokens.", true},
  };
}

std::vector<MetricDefinition> totals() {
  return {
      {"duration_s", "s", "The measured span: from the end of the warm-up to the last completion, or to `until`."},
      {"request_throughput_per_s", "requests/s", "Finished measured requests / span."},
      {"output_throughput_tokens_per_s", "tokens/s", "Output tokens of finished measured requests / span."},
      {"total_throughput_tokens_per_s", "tokens/s", "Input and output tokens of finished measured requests / span."},
      {"input_tokens", "tokens", "Input tokens of finished measured requests."},
      {"output_tokens", "tokens", "Output tokens of finished measured requests."},
      {"goodput_requests_per_s", "requests/s",
       "Finished measured requests that meet every per-request SLO / span. Only with SLOs. A one-token answer meets "
       "any "
       "TPOT limit."},
      {"slo_met_fraction", "fraction",
       "Share of the measured requests, however they ended, that finished and met every per-request SLO. Only with "
       "SLOs."},
      {"iterations", "iterations", "Iterations that ended in the measured span."},
      {"mean_batch_requests", "requests", "Requests in the batch, averaged over the time in which an iteration ran."},
      {"peak_batch_requests", "requests", "Most requests in the batch."},
      {"mean_waiting_requests", "requests", "Requests waiting to be scheduled, averaged over the span."},
      {"peak_waiting_requests", "requests", "Most requests waiting."},
      {"mean_gpu_kv_fraction", "fraction", "Share of the GPU's KV blocks in use, averaged over the span."},
      {"peak_gpu_kv_fraction", "fraction", "Largest share of the GPU's KV blocks in use."},
      {"mean_host_kv_fraction", "fraction", "Share of the host's KV blocks in use, averaged over the span."},
      {"peak_host_kv_fraction", "fraction", "Largest share of the host's KV blocks in use."},
      {"recompute_preemptions", "preemptions",
       "Requests whose KV was dropped, to be computed again; each time counts."},
      {"swap_preemptions", "preemptions", "Requests whose KV was moved to the host; each time counts."},
      {"moved_h2d_bytes", "bytes", "Bytes copied from host to GPU, per GPU."},
      {"moved_d2h_bytes", "bytes", "Bytes copied from GPU to host, per GPU."},
      {"prefix_cache_hit_fraction", "fraction",
       "Prompt tokens taken from the prefix cache / prompt tokens admitted with prefix caching on."},
      {"host_cache_hit_fraction", "fraction",
       "Prompt tokens copied back from the host tier of the prefix cache / prompt tokens admitted with prefix caching "
       "on; part of prefix_cache_hit_fraction."},
  };
}

/// In the order of Resource.
std::vector<MetricDefinition> time_fractions() {
  return {
      {"load_time_fraction", "fraction", "Share of the span in which nothing ran: the offered load left the GPU idle."},
      {"kv_capacity_time_fraction", "fraction",
       "Share of the span in which the batch was kept small by KV capacity: a request waited for KV blocks."},
      {"compute_time_fraction", "fraction",
       "Share of the span bound by the GPU's arithmetic and overlapped by nothing."},
      {"memory_time_fraction", "fraction", "Share of the span bound by the GPU's memory (HBM) bandwidth."},
      {"network_time_fraction", "fraction", "Share of the span spent in communication between GPUs."},
      {"h2d_time_fraction", "fraction", "Share of the span in which computing waited for a copy from host to GPU."},
      {"d2h_time_fraction", "fraction", "Share of the span in which computing waited for a copy from GPU to host."},
      {"host_time_fraction", "fraction",
       "Share of the span bound by the CPU: kernel launches and the engine's own work."},
  };
}

/// Of policies that stream layers.
std::vector<MetricDefinition> layers() {
  return {
      {"mean_expansion_ratio", "ratio",
       "KV blocks that the GPU offers / those that it would offer if the weights and the KV of every layer were on it, "
       "averaged over the span. Pie's expansion is n / (n - m), n layers with m of them on the host. Null when the "
       "weights alone do not fit. This and the ones below: only with a policy that streams layers."},
      {"peak_expansion_ratio", "ratio", "Largest expansion in the span."},
      {"final_expansion_ratio", "ratio", "Expansion at the end of the span."},
      {"mean_interval_layers", "layers",
       "Offloading interval, averaged over the iterations that stream weights: of so many layers the last one's live "
       "on "
       "the host; null when weights stay on the GPU."},
      {"slo_risk_fraction", "fraction",
       "Share of all iterations of the run that streamed more than the record of their latency SLO allows, because GPU "
       "memory did not hold more weights, or not yet; null for a policy that follows no SLO."},
      {"layer_stall_fraction", "fraction",
       "Share of the time in which an iteration ran that compute waited for a layer's copy."},
      {"h2d_link_fraction", "fraction", "Share of the span in which a copy from host to GPU was under way."},
      {"d2h_link_fraction", "fraction", "Share of the span in which a copy from GPU to host was under way."},
      {"mean_dwell_ms", "ms",
       "Dwell: from the start of a layer's copy to the host to the end of its copy back, mean of the whole run."},
      {"max_dwell_ms", "ms", "Longest dwell of a layer in the whole run."},
      {"peak_host_layer_bytes", "bytes",
       "Most bytes that streamed layers took on the host at once, per GPU, in the whole run: KV of layers that were "
       "there or under way, or weights."},
  };
}

std::vector<MetricDefinition> fairness() {
  return {
      {"jain_index", "fraction",
       "Jain's fairness index over clients, (sum x)^2 / (n * sum x^2), from 1/n to 1 (all equal): x is the service "
       "that "
       "a client got per second of the time in which it had a live request, in the measured span. Service is prompt "
       "tokens, charged once when a request is first scheduled, plus twice the generated tokens; recomputed tokens are "
       "none. A rate while active is compared and not total service, because a run that finishes everything gives "
       "every "
       "client all that it asked for, whatever the policy. Null for fewer than two clients with active time. The shape "
       "of the requests moves it too: compare it between "
       "policies on the same traffic only."},
      {"max_service_difference_tokens", "tokens",
       "Largest difference between the service counters of two clients that were backlogged (a request waited outside "
       "the batch) at once, in weighted tokens as in jain_index. A counter grows with its client's service; when a "
       "client becomes backlogged while others are, it is lifted to the least of theirs, as in VTC, so that idle time "
       "earns no credit. Looked at when an iteration ends in the measured span; with n clients seen, after every "
       "max(1, n/8)-th. Null when never two clients were backlogged at once."},
      {"worst_client_mean_ttft_ms", "ms",
       "Largest of the clients' mean TTFT. Finished measured requests, so a client without one is not in it; null for "
       "fewer than two clients."},
      {"worst_client_p99_ttft_ms", "ms",
       "Largest of the clients' p99 TTFT. Finished measured requests, so a client without one is not in it; null for "
       "fewer than two clients, and beyond the number of requests up to which percentiles are exact."},
  };
}

}  // namespace

const std::vector<MetricDefinition>& metric_definitions() {
  static const std::vector<MetricDefinition> kDefinitions = [] {
    std::vector<MetricDefinition> all;
    for (const auto& part : {latencies(), totals(), time_fractions(), layers(), fairness()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return kDefinitions;
}

std::string percentile_name(double percent) { return fmt::format("p{}", percent); }

}  // namespace spillway
