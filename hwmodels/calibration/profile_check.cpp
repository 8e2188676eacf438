#include "hwmodels/calibration/profile_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>

#include "hwmodels/calibration/kernel_fits.hpp"
#include "hwmodels/calibration/layer_fits.hpp"
#include "hwmodels/calibration/least_squares.hpp"
#include "hwmodels/calibration/moe_fits.hpp"
#include "hwmodels/calibration/roofline_ratios.hpp"
#include "hwmodels/calibration/simple_fits.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::string_view kNoModel = "the profile has no fit for them";

bool inside(const FitRecord& record, const char* quantity, double value) {
  const auto it = std::find_if(record.ranges.begin(), record.ranges.end(),
                               [&](const MeasuredRange& range) { return range.quantity == quantity; });
  return it == record.ranges.end() || (value >= it->low && value <= it->high);
}

/// Collects the lines of a check.
class CheckLines {
 public:
  explicit CheckLines(const Measurements& measurements) : in_(measurements) {}

  /// `ratios` in the order of `rows`; `within` says whether a row lies in the measured range.
  template <class Row, class Within>
  void add(std::string op, const std::vector<Row>& rows, const std::vector<double>& ratios, const Within& within) {
    if (rows.empty()) return;
    CheckLine line{std::move(op), summarise(ratios), 0, {}};
    std::vector<std::size_t> order(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      order[i] = i;
      if (!within(rows[i])) ++line.outside;
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(-std::abs(std::log(ratios[a])), a) < std::tuple(-std::abs(std::log(ratios[b])), b);
    });
    constexpr std::size_t kWorst = 3;
    for (std::size_t i = 0; i < std::min(kWorst, order.size()); ++i) {
      const Row& row = rows[order[i]];
      const double micros = row.seconds * 1e6;
      line.worst.push_back(fmt::format("{}: measured {:.4g} us, predicted {:.4g} us", place_text(in_, row.place),
                                       micros, micros * ratios[order[i]]));
    }
    report_.lines.push_back(std::move(line));
  }
  void skip(std::string_view op, std::size_t rows, std::string_view why) {
    if (rows > 0) report_.skipped.push_back(fmt::format("{} rows of {}: {}", rows, op, why));
  }
  CheckReport finish() { return std::move(report_); }

 private:
  const Measurements& in_;
  CheckReport report_;
};

template <class Row>
std::vector<Row> copies_of(const std::vector<Row>& rows, bool to_device) {
  std::vector<Row> kept;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept),
               [&](const Row& row) { return row.to_device == to_device && !row.duplex; });
  return kept;
}

/// The fit of a row's own kernel; of another kernel in its format where the profile lacks it.
const FittedMoe* moe_of(const FittedKernels& kernels, const MoeRow& row) {
  const auto it = std::find_if(kernels.moe.begin(), kernels.moe.end(), [&](const FittedMoe& one) {
    return one.model.quantization == row.quantization && one.kernel == row.kernel;
  });
  if (it != kernels.moe.end()) return &*it;
  return kernels.moe_for(row.quantization, {row.hidden, row.intermediate / row.tensor_parallel, row.top_k, row.experts,
                                            row.expert_parallel});
}

