// Which rows of the microbenchmarks a profile uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hwmodels/calibration/measurement_rows.hpp"

namespace spillway::hwmodels {

/// Selects rows of one file and leaves out the rows that the models cannot use:
/// - what no engine does: pageable memory without a relay, the tool's own attention, the best of several algorithms;
/// - what the models do not depend on: pools above 1 GiB, order of blocks, skewed lengths;
/// - what belongs to a server or an engine: all GPUs at once, copies between GPUs, launches;
/// - repeated cases: in another number format, or with another number of thread blocks.
/// Each function reads the keys of its op that only the microbenchmarks write. Rows with a bad key are dropped, because
/// the file is refused.
class RowSelection {
 public:
  explicit RowSelection(Measurements& to) : to_(to) {}

  void gemm(RowSource& row, const GemmRow& one);
  /// `own`: measured with the tool's own kernel.
  void attention(RowSource& row, const AttentionRow& one, bool own);
  void mixed(RowSource& row, const MixedRow& one, bool own);
  void elementwise(RowSource& row, ElementwiseRow one);
  void copy(RowSource& row, const CopyRow& one);
  void cpu_attention(RowSource& row, const CpuAttentionRow& one);
  /// `compute`: what is computed; empty when the entry is bad.
  void interference(RowSource& row, const std::optional<std::string>& compute, bool own);
  void host_stream(RowSource& row);
  /// Leaves out a row of an op that no profile uses. Returns false for other ops.
  bool without_place(const std::string& op);

  /// To be called after the last row: chooses among rows of one case. Returns a note for each kind of row left out.
  [[nodiscard]] std::vector<std::string> finish();

 private:
  /// A copy by a kernel of `ctas` thread blocks.
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
  std::vector<CopyRow> pooled_;  // rows of pools that were selected
  std::vector<LeftOut> left_out_;
};

}  // namespace spillway::hwmodels
