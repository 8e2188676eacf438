// Advice: which configuration sustains the most requests per GPU under SLOs, with which settings, what limits it, and
// what the ranking depends on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/api/parameter.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/locality.hpp"
#include "sim/study/point_grid.hpp"
#include "sim/study/robustness.hpp"
#include "sim/study/search.hpp"
#include "sim/study/trust.hpp"

namespace spillway {

/// One setting that the advice may choose, with the values to try. Each value is a list of keys and texts that belong
/// together.
struct Knob {
  using Value = std::vector<std::pair<std::string, std::string>>;
  std::vector<Value> values;
  bool changes_answers = false;  // the model's answers are no longer the same
};
/// The knobs in the order in which they are tried, without those of a key that is given already. `quick`: fewer values.
[[nodiscard]] std::vector<Knob> knobs_for(const std::vector<std::string>& given, bool quick);

/// What is known of a configuration in the end.
enum class Standing : std::uint8_t {
  ranked,     // it has a capacity
  pruned,     // it cannot win, so its capacity was not searched
  misses,     // no rate meets the SLOs
  impossible  // it cannot run
};

/// The replicas that serve a given rate.
struct Fleet {
  std::int64_t replicas = 0;
  std::int64_t gpus = 0;
  bool holds = false;  // a run of these replicas at the rate met the SLOs
  std::string fault{};
  std::vector<Metric> metrics{};  // of that run
};

struct AdvisedConfiguration {
  std::string label;  // of the grid: "hardware=gh200-96gb policy=pie"
  Standing standing = Standing::impossible;
  Knob::Value settings{};            // chosen, beyond what was given
  bool changes_answers = false;      // by one of them
  std::int64_t gpus = 1;             // of one replica
  std::optional<double> ceiling{};   // requests/s of one replica when all requests are there at once
  std::optional<double> capacity{};  // the highest rate of one replica, in requests/s, that meets the SLOs
  std::string reason{};              // unless ranked
  std::string noise{};               // figures of the run at the capacity whose interval includes the limit
  std::vector<Metric> metrics{};     // of the run at the capacity, as what follows
  std::string resource{};
  std::string bottleneck{};
  std::string flags{};          // "vLLM 0.23: --max-num-seqs 512"; empty: no engine that has the policy is known
  std::int64_t host_bytes = 0;  // of the host's memory, all GPUs of the replica together
  std::int64_t requests = 0;
  std::string steadiness{};
  Trust trust{};
  std::optional<ExpertLocality> locality{};         // that the run assumed
  std::optional<LocalityCheck> other_localities{};  // half and twice of it, at the capacity
  std::optional<Fleet> fleet{};
  std::int64_t settings_tried = 0;

  [[nodiscard]] double per_gpu() const { return capacity.value_or(0.0) / static_cast<double>(gpus); }
  [[nodiscard]] double ceiling_per_gpu() const { return ceiling.value_or(0.0) / static_cast<double>(gpus); }
};

/// The winner against another configuration under perturbations of the latency model's times.
struct RankCheck {
  std::string rival;
  std::int64_t perturbations = 0;
  std::int64_t ties = 0;                 // perturbations under which the two are not told apart
  std::vector<std::string> overtaken{};  // by the rival, under these: "copies +5%"
};

/// Where the lead changes along one quantity.
struct Crossover {
  std::string quantity;  // "host-to-GPU bandwidth"
  std::string unit;
  double now = 0.0;
  double at = 0.0;
  std::string below;  // the configuration that leads below, and above
  std::string above;
  std::string note{};  // more about that place
};

/// A quantity along which the lead does not change.
struct SteadyLead {
  std::string quantity;
  std::string unit;
  double now = 0.0;
  double low = 0.0;  // of what was tried
  double high = 0.0;
  std::string leader;
};

/// The least host memory with which the winner keeps its capacity.
struct LeastMemory {
  std::string key;
  std::string text;                      // "12GiB"
  double share = 0.0;                    // of the capacity that it keeps
  std::optional<double> hit_fraction{};  // of prompt tokens, from the host
};

/// Where nothing meets the SLOs: the configuration that comes closest to them, and settings that bring it closer.
struct ClosestMiss {
  std::string label{};
  std::int64_t gpus = 1;
  double rate = 0.0;     // requests/s
  std::string reason{};  // why it misses there: "p99_ttft_ms is 106.3"
  /// A setting, and why the SLOs are missed with it at the same rate; empty: they are met.
  struct Help {
    Knob::Value settings{};
    std::string reason{};
    bool changes_answers = false;
  };
  std::vector<Help> help{};  // the one that comes closest first
};

struct Advice {
  std::vector<std::string> conditions{};
  std::int64_t replications = 1;
  double tolerance = 0.0;
  bool quick = false;
  std::optional<double> rate{};
  std::vector<AdvisedConfiguration> configurations{};  // the best first; those without a capacity last
  std::optional<double> perturbation{};
  std::vector<RankCheck> checks{};
  std::vector<Crossover> crossovers{};
  std::vector<SteadyLead> steady_leads{};
  std::vector<LeastMemory> memory{};
  std::optional<ClosestMiss> closest{};  // only where nothing meets the SLOs
  std::int64_t runs = 0;                 // points that were run

