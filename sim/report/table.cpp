#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "sim/api/key_owners.hpp"
#include "sim/io/lines.hpp"
#include "sim/report/report.hpp"
#include "sim/study/instances.hpp"
#include "sim/study/trust.hpp"

namespace spillway {
namespace {

constexpr std::size_t kLines = 40;
constexpr std::size_t kClients = 5;  // clients with the longest waits, by name

std::string bytes(double count) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (count >= 1000.0 && unit + 1 < kUnits.size()) {
    count /= 1000.0;
    ++unit;
  }
  return fmt::format("{} {}", figure(count), kUnits[unit]);
}

class Table {
 public:
  explicit Table(const Result& result) : result_(result), run_(result.statistics) {}

  std::string build() {
    setup();
    lines_.blank();
    requests();
    lines_.blank();
    latencies();
    lines_.blank();
    kinds();
    rates();
    costs();
    slos();
    use();
    locality();
    replicas();
    fairness();
    lines_.blank();
    bottlenecks();
    const Lines perturbed = perturbation();
    validity();
    warnings(kLines - perturbed.size());
    lines_.append(perturbed);
    return lines_.text();
  }

  std::string build_setup() {
    setup();
    if (result_.kinds.empty()) {
      lines_.add("Weights", bytes(static_cast<double>(result_.setup.weights.count())) + " per GPU");
      lines_.add("KV memory", result_.setup.kv_terms);
    }
    validity();
    warnings(kLines - 2);
    lines_.blank();
    lines_.raw("The configuration can run; nothing was run (--dry-run).");
    if (result_.perturbation) {
      lines_.raw(fmt::format("With --perturb, there would be {} runs.", planned_runs(result_)));
    } else if (result_.locality) {
      lines_.raw(fmt::format(
          "There would be {} runs, with experts.locality also halved and doubled (not with --fixed-locality).",
          planned_runs(result_)));
    }
    return lines_.text();
  }

 private:
  /// The metric's value as text; "-" for a missing value.
  template <class Format>
  [[nodiscard]] static std::string show_of(const RunStatistics& run, const std::string& name, Format format) {
    const Metric* metric = run.find(name);
    return metric != nullptr && metric->value ? format(*metric->value) : "-";
  }
  template <class Format>
  [[nodiscard]] std::string show(const std::string& name, Format format) const {
    return show_of(run_, name, format);
  }
  [[nodiscard]] std::string show(const std::string& name) const { return show(name, figure); }

  [[nodiscard]] std::int64_t replications() const { return result_.config.settings.get<std::int64_t>("replications"); }

  void setup() {
    if (!result_.kinds.empty()) return setup_of_kinds();
    const Setup& setup = result_.setup;
    const KvLayout& kv = setup.kv;
    const std::string server = setup.hardware == setup.gpu ? std::string() : " of " + setup.hardware;
    const Settings& settings = result_.config.settings;
    const std::string weights = settings.has(kWeightsKey) ? settings.get<std::string>(kWeightsKey) : kNoWeights;
    lines_.add("Set-up", fmt::format("{} on {} x {}{}, policy {}{}{}, engine {}", setup.model, setup.tensor_parallel,
                                     setup.gpu, server, setup.policy, setup.knows_future.empty() ? "" : " (oracle)",
                                     weights == kNoWeights ? "" : ", weights " + weights, setup.engine));
    if (!setup.resolved_model.empty()) lines_.add("Model", setup.resolved_model);
    if (setup.replicas > 1) {
      const std::int64_t gpus = setup.replicas * setup.tensor_parallel;
      const std::string where = setup.servers == 0
                                    ? ", each with a host and links of its own"
                                    : fmt::format(" of {} server{}", setup.servers, setup.servers == 1 ? "" : "s");
      const std::string split = fmt::format(", {} for prompts and {} for answers", setup.prefill_replicas,
                                            setup.replicas - setup.prefill_replicas);
      const bool pools = setup.prefill_replicas > 0;
      lines_.add("Replicas", fmt::format("{} replicas on {} GPUs{}{}, router {}", setup.replicas, gpus, where,
                                         pools ? split : "", settings.get<std::string>(kRouterKey)));
      if (pools) {
        lines_.add("Hand-over", fmt::format("{} over {}, router {}",
                                            settings.get<std::string>("handover.mode") == "layers" ? "KV layer by layer"
                                                                                                   : "KV as a whole",
                                            setup.handover, settings.get<std::string>("decode_router")));
      }
    }
    if (!setup.expert_exchange.empty()) lines_.add("Exchange", setup.expert_exchange);
    lines_.add("Workload", fmt::format("{}, {} requests", setup.workload, setup.requests));
    const double kv_bytes = static_cast<double>(kv.block_bytes.count()) * static_cast<double>(kv.gpu_blocks.count());
    const std::string host_cache =
        kv.host_cache_blocks.count() == 0
            ? ""
            : fmt::format(", {} cache blocks {}{}", kv.host_cache_blocks.count(),
                          kv.cache_is_lent ? "lent by another GPU each" : "on the host",
                          kv.disk ? fmt::format(", {} on the disk", kv.disk->blocks.count()) : "");
    if (setup.deployment.layers > 0) {
      streamed_layers(host_cache);
      return;
    }
    lines_.add("KV cache",
               fmt::format("{} tokens in {} blocks of {} tokens ({} per GPU), {} blocks on the host{}; prefix caching "
                           "{}{}{}; longest request {} tokens",
                           setup.kv_capacity().count(), kv.gpu_blocks.count(), kv.block_tokens.count(), bytes(kv_bytes),
                           kv.host_blocks.count(), on_peers(), kv.prefix_caching ? "on" : "off", host_cache, window(),
                           setup.max_model_len.count()));
    host_tier();
    repetitions();
  }

