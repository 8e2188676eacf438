#include "sim/metrics/metric_table.hpp"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string>

#include "sim/api/registry.hpp"

namespace spillway {
namespace {

using Value = std::optional<double>;

constexpr auto kSmaller = Better::smaller;
constexpr auto kLarger = Better::larger;
constexpr std::optional<Better> kNeither{};

double number(std::int64_t count) { return static_cast<double>(count); }

/// numerator / denominator; no value when the denominator is not positive.
Value ratio(double numerator, double denominator) {
  if (denominator > 0.0) return numerator / denominator;
  return std::nullopt;
}

/// numerator / denominator; no value when the level that the figure tells of never rose above 0.
Value counted(std::int64_t peak, double numerator, double denominator) {
  if (peak > 0) return ratio(numerator, denominator);
  return std::nullopt;
}

std::int64_t finished(const RunFigures& r) { return r.run.measured.finished; }
std::int64_t iterations(const RunFigures& r) { return r.run.engine.iterations; }
bool has_slos(const RunFigures& r) { return r.good.has_value(); }
bool streams_layers(const RunFigures& r) { return r.run.engine.layers.has_value(); }
bool attends_on_cpu(const RunFigures& r) { return r.run.engine.on_cpu.has_value(); }

Value share_of_time(const RunFigures& r, Resource resource) {
  return ratio(r.run.engine.resource_time[static_cast<std::size_t>(resource)], r.replica_time());
}

const LayerTotals& layers_of(const RunFigures& r) { return *r.run.engine.layers; }

using ClientFigure = std::optional<double> ClientStatistics::*;

Value worst_client(const RunFigures& r, ClientFigure figure) {
  Value worst;
  for (const ClientStatistics& client : r.run.clients) {
    if (client.*figure) worst = std::max(worst, client.*figure);  // no value is less than any
  }
  return worst;
}

std::int64_t clients_with(const RunFigures& r, ClientFigure figure) {
  return std::count_if(r.run.clients.begin(), r.run.clients.end(),
                       [&](const ClientStatistics& client) { return (client.*figure).has_value(); });
}

template <auto kValue>
RequestLatency per_request() {
  return {[](const FinishedRequest& request) { return Value(kValue(request)); },
          [](std::span<const FinishedRequest> requests) {
            std::vector<double> values;
            values.reserve(requests.size());
            for (const FinishedRequest& request : requests) {
              if (const Value value = kValue(request)) values.push_back(*value);
            }
            return values;
          }};
}

std::vector<MetricEntry> latencies() {
  std::vector<MetricEntry> entries{
      {.definition = {"ttft_ms", "ms",
                      "Time to first token: arrival to first token, queueing included. Finished requests. Arrival is "
                      "the client's "
                      "send: an engine file that states a front end adds it (mean_server_ttft_ms is without it)."},
       .of_request = per_request<[](const FinishedRequest& r) { return Value(number(r.ttft)); }>(),
       .own_limit = &RequestSlo::ttft},
      {.definition = {"tpot_ms", "ms",
                      "Time per output token: (end-to-end - TTFT) / (output tokens - 1), per finished request. A "
                      "one-token answer has no TPOT and is not counted."},
       .of_request = per_request<[](const FinishedRequest& r) {
         return ratio(number(r.e2e - r.ttft), number(std::int64_t{r.output} - 1));
       }>(),
       .own_limit = &RequestSlo::tpot},
      {.definition = {"itl_ms", "ms",
                      "Inter-token latency: each gap between consecutive tokens of a request, weighted by tokens. "
                      "Counts every gap that ends in the measured span. Quantiles are accurate to 0.1%."}},
      {.definition = {"e2e_ms", "ms", "End-to-end latency: arrival to last token. Finished requests."},
       .of_request = per_request<[](const FinishedRequest& r) { return Value(number(r.e2e)); }>(),
       .own_limit = &RequestSlo::e2e},
      {.definition = {"normalised_ms_per_token", "ms/token",
                      "Normalised latency: end-to-end latency / output tokens, per request."},
       .of_request = per_request<[](const FinishedRequest& r) { return Value(number(r.e2e) / number(r.output)); }>()},
      {.definition =
           {"queueing_ms_per_token", "ms/token",
            "Queueing latency: the time in which a request was not part of an iteration / its output tokens."},
       .of_request = per_request<[](const FinishedRequest& r) {
         return Value(number(r.e2e - r.computing) / number(r.output));
       }>()},
      {.definition = {"compute_ms_per_token", "ms/token",
                      "Compute latency: the total length of the iterations that a request took part in / its output "
                      "tokens."},
       .of_request =
           per_request<[](const FinishedRequest& r) { return Value(number(r.computing) / number(r.output)); }>()},
  };
  for (MetricEntry& entry : entries) {
    entry.definition.better = Better::smaller;
    entry.definition.distribution = true;
  }
  return entries;
}

std::vector<MetricEntry> requests() {
  std::vector<MetricEntry> entries{
      {{"duration_s", "s", "The measured span: from the end of the warm-up to the last completion, or to `until`.",
        kNeither},
       [](const RunFigures& r) { return Value(r.span()); }},
      {{"request_throughput_per_s", "requests/s",
        "Requests that finished in the measured span / span. Requests of the warm-up count, too, as the span serves "
        "them.",
        kLarger},
       [](const RunFigures& r) { return ratio(number(r.served.finished), r.span()); }},
      {{"output_throughput_tokens_per_s", "tokens/s",
        "Output tokens that all requests generated in the measured span / span.", kLarger},
       [](const RunFigures& r) { return ratio(r.generated(), r.span()); }},
      {{"total_throughput_tokens_per_s", "tokens/s",
        "Output tokens that were generated in the measured span, and input tokens of the requests whose first token "
        "is among them / span. Of any request.",
        kLarger},
       [](const RunFigures& r) { return ratio(number(r.served.prompts.count()) + r.generated(), r.span()); }},
      {{"input_tokens", "tokens", "Input tokens of finished measured requests.", kNeither},
       [](const RunFigures& r) { return Value(number(r.input.count())); }},
      {{"output_tokens", "tokens", "Output tokens of finished measured requests.", kNeither},
       [](const RunFigures& r) { return Value(number(r.output.count())); }},
      {{"mean_server_ttft_ms", "ms",
        "Part of the mean TTFT from the scheduler's queue on: without the time that a request spends in the engine's "
        "front end, between its client and the scheduler.",
        kSmaller},
       [](const RunFigures& r) -> Value {
         const Metric* const ttft = r.run.find("mean_ttft_ms");
         if (ttft == nullptr || !ttft->value) return std::nullopt;
         return *ttft->value - r.front_end * 1e3;
       }},
      {{"goodput_requests_per_s", "requests/s",
        "Requests that finished in the measured span and met every per-request SLO / span, those of the warm-up "
        "included. Only with SLOs. A one-token answer meets any TPOT limit.",
        kLarger},
       [](const RunFigures& r) { return ratio(number(r.served.good), r.span()); },
       finished,
       has_slos},
      {{"slo_met_fraction", "fraction",
        "Share of the measured requests, however they ended, that finished and met every per-request SLO. Only with "
        "SLOs.",
        kLarger},
       [](const RunFigures& r) { return ratio(number(r.good.value_or(0)), number(r.run.measured.submitted)); },
       [](const RunFigures& r) { return r.run.measured.submitted; },
       has_slos},
  };
  for (MetricEntry& entry : entries) {
    if (entry.samples == nullptr) entry.samples = finished;
  }
  return entries;
}

std::vector<MetricEntry> engine() {
  std::vector<MetricEntry> entries{
      {{"iterations", "iterations",
        "Iterations that ended in the measured span. An iteration that `until` cuts does not count.", kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.iterations)); }},
      {{"mean_batch_requests", "requests",
        "Requests in the batch of a replica, averaged over the time in which an iteration ran.", kNeither},
       [](const RunFigures& r) { return ratio(r.run.engine.batch_time, r.run.engine.busy_time); }},
      {{"peak_batch_requests", "requests", "Most requests in the batch of a replica.", kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.peak_batch)); }},
      {{"mean_waiting_requests", "requests",
        "Requests waiting to be scheduled, averaged over the span and the replicas.", kSmaller},
       [](const RunFigures& r) { return ratio(r.run.engine.waiting_time, r.replica_time()); }},
      {{"peak_waiting_requests", "requests",
        "Most requests waiting at once for one replica, counted after the decisions of an instant: a request that is "
        "scheduled at the "
        "instant of its arrival never waits.",
        kSmaller},
       [](const RunFigures& r) { return Value(number(r.run.engine.peak_waiting)); }},
      {{"mean_gpu_kv_fraction", "fraction", "Share of the GPU's KV blocks in use, averaged over the span.", kNeither},
       [](const RunFigures& r) {
         const EngineTotals& e = r.run.engine;
         return ratio(e.kv_time, e.layers ? e.layers->capacity_time : r.span() * number(r.run.gpu_blocks.count()));
       }},
      {{"peak_gpu_kv_fraction", "fraction", "Largest share of the GPU's KV blocks in use.", kNeither},
       [](const RunFigures& r) {
         const EngineTotals& e = r.run.engine;
         return r.run.gpu_blocks > Blocks(0) || e.layers ? Value(e.peak_kv_fraction) : std::nullopt;
       }},
      {{"mean_host_kv_fraction", "fraction", "Share of the host's KV blocks in use, averaged over the span.", kNeither},
       [](const RunFigures& r) {
         return ratio(r.run.engine.host_kv_time, r.span() * number(r.run.host_blocks.count()));
       }},
      {{"peak_host_kv_fraction", "fraction", "Largest share of the host's KV blocks in use.", kNeither},
       [](const RunFigures& r) {
         return r.run.host_blocks > Blocks(0) ? Value(r.run.engine.peak_host_kv_fraction) : std::nullopt;
       }},
      {{"recompute_preemptions", "preemptions",
        "Preemptions that dropped a request's KV, to be computed again. A request preempted twice counts twice.",
        kSmaller},
       [](const RunFigures& r) { return Value(number(r.run.engine.preempted_recompute)); }},
      {{"swap_preemptions", "preemptions",
        "Preemptions that moved a request's KV to the host. A request preempted twice counts twice.", kSmaller},
       [](const RunFigures& r) { return Value(number(r.run.engine.preempted_swap)); }},
      {{"moved_h2d_bytes", "bytes",
        "Bytes copied from host to GPU in the span, per GPU. If a boundary of the "
        "span cuts an iteration, its bytes count in proportion to its part inside the span.",
        kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.moved_h2d.count())); }},
      {{"moved_d2h_bytes", "bytes",
        "Bytes copied from GPU to host in the span, per GPU; a cut iteration as for moved_h2d_bytes.", kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.moved_d2h.count())); }},
      {{"moved_peer_in_bytes", "bytes",
        "Bytes copied from other GPUs in the span, per GPU; a cut iteration as for moved_h2d_bytes.", kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.moved_peer_in.count())); }},
      {{"moved_peer_out_bytes", "bytes",
        "Bytes copied to other GPUs in the span, per GPU; a cut iteration as for moved_h2d_bytes.", kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.moved_peer_out.count())); }},
      {{"kv_copy_s", "s",
        "Time in which KV of requests, of conversations or of the prefix cache was on its way between the GPU and the "
        "host or another GPU, from the issue of a copy to its end. Several copies at once, in either direction, count "
        "once. Copies of layers and of attention on the CPU do not count. The sum of hidden_kv_copy_s, "
        "exposed_kv_copy_s and idle_kv_copy_s; a cut iteration as for moved_h2d_bytes.",
        kNeither},
       [](const RunFigures& r) {
         return Value(to_seconds(r.run.engine.kv_copied_beside + r.run.engine.kv_copied_idle));
       }},
      {{"hidden_kv_copy_s", "s", "Part of kv_copy_s in which an iteration ran and did not wait for these copies.",
        kNeither},
       [](const RunFigures& r) {
         return Value(to_seconds(r.run.engine.kv_copied_beside - r.run.engine.kv_waited_for));
       }},
      {{"exposed_kv_copy_s", "s",
        "Part of kv_copy_s in which the iteration waited for these copies: the first layer waits for swapped KV of "
        "requests, each layer for its part of KV that is copied layer by layer.",
        kSmaller},
       [](const RunFigures& r) { return Value(to_seconds(r.run.engine.kv_waited_for)); }},
      {{"idle_kv_copy_s", "s",
        "Part of kv_copy_s in which no iteration ran: there was nothing to compute, or all requests waited for KV "
        "copies.",
        kNeither},
       [](const RunFigures& r) { return Value(to_seconds(r.run.engine.kv_copied_idle)); }},
      {{"prefix_cache_hit_fraction", "fraction",
        "Prompt tokens taken from the prefix cache / prompt tokens admitted with prefix caching on.", kLarger},
       [](const RunFigures& r) {
         return ratio(number(r.run.engine.prefix_hit.count()), number(r.run.engine.prefix_asked.count()));
       }},
      {{"host_cache_hit_fraction", "fraction",
        "Prompt tokens copied back from the host tier of the prefix cache, without those that came from the disk / "
        "prompt tokens admitted with prefix caching on. Part of prefix_cache_hit_fraction.",
        kLarger},
       [](const RunFigures& r) {
         return ratio(number(r.run.engine.prefix_hit_host.count()), number(r.run.engine.prefix_asked.count()));
       }},
      {{"history_gpu_hit_fraction", "fraction",
        "Tokens of earlier turns that a new turn finds on the GPU / tokens of earlier turns that its prompt repeats. "
        "Of policies that keep the KV of conversations.",
        kLarger},
       [](const RunFigures& r) {
         return ratio(number(r.run.engine.history_on_gpu.count()), number(r.run.engine.history_asked.count()));
       }},
      {{"history_host_hit_fraction", "fraction",
        "Tokens of earlier turns that a new turn finds on the host / tokens of earlier turns that its prompt repeats "
        "and that are not on the GPU. The others are computed again.",
        kLarger},
       [](const RunFigures& r) {
         return ratio(number(r.run.engine.history_on_host.count()),
                      number((r.run.engine.history_asked - r.run.engine.history_on_gpu).count()));
       }},
      {{"recomputed_history_tokens", "tokens",
        "Tokens of earlier turns that are computed again, because they are neither on the GPU nor on the host. Null if "
        "no turn repeats tokens, and for policies that do not keep the KV of conversations.",
        kSmaller},
       [](const RunFigures& r) -> Value {
         const EngineTotals& e = r.run.engine;
         if (e.history_asked == Tokens(0)) return std::nullopt;
         return number((e.history_asked - e.history_on_gpu - e.history_on_host).count());
       }},
      {{"gpu_cache_hit_fraction", "fraction",
        "Prompt tokens found in the prefix cache on the GPU / prompt tokens admitted with prefix caching on. Part of "
        "prefix_cache_hit_fraction.",
        kLarger},
       [](const RunFigures& r) {
         const EngineTotals& e = r.run.engine;
         return ratio(number((e.prefix_hit - e.prefix_hit_host - e.prefix_hit_disk).count()),
                      number(e.prefix_asked.count()));
       }},
      {{"disk_cache_hit_fraction", "fraction",
        "Prompt tokens found in the prefix cache on the disk alone (memory.disk_cache) / prompt tokens admitted with "
        "prefix caching on. Part of prefix_cache_hit_fraction.",
        kLarger},
       [](const RunFigures& r) {
         return ratio(number(r.run.engine.prefix_hit_disk.count()), number(r.run.engine.prefix_asked.count()));
       }},
      {{"disk_written_blocks", "blocks", "KV blocks that were written to the disk.", kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.disk.written.count())); }},
      {{"disk_read_blocks", "blocks", "KV blocks that were read from the disk.", kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.disk.read.count())); }},
      {{"disk_dropped_blocks", "blocks",
        "KV blocks that the host gave up and the disk did not take: transfers under way held all its blocks.",
        kSmaller},
       [](const RunFigures& r) { return Value(number(r.run.engine.disk.dropped.count())); }},
      {{"disk_queue_wait_s", "s",
        "Time that transfers of the disk waited until they began, because memory.disk_queue_depth others were in "
        "progress, summed over transfers.",
        kSmaller},
       [](const RunFigures& r) { return Value(to_seconds(r.run.engine.disk.waited)); }},
      {{"connector_stored_blocks", "blocks", "KV blocks that vLLM's offloading connector stored on the host.",
        kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.offloading.stored.count())); }},
      {{"connector_evicted_blocks", "blocks", "KV blocks that the connector's tier gave up for others.", kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.offloading.evicted.count())); }},
      {{"connector_loaded_blocks", "blocks", "KV blocks that the connector loaded from the host.", kNeither},
       [](const RunFigures& r) { return Value(number(r.run.engine.offloading.loaded.count())); }},
      {{"connector_refused_stores", "stores",
        "Attempts of the connector to store blocks of a request that found too few blocks to evict. The same blocks "
        "are tried again in the next step.",
        kSmaller},
       [](const RunFigures& r) { return Value(number(r.run.engine.offloading.refused_stores)); }},
      {{"connector_scanned_entries", "entries", "Entries of the connector's tier that refused stores scanned.",
        kSmaller},
       [](const RunFigures& r) { return Value(number(r.run.engine.offloading.scanned)); }},
      {{"connector_cpu_s", "s", "CPU time of the connector on the scheduler's thread.", kSmaller},
       [](const RunFigures& r) { return Value(r.run.engine.connector_time); }},
      {{"connector_copy_cpu_s", "s", "CPU time of the worker's thread for starting the connector's copies.", kSmaller},
       [](const RunFigures& r) { return Value(r.run.engine.connector_start_time); }},
  };
  for (MetricEntry& entry : entries) entry.samples = iterations;
  return entries;
}