  [[nodiscard]] const AdvisedConfiguration* winner() const;
};

/// What a fleet costs, and how fast it answers.
struct FleetFigures {
  std::optional<double> cost_per_hour{};  // of all GPUs; empty: no price is known
  double gpus = 0.0;
  std::optional<double> p99_ttft_ms{};
  std::optional<double> mean_tpot_ms{};
};
[[nodiscard]] FleetFigures figures_of(const Fleet& fleet);
/// The fleets that no other one beats in cost and in both latencies: positions among `fleets`. Without a price for
/// every fleet, GPUs stand for the cost. Fleets that miss the SLOs, or lack a figure, are not among them. O(fleets^2).
[[nodiscard]] std::vector<std::size_t> pareto_front(const std::vector<Fleet>& fleets);

/// What to advise on.
struct AdviceTask {
  PointGrid grid{};  // configurations to rank; without the searched key
  Parameter key{};   // workload.rate
  Criterion criterion{};
  std::optional<double> rate{};  // requests/s to serve with as many replicas as it takes
  bool quick = false;            // no test for steady state, no perturbations, fewer settings
  std::optional<double> perturbation{};
  bool prune = true;             // spare the search what cannot win by requests/s per GPU
  bool tune = true;              // choose settings
  bool explain = true;           // find what the ranking depends on
  bool other_localities = true;  // as Point::other_localities, of the ranked configurations at their capacities
  std::int64_t requests = 2000;  // of each run before the last search
  double tolerance = 0.02;       // of the capacities
};

/// What the advice is doing, for the user: "searching capacities", and the finished share of all.
using AdviceProgress = std::function<void(const std::string& phase, double fraction)>;

/// Ranks configurations in six steps, each for all configurations at once:
/// 1. ceilings: all requests at once. What cannot reach the best capacity even then is pruned later.
/// 2. capacities, roughly, the highest ceilings first, with each number of GPUs that the hardware has.
/// 3. settings: each value of each knob is kept where the SLOs hold at a rate above the capacity so far.
/// 4. capacities in steady state, of long runs first and then of all replications.
/// 5. fleets for a given rate, each checked by a run.
/// 6. what the ranking depends on: perturbed times, bandwidths and hit rates that change the lead, the least host
/// memory.
/// Where nothing meets the SLOs, settings are tried on the configuration that came closest instead of 5 and 6.
/// The result does not depend on the number of threads.
class Adviser {
 public:
  Adviser(AdviceTask task, PointRunner& runner, AdviceProgress progress = {});

  /// Returns false when interrupted.
  bool run();

  [[nodiscard]] const Advice& advice() const { return advice_; }
  /// Why no configuration could run. Empty when one could.
  [[nodiscard]] const std::optional<PointOutcome>& failure() const { return failure_; }

