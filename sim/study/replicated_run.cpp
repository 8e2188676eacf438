#include "sim/study/replicated_run.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <span>
#include <thread>
#include <utility>

#include "sim/core/random.hpp"
#include "sim/io/work_done.hpp"

namespace spillway {

double QueueGrowth::Sum::mean_seconds() const {
  return requests > 0 ? static_cast<double>(nanoseconds) * 1e-9 / static_cast<double>(requests) : 0.0;
}

void QueueGrowth::add(const RequestRecord& record) {
  const SimTime until = record.first_scheduled != kNever ? record.first_scheduled : record.end;
  if (record.outcome == Outcome::rejected || until == kNever || requests_ <= 0) return;
  const auto quarter = static_cast<std::int64_t>(record.index) * 4 / requests_;
  Sum& sum = quarters_[static_cast<std::size_t>(std::clamp<std::int64_t>(quarter, 0, 3))];
  sum.nanoseconds += (until - record.arrival).count();
  ++sum.requests;
}

void QueueGrowth::merge(const QueueGrowth& other) {
  for (std::size_t i = 0; i < quarters_.size(); ++i) {
    quarters_[i].nanoseconds += other.quarters_[i].nanoseconds;
    quarters_[i].requests += other.quarters_[i].requests;
  }
}

std::optional<QueueGrowth::Means> QueueGrowth::growth() const {
  const Means means{quarters_[1].mean_seconds(), quarters_[3].mean_seconds()};
  if (means.late_seconds < 1.0 || means.late_seconds < 2.0 * means.early_seconds) return std::nullopt;
  return means;
}

namespace {

/// The outcome of one replication; empty if it did not start or failed.
struct Slot {
  std::optional<SimulationResult> result;
  std::optional<QueueGrowth> growth;
  std::int64_t unsent = 0;
  std::int64_t shortened = 0;
  RequestSource::HeldBack held_back{};
  std::vector<RangeUse> range_uses;
  std::exception_ptr error;
};

void add_range_uses(const std::vector<RangeUse>& uses, std::vector<RangeUse>& sums) {
  for (const RangeUse& use : uses) {
    const auto same = std::find_if(sums.begin(), sums.end(), [&](const RangeUse& sum) {
      return sum.op == use.op && sum.quantity == use.quantity;
    });
    if (same == sums.end()) {
      sums.push_back(use);
    } else {
      same->add(use);
    }
  }
}

/// One simulation: `replication` of `variant`. `index` counts all simulations in that order.
struct Run {
  std::int64_t index = 0;
  std::int64_t replication = 0;
  bool first_variant = true;
  Variant variant{};
};

/// What the instances of one kind are simulated with; it must outlive the simulation.
struct Models {
  std::unique_ptr<ExecutionModel> model;
  std::unique_ptr<ExecutionModel> unshared;
  std::vector<BytesPerSecond> links{};
  std::vector<PlannedCopies> planning;  // of each position on a server
};

/// Hand-overs take `times` as long. The links of servers are slower already; those that follow them are the replicas'
/// own ports.
void slow_handover(double times, SimulationConfig& config) {
  Handover& handover = *config.handover;
  for (BytesPerSecond& port : std::span(handover.links).subspan(config.links.size())) {
    port = BytesPerSecond(port.value() / times);
  }
  handover.path = [path = std::move(handover.path), times](std::size_t prefill, std::size_t decode) {
    HandoverPath slower = path(prefill, decode);
    slower.launch = round_seconds(to_seconds(slower.launch) * times);
    slower.bandwidth = BytesPerSecond(slower.bandwidth.value() / times);
    return slower;
  };
}

/// The simulation of one kind of instances.
SimulationConfig config_of(const Assembly& assembly, const Run& run, RequestSource& source, Models& models) {
  models.model = assembly.make_model(run.variant.scales);
  SimulationConfig config = simulation_config(assembly, *models.model, source);
  InstanceConfig& instance = config.instances.front();
  if (instance.experts) {
    const auto seed = assembly.config.settings.get<std::int64_t>("seed");
    instance.experts->seed = RandomStream(seed, run.replication, "experts").next_u64();
    instance.experts->locality = locality_times(run.variant.locality_times, instance.experts->locality);
  }
  // Slower copies are those of slower links, the server's included.
  for (BytesPerSecond& link : config.links) link = BytesPerSecond(link.value() / run.variant.scales.copies);
  if (instance.policy->layout || instance.policy->make_space) {
    models.unshared = assembly.make_model(run.variant.scales);
    models.links = config.links;
    for (const CopyRoute& route : assembly.instance.routes) {
      models.planning.emplace_back(*models.unshared, route, models.links);
    }
    instance.deployment.planning = models.planning.data();
  }
  if (instance.deployment.cpu_attention_bandwidth)
    *instance.deployment.cpu_attention_bandwidth /= run.variant.scales.cpu;
  instance.deployment.cpu_attention_launch *= run.variant.scales.cpu;
  replicate(assembly, run.replication, config);
  if (config.handover && run.variant.scales.copies != 1.0) slow_handover(run.variant.scales.copies, config);
  for (std::size_t i = 0; !models.planning.empty() && i < config.instances.size(); ++i) {
    config.instances[i].deployment.planning = &models.planning[i % models.planning.size()];
  }
  return config;
}

/// The simulation of several kinds, on the links of one server.
SimulationConfig config_of_kinds(const Assembly& assembly, const Run& run, RequestSource& source,
                                 std::vector<Models>& models) {
  SimulationConfig config = run_config(assembly, source);
  config.events = assembly.instance.events;
  config.retry = assembly.config.settings.get<bool>("router.retry");
  models.resize(assembly.kinds.size());
  std::vector<std::size_t> first;  // instance of each kind
  for (std::size_t i = 0; i < models.size(); ++i) {
    SimulationConfig own = config_of(assembly.kinds[i].assembly, run, source, models[i]);
    first.push_back(config.instances.size());
    config.pools.push_back({own.instances.size(), std::move(own.router), own.front_end, assembly.kinds[i].offered});
    config.instances.insert(config.instances.end(), own.instances.begin(), own.instances.end());
    config.links = std::move(own.links);  // the same for all
    if (own.handover) {
      config.handover = std::move(own.handover);
      config.handover->kind = i;
    }
  }
  for (std::size_t i = 0; i < first.size(); ++i) borrow(assembly.kinds[i].assembly, first[i], first, config);
  return config;
}

void run_one(Assembly& assembly, const Run& run, const std::vector<double>& percentiles, const ReplicationHooks& hooks,
             Slot& slot) {
  traces::Workload own;  // assemble already opened and checked the workload of the first run: read it only once
  if (run.index > 0) own = open_workload(assembly, run.replication);
  RequestSource& source = run.index > 0 ? *own.stream : *assembly.workload.stream;
  std::vector<Models> models(1);
  SimulationConfig config = assembly.kinds.empty() ? config_of(assembly, run, source, models.front())
                                                   : config_of_kinds(assembly, run, source, models);
  if (assembly.kinds.empty()) borrow(assembly, 0, {}, config);
  config.metrics.percentiles.insert(config.metrics.percentiles.end(), percentiles.begin(), percentiles.end());
  config.stop = hooks.stop;
  slot.growth.emplace(assembly.setup.requests);
  config.on_request = [&](const RequestRecord& record) {
    slot.growth->add(record);
    if (hooks.on_request && run.first_variant) hooks.on_request(run.replication, record);
  };
  if (hooks.on_progress) {
    config.on_progress = [&](const Progress& progress) { hooks.on_progress(run.index, progress); };
  }
  if (hooks.on_observation && run.first_variant) {
    config.observe_every = hooks.observe_every;
    config.on_observation = [&](const Observation& seen) { hooks.on_observation(run.replication, seen); };
  }
  if (run.index == 0) config.observer = hooks.observer;
  note_simulation();
  slot.result = simulate(config);
  add_costs(assembly.prices, slot.result->statistics);
  for (std::size_t i = 0; i < slot.result->pools.size() && i < assembly.kinds.size(); ++i) {
    add_costs(assembly.kinds[i].assembly.prices, slot.result->pools[i]);
  }
  slot.unsent = source.unsent();
  slot.shortened = source.shortened();
  slot.held_back = source.held_back();
  for (const Models& one : models) add_range_uses(one.model->range_uses(), slot.range_uses);
  if (hooks.on_done && run.first_variant) hooks.on_done(run.replication);
}

/// Combines the replications of one variant, in order.
ReplicationResults combined(std::span<Slot> slots, std::int64_t requests) {
  ReplicationResults results{.statistics = {}, .first_rejected = {}, .growth = QueueGrowth(requests)};
  std::vector<RunStatistics> statistics;
  std::vector<std::vector<RunStatistics>> of_kinds;
  for (Slot& slot : slots) {
    results.complete = results.complete && slot.result && slot.result->statistics.complete;
    if (!slot.result) continue;
    if (!results.first_rejected) results.first_rejected = slot.result->first_rejected;
    results.refused += slot.result->refused;
    results.growth.merge(*slot.growth);
    results.unsent += slot.unsent;
    results.shortened += slot.shortened;
    results.held_back.requests += slot.held_back.requests;
    results.held_back.seconds += slot.held_back.seconds;
    results.held_back.longest = std::max(results.held_back.longest, slot.held_back.longest);
    add_range_uses(slot.range_uses, results.range_uses);
    statistics.push_back(std::move(slot.result->statistics));
    of_kinds.resize(slot.result->pools.size());
    for (std::size_t i = 0; i < of_kinds.size(); ++i) of_kinds[i].push_back(std::move(slot.result->pools[i]));
  }
  if (!statistics.empty()) results.statistics = combine_replications(statistics);
  for (const std::vector<RunStatistics>& one : of_kinds) results.kinds.push_back(combine_replications(one));
  return results;
}

}  // namespace

std::vector<RangeUse> ReplicationResults::outside_range() const {
  std::vector<RangeUse> outside;
  std::copy_if(range_uses.begin(), range_uses.end(), std::back_inserter(outside),
               [](const RangeUse& use) { return use.outside > 0; });
  return outside;
}

ReplicationResults run_replications(Assembly& assembly, std::int64_t replications, int jobs,
                                    const std::vector<double>& percentiles, const ReplicationHooks& hooks) {
  return std::move(run_variants(assembly, {Variant{}}, replications, jobs, percentiles, hooks).front());
}

std::vector<ReplicationResults> run_variants(Assembly& assembly, const std::vector<Variant>& variants,
                                             std::int64_t replications, int jobs,
                                             const std::vector<double>& percentiles, const ReplicationHooks& hooks) {
  const auto each = static_cast<std::size_t>(replications);
  std::vector<Slot> slots(variants.size() * each);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (std::size_t i = next++; i < slots.size() && !failed; i = next++) {
      // The first run always starts, so that an interrupted command has a result to show.
      if (i > 0 && hooks.stop != nullptr && hooks.stop->load()) return;
      try {
        const Run run{static_cast<std::int64_t>(i), static_cast<std::int64_t>(i % each), i < each, variants[i / each]};
        run_one(assembly, run, percentiles, hooks, slots[i]);
      } catch (...) {
        slots[i].error = std::current_exception();
        failed = true;
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < std::min(static_cast<std::size_t>(jobs), slots.size()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const Slot& slot : slots) {
    if (slot.error) std::rethrow_exception(slot.error);
  }
  std::vector<ReplicationResults> results;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    results.push_back(combined(std::span(slots).subspan(v * each, each), assembly.setup.requests));
  }
  return results;
}

}  // namespace spillway