  [[nodiscard]] std::string window() const {
    const std::optional<KvWindow>& window = result_.setup.kv.window;
    if (!window) return "";
    return fmt::format("; {} of {} layers free KV beyond {} tokens", window->layers, window->of,
                       window->tokens.count());
  }

  [[nodiscard]] std::string on_peers() const {
    const KvLayout& kv = result_.setup.kv;
    if (kv.peer_blocks() == Blocks(0)) return "";
    const double lent = static_cast<double>((kv.block_bytes * kv.peer_blocks().count()).count());
    return fmt::format(", {} blocks ({}) lent by another GPU each", kv.peer_blocks().count(), bytes(lent));
  }

  /// A line for each element of `instances`.
  void setup_of_kinds() {
    const Setup& setup = result_.setup;
    lines_.add("Set-up", fmt::format("{} instances of {} kind{} on {} ({})", setup.replicas, result_.kinds.size(),
                                     result_.kinds.size() == 1 ? "" : "s", setup.hardware, setup.gpu));
    for (const KindResult& kind : result_.kinds) {
      const Setup& own = kind.setup;
      const std::string replicas = own.prefill_replicas > 0
                                       ? fmt::format("{} replicas for prompts and {} for answers of ",
                                                     own.prefill_replicas, own.replicas - own.prefill_replicas)
                                   : own.replicas == 1 ? ""
                                                       : fmt::format("{} replicas of ", own.replicas);
      const std::string router =
          own.replicas == 1 ? "" : fmt::format(", router {}", kind.config.settings.get<std::string>(kRouterKey));
      const std::string traffic = kind.share ? fmt::format("{} of the workload", percent(*kind.share))
                                             : fmt::format("{}, {} requests", own.workload, own.requests);
      lines_.add(kind.name, fmt::format("{}{} on GPU{} {}{}, policy {}, engine {}; {} tokens of KV{}; {}", replicas,
                                        own.model, kind.gpus.size() == 1 ? "" : "s", gpus_text(kind.gpus), router,
                                        own.policy, own.engine, own.kv_capacity().count(),
                                        own.replicas == 1  ? ""
                                        : own.pools_differ ? " each in the pool with less"
                                                           : " each",
                                        traffic));
    }
    lines_.add("Workload", fmt::format("{}, {} requests", setup.workload, setup.requests));
    repetitions();
  }

  /// What became of each element of `instances`.
  void kinds() {
    if (result_.kinds.empty()) return;
    struct Column {
      std::string_view heading;
      std::string metric;
      int width;
    };
    const std::array<Column, 7> columns{{{"p50 TTFT", "p50_ttft_ms", 10},
                                         {"p99 TTFT", "p99_ttft_ms", 10},
                                         {"p50 TPOT", "p50_tpot_ms", 10},
                                         {"p99 ITL", "p99_itl_ms", 9},
                                         {"requests/s", "request_throughput_per_s", 12},
                                         {"tokens/s", "output_throughput_tokens_per_s", 10},
                                         {"peak KV", "peak_gpu_kv_fraction", 9}}};
    constexpr int kName = 18;
    std::string head = fmt::format("{:<{}}{:>10}", "Instances (ms)", kName, "finished");
    for (const Column& column : columns) head += fmt::format("{:>{}}", column.heading, column.width);
    lines_.raw(std::move(head));
    for (const KindResult& kind : result_.kinds) {
      std::string row =
          fmt::format("{:<{}.{}}{:>10}", shown(kind.name), kName, kName - 1, kind.statistics.measured.finished);
      for (const Column& column : columns) {
        const Metric* const metric = kind.statistics.find(column.metric);
        const bool share = column.heading == "peak KV";
        row += fmt::format("{:>{}}",
                           metric == nullptr || !metric->value ? "-"
                           : share                             ? percent(*metric->value)
                                                               : figure(*metric->value),
                           column.width);
      }
      lines_.raw(std::move(row));
    }
    lines_.blank();
  }