/// A line for each format, and one for all where rows have several.
void check_moe(const FittedKernels& kernels, const Measurements& in, CheckLines& check) {
  std::map<const FittedMoe*, std::vector<MoeRow>> by_fit;
  std::map<Quantization, std::size_t> unknown;
  for (const MoeRow& row : in.moe) {
    const FittedMoe* fit = moe_of(kernels, row);
    if (fit == nullptr) {
      ++unknown[row.quantization];
    } else {
      by_fit[fit].push_back(row);
    }
  }
  struct Checked {
    std::vector<MoeCase> cases;
    std::vector<double> ratios;
    std::vector<const FittedMoe*> fits;
  };
  std::map<Quantization, Checked> formats;
  Checked all;
  for (const FittedMoe& fit : kernels.moe) {
    const std::vector<MoeCase> cases = moe_cases(by_fit[&fit], fit.benchmark);
    const std::vector<double> ratios = moe_ratios(fit.model, cases, fit.benchmark.cache_bytes);
    for (Checked* to : {&formats[fit.model.quantization], &all}) {
      to->cases.insert(to->cases.end(), cases.begin(), cases.end());
      to->ratios.insert(to->ratios.end(), ratios.begin(), ratios.end());
      to->fits.insert(to->fits.end(), cases.size(), &fit);
    }
  }
  const auto add = [&](const std::string& op, const Checked& some) {
    std::vector<bool> within;
    for (std::size_t i = 0; i < some.cases.size(); ++i) {
      const MoeCase& one = some.cases[i];
      const FitRecord& record = some.fits[i]->record;
      within.push_back(inside(record, "tokens", real(one.tokens)) && inside(record, "hidden", real(one.shape.hidden)) &&
                       inside(record, "width", real(one.shape.width)) &&
                       inside(record, "top_k", real(one.shape.top_k)) &&
                       inside(record, "experts", real(one.shape.experts)) &&
                       inside(record, "expert_parallel", real(one.shape.expert_parallel)));
    }
    check.add(op, some.cases, some.ratios,
              [&](const MoeCase& one) { return within[static_cast<std::size_t>(&one - some.cases.data())]; });
  };
  std::erase_if(formats, [](const auto& entry) { return entry.second.cases.empty(); });
  if (formats.size() > 1) add(std::string(op_name(Op::moe)), all);
  for (const auto& [quantization, some] : formats) add(moe_group(quantization), some);
  for (const auto& [quantization, rows] : unknown) check.skip(moe_group(quantization), rows, kNoModel);
}

/// A line for each backend and step. Only fits of the rows' own number of GPUs count.
void check_exchanges(const FittedKernels& kernels, const Measurements& in, CheckLines& check) {
  std::map<std::pair<ExchangeBackend, ExchangeStep>, std::pair<std::vector<ExchangeRow>, std::vector<double>>> known;
  std::size_t unknown = 0;
  for (const ExchangeRow& row : in.exchanges) {
    const FittedExchange* fit = kernels.exchange_for(row.backend, row.step, row.ranks);
    if (fit == nullptr || fit->model.ranks != row.ranks) {
      ++unknown;
      continue;
    }
    auto& [rows, ratios] = known[{row.backend, row.step}];
    rows.push_back(row);
    ratios.push_back(exchange_seconds(fit->model, row.shape) / row.seconds);
  }
  for (const auto& [kernel, checked] : known) {
    const std::string op = fmt::format("{} {} {}", op_name(Op::expert_exchange), exchange_name(kernel.first),
                                       exchange_name(kernel.second));
    check.add(op, checked.first, checked.second, [&](const ExchangeRow& row) {
      const FitRecord& record = kernels.exchange_for(row.backend, row.step, row.ranks)->record;
      return inside(record, "tokens", real(row.shape.tokens)) &&
             inside(record, "bytes", real(row.shape.tokens) * real(row.shape.hidden) * row.shape.element_bytes);
    });
  }
  check.skip(op_name(Op::expert_exchange), unknown, kNoModel);
}

}  // namespace