std::vector<MetricEntry> conversations() {
  std::vector<MetricEntry> entries{
      {{"mean_live_conversations", "conversations",
        "Live conversations, averaged over the span. A conversation is live from the arrival of its first turn in the "
        "run until the end of its last turn. A turn that is rejected or times out ends its conversation. In a file "
        "whose rows have times, a next turn is known only when its row has been read. Null if no conversation is live "
        "in the span.",
        kNeither},
       [](const RunFigures& r) { return counted(r.run.engine.peak_live, r.run.engine.live_time, r.span()); }},
      {{"peak_live_conversations", "conversations",
        "Most live conversations at once in the span, as for mean_live_conversations.", kNeither},
       [](const RunFigures& r) { return counted(r.run.engine.peak_live, number(r.run.engine.peak_live), 1.0); }},
      {{"mean_cached_conversations", "conversations",
        "Conversations of which the policy keeps KV on the GPU or on the host after a turn, averaged over the span: "
        "from the end of the turn until the next one joins the batch, or the last of the KV is dropped. A conversation "
        "that is over counts as long as its KV is there. Null if the policy keeps no KV of conversations, or kept none "
        "in the span.",
        kNeither},
       [](const RunFigures& r) { return counted(r.run.engine.peak_cached, r.run.engine.cached_time, r.span()); }},
      {{"peak_cached_conversations", "conversations",
        "Most conversations of which an instance keeps KV at once in the span, as for mean_cached_conversations.",
        kNeither},
       [](const RunFigures& r) { return counted(r.run.engine.peak_cached, number(r.run.engine.peak_cached), 1.0); }},
      {{"conversations_over_time", "list",
        "A list in result.json, not a figure: the live conversations (live), and those of which KV is kept after a "
        "turn "
        "(cached), some of it on the GPU (cached_on_gpu) or on the host (cached_on_host), at fewer than 256 equally "
        "spaced instants from the start of the run. Only if a conversation lives in the span. With replications the "
        "list "
        "is that of replication 0.",
        kNeither, false, true}},
  };
  for (MetricEntry& entry : entries) entry.samples = iterations;
  return entries;
}

