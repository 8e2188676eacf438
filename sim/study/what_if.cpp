#include "sim/study/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/api/padding.hpp"
#include "sim/io/output.hpp"

namespace spillway {
namespace {

/// The kind of instances that a request was for.
const Assembly& served_by(const Assembly& assembly, const RequestRecord& request) {
  return assembly.kinds.empty() ? assembly : assembly.kinds[request.traits.pool].assembly;
}

/// "the first is request 13 of x.csv with 9000 prompt + 100 output tokens; ...": the rejected request and the limits.
std::string rejection(const Assembly& assembly, const RequestRecord& first) {
  const Setup& setup = served_by(assembly, first).setup;
  return fmt::format(
      "the first is request {} of {} with {} prompt + {} output tokens; the longest request that can run has {} "
      "tokens, and the KV cache holds {} tokens",
      first.index + 1,
      assembly.kinds.empty() ? assembly.workload.name
                             : fmt::format("the run, of instance {},", assembly.kinds[first.traits.pool].name),
      first.input.count(), first.output.count(), setup.max_model_len.count(), setup.kv_capacity().count());
}

/// Whether the policy can process prompts in chunks, if configured to.
bool can_chunk(const Assembly& assembly) {
  if (!assembly.config.policy->check) return true;
  Settings settings = assembly.config.settings;
  settings.set("engine.chunked_prefill", true);
  return assembly.config.policy->check(settings).empty();
}

std::string rejection_fix(const Assembly& whole, const RequestRecord& first) {
  const Assembly& assembly = served_by(whole, first);
  const std::string more_memory =
      "give the KV cache more memory: raise memory.gpu_kv, engine.gpu_memory_utilization or tensor_parallel, or choose "
      "hardware with more memory";
  const Setup& setup = assembly.setup;
  const Settings& settings = assembly.config.settings;
  if (const auto padded = padding(settings)) {
    if (first.input > padded->input || first.output > padded->output) {
      return fmt::format("policy {} pads every request to {} + {} tokens: raise policy.pad_input or policy.pad_output",
                         setup.policy, padded->input.count(), padded->output.count());
    }
  }
  if (first.input + first.output <= std::min(setup.max_model_len, setup.kv_capacity())) {
    const bool chunked = settings.get<bool>("engine.chunked_prefill");
    if (!chunked && first.input.count() > settings.get<std::int64_t>("engine.max_num_batched_tokens")) {
      return fmt::format("policy {} never admits such a prompt: raise engine.max_num_batched_tokens{}", setup.policy,
                         can_chunk(assembly) ? ", or set engine.chunked_prefill=true" : "");
    }
    return fmt::format("policy {} never admits a request of this size: {}{}", setup.policy,
                       settings.has("policy.watermark") ? "lower policy.watermark, or " : "", more_memory);
  }
  if (setup.max_model_len == setup.model_positions) return "use a model with a longer context";
  return setup.max_model_len < setup.kv_capacity() ? "raise engine.max_model_len" : more_memory;
}

void refuse_empty_run(const Assembly& assembly, const ReplicationResults& results) {
  const OutcomeCounts& all = results.statistics.all;
  if (all.submitted == 0 && results.complete) {
    throw ConfigError("no request arrives before the run ends", assembly.config.place("until"), "raise until");
  }
  if (all.submitted == 0 || all.rejected < all.submitted || !results.first_rejected) return;
  throw DataError(fmt::format("all {} requests were rejected for their size: {}", all.rejected,
                              rejection(assembly, *results.first_rejected)),
                  served_by(assembly, *results.first_rejected).config.place("workload.trace"),
                  rejection_fix(assembly, *results.first_rejected));
}

void add_warnings(const Assembly& assembly, const ReplicationResults& results, std::vector<std::string>& warnings) {
  const OutcomeCounts& all = results.statistics.all;
  if (all.rejected > 0 && results.first_rejected) {
    warnings.push_back(fmt::format(
        "{} of {} requests were rejected for their size: {}; {}", all.rejected - results.refused, all.submitted,
        rejection(assembly, *results.first_rejected), rejection_fix(assembly, *results.first_rejected)));
  }
  if (results.refused > 0) {
    warnings.push_back(fmt::format(
        "{} of {} requests were rejected because running requests would have missed their SLO: the weights "
        "that instances on one bus stream leave no bandwidth, or the KV in use no memory. Lower the rate of "
        "requests, loosen the SLO, or set policy.coordinate=false and see what latency becomes",
        results.refused, all.submitted));
  }
  if (all.timed_out > 0) {
    warnings.push_back(
        fmt::format("{} of {} requests timed out and are not in the latencies", all.timed_out, all.submitted));
  }
  if (all.lost > 0) {
    warnings.push_back(fmt::format("{} of {} requests were lost with their replica and are not in the latencies",
                                   all.lost, all.submitted));
  }
  if (results.unsent > 0) {
    warnings.push_back(
        fmt::format("{} later turns were never sent, because an earlier turn of their conversation was not answered",
                    results.unsent));
  }
  if (results.held_back.requests > 0 && assembly.workload.arrival != "all-at-once") {
    const RequestSource::HeldBack& held = results.held_back;
    warnings.push_back(fmt::format(
        "{} of {} requests were sent later than they were due (mean delay {:.3g} s, largest {:.3g} s), because {} "
        "limits the requests in "
        "flight. Latencies count from the send",
        held.requests, all.submitted, held.seconds / static_cast<double>(held.requests), to_seconds(held.longest),
        assembly.workload.concurrency > 0 ? fmt::format("workload.concurrency={}", assembly.workload.concurrency)
                                          : "workload.concurrency"));
  }
  if (results.shortened > 0) {
    warnings.push_back(fmt::format(
        "{} of {} turns were cut, the oldest part of the context first, so that prompt and answer fit {} ({} tokens)",
        results.shortened, all.submitted + results.unsent,
        assembly.config.settings.has("workload.max_context") ? "workload.max_context"
                                                             : "the longest request that can run",
        assembly.config.settings.has("workload.max_context")
            ? assembly.config.settings.get<std::int64_t>("workload.max_context")
            : assembly.setup.max_model_len.count()));
  }
  if (all.unfinished > 0) {
    warnings.push_back(fmt::format("{} of {} requests were unfinished at the end and are not in the latencies",
                                   all.unfinished, all.submitted));
  }
  if (results.statistics.measured.finished == 0) {
    warnings.emplace_back(
        "no measured request finished, so there are no latencies: check warmup, until and "
        "engine.request_timeout");
  }
  if (!assembly.kinds.empty()) return;  // judge_kinds() says it of each
  const auto growth = results.growth.growth();
  if (growth && assembly.workload.arrival != "all-at-once") {
    warnings.push_back(fmt::format(
        "saturated: the queue kept growing (requests of the second quarter waited {:.3g} s, requests of the last "
        "quarter {:.3g} s), so latencies depend on the length of the run; lower workload.rate",
        growth->early_seconds, growth->late_seconds));
  } else if (results.statistics.steady && results.statistics.steady->verdict == SteadyState::Verdict::saturated) {
    warnings.push_back(fmt::format("saturated: {}, and latencies depend on the length of the run; lower workload.rate",
                                   results.statistics.steady->sentence));
  } else if (results.statistics.steady && results.statistics.steady->verdict == SteadyState::Verdict::unsteady) {
    warnings.push_back(fmt::format("unsteady: {}; raise workload.requests", results.statistics.steady->sentence));
  }
}

}  // namespace

Result setup_result(const Assembly& assembly) {
  Result result;
  result.tool_version = tool_version();
  result.tool_build = tool_build();
  result.config = assembly.config;
  result.setup = assembly.setup;
  result.inputs = assembly.inputs;
  result.warnings = assembly.warnings;
  result.request_slos = assembly.request_slos;
  for (const AssembledKind& kind : assembly.kinds) {
    result.kinds.push_back(
        {kind.name, kind.gpus, kind.share, kind.assembly.config, kind.assembly.setup, kind.assembly.request_slos, {}});
  }
  return result;
}

namespace {

/// A run is as steady as the least steady kind of its instances.
void judge_kinds(Result& result) {
  for (const KindResult& kind : result.kinds) {
    const std::optional<SteadyState>& own = kind.statistics.steady;
    std::optional<SteadyState>& all = result.statistics.steady;
    using Verdict = SteadyState::Verdict;
    if (!own || own->verdict == Verdict::steady) continue;
    const bool worse = !all || all->verdict == Verdict::steady ||
                       (all->verdict == Verdict::unsteady && own->verdict == Verdict::saturated);
    const bool saturated = own->verdict == Verdict::saturated;
    result.warnings.push_back(fmt::format("{}: {}: {}; {}", kind.name, verdict_name(own->verdict), own->sentence,
                                          saturated ? "lower its part of the load" : "raise workload.requests"));
    if (!worse) continue;
    all = own;
    all->sentence = fmt::format("{}: {}", kind.name, own->sentence);
  }
}

/// The links of each server, then the ways out of prefill and into decode replicas.
std::vector<std::string> names_of_links(const Assembly& assembly, std::size_t count) {
  const InstancePlan& plan = assembly.kinds.empty() ? assembly.instance : assembly.kinds.front().assembly.instance;
  std::vector<std::string> names;
  const std::int64_t servers = plan.link_names.empty() ? 0 : (plan.replicas - 1) / plan.per_server + 1;
  for (std::int64_t server = 0; server < servers; ++server) {
    for (const std::string& name : plan.link_names) {
      names.push_back(servers == 1 ? name : fmt::format("server {}: {}", server, name));
    }
  }
  // Of several kinds, one has pools.
  const auto split = std::ranges::find_if(
      assembly.kinds, [](const AssembledKind& kind) { return kind.assembly.instance.pools.split(); });
  const InstancePlan& pools = split == assembly.kinds.end() ? plan : split->assembly.instance;
  const std::string whose = split == assembly.kinds.end() ? "" : split->name + " ";
  for (std::int64_t replica = 0; names.size() < count; ++replica) {
    names.push_back(
        fmt::format("hand-overs of {}replica {} {}", whose, replica, replica < pools.pools.prefill ? "out" : "in"));
  }
  return names;
}

std::vector<LoanSides> sides_of_loans(const Assembly& assembly) {
  std::vector<LoanSides> sides;
  const auto add = [&sides](const Assembly& borrower, const std::string& name) {
    if (!borrower.loan) return;
    sides.insert(sides.end(), static_cast<std::size_t>(borrower.instance.replicas),
                 {name, borrower.loan->lender, borrower.loan->busy});
  };
  if (assembly.kinds.empty()) add(assembly, "");
  for (const AssembledKind& kind : assembly.kinds) add(kind.assembly, kind.name);
  return sides;
}

/// Copies of peers and the lender's own model share its memory.
void warn_of_busy_lenders(Result& result) {
  const double span = to_seconds(result.statistics.span);
  for (std::size_t i = 0; i < result.loans.size(); ++i) {
    const LoanSides& sides = result.loans[i];
    const std::optional<double> share = result.statistics.lending[i].memory_share(span);
    if (!sides.busy || !share || *sides.busy + *share <= 1.0) continue;
    result.warnings.push_back(
        fmt::format("{} uses {:.0f}% of its GPUs' memory bandwidth and {}'s copies {:.0f}%: more than there is, so "
                    "both take longer than the run says",
                    sides.lender, 100.0 * *sides.busy, sides.borrower, 100.0 * *share));
  }
}

}  // namespace

Result run_result(const Assembly& assembly, ReplicationResults runs) {
  refuse_empty_run(assembly, runs);
  Result result = setup_result(assembly);
  result.complete = runs.complete;
  add_warnings(assembly, runs, result.warnings);
  result.unsent = runs.unsent;
  result.outside_range = runs.outside_range();
  result.statistics = std::move(runs.statistics);
  result.links = names_of_links(assembly, result.statistics.links.size());
  result.loans = sides_of_loans(assembly);
  warn_of_busy_lenders(result);
  for (std::size_t i = 0; i < runs.kinds.size(); ++i) result.kinds[i].statistics = std::move(runs.kinds[i]);
  judge_kinds(result);
  for (const Condition& condition : assembly.run_slos) result.run_slos.push_back(judge(condition, result.statistics));
  return result;
}

}  // namespace spillway