CheckReport check_profile(const GpuProfile& profile, const Measurements& in) {
  const FittedKernels& kernels = profile.fitted;
  CheckLines check(in);
  std::map<std::pair<Quantization, std::int64_t>, std::vector<GemmRow>> formats;
  for (const GemmRow& row : in.gemm) formats[{row.quantization, row.dtype_bytes}].push_back(row);
  for (const auto& [format, rows] : formats) {
    const auto& [quantization, bytes] = format;
    const FittedGemm* gemm = kernels.gemm_in(bytes, quantization);
    if (gemm == nullptr) {
      check.skip(gemm_group(bytes, quantization), rows.size(), kNoModel);
      continue;
    }
    check.add("gemm" + format_suffix(bytes, quantization), rows, gemm_ratios(gemm->model, rows), [&](const GemmRow& r) {
      return inside(gemm->record, "m", real(r.m)) && inside(gemm->record, "n", real(r.n)) &&
             inside(gemm->record, "k", real(r.k));
    });
  }
  check_moe(kernels, in, check);
  check_exchanges(kernels, in, check);
  const auto attention = [&](Op op, bool fp8_kv, const auto& fitted, const auto& predict) {
    const std::vector<AttentionRow> rows = attention_rows(in, op == Op::decode_attention, fp8_kv);
    const std::string name = fmt::format("{}{}", op_name(op), fp8_kv ? " fp8 kv" : "");
    if (!fitted) return check.skip(name, rows.size(), kNoModel);
    check.add(name, rows, predict(fitted->model, rows), [&](const AttentionRow& r) {
      return inside(fitted->record, "batch", real(r.batch)) && inside(fitted->record, "context", real(r.context)) &&
             inside(fitted->record, "new_tokens", real(r.new_tokens)) &&
             inside(fitted->record, "q_heads", real(r.q_heads)) && inside(fitted->record, "kv_heads", real(r.kv_heads));
    });
  };
  const auto decode = [](const auto& model, const auto& rows) { return decode_ratios(model, rows); };
  const auto prefill = [](const auto& model, const auto& rows) { return prefill_ratios(model, rows); };
  attention(Op::decode_attention, false, kernels.decode_attention, decode);
  attention(Op::prefill_attention, false, kernels.prefill_attention, prefill);
  attention(Op::decode_attention, true, kernels.decode_attention_fp8_kv, decode);
  attention(Op::prefill_attention, true, kernels.prefill_attention_fp8_kv, prefill);
  const auto simple = [&](Op op, const auto& fitted, const auto& rows, const char* quantity, const auto& value) {
    if (!fitted) return check.skip(op_name(op), rows.size(), kNoModel);
    check.add(std::string(op_name(op)), rows, ratios(fitted->model, rows),
              [&](const auto& row) { return inside(fitted->record, quantity, static_cast<double>(value(row))); });
  };
  // Checks only the rows for which the tables have an entry.
  const auto tabulated = [&](Op op, const auto& rows, const char* quantity, const auto& value, const auto& known) {
    auto kept = rows;
    std::erase_if(kept, [&](const auto& row) { return !kernels.layers || !known(kernels.layers->model, row); });
    if (!kept.empty()) simple(op, kernels.layers, kept, quantity, value);
    check.skip(op_name(op), rows.size() - kept.size(), kNoModel);
  };
  tabulated(
      Op::mixed_attention, in.mixed, "decodes", [](const MixedRow& r) { return r.decodes; },
      [](const LayerTables& tables, const MixedRow& r) { return tables.holds(r.chunk > 0, r.decodes > 0); });
  simple(Op::elementwise, kernels.elementwise, in.elementwise, "bytes", [](const auto& r) { return r.bytes; });
  for (const bool custom : {false, true}) {
    std::vector<AllReduceRow> rows = in.all_reduce;
    std::erase_if(rows, [&](const AllReduceRow& row) { return row.custom != custom; });
    const auto& fitted = custom ? kernels.all_reduce_custom : kernels.all_reduce;
    if (!rows.empty()) simple(Op::all_reduce, fitted, rows, "bytes", [](const auto& r) { return r.bytes; });
  }
  for (const bool to_device : {true, false}) {
    std::vector<CopyModel> models;
    for (const Fitted<CopyModel>& copy : kernels.copies) models.push_back(copy.model);
    std::vector<CopyRow> known;
    std::size_t unknown = 0;
    for (const CopyRow& row : copies_of(in.copies, to_device)) {
      const bool modelled = std::any_of(models.begin(), models.end(), [&](const CopyModel& model) {
        return model.to_device == row.to_device && model.mechanism == row.mechanism;
      });
      if (modelled) {
        known.push_back(row);
      } else {
        ++unknown;
      }
    }
    const std::string op(op_name(to_device ? Op::copy_h2d : Op::copy_d2h));
    check.add(op, known, ratios(models, known), [&](const CopyRow& row) {
      return std::any_of(kernels.copies.begin(), kernels.copies.end(), [&](const Fitted<CopyModel>& copy) {
        return copy.model.to_device == row.to_device && copy.model.mechanism == row.mechanism &&
               inside(copy.record, "block_bytes", real(row.block_bytes));
      });
    });
    check.skip(op, unknown, kNoModel);
  }
  simple(Op::cpu_attention, kernels.cpu_attention, in.cpu_attention, "kv_bytes",
         [](const auto& r) { return r.kv_bytes; });
  simple(Op::host, kernels.host, in.host, "sequences", [](const auto& r) { return r.sequences; });
  tabulated(
      Op::layer, in.layers, "tokens", [](const LayerRow& r) { return r.count; },
      [](const LayerTables& tables, const LayerRow& r) {
        return (r.per_sequence ? tables.per_sequence : tables.per_token).contains(r.kernel);
      });
  simple(Op::iteration, kernels.iteration, in.iterations, "tokens", [](const auto& r) { return r.tokens; });
  check.skip(op_name(Op::interference), in.interference.size(), "they give a profile one value, not a fit");
  check.skip(op_name(Op::host_stream), in.host_streams.size(), "they describe a host, not a GPU");
  check.skip(op_name(Op::host_gemm), in.host_gemms.size(), "they describe a host, not a GPU");
  check.skip(op_name(Op::sustained), in.sustained.size(), "they give a profile its sustained clock, not a fit");
  return check.finish();
}