std::vector<MetricEntry> time_fractions() {
  std::vector<MetricEntry> entries{
      {{"load_time_fraction", "fraction", "Share of the span in which nothing ran: the load left the GPU idle."},
       [](const RunFigures& r) { return share_of_time(r, Resource::load); }},
      {{"kv_capacity_time_fraction", "fraction",
        "Share of the span in which KV capacity kept the batch small: a request waited for KV blocks."},
       [](const RunFigures& r) { return share_of_time(r, Resource::kv_capacity); }},
      {{"compute_time_fraction", "fraction",
        "Share of the span bound by the GPU's arithmetic and overlapped by nothing."},
       [](const RunFigures& r) { return share_of_time(r, Resource::compute); }},
      {{"memory_time_fraction", "fraction", "Share of the span bound by the GPU's memory (HBM) bandwidth."},
       [](const RunFigures& r) { return share_of_time(r, Resource::memory); }},
      {{"network_time_fraction", "fraction", "Share of the span spent in communication between GPUs."},
       [](const RunFigures& r) { return share_of_time(r, Resource::network); }},
      {{"h2d_time_fraction", "fraction", "Share of the span in which computing waited for a copy from host to GPU."},
       [](const RunFigures& r) { return share_of_time(r, Resource::h2d); }},
      {{"d2h_time_fraction", "fraction", "Share of the span in which computing waited for a copy from GPU to host."},
       [](const RunFigures& r) { return share_of_time(r, Resource::d2h); }},
      {{"host_time_fraction", "fraction",
        "Share of the span bound by the engine's CPU time: kernel launches and the engine's own work."},
       [](const RunFigures& r) { return share_of_time(r, Resource::host); }},
      {{"cpu_attention_time_fraction", "fraction",
        "Share of the span in which the GPU waited for attention on the CPU."},
       [](const RunFigures& r) { return share_of_time(r, Resource::cpu_attention); }},
      {{"cpu_experts_time_fraction", "fraction",
        "Share of the span in which the GPU waited for routed experts on the CPU, the way there and back included."},
       [](const RunFigures& r) { return share_of_time(r, Resource::cpu_experts); }},
      {{"peer_time_fraction", "fraction",
        "Share of the span in which computing waited for a copy from or to another GPU. The shares from "
        "load_time_fraction to this one sum to 1."},
       [](const RunFigures& r) { return share_of_time(r, Resource::peer); }},
      {{"gpu_busy_fraction", "fraction",
        "Share of the span in which the GPU worked: an iteration ran, the GPU did not wait for a copy or for attention "
        "on the CPU, and the engine's CPU time did not hold it up."},
       [](const RunFigures& r) { return ratio(r.run.engine.gpu_time, r.replica_time()); }},
      {{"layers_fraction", "fraction",
        "Share of the time in which an iteration ran that its transformer layers took, their waits included. The rest "
        "is the engine's CPU time, the embedding, logits and sampling."},
       [](const RunFigures& r) { return ratio(r.run.engine.layer_time, r.run.engine.busy_time); }},
  };
  for (MetricEntry& entry : entries) entry.samples = iterations;
  return entries;
}

