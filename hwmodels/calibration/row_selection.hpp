// Which rows of the microbenchmarks a profile takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hwmodels/calibration/measurement_rows.hpp"

namespace spillway::hwmodels {

/// Takes the rows of one file, and leaves out those that the models have no place for: what no engine does (pageable
/// memory, the tool's own attention, the best of several algorithms), what the models do not depend on (pools above
/// 1 GiB, order of blocks, skewed lengths), what belongs to a server or an engine rather than a GPU (all GPUs at once,
/// copies between GPUs, launches), and cases that were measured twice, in another format or with another number of
/// thread blocks. Each function reads the keys of its op that only the microbenchmarks write; rows with a bad one are
/// dropped, as the file is refused.
class RowSelection {
 public:
  explicit RowSelection(Measurements& to) : to_(to) {}

  void gemm(RowSource& row, const GemmRow& one);
  /// `own`: by the tool's own kernel.
  void attention(RowSource& row, const AttentionRow& one, bool own);
  void mixed(RowSource& row, const MixedRow& one, bool own);
  void elementwise(RowSource& row, ElementwiseRow one);
  void copy(RowSource& row, const CopyRow& one);
  void cpu_attention(RowSource& row, const CpuAttentionRow& one);
  /// `compute`: what is computed, empty when the entry is bad.
  void interference(RowSource& row, const std::optional<std::string>& compute, bool own);
  void host_stream(RowSource& row);
  /// Rows of an op that no profile holds; false when it is none of these.
  bool without_place(const std::string& op);

  /// After the last row: chooses among rows of one case, and says what was left out, a note for each kind.
  [[nodiscard]] std::vector<std::string> finish();

 private:
  /// Of copies by a kernel, or blocks of a pool.
  struct KernelCopy {
    std::int64_t ctas = 0;
    CopyRow row;
  };
  struct LeftOut {
    std::string what;
    std::string why;
    std::int64_t count = 0;
  };

  void leave_out(const std::string& what, const std::string& why, std::int64_t count = 1);
  void choose_formats();
  void choose_ctas();

  Measurements& to_;
  std::vector<GemmRow> half_gemm_;                                      // fp16
  std::vector<AttentionRow> half_attention_;                            // fp16
  std::vector<std::pair<std::string, CpuAttentionRow>> cpu_attention_;  // by number format
  std::vector<KernelCopy> kernel_copies_;
  std::vector<CopyRow> pooled_;  // that were taken
  std::vector<LeftOut> left_out_;
};

}  // namespace spillway::hwmodels