  /// The GPU's memory under a policy that streams layers between the GPU and the host.
  void streamed_layers(const std::string& host_cache) {
    const Setup& setup = result_.setup;
    const KvLayout& kv = setup.kv;
    const std::string most = kv.most() == kv.gpu_blocks ? ""
                                                        : fmt::format(", growing to at most {} tokens",
                                                                      (kv.block_tokens * kv.most().count()).count());
    const std::string swap_blocks =
        (kv.host_blocks.count() == 0 ? "" : fmt::format(", {} blocks on the host", kv.host_blocks.count())) +
        on_peers();
    lines_.add("KV cache",
               fmt::format("{} tokens in {} blocks of {} tokens{}{}; prefix caching {}{}; longest request {} tokens",
                           (kv.block_tokens * kv.gpu_blocks.count()).count(), kv.gpu_blocks.count(),
                           kv.block_tokens.count(), most + (setup.pools_differ ? ", in the pool with fewer" : ""),
                           swap_blocks, kv.prefix_caching ? "on" : "off", host_cache, setup.max_model_len.count()));
    const Bytes on_host = setup.host_layer_bytes;
    lines_.add("Layers",
               setup.layer_terms + (on_host == Bytes(0) ? ""
                                                        : fmt::format("; up to {} per GPU on the host",
                                                                      bytes(static_cast<double>(on_host.count())))));
    if (const auto& flags = setup.engine_flags) {
      lines_.add("Flags", fmt::format("{}: {} ({})", flags->engine, flags->flags, flags->version));
    }
    if (!setup.layer_copies.empty()) lines_.add("Layer copies", setup.layer_copies);
    host_tier();
    repetitions();
  }

  /// Whether a hit in the host tier pays.
  void host_tier() {
    std::string text;
    for (const HostTierHit& hit : result_.setup.host_tier_hits) {
      text += fmt::format("{}a hit of {} tokens loads in {} ms instead of being computed in {} ms",
                          text.empty() ? "" : ", ", hit.tokens.count(), figure(hit.load_seconds * 1e3),
                          figure(hit.compute_seconds * 1e3));
    }
    if (!text.empty()) lines_.add("Host tier", text);
  }

  void repetitions() {
    if (replications() > 1) {
      lines_.add("",
                 fmt::format("{} replications (seeds): figures are means, +- is the 95% t-interval", replications()));
    }
  }

  void requests() {
    const OutcomeCounts& all = run_.all;
    std::string text = fmt::format("{} submitted = {} finished + {} rejected + {} timed out + {} unfinished",
                                   all.submitted, all.finished, all.rejected, all.timed_out, all.unfinished);
    if (all.lost > 0) text += fmt::format(" + {} lost", all.lost);
    if (run_.measured.submitted != all.submitted) {
      text += fmt::format("; {} measured after warm-up", run_.measured.submitted);
    }
    lines_.add("Requests", text);
    if (!result_.complete) lines_.add("", "INCOMPLETE: the run was interrupted");
  }

  void latencies() {
    constexpr std::array<std::array<std::string_view, 2>, 7> kRows{
        {{"TTFT (ms)", "ttft_ms"},
         {"TPOT (ms)", "tpot_ms"},
         {"ITL (ms)", "itl_ms"},
         {"E2E (ms)", "e2e_ms"},
         {"Normalised (ms/token)", "normalised_ms_per_token"},
         {"Queueing (ms/token)", "queueing_ms_per_token"},
         {"Compute (ms/token)", "compute_ms_per_token"}}};
    const bool repeated = replications() > 1;
    lines_.raw(fmt::format("{:<22}{:>11}{:>11}{:>11}{:>11}{:>11}{}", "Latency", "mean", "p50", "p90", "p99", "max",
                           repeated ? "   mean +-" : ""));
    for (const auto& [label, base] : kRows) {
      std::string row = fmt::format("{:<22}", label);
      for (const std::string_view statistic : {"mean", "p50", "p90", "p99", "max"}) {
        row += fmt::format("{:>11}", show(fmt::format("{}_{}", statistic, base)));
      }
      const Metric* mean = run_.find(fmt::format("mean_{}", base));
      const Metric* p99 = run_.find(fmt::format("p99_{}", base));
      if (repeated) row += fmt::format("{:>10}", mean != nullptr && mean->half_width ? figure(*mean->half_width) : "-");
      if (p99 != nullptr && p99->value && p99->relative_error > 0.0) {
        row += fmt::format("  pNN +-{}%", p99->relative_error * 100.0);
      }
      lines_.raw(row);
    }
  }