std::vector<MetricEntry> layers() {
  std::vector<MetricEntry> entries{
      {{"mean_expansion_ratio", "ratio",
        "KV blocks that the GPU offers / KV blocks that it would offer if it held the weights and the KV of every "
        "layer, averaged over the span. Pie's expansion is n / (n - m), n layers with m of them on the host. Null when "
        "the weights alone do not fit. Results list this metric and those up to expansion_over_time only for a policy "
        "that streams layers."},
       [](const RunFigures& r) {
         return ratio(layers_of(r).capacity_time, r.replica_time() * layers_of(r).resident_blocks);
       }},
      {{"peak_expansion_ratio", "ratio", "Largest expansion in the span."},
       [](const RunFigures& r) {
         return ratio(number(layers_of(r).peak_capacity.count()), layers_of(r).resident_blocks);
       }},
      {{"final_expansion_ratio", "ratio", "Expansion at the end of the span."},
       [](const RunFigures& r) {
         return ratio(number(layers_of(r).last_capacity.count()), layers_of(r).resident_blocks);
       }},
      {{"layer_stall_fraction", "fraction",
        "Share of the time in which an iteration ran that compute waited for a layer's copy. Of an iteration that a "
        "boundary of the span cuts, its waits count in proportion to its part in the span."},
       [](const RunFigures& r) { return ratio(layers_of(r).stall_time, r.run.engine.busy_time); }},
      {{"h2d_link_fraction", "fraction",
        "Share of the span in which a copy from host to GPU was under way; a cut iteration as for "
        "layer_stall_fraction."},
       [](const RunFigures& r) { return ratio(to_seconds(layers_of(r).h2d_busy), r.replica_time()); }},
      {{"d2h_link_fraction", "fraction",
        "Share of the span in which a copy from GPU to host was under way; a cut iteration as for "
        "layer_stall_fraction."},
       [](const RunFigures& r) { return ratio(to_seconds(layers_of(r).d2h_busy), r.replica_time()); }},
      {{"expansion_over_time", "list",
        "A list in result.json, not a figure: the KV blocks that the GPU offers and their expansion, at the start of "
        "the run and at each of its first 4096 changes, with the time of the change. With replications the list is "
        "that of replication 0.",
        kNeither, false, true}},
  };
  for (MetricEntry& entry : entries) {
    entry.samples = iterations;
    entry.applies = streams_layers;
  }
  return entries;
}

