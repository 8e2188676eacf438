// A call of Spillway's attention kernels, with its cache, page tables and plan on the GPU.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda_calibrate/cuda/attention.hpp"
#include "cuda_calibrate/cuda/attention_plan.hpp"
#include "cuda_calibrate/cuda/cases.hpp"

namespace spillway::calibrate::gpu {

class AttentionOp : public ComputeOp {
 public:
  /// Alternates between `sets` equal calls, each with its own cache. With `sets` = 0, all caches together exceed four
  /// times the L2. Throws Unsupported for head sizes other than 64 and 128, for query heads that are not a multiple of
  /// the KV heads, and for numbers that the GPU cannot multiply.
  AttentionOp(Gpu& gpu, const Heads& heads, const Sequences& sequences, Number number, std::int64_t sets = 0);
  void enqueue(cudaStream_t stream) override;
  [[nodiscard]] std::string kernel() const override { return "spillway"; }
  [[nodiscard]] std::string note() const override { return note_; }
  void set_note(std::string note) { note_ = std::move(note); }

  [[nodiscard]] const Heads& heads() const { return heads_; }
  [[nodiscard]] Number number() const { return number_; }
  [[nodiscard]] const std::vector<std::int64_t>& kv_tokens() const { return kv_lengths_; }  // one per sequence
  [[nodiscard]] std::int64_t sets() const { return sets_; }
  /// The first call reads the first set, at the front of the table. Layouts as in AttentionCall.
  [[nodiscard]] const PageTable& table() const { return table_; }
  [[nodiscard]] const DeviceMemory& queries() const { return queries_; }
  [[nodiscard]] const DeviceMemory& keys() const { return keys_; }
  [[nodiscard]] const DeviceMemory& values() const { return values_; }
  [[nodiscard]] const DeviceMemory& results() const { return results_; }

 private:
  Heads heads_;
  Number number_;
  std::vector<std::int64_t> kv_lengths_;
  std::int64_t sets_;
  std::int64_t next_ = 0;
  PageTable table_;  // all sets, one after another
  DeviceMemory queries_;
  DeviceMemory keys_;
  DeviceMemory values_;
  DeviceMemory results_;
  DeviceMemory page_first_;
  DeviceMemory pages_;
  DeviceMemory query_first_;
  DeviceMemory query_tokens_;
  DeviceMemory kv_tokens_;
  DeviceMemory decode_;
  DeviceMemory combine_;
  DeviceMemory prefill_;
  DeviceMemory partial_results_;
  DeviceMemory partial_logs_;
  AttentionCall call_;
  std::string note_;
};

}  // namespace spillway::calibrate::gpu