  void rates() {
    lines_.add("Throughput", fmt::format("{} requests/s, {} output tokens/s, {} total tokens/s over {} s",
                                         show("request_throughput_per_s"), show("output_throughput_tokens_per_s"),
                                         show("total_throughput_tokens_per_s"), show("duration_s")));
  }

  void costs() {
    const Setup& setup = result_.setup;
    if (!setup.price.empty()) {
      lines_.add("Cost",
                 fmt::format("{} per million output tokens; {}", show("cost_per_million_output_tokens"), setup.price));
    }
    if (setup.power_watts) {
      lines_.add("Energy", fmt::format("{} kWh per million output tokens; {:g} W per GPU",
                                       show("energy_kwh_per_million_output_tokens"), *setup.power_watts));
    }
  }

  void slos() {
    if (!result_.request_slos.empty() && result_.kinds.empty()) {
      std::vector<std::string> texts;
      for (const Condition& condition : result_.request_slos) texts.push_back(condition.text);
      lines_.add("Goodput", fmt::format("{} requests/s; {} of the requests met {}", show("goodput_requests_per_s"),
                                        show("slo_met_fraction", percent), fmt::join(texts, ", ")));
    }
    for (const KindResult& kind : result_.kinds) {
      const Metric* const good = kind.statistics.find("goodput_requests_per_s");
      const Metric* const met = kind.statistics.find("slo_met_fraction");
      if (kind.request_slos.empty() || good == nullptr || !good->value || met == nullptr || !met->value) continue;
      std::vector<std::string> texts;
      for (const Condition& condition : kind.request_slos) texts.push_back(condition.text);
      lines_.add("Goodput", fmt::format("{}: {} requests/s; {} of the requests met {}", kind.name, figure(*good->value),
                                        percent(*met->value), fmt::join(texts, ", ")));
    }
    for (const Verdict& verdict : result_.run_slos) {
      lines_.add("SLO", fmt::format("{}: {} ({})", verdict.condition.text, verdict.met ? "met" : "not met",
                                    verdict.value ? figure(*verdict.value) : "no value"));
    }
  }

  void bottlenecks() {
    const auto find = [](const RunStatistics& run, const ResolvedConfig& config) {
      return find_bottleneck(run, config.settings.get<std::int64_t>("engine.max_num_seqs"));
    };
    if (result_.kinds.empty()) {
      const Bottleneck bottleneck = find(run_, result_.config);
      lines_.add("Bottleneck", bottleneck.sentence);
      lines_.add("Try next", bottleneck.advice);
      return;
    }
    for (const KindResult& kind : result_.kinds) {
      lines_.add("Bottleneck", fmt::format("{}: {}", kind.name, find(kind.statistics, kind.config).sentence));
    }
  }