CheckReport check_roofline(const GpuProfile& profile, const Measurements& in) {
  const auto copies = [&](bool to_device) {
    return std::any_of(in.copies.begin(), in.copies.end(),
                       [&](const CopyRow& row) { return row.to_device == to_device; });
  };
  if (copies(true)) profile.need({"h2d_bandwidth", "h2d_launch"}, "the analytic model of copies");
  if (copies(false)) profile.need({"d2h_bandwidth", "d2h_launch"}, "the analytic model of copies");
  CheckLines check(in);
  const auto always = [](const auto&) { return true; };
  std::vector<GemmRow> gemm;
  std::copy_if(in.gemm.begin(), in.gemm.end(), std::back_inserter(gemm),
               [](const GemmRow& row) { return row.dtype_bytes == 2 && row.quantization == Quantization::none; });
  const auto add = [&](Op op, const auto& rows) {
    check.add(std::string(op_name(op)), rows, roofline_ratios(profile, rows), always);
  };
  add(Op::gemm, gemm);
  add(Op::decode_attention, attention_rows(in, true));
  add(Op::prefill_attention, attention_rows(in, false));
  add(Op::elementwise, in.elementwise);
  if (profile.all_reduce) add(Op::all_reduce, in.all_reduce);
  add(Op::copy_h2d, copies_of(in.copies, true));
  add(Op::copy_d2h, copies_of(in.copies, false));
  constexpr std::string_view kNone = "the analytic model has no term for them";
  check.skip("gemm in other than 2-byte numbers", in.gemm.size() - gemm.size(), kNone);
  check.skip(op_name(Op::mixed_attention), in.mixed.size(), kNone);
  check.skip(op_name(Op::cpu_attention), in.cpu_attention.size(), kNone);
  check.skip(op_name(Op::host), in.host.size(), kNone);
  check.skip(op_name(Op::layer), in.layers.size(), kNone);
  check.skip(op_name(Op::iteration), in.iterations.size(), kNone);
  check.skip(op_name(Op::interference), in.interference.size(), kNone);
  check.skip(op_name(Op::host_stream), in.host_streams.size(), kNone);
  check.skip(op_name(Op::host_gemm), in.host_gemms.size(), kNone);
  check.skip(op_name(Op::sustained), in.sustained.size(), kNone);
  check.skip(op_name(Op::moe), in.moe.size(), kNone);
  check.skip(op_name(Op::expert_exchange), in.exchanges.size(), kNone);
  return check.finish();
}

}  // namespace spillway::hwmodels
