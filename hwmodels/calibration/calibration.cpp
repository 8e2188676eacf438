#include "hwmodels/calibration/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "hwmodels/calibration/calibration_task.hpp"
#include "hwmodels/calibration/decode_iterations.hpp"
#include "hwmodels/calibration/exchange_fits.hpp"
#include "hwmodels/calibration/gemm_and_attention.hpp"
#include "hwmodels/calibration/measurement_rows.hpp"
#include "hwmodels/calibration/moe_calibration.hpp"
#include "hwmodels/calibration/simple_calibration.hpp"

namespace spillway::hwmodels {
namespace {

/// Erases each group of rows that is not `enough`, if all its rows come from files of the microbenchmarks. Adds a note
/// for each erased group. Rows whose group has no name stay.
template <class Row, class Group, class Enough>
void leave_out_groups(Measurements& in, std::vector<Row>& rows, const Group& group_of, const Enough& enough,
                      std::vector<std::string>& notes) {
  std::map<std::string, std::vector<Row>> groups;
  for (const Row& row : rows) groups[group_of(row)].push_back(row);
  for (const auto& [group, members] : groups) {
    const bool all_tool = std::all_of(members.begin(), members.end(), [&](const Row& row) {
      return in.files.at(static_cast<std::size_t>(row.place.file)).format == "measurements-json";
    });
    if (!all_tool || group.empty() || enough(members)) continue;
    notes.push_back(fmt::format("{} measurements of {} were left out: they are too few to fit", members.size(), group));
    in.files.at(static_cast<std::size_t>(members.front().place.file)).notes.push_back(notes.back());
    std::erase_if(rows, [&, &name = group](const Row& row) { return group_of(row) == name; });
  }
}

}  // namespace

std::vector<std::string> leave_out_scarce(Measurements& in) {
  std::vector<std::string> notes;
  const auto at_least = [](std::size_t fewest) { return [=](const auto& rows) { return rows.size() >= fewest; }; };
  leave_out_groups(
      in, in.gemm, [](const GemmRow& row) { return gemm_group(row.dtype_bytes, row.quantization); },
      at_least(kFewestGemms), notes);
  leave_out_groups(
      in, in.attention, [](const AttentionRow& row) { return std::string(op_name(op_of(row))); },
      at_least(kFewestAttention), notes);
  leave_out_groups(
      in, in.elementwise, [](const ElementwiseRow&) { return std::string(op_name(Op::elementwise)); },
      at_least(kFewestElementwise), notes);
  leave_out_groups(
      in, in.cpu_attention, [](const CpuAttentionRow&) { return std::string(op_name(Op::cpu_attention)); },
      at_least(kFewestCpuAttention), notes);
  leave_out_groups(
      in, in.copies,
      [](const CopyRow& row) {
        return row.duplex ? std::string() : fmt::format("{} {}", op_name(op_of(row)), mechanism_name(row.mechanism));
      },
      [](const std::vector<CopyRow>& rows) {
        return std::any_of(rows.begin(), rows.end(),
                           [&](const CopyRow& row) { return row.block_bytes != rows.front().block_bytes; });
      },
      notes);
  return notes;
}

FittedKernels calibrate(const Measurements& measurements, const CalibrationContext& context,
                        const std::function<void(std::string_view)>& progress) {
  const CalibrationTask task(measurements, context, progress);
  FittedKernels kernels;
  const FitHints hints = hints_for(task);
  const HeldOutRows<GemmRow> gemm = calibrate_gemms(task, hints, kernels);
  const HeldOutRows<AttentionRow> decode = calibrate_attention(task, hints, kernels);
  kernels.decode_iteration = judge_decode_iterations(task, gemm, decode);
  calibrate_moe(task, hints, kernels);
  calibrate_exchanges(task, kernels);
  calibrate_lines(task, kernels);
  calibrate_mixed_attention(task, hints, kernels);
  calibrate_all_reduce(task, kernels);
  calibrate_copies(task, kernels);
  calibrate_layer_tables(task, kernels);
  return kernels;
}

}  // namespace spillway::hwmodels