  void use() {
    lines_.add("Batch",
               fmt::format("mean {}, peak {} requests; waiting mean {}, peak {}{}", show("mean_batch_requests"),
                           show("peak_batch_requests"), show("mean_waiting_requests"), show("peak_waiting_requests"),
                           run_.replicas.empty() ? "" : ", per replica"));
    const bool host_cache = result_.setup.kv.host_cache_blocks.count() > 0;
    const Metric* const history = run_.find("history_gpu_hit_fraction");
    const bool keeps_history = history != nullptr && history->value;
    const std::string hits =
        fmt::format("; prefix cache hits {}{}", show("prefix_cache_hit_fraction", percent),
                    host_cache ? (result_.setup.kv.cache_is_lent ? ", lent memory's share " : ", host's share ") +
                                     show("host_cache_hit_fraction", percent)
                               : "");
    lines_.add("Memory",
               fmt::format("GPU KV mean {}, peak {}; host KV mean {}, peak {}{}", show("mean_gpu_kv_fraction", percent),
                           show("peak_gpu_kv_fraction", percent), show("mean_host_kv_fraction", percent),
                           show("peak_host_kv_fraction", percent), keeps_history ? "" : hits));
    if (keeps_history) {
      lines_.add("History", fmt::format("tokens of earlier turns: {} found on the GPU, {} of the rest on the host, {} "
                                        "tokens computed again; suspensions: {}; KV kept of {} conversations",
                                        show("history_gpu_hit_fraction", percent),
                                        show("history_host_hit_fraction", percent), show("recomputed_history_tokens"),
                                        show("suspensions"), show("mean_cached_conversations")));
    }
    const std::string peers = result_.setup.kv.peer_blocks() == Blocks(0)
                                  ? ""
                                  : fmt::format(", to the lender {}, from it {}", show("moved_peer_out_bytes", bytes),
                                                show("moved_peer_in_bytes", bytes));
    lines_.add("Links", fmt::format("host to GPU {}, GPU to host {}{}; preemptions: {} recompute, {} swap",
                                    show("moved_h2d_bytes", bytes), show("moved_d2h_bytes", bytes), peers,
                                    show("recompute_preemptions"), show("swap_preemptions")));
    if (run_.find("page_outs") != nullptr) {
      lines_.add("Slices", fmt::format("{} began; requests left the batch for others {} times", show("slices"),
                                       show("page_outs")));
    }
    lending();
    busiest_links();
    if (const Metric* const copied = run_.find("kv_copy_s"); copied != nullptr && copied->value.value_or(0.0) > 0.0) {
      lines_.add("KV copies",
                 fmt::format("under way {} s: hidden {} s, exposed {} s, while nothing ran {} s", show("kv_copy_s"),
                             show("hidden_kv_copy_s"), show("exposed_kv_copy_s"), show("idle_kv_copy_s")));
    }
    if (result_.setup.kv.connector) {
      lines_.add("Connector",
                 fmt::format("vllm-offloading of vLLM 0.11 to 0.13: hits on the GPU {}, on the host {}; blocks stored "
                             "{}, loaded {}, evicted {}; refused stores {}, which scanned {} entries; CPU time {} s, "
                             "and {} s to start copies",
                             show("gpu_cache_hit_fraction", percent), show("host_cache_hit_fraction", percent),
                             show("connector_stored_blocks"), show("connector_loaded_blocks"),
                             show("connector_evicted_blocks"), show("connector_refused_stores"),
                             show("connector_scanned_entries"), show("connector_cpu_s"), show("connector_copy_cpu_s")));
    }
    if (result_.setup.kv.disk) {
      lines_.add("Disk", fmt::format("hits {}; blocks written {}, read {}, dropped {}; transfers waited {} s to begin",
                                     show("disk_cache_hit_fraction", percent), show("disk_written_blocks"),
                                     show("disk_read_blocks"), show("disk_dropped_blocks"), show("disk_queue_wait_s")));
    }
    if (run_.engine.layers) streaming();
    if (run_.engine.on_cpu) attention_on_cpu();
  }

  /// Of those that copies share, the ones that carried the largest part of what they can.
  void busiest_links() {
    constexpr std::size_t kShown = 3;
    constexpr double kLeast = 0.001;
    const double span = to_seconds(run_.span);
    std::vector<std::pair<double, std::string>> used;
    for (std::size_t i = 0; i < result_.links.size() && span > 0.0; ++i) {
      const double fraction = run_.links[i].fraction(span);
      if (fraction >= kLeast) used.emplace_back(fraction, result_.links[i]);
    }
    if (used.empty()) return;
    std::ranges::stable_sort(used, std::ranges::greater(), &std::pair<double, std::string>::first);
    std::vector<std::string> texts;
    for (const auto& [fraction, name] : std::span(used).first(std::min(kShown, used.size()))) {
      texts.push_back(fmt::format("{} {}", name, percent(fraction)));
    }
    lines_.add("Server links", fmt::format("used share of their bandwidth: {}{}", fmt::join(texts, ", "),
                                           used.size() > kShown ? ", others less" : ""));
  }

  /// Who lends to whom, all replicas together; figures are of one GPU.
  void lending() {
    const double span = to_seconds(run_.span);
    if (span <= 0.0) return;
    for (std::size_t first = 0; first < result_.loans.size();) {
      const LoanSides& sides = result_.loans[first];
      LendingUse all = run_.lending[first];
      std::size_t end = first + 1;
      for (; end < result_.loans.size() && result_.loans[end].borrower == sides.borrower; ++end) {
        all.figures.add(run_.lending[end].figures);
      }
      const auto loans = static_cast<double>(end - first);
      first = end;
      const LendingFigures& figures = all.figures;
      std::string text =
          fmt::format("{} lend{} {} of a GPU{}, mean; in use {}, peak {}",
                      sides.lender.empty() ? "other GPUs" : sides.lender, sides.lender.empty() ? "" : "s",
                      bytes(figures.offered_time / span / loans), sides.borrower.empty() ? "" : " to " + sides.borrower,
                      bytes(figures.held_time / span / loans), bytes(static_cast<double>(figures.peak_held.count())));
      if (all.lender) {
        text += fmt::format("; {} offers, {} reclaims", figures.offers, figures.reclaims);
        if (figures.returns > 0) {
          text += fmt::format(", back after {} s, mean, {} s at most",
                              figure(figures.return_time / static_cast<double>(figures.returns)),
                              figure(figures.longest_return));
        }
      }
      if (const auto share = all.memory_share(span * loans)) {
        text += fmt::format("; copies take {} of its memory bandwidth", percent(*share));
        if (sides.busy) text += fmt::format(", its own model {}", percent(*sides.busy));
      }
      lines_.add("Lending", text);
    }
  }

