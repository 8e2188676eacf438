#include "hwmodels/calibration/simple_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "hwmodels/calibration/layer_fits.hpp"
#include "hwmodels/calibration/simple_fits.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

// Bytes from which a copy is judged against the bandwidth; smaller sizes are a table.
constexpr std::int64_t kJudgedCopy = 65'536;

template <class Row, class Fit, class Key>
auto fit_folds(const CalibrationTask& task, Op op, const std::vector<Row>& rows, std::size_t fewest, const Fit& fit,
               const Key& key, std::string by, std::vector<MeasuredRange> ranges) {
  task.begin(op);
  task.require_rows(op, rows, fewest);
  const auto predict = [](const auto& model, const std::vector<Row>& some) { return ratios(model, some); };
  std::vector<double> held_out = held_out_ratios(rows, folds_of(rows, key), fewest, fit, predict);
  using Model = decltype(fit(rows));
  return Fitted<Model>{task.fitted_to(rows, fit),
                       task.record(rows, std::move(held_out), std::move(by), std::move(ranges))};
}

/// Every block size but the two ends, predicted from its neighbours: first the sizes at even positions, then those at
/// odd ones.
std::vector<std::pair<std::int64_t, double>> held_out_copies(const std::vector<CopyRow>& rows) {
  std::vector<std::pair<std::int64_t, double>> predicted;
  std::set<std::int64_t> sizes;
  for (const CopyRow& row : rows) sizes.insert(row.block_bytes);
  for (const std::size_t parity : {std::size_t{0}, std::size_t{1}}) {
    std::set<std::int64_t> held;
    std::size_t index = 0;
    for (const std::int64_t size : sizes) {
      const bool end = index == 0 || index + 1 == sizes.size();
      if (!end && index % 2 == parity) held.insert(size);
      ++index;
    }
    std::vector<CopyRow> fitted;
    std::vector<CopyRow> out;
    for (const CopyRow& row : rows) (held.contains(row.block_bytes) ? out : fitted).push_back(row);
    if (out.empty()) continue;
    const std::vector<double> some = unless_open([&] { return ratios(fit_copies(fitted), out); });
    for (std::size_t i = 0; i < some.size(); ++i) predicted.emplace_back(out[i].block_bytes, some[i]);
  }
  return predicted;
}

/// Noise in two sizes may give a slope above what the link can carry.
void cap_at_peak(const CalibrationTask& task, CopyModel& model) {
  const double peak = task.base() == nullptr ? 0.0 : task.base()->host_link_peak.value();
  if (peak > 0.0 && model.mechanism != CopyMechanism::peer) model.bandwidth = std::min(model.bandwidth, peak);
}

/// The error of attention between the points of its full grid: every second inner value of each axis in turn is left
/// out.
std::string attention_error(const std::vector<MixedRow>& rows) {
  std::vector<double> predicted;
  const auto leave_out = [&](const auto& value) {
    const auto [some, others] = every_second(rows, [&](const MixedRow& row) { return real(value(row)); });
    if (others.empty()) return;
    if (!is_full_grid(some)) return;
    const std::vector<double> ratios_of_axis = ratios(tabulate_layers({}, some), others);
    predicted.insert(predicted.end(), ratios_of_axis.begin(), ratios_of_axis.end());
  };
  leave_out([](const MixedRow& row) { return row.chunk; });
  leave_out([](const MixedRow& row) { return row.chunk_context; });
  leave_out([](const MixedRow& row) { return row.decodes; });
  leave_out([](const MixedRow& row) { return row.decode_context; });
  const ErrorSummary error = summary_of_predicted(std::move(predicted));
  if (error.n == 0) return "; attention: no row could be held out";
  return fmt::format("; attention, every second value of an axis: {:.1f}% / {:.1f}%", 100.0 * error.median,
                     100.0 * error.p95);
}

void fit_reductions(const CalibrationTask& task, bool custom, std::optional<Fitted<AllReduceModel>>& out) {
  std::vector<AllReduceRow> all = task.in().all_reduce;
  std::erase_if(all, [&](const AllReduceRow& row) { return row.custom != custom; });
  if (all.empty()) return;
  task.begin(Op::all_reduce);
  std::vector<double> held_out;
  std::map<std::int64_t, std::vector<AllReduceRow>> by_ranks;
  for (const AllReduceRow& row : all) by_ranks[row.ranks].push_back(row);
  for (const auto& [ranks, rows] : by_ranks) {
    const auto [fitted, held] = every_second(rows, [](const AllReduceRow& row) { return real(row.bytes); });
    if (held.empty()) continue;
    const std::vector<double> some = ratios(fit_all_reduce(fitted), held);
    held_out.insert(held_out.end(), some.begin(), some.end());
  }
  FitRecord about = task.record(all, std::move(held_out), "every second size",
                                {range_of("ranks", all, [](const AllReduceRow& r) { return r.ranks; }),
                                 range_of("bytes", all, [](const AllReduceRow& r) { return r.bytes; })});
  if (!custom && task.base() != nullptr && task.base()->all_reduce) {
    about.roofline = summarise(roofline_ratios(*task.base(), all));
  }
  out = Fitted<AllReduceModel>{fit_all_reduce(all), std::move(about)};
}

