// The key `instances`: several models or settings on one server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/config/config.hpp"
#include "sim/core/error.hpp"

namespace spillway {

/// GPUs that serve no request of the run and lend memory: those of image or audio models, say.
struct StaticLender {
  Bytes free{};                  // memory of each GPU that its model does not need
  std::optional<double> busy{};  // share of a GPU's memory bandwidth that its model uses; empty: not stated
};

/// Instances of one kind: one element of the list.
struct InstanceEntry {
  std::string name;
  std::string where;                  // in the user's file
  std::vector<std::int64_t> gpus;     // of the server, ascending
  std::optional<double> share;        // of the workload that all share; empty: an equal part, or a workload of its own
  bool own_workload = false;          // it has workload.* keys
  std::vector<std::string> own_slos;  // the slo.* keys that it has itself
  std::vector<Assignment> assignments;  // every key that its configuration has, the common ones included
  std::optional<StaticLender> lends{};  // then it is no instance: it has no share and no assignments
};

/// Reads the list of a configuration that has one.
///
/// An element has `gpus`, and may have `name`, `share` and keys of a run. A key that it lacks has the value that it has
/// beside the list; but an element that names its policy, router or workload.trace takes no other key of that group
/// from there. tensor_parallel, if stated nowhere, is the number of its GPUs divided by its replicas. Keys that hold
/// for the whole run are refused. An element with `free_memory` serves nothing (StaticLender); it may have `hbm_share`
/// beside that, and no key of a run. The shares of those without a workload of their own sum to 1, or none is stated.
///
/// Elements that cannot be read are none at all. Appends a Problem for each fault: besides these a GPU in two elements,
/// two elements of one name, and a number of GPUs that is not replicas times tensor_parallel.
[[nodiscard]] std::vector<InstanceEntry> read_instances(const ResolvedConfig& config, std::vector<Problem>& problems);

/// "0-3, 6".
[[nodiscard]] std::string gpus_text(const std::vector<std::int64_t>& gpus);

}  // namespace spillway