  void streaming() {
    const auto has = [&](const std::string& name) {
      const Metric* metric = run_.find(name);
      return metric != nullptr && metric->value;
    };
    std::string text;
    // It has no value where the weights do not fit the GPU. Most policies never change it.
    if (has("mean_expansion_ratio")) {
      const std::string mean = show("mean_expansion_ratio");
      const std::string peak = show("peak_expansion_ratio");
      const std::string last = show("final_expansion_ratio");
      text = mean == peak && peak == last
                 ? fmt::format("expansion {}; ", mean)
                 : fmt::format("expansion mean {}, peak {}, at the end {}; ", mean, peak, last);
    }
    text += fmt::format("compute waits for copies {} of the time; links busy {} in, {} out",
                        show("layer_stall_fraction", percent), show("h2d_link_fraction", percent),
                        show("d2h_link_fraction", percent));
    const Metric* attention = run_.find("cpu_attention_time_fraction");
    if (attention != nullptr && attention->value.value_or(0.0) > 0.0) {
      text += fmt::format("; GPU waits for attention on the CPU {} of the time", percent(*attention->value));
    }
    for (const std::string part : {"", kWeightsPrefix}) {
      const std::string interval = part + "mean_interval_layers";
      const std::string risk = part + "slo_risk_fraction";
      const std::string dwell = part + "mean_dwell_ms";
      const std::string host = part + "peak_host_layer_bytes";
      const std::string demand = part + "mean_bus_demand_gb_per_s";
      const std::string overload = part + "bus_overload_fraction";
      const std::string refused = part + "refused_requests";
      const std::string hits = part + "expert_hit_fraction";
      if (has(hits)) {
        text += fmt::format("; of the experts in use {} are on the GPU, {} are copied, {} are computed by the CPU",
                            show(hits, percent), show(part + "expert_load_fraction", percent),
                            show(part + "expert_cpu_fraction", percent));
      }
      if (has(interval)) text += fmt::format("; offloading interval mean {}", show(interval));
      if (has(risk)) text += fmt::format("; SLO at risk in {} of iterations", show(risk, percent));
      if (has(demand)) {
        text += fmt::format("; coordinated demand on the bus {} GB/s, too much in {} of the time", show(demand),
                            show(overload, percent));
      }
      if (has(refused)) {
        text += fmt::format("; {} requests refused, {} refusals sent on to another replica", show(refused),
                            show(part + "rerouted_requests"));
      }
      if (has(dwell)) text += fmt::format("; dwell mean {} ms, max {} ms", show(dwell), show(part + "max_dwell_ms"));
      if (has(host)) {
        text += fmt::format("; host memory {}{}", part.empty() ? "" : "of weights ", show(host, bytes));
      }
    }
    lines_.add("Streaming", text);
    for (const std::string part : {"", kWeightsPrefix}) {
      if (has(part + "gpu_expert_seconds")) busy(part);
    }
  }

  /// What GPU and CPU computed where a policy places experts, by kind of layer.
  void busy(const std::string& part) {
    const auto seconds = [&](const char* name) {
      const Metric* const metric = run_.find(part + name);
      return metric != nullptr ? metric->value.value_or(0.0) : 0.0;
    };
    std::string text = fmt::format("GPU: routed experts {} s, the rest of their layers {} s",
                                   figure(seconds("gpu_expert_seconds")), figure(seconds("gpu_expert_layer_seconds")));
    if (const double dense = seconds("gpu_dense_layer_seconds"); dense > 0.0) {
      text += fmt::format(", dense layers {} s", figure(dense));
    }
    if (const double attention = seconds("gpu_attention_seconds"); attention > 0.0) {
      text += fmt::format(" (attention {} s of it)", figure(attention));
    }
    if (const double cpu = seconds("cpu_expert_seconds"); cpu > 0.0) {
      text += fmt::format("; CPU: experts {} s", figure(cpu));
    }
    lines_.add("Busy", text);
  }

