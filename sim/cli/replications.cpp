#include "sim/cli/replications.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <thread>
#include <utility>

namespace spillway::cli {

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

/// One replication's outcome; empty when it was not started or failed.
struct Slot {
  std::optional<SimulationResult> result;
  std::optional<QueueGrowth> growth;
  std::int64_t unsent = 0;
  std::int64_t shortened = 0;
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

void run_one(Assembly& assembly, std::int64_t replication, const std::vector<double>& percentiles,
             const ReplicationHooks& hooks, Slot& slot) {
  traces::Workload own;  // replication 0 was opened, and so checked, by assemble
  if (replication > 0) own = open_workload(assembly, replication);
  RequestSource& source = replication > 0 ? *own.stream : *assembly.workload.stream;
  const std::unique_ptr<ExecutionModel> model = assembly.make_model();
  SimulationConfig config = simulation_config(assembly, *model, source);
  config.metrics.percentiles.insert(config.metrics.percentiles.end(), percentiles.begin(), percentiles.end());
  config.stop = hooks.stop;
  slot.growth.emplace(assembly.setup.requests);
  config.on_request = [&](const RequestRecord& record) {
    slot.growth->add(record);
    if (hooks.on_request) hooks.on_request(replication, record);
  };
  if (hooks.on_progress) {
    config.on_progress = [&](const Progress& progress) { hooks.on_progress(replication, progress); };
  }
  if (hooks.on_observation) {
    config.observe_every = hooks.observe_every;
    config.on_observation = [&](const Observation& seen) { hooks.on_observation(replication, seen); };
  }
  slot.result = simulate(config);
  slot.unsent = source.unsent();
  slot.shortened = source.shortened();
  slot.range_uses = model->range_uses();
  if (hooks.on_done) hooks.on_done(replication);
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
  std::vector<Slot> slots(static_cast<std::size_t>(replications));
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (std::size_t i = next++; i < slots.size() && !failed; i = next++) {
      // The first is always run, so that an interrupted run has a result to show.
      if (i > 0 && hooks.stop != nullptr && hooks.stop->load()) return;
      try {
        run_one(assembly, static_cast<std::int64_t>(i), percentiles, hooks, slots[i]);
      } catch (...) {
        slots[i].error = std::current_exception();
        failed = true;
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::int64_t i = 1; i < std::min<std::int64_t>(jobs, replications); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();

  ReplicationResults results{.statistics = {}, .first_rejected = {}, .growth = QueueGrowth(assembly.setup.requests)};
  std::vector<RunStatistics> statistics;
  for (Slot& slot : slots) {
    if (slot.error) std::rethrow_exception(slot.error);
    results.complete = results.complete && slot.result && slot.result->statistics.complete;
    if (!slot.result) continue;
    if (!results.first_rejected) results.first_rejected = slot.result->first_rejected;
    results.growth.merge(*slot.growth);
    results.unsent += slot.unsent;
    results.shortened += slot.shortened;
    add_range_uses(slot.range_uses, results.range_uses);
    statistics.push_back(std::move(slot.result->statistics));
  }
  results.statistics = combine_replications(statistics);
  return results;
}

}  // namespace spillway::cli