std::vector<MetricEntry> cpu_attention() {
  std::vector<MetricEntry> entries{
      {{"cpu_busy_fraction", "fraction",
        "Share of the span in which the CPU attended beside the GPU. Results list this metric and the bubbles only if "
        "a decode attended there."},
       [](const RunFigures& r) { return ratio(to_seconds(r.run.engine.on_cpu->busy), r.replica_time()); }},
      {{"first_bubble_fraction", "fraction",
        "Share of the time in which an iteration ran that the GPU waited for attention of the first sub-batch on the "
        "CPU, its queries and outputs on their way included. Of an iteration that a boundary of the span cuts, its "
        "waits count in proportion to its part in the span."},
       [](const RunFigures& r) { return ratio(to_seconds(r.run.engine.on_cpu->bubbles[0]), r.run.engine.busy_time); }},
      {{"second_bubble_fraction", "fraction", "As first_bubble_fraction, for the second sub-batch."},
       [](const RunFigures& r) { return ratio(to_seconds(r.run.engine.on_cpu->bubbles[1]), r.run.engine.busy_time); }},
  };
  for (MetricEntry& entry : entries) {
    entry.samples = iterations;
    entry.applies = attends_on_cpu;
  }
  return entries;
}

std::vector<MetricEntry> fairness() {
  return {
      {{"jain_index", "fraction",
        "Jain's fairness index over clients, (sum x)^2 / (n * sum x^2), from 1/n to 1 (all equal). x is the service "
        "that a client got per second of the time in which it had a live request, in the measured span. Service is "
        "prompt tokens, charged once when a request is first scheduled, plus twice the generated tokens; recomputed "
        "tokens do not count. The index compares rates, not total service: a run that finishes everything gives every "
        "client all that it asked for, whatever the policy. Null for fewer than two clients with active time. The "
        "shape of the requests moves the index too: compare it between policies on the same traffic only.",
        kLarger},
       [](const RunFigures& r) { return jain_index(r.fairness); },
       [](const RunFigures& r) {
         return static_cast<std::int64_t>(
             std::count_if(r.fairness.clients.begin(), r.fairness.clients.end(),
                           [](const ClientService& client) { return client.active.count() > 0; }));
       }},
      {{"max_service_difference_tokens", "tokens",
        "Largest difference between the service counters of two clients that were backlogged (a request waited outside "
        "the batch) at once, in weighted tokens as in jain_index. A counter grows with its client's service. When a "
        "client becomes backlogged while others are, its counter is lifted to the least of theirs, as in VTC, so that "
        "idle time earns no credit. Observed when an iteration ends in the measured span; with n clients seen, after "
        "every max(1, n/8)-th iteration. Null when two clients were never backlogged at once.",
        kSmaller},
       [](const RunFigures& r) {
         const std::optional<std::int64_t>& difference = r.fairness.max_service_difference;
         return difference ? Value(number(*difference)) : std::nullopt;
       },
       [](const RunFigures& r) { return r.fairness.observations; }},
      {{"worst_client_mean_ttft_ms", "ms",
        "Largest of the clients' mean TTFTs. A client without a finished measured request does not count. Null for "
        "fewer than two clients.",
        kSmaller},
       [](const RunFigures& r) { return worst_client(r, &ClientStatistics::mean_ttft_ms); },
       [](const RunFigures& r) { return clients_with(r, &ClientStatistics::mean_ttft_ms); }},
      {{"worst_client_p99_ttft_ms", "ms",
        "Largest of the clients' p99 TTFTs. A client without a finished measured request does not count. Null for "
        "fewer than two clients, and beyond the number of requests up to which percentiles are exact.",
        kSmaller},
       [](const RunFigures& r) { return worst_client(r, &ClientStatistics::p99_ttft_ms); },
       [](const RunFigures& r) { return clients_with(r, &ClientStatistics::p99_ttft_ms); }},
  };
}

