// Builds everything that a run needs from the configuration.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"
#include "sim/config/config.hpp"
#include "sim/engine/lending.hpp"
#include "sim/study/bus_promises.hpp"
#include "sim/study/lenders.hpp"
#include "sim/study/pools.hpp"
#include "sim/study/prices.hpp"
#include "sim/study/problems.hpp"
#include "sim/study/replica_events.hpp"
#include "sim/study/result.hpp"
#include "traces/workload.hpp"

namespace spillway {

/// The GPUs of a server that instances of one kind have, in a run with several kinds.
struct GivenGpus {
  std::string name{};
  std::string where{};               // in the user's file
  std::vector<std::int64_t> gpus{};  // replicas * tensor_parallel, ascending
  std::int64_t gpus_of_host = 0;     // of all kinds together
  bool shares_dram = false;          // some kind has experts on the CPU, which share the host's memory with all copies
  std::optional<GivenLender> lender{};  // that memory.lender names
};

/// The memory that the replicas of an assembly borrow: each from a replica, or from GPUs, of its own.
struct LoanPlan {
  std::optional<std::size_t> kind{};  // the kind of instances that lends; empty: GPUs that serve nothing
  std::size_t first_replica = 0;      // of that kind which lends
  std::string lender{};               // its name
  Bytes offered{};                    // by each GPU, from the start on
  MakeInformer informer{};            // of instances that lend
  BytesPerSecond memory_bandwidth{};  // of a GPU that lends; 0: unknown
  std::optional<double> busy{};       // share of it that the lender's own model uses; empty: not stated
};

/// What the simulator builds an instance from.
struct InstancePlan {
  std::string name{};  // in a run with several kinds
  KvLayout kv{};
  Deployment deployment{};                // only for policies that stream layers
  std::optional<ExpertChoice> experts{};  // only for policies that place experts
  Tokens max_model_len{};
  /// Of the copies of each replica on a server: replica i is at position i % per_server.
  std::vector<CopyRoute> routes{CopyRoute{}};
  std::vector<BytesPerSecond> links{};  // of one server
  std::vector<std::string> link_names{};
  bool schedules_ahead = false;  // as InstanceConfig's
  Duration front_end{};          // as SimulationConfig's
  std::int64_t replicas = 1;
  PoolSizes pools{};
  std::string first_token{};  // with pools: prefill or decode
  std::vector<ReplicaEvent> events{};
  std::shared_ptr<const HandoverLinks> handover_links{};
  std::int64_t per_server = 1;  // replicas that share a host and its links; the last server may have fewer
  std::int64_t servers = 1;
  BytesPerSecond least_rate{};      // Layout::least_rate
  std::vector<PoolPlan> by_pool{};  // of prompts and of answers; empty: all replicas are alike
  Bytes on_host{};                  // KV and layers that its replicas keep in the memory of their host, at most
  [[nodiscard]] Tokens kv_capacity() const { return kv.block_tokens * kv.most().count(); }
  /// The plan of the replica's pool; null if all replicas are alike.
  [[nodiscard]] const PoolPlan* pool_of(std::int64_t replica) const {
    return by_pool.empty() ? nullptr : &by_pool[replica < pools.prefill ? 0 : 1];
  }
  /// The copies of the replicas of one server, with what each must get.
  [[nodiscard]] std::vector<BusInstance> on_bus(std::int64_t server) const;
};

struct AssembledKind;

/// Everything that a run needs. `config` is moved in, so settings stay valid as long as the assembly.
struct Assembly {
  ResolvedConfig config;
  /// Makes the model of one run. Every run needs its own model, because models cache results. `{}`: unscaled times.
  std::function<std::unique_ptr<ExecutionModel>(const OpScales& scales)> make_model;
  InstancePlan instance;
  Setup setup;  // the same for people, and how each value was derived
  std::vector<InputFile> inputs;
  std::vector<std::string> warnings;
  traces::Workload workload;  // of replication 0
  std::vector<Condition> request_slos;
  std::vector<Condition> run_slos;
  std::optional<LoanPlan> loan{};
  GpuPrices prices{};
  /// Instances of several kinds, in order; then `make_model` is empty, and `instance` has the number of replicas and
  /// the events alone.
  std::vector<AssembledKind> kinds;
};

/// Instances of one kind: an element of the key `instances`.
struct AssembledKind {
  std::string name;
  std::vector<std::int64_t> gpus;
  std::optional<double> share;  // of the common workload; empty: the workload is its own
  RequestSlo slo{};             // limits of its requests that state none
  std::optional<OfferedLoad> offered{};
  Assembly assembly;  // as if it were alone; its workload has no stream
};

/// Opens the traffic of a run with the settings in `assembly`, instead of the workload that the settings name.
using WorkloadOpener = std::function<traces::Workload(const Assembly& assembly)>;

/// Loads files, sizes the KV cache and opens the workload, with `open` if given. Throws ConfigError with every problem
/// found, or DataError when only files are at fault. Problems are, for example: a model that does not fit, a
/// tensor_parallel that the model cannot use, a KV cache that is too large or too small, a bad trace row.
[[nodiscard]] Assembly assemble(ResolvedConfig config, const WorkloadOpener& open = {});

/// The same for instances of one kind, which share the server with others.
[[nodiscard]] Assembly assemble_on(ResolvedConfig config, const GivenGpus& given, const WorkloadOpener& open);

/// The traffic of one replication. Conversations are cut to the longest request that the engine accepts: of several
/// kinds of instances that share a workload, the one that accepts the least.
[[nodiscard]] traces::Workload open_workload(const Assembly& assembly, std::int64_t replication);

/// The limits of the slo.* keys.
void read_slos(Assembly& assembly, Problems& problems);
/// The file of the key `events`, if it names one.
void add_events_file(Assembly& assembly);
/// What the result says of prices, with the file of prices, if there is one.
void describe_prices(Assembly& assembly);

/// The simulator's configuration of one instance, for one replication. It refers to the assembly, the model and the
/// source.
[[nodiscard]] SimulationConfig simulation_config(const Assembly& assembly, const ExecutionModel& model,
                                                 RequestSource& source);

/// The same without an instance: what holds for the whole run.
[[nodiscard]] SimulationConfig run_config(const Assembly& assembly, RequestSource& source);

/// The replicas of an assembly, from the instance `first` of the simulation on, borrow what its plan says.
/// `first_of_kind`: the first instance of each kind.
void borrow(const Assembly& assembly, std::size_t first, const std::vector<std::size_t>& first_of_kind,
            SimulationConfig& simulation);

/// Makes the one instance of `simulation` as many as there are replicas, each server with links of its own, and gives
/// them a router. O(replicas).
void replicate(const Assembly& assembly, std::int64_t replication, SimulationConfig& simulation);

}  // namespace spillway