  /// Decodes attended on the CPU beside the GPU.
  void attention_on_cpu() {
    std::string text = fmt::format("{} of iterations pipelined; {} tokens attended there; CPU busy {}, GPU {}",
                                   show("pipelined_iterations_fraction", percent), show("cpu_attention_tokens"),
                                   show("cpu_busy_fraction", percent), show("gpu_busy_fraction", percent));
    text += fmt::format("; the GPU waited for the first sub-batch {} and for the second {} of the time",
                        show("first_bubble_fraction", percent), show("second_bubble_fraction", percent));
    text += fmt::format("; predicted times {} off; {} requests moved to the host, {} back",
                        show("prediction_error_fraction", percent), show("swap_outs"), show("swap_ins"));
    lines_.add("On the CPU", text);
  }

  void locality() {
    const std::optional<ExpertLocality>& common = result_.setup.expert_locality;
    std::vector<std::string> assumed;
    if (common) assumed.push_back(assumed_text(*common));
    for (const KindResult& kind : result_.kinds) {
      const std::optional<ExpertLocality>& own = kind.setup.expert_locality;
      if (own && !common) assumed.push_back(fmt::format("{} {}", kind.name, assumed_text(*own)));
    }
    if (assumed.empty()) return;
    lines_.add("Locality", locality_text(fmt::format("{}", fmt::join(assumed, ", ")),
                                         locality_run(1.0, common, run_.metrics), result_.locality));
  }

  /// For several replicas only, a line for each pool.
  void replicas() {
    if (result_.kinds.empty()) return replicas_of(run_, "");
    for (const KindResult& kind : result_.kinds) replicas_of(kind.statistics, kind.name + ": ");
  }
  void replicas_of(const RunStatistics& run, const std::string& whose) {
    const bool lone = run.replicas.size() == 1 && run.replicas.front().down_time == 0.0;
    if (run.replicas.empty() || (lone && !whose.empty())) return;
    const bool pools = run.handover.has_value();
    balance(run, 0, pools ? "Prompts" : "Balance", whose, "replica_imbalance");
    if (!pools) return;
    balance(run, 1, "Answers", whose, "decode_replica_imbalance");
    lines_.add("Hand-over",
               fmt::format("{}{}; on average, KV waits {} ms for free blocks and is in transit for {} ms", whose,
                           show_of(run, "handed_over_bytes", bytes), show_of(run, "mean_handover_wait_ms", figure),
                           show_of(run, "mean_handover_ms", figure)));
  }
  void balance(const RunStatistics& run, std::int32_t pool, const std::string& label, const std::string& whose,
               const std::string& imbalance) {
    std::vector<ReplicaStatistics> all;
    std::ranges::copy_if(run.replicas, std::back_inserter(all), [pool](const auto& one) { return one.pool == pool; });
    const auto share = [](const ReplicaStatistics& one) {
      const auto asked = static_cast<double>(one.engine.prefix_asked.count());
      return asked > 0.0 ? static_cast<double>(one.engine.prefix_hit.count()) / asked : 0.0;
    };
    const auto [fewest, most] = std::ranges::minmax(all, {}, &ReplicaStatistics::sent);
    std::string text =
        fmt::format("{}requests per replica {} to {}; the busiest worked {} times the mean", whose,
                    fewest.sent / fewest.replications, most.sent / most.replications, show_of(run, imbalance, figure));
    if (std::ranges::any_of(all, [](const auto& one) { return one.engine.prefix_asked > Tokens(0); })) {
      const auto [least, best] = std::ranges::minmax(all, {}, share);
      text += fmt::format("; prefix cache hits {} to {}", percent(share(least)), percent(share(best)));
    }
    double down = 0.0;
    for (const ReplicaStatistics& one : all) down += one.down_time;
    if (down > 0.0) text += fmt::format("; down for {} s in all", figure(down));
    lines_.add(label, text);
  }

  /// For several clients only: one line of figures, and the clients with the longest waits.
  void fairness() {
    if (run_.clients.empty()) return;
    std::vector<std::string> worst;
    for (const ClientStatistics& client : worst_clients(run_, kClients)) {
      if (client.mean_ttft_ms) worst.push_back(fmt::format("{}: {}", client.client, figure(*client.mean_ttft_ms)));
    }
    lines_.add("Fairness", fmt::format("{} clients: {}; worst p99 TTFT {} ms; worst mean TTFT (client: ms) {}",
                                       run_.clients.size(), service(), show("worst_client_p99_ttft_ms"),
                                       worst.empty() ? "-" : fmt::format("{}", fmt::join(worst, ", "))));
  }
  /// How evenly a replica serves the clients that it has.
  [[nodiscard]] std::string service() const {
    if (run_.replicas.empty()) {
      return fmt::format("Jain's index {}, largest service difference {} weighted tokens", show("jain_index"),
                         show("max_service_difference_tokens"));
    }
    std::optional<double> least;
    std::optional<double> most;
    std::optional<std::int64_t> difference;
    for (const ReplicaStatistics& one : run_.replicas) {
      if (one.jain_index) {
        least = std::min(least.value_or(1.0), *one.jain_index);
        most = std::max(most.value_or(0.0), *one.jain_index);
      }
      if (one.max_service_difference) difference = std::max(difference.value_or(0), *one.max_service_difference);
    }
    return fmt::format("Jain's index of a replica {}, largest service difference in one {} weighted tokens",
                       least ? fmt::format("{} to {}", figure(*least), figure(*most)) : "-",
                       difference ? figure(static_cast<double>(*difference)) : "-");
  }

