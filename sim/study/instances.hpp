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

/// Instances of one kind: one element of the list.
struct InstanceEntry {
  std::string name;
  std::string where;                  // in the user's file
  std::vector<std::int64_t> gpus;     // of the server, ascending
  std::optional<double> share;        // of the workload that all share; empty: an equal part, or a workload of its own
  bool own_workload = false;          // it has workload.* keys
  std::vector<std::string> own_slos;  // the slo.* keys that it has itself
  std::vector<Assignment> assignments;  // every key that its configuration has, the common ones included
};

/// Reads the list of a configuration that has one.
///
/// An element has `gpus`, and may have `name`, `share` and keys of a run. A key that it lacks has the value that it has
/// beside the list; but an element that names its policy, router or workload.trace takes no other key of that group
/// from there. tensor_parallel, if stated nowhere, is the number of its GPUs divided by its replicas. Keys that hold
/// for the whole run are refused. The shares of those without a workload of their own sum to 1, or none is stated.
///
/// Elements that cannot be read are none at all. Appends a Problem for each fault: besides these a GPU in two elements,
/// two elements of one name, and a number of GPUs that is not replicas times tensor_parallel.
[[nodiscard]] std::vector<InstanceEntry> read_instances(const ResolvedConfig& config, std::vector<Problem>& problems);

/// "0-3, 6".
[[nodiscard]] std::string gpus_text(const std::vector<std::int64_t>& gpus);

}  // namespace spillway