 private:
  /// A configuration with a number of GPUs and with settings.
  struct Candidate {
    std::size_t configuration = 0;
    Knob::Value settings{};
    bool changes_answers = false;
    std::int64_t gpus = 1;
    std::optional<double> ceiling{};
    std::optional<double> capacity{};
    std::optional<double> miss{};  // Criterion::miss at the rate that comes closest to the SLOs, without a capacity
    double closest_rate = 0.0;
    std::string reason{};
    bool ran = false;
    std::int64_t tried = 0;
  };
  enum class Lead : std::uint8_t { first, second, none };

  /// Whether the workload has conversations that are in balance when a run begins.
  [[nodiscard]] bool plays_stationary() const;
  bool ceilings();
  bool scout();
  void keep_best();
  bool tune();
  bool try_value(const Knob::Value& value, bool changes_answers);
  /// The candidate with these settings, whatever it had for their keys.
  [[nodiscard]] static Candidate with(const Candidate& candidate, const Knob::Value& value);
  /// The keys that the user has given.
  [[nodiscard]] std::vector<std::string> given_keys() const;
  bool settle();
  bool describe();
  bool vary_localities();
  /// At its capacity, as it is described.
  [[nodiscard]] Point described_point(const Candidate& candidate) const;
  void take_description(const Candidate& candidate, const PointOutcome& outcome,
                        AdvisedConfiguration& configuration) const;
  bool fleets();
  bool check_ranks();
  bool find_crossovers();
  /// What may lead, and the name under which it does.
  struct Contender {
    Candidate candidate{};
    std::string label{};
  };
  /// A quantity along which the lead may change. `steps`: what is set to try it, the quantity ascending.
  struct Axis {
    std::string quantity{};
    std::string unit{};
    std::vector<double> steps{};
    std::function<void(Point&, double step)> apply{};
    double (*middle)(double, double) = nullptr;           // of two steps
    double (*value)(double step, double base) = nullptr;  // the quantity at a step
    double base = 0.0;
    double now = 0.0;  // a step
    /// More to say of a step where the lead changes; empty when interrupted. May be empty: nothing.
    std::function<std::optional<std::string>(double step)> note{};
  };
  /// Finds where the lead changes along the axis. Returns false when interrupted.
  bool cross(const Axis& axis, const std::vector<Contender>& contenders);
  bool cross_times(const std::string& quantity, double OpScales::*scale, double base, const std::string& unit,
                   const std::vector<std::size_t>& contenders);
  /// From which share of the prompts' tokens found there a host cache pays.
  bool cross_hits();
  bool find_least_memory();
  bool find_help();
  void rank();

  [[nodiscard]] std::string hardware_of(const Candidate& candidate) const;
  [[nodiscard]] Point point(const Candidate& candidate) const;
  [[nodiscard]] Point point_at(const Candidate& candidate, double rate) const;
  [[nodiscard]] Point short_point(const Candidate& candidate) const;
  /// Runs points; empty when interrupted.
  [[nodiscard]] std::optional<std::vector<PointOutcome>> run_all(const std::vector<Point>& points);
  /// Searches the capacity of points from a start on; empty when interrupted. A point without a capacity has none.
  struct Found {
    std::optional<double> capacity{};
    std::string reason{};
    std::optional<double> miss{};  // as in Candidate, as the next one
    double closest_rate = 0.0;
    std::int64_t requests = 0;
  };
  [[nodiscard]] std::optional<std::vector<Found>> search(const std::vector<std::pair<Point, double>>& points,
                                                         const Criterion& criterion, double factor, double tolerance);
  /// Which of two has the higher capacity per GPU under changed times; empty when interrupted.
  [[nodiscard]] std::optional<std::vector<Lead>> leads(const Candidate& first, const Candidate& second,
                                                       const std::vector<OpScales>& scales);
  void say(const std::string& phase, double fraction) const;

  AdviceTask task_;
  PointRunner& runner_;
  AdviceProgress progress_;
  Criterion rough_;  // without steadiness
  std::vector<Candidate> candidates_;
  Advice advice_;
  std::optional<PointOutcome> failure_;
};

}  // namespace spillway