/// Time in which the busiest replica of a pool ran iterations / the mean of the pool.
Value imbalance(const RunFigures& r, std::int32_t pool) {
  double busiest = 0.0;
  double sum = 0.0;
  double count = 0.0;
  for (const ReplicaStatistics& one : r.run.replicas) {
    if (one.pool != pool) continue;
    busiest = std::max(busiest, one.engine.busy_time);
    sum += one.engine.busy_time;
    count += 1.0;
  }
  return ratio(busiest * count, sum);
}

std::int64_t replica_count(const RunFigures& r) { return std::ssize(r.run.replicas); }
std::int64_t transfers(const RunFigures& r) { return r.run.handover->transfers; }
bool has_replicas(const RunFigures& r) { return !r.run.replicas.empty(); }
bool has_pools(const RunFigures& r) { return r.run.handover.has_value(); }

std::vector<MetricEntry> replicas() {
  return {
      {{"replica_imbalance", "ratio",
        "Time in which the busiest replica ran iterations / the mean of all replicas: 1 when all had the same work; "
        "with pools, of those that compute prompts. Only with several replicas. Then counts, bytes and seconds of any "
        "metric are sums of all replicas; shares and levels (of batches, queues, memory and time) are the mean of all "
        "replicas, their peaks the largest of any.",
        kSmaller},
       [](const RunFigures& r) { return imbalance(r, 0); },
       replica_count,
       has_replicas},
      {{"decode_replica_imbalance", "ratio",
        "As replica_imbalance, of the replicas that generate answers. This metric and those that follow need pools.",
        kSmaller},
       [](const RunFigures& r) { return imbalance(r, 1); },
       replica_count,
       has_pools},
      {{"handed_over_bytes", "bytes", "KV that went from prefill to decode replicas in the whole run, per GPU.",
        kNeither},
       [](const RunFigures& r) { return Value(number(r.run.handover->bytes.count())); },
       transfers,
       has_pools},
      {{"mean_handover_wait_ms", "ms",
        "Time from the end of a prompt until its KV begins to move: until a decode replica has room for it. Of "
        "requests whose KV arrived.",
        kSmaller},
       [](const RunFigures& r) { return ratio(1e3 * r.run.handover->waited, number(transfers(r))); },
       transfers,
       has_pools},
      {{"mean_handover_ms", "ms",
        "Time from the start of a KV transfer between replicas until the KV has arrived at the decode replica.",
        kSmaller},
       [](const RunFigures& r) { return ratio(1e3 * r.run.handover->moved, number(transfers(r))); },
       transfers,
       has_pools},
  };
}

