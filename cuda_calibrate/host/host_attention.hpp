// Decode attention on the CPU over a paged KV cache.
//
// Source: NEO, section 5 (its CPU kernel): each (sequence, KV head) is work of its own, all query heads of a KV head
// read its keys and values once, and a sequence is split where there is less work than threads. Scores, softmax and
// sums are fp32.
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

/// Several KV caches of equal shape and one query per sequence. A page holds the keys and then the values of
/// kPageTokens tokens of one KV head, each [token][head size]; a page table says where each page lies. The pages of all
/// sequences and KV heads, in order, are dealt out to the threads in equal runs; every thread touches its own first.
/// Where a run ends within a sequence, the parts are merged by the weights that their softmax had.
class CpuAttention {
 public:
  /// `caches` KV caches, at least 1, one for each call in turn. Throws Unsupported for query heads that are no multiple
  /// of the KV heads, head sizes that are no multiple of kHeadStep, fp8 and empty work; OutOfMemory.
  CpuAttention(const HostAttention& point, const PageKernels& kernels, std::vector<Cpu> cpus, std::int64_t caches,
               std::uint64_t seed);
  ~CpuAttention();

  /// Seconds of `calls` calls behind each other.
  [[nodiscard]] double run(std::int64_t calls);

  /// Of the cache that the next call reads: the vector of `head size` numbers, as floats.
  [[nodiscard]] std::vector<float> key(std::int64_t sequence, std::int64_t kv_head, std::int64_t token) const;
  [[nodiscard]] std::vector<float> value(std::int64_t sequence, std::int64_t kv_head, std::int64_t token) const;
  /// Of all calls; not yet divided by the root of the head size.
  [[nodiscard]] std::vector<float> query(std::int64_t sequence, std::int64_t query_head) const;
  /// Of the last call.
  [[nodiscard]] std::span<const float> result(std::int64_t sequence, std::int64_t query_head) const;

 private:
  struct Part;
  struct Crew;

  /// Of a token's page, behind the first `skipped` vectors.
  [[nodiscard]] std::vector<float> numbers(std::int64_t sequence, std::int64_t kv_head, std::int64_t token,
                                           std::int64_t skipped) const;
  void attend(Crew& crew, Part& part, std::int64_t cache) const;
  void merge(std::int64_t item);

  HostAttention point_;
  PageKernels kernels_;
  std::int64_t group_ = 1;  // query heads of a KV head
  std::int64_t items_ = 0;  // (sequence, KV head)
  std::int64_t pages_ = 0;  // of an item
  std::int64_t caches_ = 1;
  std::int64_t next_ = 0;                // cache
  LineFloats queries_;                   // [item][query head of the group][head size]
  LineFloats scaled_;                    // the same over the root of the head size
  LineFloats results_;                   // as the queries
  std::vector<Crew> crews_;              // one for each thread
  std::vector<Part*> parts_;             // of all threads, by item
  std::vector<std::size_t> first_part_;  // of each item, and the end
  ThreadTeam team_;
};

/// Caches that together are larger than four times the last-level cache, and the fastest kernels. Throws as
/// CpuAttention does.
[[nodiscard]] std::unique_ptr<Case> make_host_attention(const HostAttention& point, std::uint64_t seed);

}  // namespace spillway::calibrate
