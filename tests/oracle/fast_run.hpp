// The engine under test on a random case, and a request record as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/simulation.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/naive_engine.hpp"

namespace spillway::oracle {

struct FastRun {
  std::vector<RequestRecord> records;  // in order of ending
  SimulationResult result;
};

inline FastRun run_fast(const NaiveConfig& config, Duration warmup = Duration(0)) {
  FastRun run;
  FollowingSource source(config.requests, config.follows);
  SimulationConfig fast;
  fast.model = config.model;
  fast.policy = config.policy;
  fast.settings = config.settings;
  fast.source = &source;
  fast.kv = KvLayout{
      config.gpu_blocks,       config.host_blocks,    config.block_tokens,      config.block_bytes,
      config.copies_per_block, config.prefix_caching, config.host_cache_blocks, config.host_cache_copies_per_block};
  fast.kv.most_gpu_blocks = config.most_gpu_blocks;
  fast.deployment = config.deployment;
  fast.deployment.model = config.model;
  fast.max_model_len = config.max_model_len;
  fast.request_timeout = config.request_timeout;
  fast.until = config.until;
  if (warmup > Duration(0)) {
    fast.metrics.warmup.kind = Span::Kind::time;
    fast.metrics.warmup.time = warmup;
  }
  fast.on_request = [&](const RequestRecord& record) { run.records.push_back(record); };
  run.result = simulate(fast);
  return run;
}

inline std::string text(const RequestRecord& r) {
  std::string line;
  for (const std::int64_t value :
       {static_cast<std::int64_t>(r.index), static_cast<std::int64_t>(r.client), static_cast<std::int64_t>(r.outcome),
        r.arrival.ns(), r.first_scheduled.ns(), r.first_token.ns(), r.end.ns(), r.computing.count(), r.input.count(),
        r.output.count(), r.generated.count(), r.cached.count(), std::int64_t{r.preempted_recompute},
        std::int64_t{r.preempted_swap}, r.traits.conversation}) {
    line += std::to_string(value) + " ";
  }
  return line;
}

}  // namespace spillway::oracle
