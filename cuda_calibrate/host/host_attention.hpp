// Decode attention on the CPU over a paged KV cache.
//
// Source: NEO, section 5 (its CPU kernel). Each (sequence, KV head) is a separate item. All query heads of a KV head
// share one read of its keys and values. Sequences are split when there are fewer items than threads. Scores, softmax
// and sums are fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda_calibrate/host/host_backend.hpp"
#include "cuda_calibrate/host/line_floats.hpp"
#include "cuda_calibrate/host/page_kernels.hpp"
#include "cuda_calibrate/host/thread_team.hpp"

namespace spillway::calibrate {

/// Several KV caches of equal shape and one query per sequence. A page stores the keys and then the values of
/// kPageTokens tokens of one KV head, each [token][head size]; a page table gives the position of each page. The pages
/// of all sequences and KV heads, in order, are divided into equal runs, one per thread. Every thread touches its own
/// pages first, so they lie on its NUMA node. If a run ends within a sequence, the parts are merged with their softmax
/// weights.
class CpuAttention {
 public:
  /// `caches` KV caches, at least 1; calls alternate between them. Throws Unsupported for query heads that are not a
  /// multiple of the KV heads, for head sizes that are not a multiple of kHeadStep, for fp8 and for empty work. Throws
  /// OutOfMemory.
  CpuAttention(const HostAttention& point, const PageKernels& kernels, std::vector<Cpu> cpus, std::int64_t caches,
               std::uint64_t seed);
  ~CpuAttention();

  /// Seconds of `calls` consecutive calls.
  [[nodiscard]] double run(std::int64_t calls);

  /// As ThreadTeam::note().
  [[nodiscard]] std::string note() const { return team_.note(); }

  /// A key in the cache that the next call reads: `head size` numbers as floats.
  [[nodiscard]] std::vector<float> key(std::int64_t sequence, std::int64_t kv_head, std::int64_t token) const;
  [[nodiscard]] std::vector<float> value(std::int64_t sequence, std::int64_t kv_head, std::int64_t token) const;
  /// The query of all calls, not yet divided by the root of the head size.
  [[nodiscard]] std::vector<float> query(std::int64_t sequence, std::int64_t query_head) const;
  /// The result of the last call.
  [[nodiscard]] std::span<const float> result(std::int64_t sequence, std::int64_t query_head) const;

 private:
  struct Part;
  struct Crew;

  /// Numbers of a token, after the first `skipped` vectors of its page.
  [[nodiscard]] std::vector<float> numbers(std::int64_t sequence, std::int64_t kv_head, std::int64_t token,
                                           std::int64_t skipped) const;
  void attend(Crew& crew, Part& part, std::int64_t cache) const;
  void merge(std::int64_t item);

  HostAttention point_;
  PageKernels kernels_;
  std::int64_t group_ = 1;  // query heads per KV head
  std::int64_t items_ = 0;  // number of (sequence, KV head) pairs
  std::int64_t pages_ = 0;  // pages of an item
  std::int64_t caches_ = 1;
  std::int64_t next_ = 0;                // cache of the next call
  LineFloats queries_;                   // [item][query head of the group][head size]
  LineFloats scaled_;                    // queries_ divided by the root of the head size
  LineFloats results_;                   // layout of queries_
  std::vector<Crew> crews_;              // one per thread
  std::vector<Part*> parts_;             // parts of all threads, by item
  std::vector<std::size_t> first_part_;  // index of each item's first part, and the end
  ThreadTeam team_;
};

/// Uses caches that together exceed four times the last-level cache, and the fastest kernels. Throws as CpuAttention.
[[nodiscard]] std::unique_ptr<Case> make_host_attention(const HostAttention& point, std::uint64_t seed);

}  // namespace spillway::calibrate