/// They follow from prices, which a run does not know: sim/study/prices.hpp adds them to its metrics.
std::vector<MetricEntry> costs() {
  return {
      {{"cost_per_million_output_tokens", "price/1e6 tokens",
        "Price of all GPUs of the run / output tokens generated in the measured span, in millions. Every GPU that "
        "serves, "
        "or only lends memory, costs hardware.price_per_hour for the whole span. Unused GPUs of a server cost "
        "nothing. Only with a price.",
        kSmaller}},
      {{"energy_kwh_per_million_output_tokens", "kWh/1e6 tokens",
        "Energy of the GPUs that cost_per_million_output_tokens counts, at hardware.power_watts for the whole span / "
        "output tokens, in millions. Only with a "
        "power.",
        kSmaller}},
  };
}

}  // namespace

const std::vector<MetricEntry>& metric_table() {
  static const std::vector<MetricEntry> kTable = [] {
    std::vector<MetricEntry> table;
    for (const auto& section : {latencies(), requests(), engine(), conversations(), time_fractions(), layers(),
                                cpu_attention(), fairness(), replicas(), costs()}) {
      table.insert(table.end(), section.begin(), section.end());
    }
    return table;
  }();
  return kTable;
}

std::span<const MetricEntry> latency_metrics() {
  static const std::span<const MetricEntry> kLatencies = [] {
    const std::vector<MetricEntry>& table = metric_table();
    const auto is_figure = [](const MetricEntry& entry) { return !entry.definition.distribution; };
    const auto end = std::find_if(table.begin(), table.end(), is_figure);
    return std::span(table).first(static_cast<std::size_t>(end - table.begin()));
  }();
  return kLatencies;
}

const std::vector<MetricDefinition>& metric_definitions() {
  static const std::vector<MetricDefinition> kDefinitions = [] {
    std::vector<MetricDefinition> definitions;
    const std::vector<MetricEntry>& table = metric_table();
    std::transform(table.begin(), table.end(), std::back_inserter(definitions),
                   [](const MetricEntry& entry) { return entry.definition; });
    for (const FigureDefinition& figure : PolicyRegistry::instance().figures()) {
      definitions.push_back({figure.name, figure.unit, figure.definition, figure.better});
    }
    return definitions;
  }();
  return kDefinitions;
}

std::optional<Better> better_direction(std::string_view figure) {
  const std::size_t at = figure.find('_');
  const std::string_view distribution = at == std::string_view::npos ? std::string_view() : figure.substr(at + 1);
  for (const MetricDefinition& definition : metric_definitions()) {
    if (definition.name == (definition.distribution ? distribution : figure)) return definition.better;
  }
  return std::nullopt;
}

}  // namespace spillway
