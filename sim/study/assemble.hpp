// From the configuration to everything that a run needs.
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

/// What the engine builds an instance from.
struct InstancePlan {
  KvLayout kv{};
  Deployment deployment{};  // of a policy that streams layers
  Tokens max_model_len{};
  [[nodiscard]] Tokens kv_capacity() const { return kv.block_tokens * kv.most().count(); }
};

/// What a run is made of. `config` is moved in, so settings stay valid as long as the assembly.
struct Assembly {
  ResolvedConfig config;
  /// One for each run: models keep what they computed. `{}` for the times as they are.
  std::function<std::unique_ptr<ExecutionModel>(const OpScales& scales)> make_model;
  InstancePlan instance;
  Setup setup;  // the same for people, and how it came about
  std::vector<InputFile> inputs;
  std::vector<std::string> warnings;
  traces::Workload workload;  // of replication 0
  std::vector<Condition> request_slos;
  std::vector<Condition> run_slos;
};

/// Opens the traffic of a run whose settings are in `assembly`, in place of the one that they name.
using WorkloadOpener = std::function<traces::Workload(const Assembly& assembly)>;

/// Loads files, sizes the KV cache and opens the workload, by `open` where it is given. Throws ConfigError with every
/// problem found (DataError when only files are at fault): a model that does not fit, a tensor_parallel that does not
/// suit it, a KV cache that is too large or too small, a bad trace row.
[[nodiscard]] Assembly assemble(ResolvedConfig config, const WorkloadOpener& open = {});

/// The traffic of one replication; conversations are cut to what the engine takes.
[[nodiscard]] traces::Workload open_workload(const Assembly& assembly, std::int64_t replication);

/// The engine's configuration for one replication; refers to the assembly, the model and the source.
[[nodiscard]] SimulationConfig simulation_config(const Assembly& assembly, const ExecutionModel& model,
                                                 RequestSource& source);

}  // namespace spillway
