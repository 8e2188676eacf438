// A second executor for iterations, simple enough to be obviously correct: one sorted list of events, one queue per
// stream. It shares no code with sim/exec/.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/layer_rule.hpp"
#include "sim/core/units.hpp"
#include "tests/oracle/plain_shares.hpp"

namespace spillway::oracle {

struct SubBatch {
  Duration before{};
  std::vector<Duration> gpu{};  // one per layer
  Duration after{};
};

/// Starts `gap` after the end of the previous iteration; the first iteration starts at `gap`.
struct Iteration {
  Duration gap{};
  std::int32_t layers = 0;
  std::vector<SubBatch> sub_batches{};
};

/// From `at` on, after all other events of that instant: others use these shares of the idle links or, where others say
/// what copies get, transfers on a link take num/den times as long as alone.
struct LinkChange {
  SimTime at{};
  std::vector<double> traffic{};
  std::size_t link = 0;  // h2d, d2h, peer_in, peer_out
  std::int64_t num = 1;
  std::int64_t den = 1;
};

struct Surroundings {
  PlainSurroundings links{};
  bool others_copy = false;
};

struct Use {
  Duration busy{};
  Duration stall{};
  Bytes bytes{};
  bool operator==(const Use&) const = default;
};
using Uses = std::array<Use, kStreams>;

struct Result {
  std::vector<SimTime> finishes{};  // one per iteration
  std::vector<Uses> uses{};         // totals at each finish; one more entry for the end of the last copy
};

/// Runs the iterations in sequence, then the copies still in flight. `rule` may be null.
Result execute(const std::vector<Iteration>& iterations, const std::vector<LinkChange>& changes, LayerRule* rule,
               const Surroundings& surroundings);

}  // namespace spillway::oracle
