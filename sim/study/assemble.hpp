// Builds everything that a run needs from the configuration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/op_scales.hpp"
#include "sim/config/config.hpp"
#include "sim/study/result.hpp"
#include "traces/workload.hpp"

namespace spillway {

/// What the simulator builds an instance from.
struct InstancePlan {
  KvLayout kv{};
  Deployment deployment{};  // only for policies that stream layers
  Tokens max_model_len{};
  CopyRoute route{};                    // of its copies
  std::vector<BytesPerSecond> links{};  // that the route crosses
  bool schedules_ahead = false;         // as InstanceConfig's
  Duration front_end{};                 // as SimulationConfig's
  [[nodiscard]] Tokens kv_capacity() const { return kv.block_tokens * kv.most().count(); }
};

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
};

/// Opens the traffic of a run with the settings in `assembly`, instead of the workload that the settings name.
using WorkloadOpener = std::function<traces::Workload(const Assembly& assembly)>;

/// Loads files, sizes the KV cache and opens the workload, with `open` if given. Throws ConfigError with every problem
/// found, or DataError when only files are at fault. Problems are, for example: a model that does not fit, a
/// tensor_parallel that the model cannot use, a KV cache that is too large or too small, a bad trace row.
[[nodiscard]] Assembly assemble(ResolvedConfig config, const WorkloadOpener& open = {});

/// The traffic of one replication. Conversations are cut to the longest request that the engine accepts.
[[nodiscard]] traces::Workload open_workload(const Assembly& assembly, std::int64_t replication);

/// The simulator's configuration for one replication. It refers to the assembly, the model and the source.
[[nodiscard]] SimulationConfig simulation_config(const Assembly& assembly, const ExecutionModel& model,
                                                 RequestSource& source);

}  // namespace spillway