/// Predicted / measured of scattered attention rows, from the grid that the other folds give.
template <class Key>
std::vector<double> scattered_ratios(const std::vector<MixedRow>& rows, const Key& key) {
  return held_out_ratios(
      rows, folds_of(rows, key), kFewestScattered, [](const auto& some) { return tabulate_layers({}, some); },
      [](const LayerTables& tables, const auto& held) { return ratios(tables, held); });
}

/// The error of an attention grid with interpolated points. Single points are held out, which judges small holes, and
/// whole series, which judges large ones.
FitRecord scattered_error(const CalibrationTask& task) {
  const std::vector<MixedRow>& rows = task.in().mixed;
  std::vector<double> held_out = scattered_ratios(rows, [](const MixedRow& row) {
    return std::tuple(row.chunk, row.chunk_context, row.decodes, row.decode_context);
  });
  const ErrorSummary series = summary_of_predicted(
      scattered_ratios(rows, [](const MixedRow& row) { return std::tuple(row.chunk, row.decodes); }));
  LayerTables tables;
  const auto [nodes, interpolated] = tabulate_attention(rows, tables);
  std::string by =
      fmt::format("points in five folds; {} of {} points of the grid are interpolated", interpolated, nodes);
  std::vector<double> errors;
  for (const double ratio : held_out) {
    if (ratio > 0.0) errors.push_back(std::abs(ratio - 1.0));
  }
  if (!errors.empty()) {
    std::sort(errors.begin(), errors.end());
    by += fmt::format("; p90 {:.1f}%, max {:.1f}%", 100.0 * quantile(errors, 0.9), 100.0 * errors.back());
  }
  if (series.n > 0) {
    by += fmt::format("; whole (chunk, decodes) series: {:.1f}% / {:.1f}%", 100.0 * series.median, 100.0 * series.p95);
  }
  return task.record(rows, std::move(held_out), std::move(by), {});
}

}  // namespace

void calibrate_lines(const CalibrationTask& task, FittedKernels& out) {
  const Measurements& in = task.in();
  if (!in.elementwise.empty()) {
    out.elementwise = fit_folds(
        task, Op::elementwise, in.elementwise, kFewestElementwise,
        [](const auto& rows) { return fit_elementwise(rows); }, [](const ElementwiseRow& row) { return row.kernel; },
        "whole kernels", {range_of("bytes", in.elementwise, [](const ElementwiseRow& r) { return r.bytes; })});
    out.elementwise->record.roofline = task.roofline(in.elementwise);
  }
  if (!in.cpu_attention.empty()) {
    out.cpu_attention = fit_folds(
        task, Op::cpu_attention, in.cpu_attention, kFewestCpuAttention,
        [](const auto& rows) { return fit_cpu_attention(rows); },
        [](const CpuAttentionRow& row) { return std::tuple(row.threads, row.batch); }, "whole (threads, batch) series",
        {range_of("threads", in.cpu_attention, [](const CpuAttentionRow& r) { return r.threads; }),
         range_of("kv_bytes", in.cpu_attention, [](const CpuAttentionRow& r) { return r.kv_bytes; })});
  }
  if (!in.host.empty()) {
    out.host = fit_folds(
        task, Op::host, in.host, 3, [](const auto& rows) { return fit_host(rows); },
        [](const HostRow& row) { return std::tuple(row.sequences, row.tensor_parallel); },
        "whole (sequences, tensor_parallel) series",
        {range_of("sequences", in.host, [](const HostRow& r) { return r.sequences; })});
  }
  if (!in.iterations.empty()) {
    out.iteration = fit_folds(
        task, Op::iteration, in.iterations, 4, [](const auto& rows) { return fit_iterations(rows); },
        [](const IterationRow& row) { return row.tokens; }, "all iterations of a number of tokens",
        {range_of("tokens", in.iterations, [](const IterationRow& r) { return r.tokens; }),
         range_of("context", in.iterations, [](const IterationRow& r) { return r.context; })});
    out.iteration->model.model = task.model_name();
  }
}