  /// The effect of each class of work, up / down, and the largest change of all runs.
  [[nodiscard]] Lines perturbation() const {
    constexpr std::array<std::string_view, kComparedMetrics.size()> kHeadings{"mean TTFT", "mean TPOT", "p99 TTFT",
                                                                              "p99 ITL", "requests/s"};
    Lines lines;
    if (!result_.perturbation) return lines;
    const Robustness& robustness = *result_.perturbation;
    std::string head = fmt::format("{:<{}}", fmt::format("Times +-{:.6g}%", 100.0 * robustness.fraction), kLabel);
    for (const std::string_view heading : kHeadings) head += fmt::format("{:>17}", heading);
    lines.raw(std::move(head));
    std::vector<std::string_view> without_effect;
    for (std::size_t i = 0; i < kOpClasses.size(); ++i) {
      const std::vector<PerturbedMetric>& up = robustness.runs.at(2 * i).metrics;
      const std::vector<PerturbedMetric>& down = robustness.runs.at(2 * i + 1).metrics;
      if (unchanged(up) && unchanged(down)) {
        without_effect.push_back(kOpClasses[i].name);
        continue;
      }
      std::string row = fmt::format("{:<{}}", kOpClasses[i].name, kLabel);
      for (std::size_t m = 0; m < up.size(); ++m) {
        row += fmt::format("{:>17}", signed_percent(up[m].change) + " / " + signed_percent(down[m].change));
      }
      lines.raw(std::move(row));
    }
    if (!without_effect.empty()) lines.add("no change", fmt::format("{}", fmt::join(without_effect, ", ")));
    if (const auto largest = largest_change(robustness)) {
      lines.add("largest",
                fmt::format("{} {}: {} (of {} runs)", kHeadings.at(largest->metric), signed_percent(largest->change),
                            robustness.runs[largest->run].perturbation.label, robustness.runs.size()));
    }
    return lines;
  }
  /// A metric without a value in either run counts as unchanged.
  static bool unchanged(const std::vector<PerturbedMetric>& metrics) {
    return std::all_of(metrics.begin(), metrics.end(),
                       [](const PerturbedMetric& m) { return m.change ? *m.change == 0.0 : !m.value; });
  }

  /// How far to trust the figures, in one line. Whole texts: --json and `explain validity`.
  void validity() {
    const Setup& setup = result_.setup;
    double outside = 0.0;
    for (const RangeUse& use : result_.outside_range) outside = std::max(outside, use.fraction_outside());
    std::string text = setup.expected_error;
    if (!setup.engine_calibrated) text += "; CPU time assumed";
    constexpr double kLeastShown = 0.005;  // 1%, rounded
    if (outside >= kLeastShown) text += fmt::format("; {:.0f}% extrapolated", 100.0 * outside);
    lines_.add("Validity", text + ": explain validity");
  }

  /// The warnings that say what to change, as many as fit the screen. The JSON has all warnings.
  void warnings(std::size_t limit) {
    std::vector<std::string> shown;
    std::ranges::copy_if(result_.warnings, std::back_inserter(shown), [this](const std::string& warning) {
      return std::ranges::count(result_.setup.accuracy, warning) == 0;
    });
    for (std::size_t i = 0; i < shown.size(); ++i) {
      Lines one;
      one.add("Warning", shown[i]);
      const bool last = i + 1 == shown.size();
      if (lines_.size() + one.size() + (last ? 0U : 1U) > limit) {
        lines_.add("Warning", fmt::format("{} more: use --json to see all", shown.size() - i));
        return;
      }
      lines_.append(one);
    }
  }

  const Result& result_;
  const RunStatistics& run_;
  Lines lines_;
};

}  // namespace

std::string to_table(const Result& result) { return Table(result).build(); }
std::string to_setup_table(const Result& result) { return Table(result).build_setup(); }

}  // namespace spillway
