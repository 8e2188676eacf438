// An experiment as a fixed list of operations on the four streams of a GPU and its host. Each operation lists the
// operations that it waits for. A machine executes the list.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "cuda_calibrate/measure/point.hpp"
#include "cuda_calibrate/validate/settings.hpp"
#include "sim/api/execution_model.hpp"
#include "sim/api/layer_rule.hpp"
#include "sim/core/units.hpp"

namespace spillway::calibrate {

/// Products, with weights that stay on the GPU, or with weights in a GPU slot that a copy has filled.
struct ComputeWork {
  Multiply multiply{};
  std::int32_t gpu_slot = -1;  // -1: resident weights
};

/// `blocks` equal pieces, copied from a host slot to a GPU slot or in the opposite direction.
struct CopyWork {
  CopyMechanism mechanism = CopyMechanism::single;
  std::int64_t blocks = 1;
  std::int64_t bytes = 0;  // total of all blocks
  std::int32_t gpu_slot = 0;
  std::int32_t host_slot = 0;
};

/// Queries to the host, attention on the CPU, output to the GPU. Each part starts after the previous part has ended.
struct AttentionWork {
  HostAttention attention{};
};

struct Operation {
  Stream stream = Stream::compute;
  std::variant<ComputeWork, CopyWork, AttentionWork> work{};
  std::int32_t layer = 0;
  std::int32_t sub_batch = 0;
  std::vector<std::int32_t> waits{};  // operations of other streams, at most the last of each
};

/// Each stream runs its operations in this order, one at a time. An operation starts when all its waits have ended;
/// these come earlier in the list.
struct Schedule {
  std::vector<Operation> operations;
  std::vector<std::int32_t> ends;  // the experiment ends when these have ended; later copies may still run
  std::int64_t slot_bytes = 0;     // slot size for copies; 0: no copies
  std::int32_t gpu_slots = 0;
  std::int32_t host_slots = 0;
};

/// Durations of an experiment's operations on an idle machine.
struct StepTimes {
  Duration compute{};         // of a layer; with two sub-batches, of the first
  Duration second_compute{};  // of the second sub-batch
  CopyTime in{};              // one copy to the GPU
  CopyTime out{};             // one copy to the host
  Duration first_cpu{};       // CPU attention with its two copies
  Duration second_cpu{};
  CopySharing sharing{};
};

/// Duration of one operation on an idle machine.
struct OperationTime {
  Duration launch{};  // of a copy: the part that does not depend on the link's load
  Duration work{};
};

struct Simulated {
  Schedule schedule;
  std::vector<OperationTime> times;  // of the schedule's operations
  Duration length{};                 // from the start to the last of `ends`
};

/// Runs the experiment through the simulator's executor under its policy's rule, and records every operation and its
/// waits. An operation waits for
///   the trigger of the rule: the end of the compute before the layer that starts, or the copies that have ended;
///   its input data: compute waits for the copy of its layer's KV or weights, a copy for the operation that wrote its
///   source;
///   its target slot: a copy waits for the copy or compute that last used the slot.
/// Streams that run the schedule with the same durations start and end all operations when the executor does. With
/// other durations, they never touch data that is not there.
[[nodiscard]] Simulated simulate(const Experiment& experiment, const StepTimes& times);

}  // namespace spillway::calibrate
