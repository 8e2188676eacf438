// NEO's decisions once more, from the rules alone: every sum is taken anew, every step is spelled out.
//
// It shares no code with policies/parts/neo_*: it takes predicted times as functions, and tells what one iteration does
// with the queues that it is given.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace spillway::oracle {

/// Predicted times of a layer.
struct NaiveNeoTimes {
  std::function<double(std::int64_t tokens)> linear;
  std::function<double(std::int64_t length)> prompt;
  std::function<double(std::int64_t context)> gpu_decodes;
  std::function<double(std::int64_t sequences, std::int64_t context)> cpu_decodes;
  double launch = 0.0;
};

/// Rules of the paper, of the public code, and of FastDecode+.
enum class NaiveNeoRules : std::uint8_t { code, paper, fastdecode };

struct NaiveNeoSetting {
  NaiveNeoRules rules = NaiveNeoRules::code;
  std::int64_t block = 16;  // tokens
  std::int64_t gpu = 0;     // blocks
  std::int64_t host = 0;    // blocks
  std::int64_t tokens = 0;  // of an iteration
  std::int64_t seats = 0;
};

/// Known tokens of each request, by a number that the caller chooses. `cached`: of one that waits, those that a prefix
/// cache holds, whole blocks. Memory is then taken to suffice for all of them.
struct NaiveNeoRequest {
  std::int64_t name = 0;
  std::int64_t known = 0;
  std::int64_t cached = 0;
};

/// The queues before an iteration, and after it. A decode takes its token outside of this model.
struct NaiveNeoQueues {
  std::vector<NaiveNeoRequest> waiting;
  std::vector<NaiveNeoRequest> gpu;
  std::vector<NaiveNeoRequest> host;
};

/// What runs in an iteration, by names.
struct NaiveNeoIteration {
  std::vector<std::int64_t> rejected;
  std::vector<std::int64_t> prompts;  // in order, of both kinds
  std::vector<std::int64_t> gpu_decodes;
  std::vector<std::int64_t> cpu_decodes[2];  // of each sub-batch
};

[[nodiscard]] NaiveNeoIteration naive_neo(const NaiveNeoSetting& setting, const NaiveNeoTimes& times,
                                          NaiveNeoQueues& queues);

}  // namespace spillway::oracle
