// Follows what an instance does, for timelines and time series.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sim/api/decision.hpp"
#include "sim/api/layer_rule.hpp"
#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway {

struct ExecutedIteration;

/// What one sub-batch of an iteration computes.
struct SubBatchWork {
  std::int64_t decodes = 0;         // each generates one token
  std::int64_t decodes_on_cpu = 0;  // of these, sequences that attend on the CPU
  Tokens prompt{};                  // tokens of prompts, and of contexts that are computed again
  Tokens context{};                 // tokens that the decodes attend to
  /// Its work before the first layer. The GPU takes these parts of all sub-batches in order, and then the layers in
  /// turn.
  Duration before{};
};

/// Blocks of a tier, or of a cache below the prefix cache.
struct TierLevel {
  Blocks total{};
  Blocks used{};
};

/// State of an instance that lasts for some time.
struct InstanceLevels {
  std::int64_t running = 0;            // in the batch
  std::int64_t waiting = 0;            // not in the batch
  std::span<const TierLevel> tiers{};  // as begins() named them
};

/// An instance reports to it and never hears from it, so a run is the same with and without. An iteration may be
/// executed, and copies may end, ahead of the clock: their times lie in the future then. All else comes in order of
/// time. What a call does not override is ignored.
class InstanceObserver {
 public:
  virtual ~InstanceObserver() = default;
  /// Before everything else; again when a replica that was down comes up.
  virtual void begins(std::span<const std::string> /*tiers*/, SimTime /*now*/) {}
  /// `number`: what the request is known by at this instance; `index`: its position in the workload.
  virtual void arrived(std::uint32_t /*number*/, std::uint32_t /*index*/, SimTime /*now*/) {}
  virtual void joined(std::uint32_t /*number*/, SimTime /*now*/) {}
  virtual void left(std::uint32_t /*number*/, Leave /*why*/, SimTime /*now*/) {}
  /// RequestRecord::index is the number.
  virtual void ended(const RequestRecord& /*record*/) {}
  /// In order, before executed() of the same iteration.
  virtual void sub_batch(const SubBatchWork& /*work*/) {}
  /// The compute stream waited; one wait may come in several parts.
  virtual void waited(Wait /*what*/, SimTime /*from*/, SimTime /*until*/) {}
  virtual void copied(const Copy& /*copy*/, SimTime /*started*/, SimTime /*ended*/) {}
  /// KV of a request went to another instance, or came from one, and has arrived. `index`: its position in the
  /// workload.
  virtual void handed_over(std::uint32_t /*index*/, Bytes /*bytes*/, bool /*came*/, SimTime /*began*/,
                           SimTime /*arrived*/) {}
  virtual void executed(const ExecutedIteration& /*iteration*/) {}
  /// Intervals follow each other without gaps.
  virtual void lasted(SimTime /*from*/, SimTime /*until*/, const InstanceLevels& /*levels*/) {}
  /// It does nothing any more: what was reported of later times does not happen.
  virtual void stopped(SimTime /*now*/) {}
};

}  // namespace spillway
