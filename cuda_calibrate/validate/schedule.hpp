// An experiment as a fixed list of operations on the four streams of a GPU and its host, with the operations that each
// waits for: what a machine executes.
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

/// Products, with weights that stay on the GPU, or with those in a slot of the GPU that a copy has filled.
struct ComputeWork {
  Multiply multiply{};
  std::int32_t gpu_slot = -1;  // -1: weights that stay
};

/// `blocks` equal pieces from a slot of the host to one of the GPU, or the other way round.
struct CopyWork {
  CopyMechanism mechanism = CopyMechanism::single;
  std::int64_t blocks = 1;
  std::int64_t bytes = 0;  // of all blocks
  std::int32_t gpu_slot = 0;
  std::int32_t host_slot = 0;
};

/// Queries to the host, attention on the CPU, output to the GPU; no part starts before the one ahead of it has ended.
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

/// Each stream runs its operations in this order, one at a time; an operation starts when those that it waits for,
/// which all stand ahead of it, have ended.
struct Schedule {
  std::vector<Operation> operations;
  std::vector<std::int32_t> ends;  // the experiment is over when these have ended; copies behind them may still run
  std::int64_t slot_bytes = 0;     // of copies; 0: there are none
  std::int32_t gpu_slots = 0;
  std::int32_t host_slots = 0;
};

/// How long the operations of an experiment take on an idle machine.
struct StepTimes {
  Duration compute{};         // of a layer; of the first sub-batch where there are two
  Duration second_compute{};  // of the second sub-batch
  CopyTime in{};              // one copy to the GPU
  CopyTime out{};             // one copy to the host
  Duration first_cpu{};       // CPU attention with its two copies
  Duration second_cpu{};
  CopySharing sharing{};
};

/// Time of one operation on an idle machine.
struct OperationTime {
  Duration launch{};  // of a copy: what does not depend on the link's load
  Duration work{};
};

struct Simulated {
  Schedule schedule;
  std::vector<OperationTime> times;  // of the schedule's operations
  Duration length{};                 // from the start to the last of `ends`
};

/// Runs the experiment through the simulator's executor under the rule that its policy has, and takes down every
/// operation and what it waited for. An operation waits for
///   what made the rule issue it   the end of the compute before the layer that starts, or the copies that have ended
///   the data that it takes        compute: the copy that brings its layer's KV or weights; a copy: the compute or copy
///                                 that wrote what it moves
///   the room that it takes        a copy into a slot: the copy or compute that was the slot's last use
/// so that streams which run the schedule with the same durations start and end everything when the executor does, and
/// with other durations never touch data that is not there.
[[nodiscard]] Simulated simulate(const Experiment& experiment, const StepTimes& times);

}  // namespace spillway::calibrate