void calibrate_all_reduce(const CalibrationTask& task, FittedKernels& out) {
  fit_reductions(task, false, out.all_reduce);
  fit_reductions(task, true, out.all_reduce_custom);
}

void calibrate_copies(const CalibrationTask& task, FittedKernels& out) {
  const Measurements& in = task.in();
  if (in.copies.empty()) return;
  task.begin(Op::copy_h2d);
  std::map<std::tuple<bool, CopyMechanism>, std::vector<CopyRow>> kinds;
  for (const CopyRow& row : in.copies) {
    if (!row.duplex) kinds[{row.to_device, row.mechanism}].push_back(row);
  }
  for (const auto& [kind, rows] : kinds) {
    std::vector<double> large;
    std::vector<double> small;
    for (const auto& [size, ratio] : held_out_copies(rows)) (size >= kJudgedCopy ? large : small).push_back(ratio);
    std::string by = "block sizes of at least 64 KiB, from their neighbours";
    if (!small.empty()) {
      const ErrorSummary below = summarise(small);
      by += fmt::format("; below, {} sizes: {:.1f}% / {:.1f}%", below.n, 100.0 * below.median, 100.0 * below.p95);
    }
    FitRecord about = task.record(rows, std::move(large), std::move(by),
                                  {range_of("block_bytes", rows, [](const CopyRow& r) { return r.block_bytes; })});
    // The analytic model's link is itself a line through a loop of copies or a single copy, so it is not compared here.
    const CopyMechanism mechanism = std::get<1>(kind);
    if (task.has_analytic() && mechanism != CopyMechanism::many && mechanism != CopyMechanism::single) {
      std::vector<CopyRow> judged;
      std::copy_if(rows.begin(), rows.end(), std::back_inserter(judged),
                   [](const CopyRow& row) { return row.block_bytes >= kJudgedCopy; });
      if (!judged.empty()) about.roofline = summarise(roofline_ratios(*task.base(), judged));
    }
    std::vector<CopyModel> models = task.fitted_to(rows, [](const auto& some) { return fit_copies(some); });
    for (CopyModel& model : models) {
      cap_at_peak(task, model);
      out.copies.push_back({std::move(model), about});
    }
  }
}

void calibrate_layer_tables(const CalibrationTask& task, FittedKernels& out) {
  const Measurements& in = task.in();
  if (in.layers.empty() && in.mixed.empty()) return;
  // Mixed calls that lie on no grid were used for the fused share and make no table.
  const bool full = is_full_grid(in.mixed);
  if (in.layers.empty() && !full && out.mixed_attention) return;
  task.begin(Op::layer);
  FitRecord about{"measured", {}, {}, "every second size of each kernel", std::nullopt, {}};
  std::vector<double> held_out;
  std::map<std::tuple<std::string, bool>, std::vector<LayerRow>> kernels;
  for (const LayerRow& row : in.layers) kernels[{row.kernel, row.per_sequence}].push_back(row);
  std::vector<LayerRow> fitted;
  std::vector<LayerRow> held;
  for (const auto& [kernel, rows] : kernels) {
    const auto [some, others] = every_second(rows, [](const LayerRow& row) { return real(row.count); });
    fitted.insert(fitted.end(), some.begin(), some.end());
    held.insert(held.end(), others.begin(), others.end());
  }
  if (!held.empty()) held_out = ratios(tabulate_layers(fitted, {}), held);
  about.held_out = summary_of_predicted(std::move(held_out));
  about.citation = citation(in, in.layers);
  if (!in.mixed.empty()) {
    about.citation += (about.citation.empty() ? "" : "; ") + citation(in, in.mixed);
    about.ranges = {
        range_of("chunk", in.mixed, [](const MixedRow& r) { return r.chunk; }),
        range_of("decodes", in.mixed, [](const MixedRow& r) { return r.decodes; }),
        range_of("context", in.mixed, [](const MixedRow& r) { return std::max(r.decode_context, r.chunk_context); })};
  }
  if (!in.layers.empty()) {
    about.ranges.push_back(range_of("tokens", in.layers, [](const LayerRow& r) { return r.count; }));
  }
  if (!in.mixed.empty() && full) about.held_out_by += attention_error(in.mixed);
  LayerTables tables =
      in.mixed.empty() ? tabulate_layers(in.layers, in.mixed)
                       : task.fitted_to(in.mixed, [&](const auto& mixed) { return tabulate_layers(in.layers, mixed); });
  if (!full) out.layer_attention = scattered_error(task);
  tables.model = task.model_name();
  out.layers = Fitted<LayerTables>{std::move(tables), std::move(about)};
}

}  // namespace spillway::hwmodels
