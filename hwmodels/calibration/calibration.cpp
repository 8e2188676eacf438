#include "hwmodels/calibration/calibration.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "hwmodels/calibration/citation.hpp"
#include "hwmodels/calibration/least_squares.hpp"
#include "hwmodels/calibration/measurement_rows.hpp"
#include "hwmodels/calibration/simple_fits.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::size_t kFolds = 5;
// Rows that a fit takes, so that more is known than the model has parameters.
constexpr std::size_t kFewestGemms = 24;
constexpr std::size_t kFewestAttention = 16;
constexpr std::size_t kFewestElementwise = 4;
constexpr std::size_t kFewestCpuAttention = 4;
// SMs of the data-centre and consumer GPUs that serve models today, T4 to B200.
constexpr std::array<std::int64_t, 12> kKnownSmCounts{40, 58, 68, 72, 80, 84, 108, 114, 128, 132, 142, 148};

// Whose decode iterations are put together from held-out kernels: 7B to 70B, with and without grouped heads.
constexpr std::array<std::pair<std::string_view, std::int64_t>, 5> kIterationModels{
    {{"llama-3.1-8b", 1}, {"llama-2-13b", 1}, {"opt-30b", 1}, {"llama-3.1-70b", 4}, {"yi-34b-200k", 2}}};

double real(std::int64_t count) { return static_cast<double>(count); }

template <class Row>
std::vector<Row> decodes_of(const std::vector<Row>& rows, bool decode) {
  std::vector<Row> kept;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept),
               [&](const Row& row) { return row.decode() == decode; });
  return kept;
}

/// A fold of each row: rows with equal keys share one. Keys are dealt out in an order that has nothing to do with their
/// size, so that no fold holds a whole corner of the range.
template <class Row, class Key>
std::vector<std::size_t> folds_of(const std::vector<Row>& rows, const Key& key) {
  std::map<decltype(key(rows[0])), std::size_t> fold;
  for (const Row& row : rows) fold[key(row)] = 0;
  std::vector<std::size_t*> by_key;
  by_key.reserve(fold.size());
  for (auto& [k, value] : fold) by_key.push_back(&value);
  const std::vector<std::size_t> order = scattered(by_key.size());
  for (std::size_t i = 0; i < order.size(); ++i) *by_key[order[i]] = i % kFolds;
  std::vector<std::size_t> folds;
  folds.reserve(rows.size());
  for (const Row& row : rows) folds.push_back(fold[key(row)]);
  return folds;
}

/// What `predict` returns; nothing when the rows that are left leave a parameter open.
template <class Predict>
std::vector<double> unless_open(const Predict& predict) {
  try {
    return predict();
  } catch (const DataError&) {
    return {};
  }
}

/// Predicted / measured of every row by a model that was fitted without its fold; 0 where the other folds leave too
/// little to fit.
template <class Row, class Fit, class Ratios>
std::vector<double> held_out_ratios(const std::vector<Row>& rows, const std::vector<std::size_t>& folds,
                                    std::size_t fewest, const Fit& fit, const Ratios& ratios) {
  std::vector<double> all(rows.size());
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<Row> fitted;
    std::vector<Row> held;
    for (std::size_t i = 0; i < rows.size(); ++i) (folds[i] == fold ? held : fitted).push_back(rows[i]);
    if (held.empty() || fitted.size() < fewest) continue;
    const std::vector<double> some = unless_open([&] { return ratios(fit(fitted), held); });
    std::size_t next = 0;
    for (std::size_t i = 0; i < rows.size() && !some.empty(); ++i) {
      if (folds[i] == fold) all[i] = some[next++];
    }
  }
  return all;
}

/// Of the rows that were predicted.
ErrorSummary summary_of(std::vector<double> ratios) {
  std::erase(ratios, 0.0);
  return summarise(std::move(ratios));
}

template <class Row, class Value>
MeasuredRange range_of(const char* quantity, const std::vector<Row>& rows, const Value& value) {
  MeasuredRange range{quantity, std::numeric_limits<double>::infinity(), 0.0};
  for (const Row& row : rows) {
    range.low = std::min(range.low, static_cast<double>(value(row)));
    range.high = std::max(range.high, static_cast<double>(value(row)));
  }
  return range;
}

[[noreturn]] void too_few(std::string_view op, std::size_t rows, std::size_t fewest, const std::string& where) {
  throw DataError(fmt::format("{} rows of {} are too few to fit: it takes at least {}", rows, op, fewest), where,
                  "measure more shapes, or leave the file out");
}

class Calibration {
 public:
  Calibration(const Measurements& measurements, const CalibrationContext& context,
              const std::function<void(std::string_view)>& progress)
      : in_(measurements), context_(context), progress_(progress) {}

  FittedKernels run() {
    set_hints();
    fit_gemms();
    fit_attention();
    judge_iterations();
    fit_lines();
    fit_curves();
    return std::move(out_);
  }

 private:
  void begin(Op op) const {
    if (progress_) progress_(op_name(op));
  }

  /// What `fit` returns; what is wrong with the rows is told with the files that they come from.
  template <class Row, class Fit>
  auto fitted_to(const std::vector<Row>& rows, const Fit& fit) const {
    try {
      return fit(rows);
    } catch (const DataError& error) {
      std::set<std::string> files;
      for (const Row& row : rows) files.insert(in_.files.at(static_cast<std::size_t>(row.place.file)).path);
      std::vector<Problem> problems = error.problems();
      for (Problem& problem : problems) problem.where = fmt::format("{}: {}", fmt::join(files, ", "), problem.where);
      throw DataError(std::move(problems));
    }
  }

  template <class Row>
  void enough(Op op, const std::vector<Row>& rows, std::size_t fewest) const {
    if (rows.size() < fewest) too_few(op_name(op), rows.size(), fewest, place_text(in_, rows.front().place));
  }

  template <class Row>
  FitRecord record(const std::vector<Row>& rows, std::vector<double> held_out, std::string by,
                   std::vector<MeasuredRange> ranges) const {
    return {"measured",    citation(in_, rows), summary_of(std::move(held_out)),
            std::move(by), std::nullopt,        std::move(ranges)};
  }

  /// Does the base state all that the analytic model takes?
  [[nodiscard]] bool has_analytic() const { return context_.base != nullptr && context_.base->unknown.empty(); }
  /// What the analytic model predicts over what was measured; zeros without one.
  template <class Row>
  std::vector<double> analytic_ratios(const std::vector<Row>& rows) const {
    return has_analytic() ? roofline_ratios(*context_.base, rows) : std::vector<double>(rows.size());
  }
  /// The analytic model's error.
  template <class Row>
  std::optional<ErrorSummary> roofline(const std::vector<Row>& rows) const {
    if (!has_analytic()) return std::nullopt;
    return summarise(roofline_ratios(*context_.base, rows));
  }

  /// As runs name it.
  [[nodiscard]] std::string model_name() const {
    return context_.layer_model.empty() ? std::string() : load_llm(context_.layer_model).file.name;
  }

  void set_hints() {
    const GpuProfile* base = context_.base;
    if (base != nullptr && base->peak_flops > 0.0) hints_.flops = base->peak_flops;
    if (base != nullptr && base->memory_bandwidth.value() > 0.0) hints_.bandwidth = base->memory_bandwidth.value();
    if (in_.device.sm_count) {
      hints_.sm_count = *in_.device.sm_count;
    } else if (base != nullptr && base->sm_count > 0) {
      hints_.sm_count = base->sm_count;
    } else if (!in_.gemm.empty()) {
      guess_from_gemm();
    }
  }

  /// Peak figures from the fastest rows, and the SM count whose waves explain the rows best.
  void guess_from_gemm() {
    begin(Op::gemm);
    double flops = 0.0;
    double bandwidth = 0.0;
    for (const GemmRow& row : in_.gemm) {
      const double weights = real(row.n) * real(row.k);
      flops = std::max(flops, 2.0 * real(row.m) * weights / row.seconds);
      bandwidth = std::max(bandwidth, weights * real(row.dtype_bytes) / row.seconds);
    }
    hints_.flops = 1.2 * flops;
    hints_.bandwidth = 1.1 * bandwidth;
    double least = std::numeric_limits<double>::infinity();
    std::int64_t best = hints_.sm_count;
    for (const std::int64_t count : kKnownSmCounts) {
      FitHints hints = hints_;
      hints.sm_count = count;
      GemmModel model = fit_gemm(in_.gemm, hints);
      model.residual = {};
      const double error = summarise(gemm_ratios(model, in_.gemm)).median;
      if (error < least) best = count;
      least = std::min(least, error);
    }
    hints_.sm_count = best;
  }

  void fit_gemms() {
    std::set<std::int64_t> formats;
    for (const GemmRow& row : in_.gemm) formats.insert(row.dtype_bytes);
    for (const std::int64_t format : formats) {
      begin(Op::gemm);
      std::vector<GemmRow> rows;
      std::copy_if(in_.gemm.begin(), in_.gemm.end(), std::back_inserter(rows),
                   [&](const GemmRow& row) { return row.dtype_bytes == format; });
      enough(Op::gemm, rows, kFewestGemms);
      const auto fit = [&](const std::vector<GemmRow>& some) { return fit_gemm(some, hints_); };
      const auto ratios = [](const GemmModel& model, const std::vector<GemmRow>& some) {
        return gemm_ratios(model, some);
      };
      const auto folds = folds_of(rows, [](const GemmRow& row) { return std::tuple(row.n, row.k); });
      std::vector<double> held_out = held_out_ratios(rows, folds, kFewestGemms, fit, ratios);
      if (format == 2) held_out_gemm_ = {rows, held_out};
      FitRecord about = record(rows, std::move(held_out), "whole (n, k) series",
                               {range_of("m", rows, [](const GemmRow& r) { return r.m; }),
                                range_of("n", rows, [](const GemmRow& r) { return r.n; }),
                                range_of("k", rows, [](const GemmRow& r) { return r.k; })});
      if (format == 2) about.roofline = roofline(rows);
      out_.gemm.push_back({format, fit(rows), std::move(about)});
    }
  }

  template <class Fit, class Ratios>
  auto fit_heads(Op op, const std::vector<AttentionRow>& rows, const Fit& fit, const Ratios& ratios) {
    begin(op);
    enough(op, rows, kFewestAttention);
    std::set<std::tuple<std::int64_t, std::int64_t>> series;
    for (const AttentionRow& row : rows) series.emplace(row.q_heads, row.kv_heads);
    const bool by_heads = series.size() > 1;  // else whole batches are held out
    const auto folds = folds_of(rows, [&](const AttentionRow& row) {
      return by_heads ? std::tuple(row.q_heads, row.kv_heads) : std::tuple(row.batch, row.new_tokens);
    });
    std::vector<double> held_out = held_out_ratios(rows, folds, kFewestAttention, fit, ratios);
    if (op == Op::decode_attention) held_out_decode_ = {rows, held_out};
    FitRecord about = record(rows, std::move(held_out),
                             by_heads ? "whole (heads, KV heads) series" : "whole (batch, new tokens) series",
                             {range_of("batch", rows, [](const AttentionRow& r) { return r.batch; }),
                              range_of("new_tokens", rows, [](const AttentionRow& r) { return r.new_tokens; }),
                              range_of("context", rows, [](const AttentionRow& r) { return r.context; }),
                              range_of("q_heads", rows, [](const AttentionRow& r) { return r.q_heads; }),
                              range_of("kv_heads", rows, [](const AttentionRow& r) { return r.kv_heads; })});
    about.roofline = roofline(rows);
    if (std::any_of(rows.begin(), rows.end(), [](const AttentionRow& row) { return row.stand_in; })) {
      about.citation += "; by cuDNN, not by an engine";
    }
    using Model = decltype(fit(rows));
    return Fitted<Model>{fit(rows), std::move(about)};
  }

  void fit_attention() {
    const std::vector<AttentionRow> decode = decodes_of(in_.attention, true);
    const std::vector<AttentionRow> prefill = decodes_of(in_.attention, false);
    if (!decode.empty()) {
      out_.decode_attention = fit_heads(
          Op::decode_attention, decode, [&](const auto& rows) { return fit_decode_attention(rows, hints_); },
          [](const DecodeAttentionModel& model, const auto& rows) { return decode_ratios(model, rows); });
    }
    if (!prefill.empty()) {
      out_.prefill_attention = fit_heads(
          Op::prefill_attention, prefill, [&](const auto& rows) { return fit_prefill_attention(rows, hints_); },
          [](const PrefillAttentionModel& model, const auto& rows) { return prefill_ratios(model, rows); });
    }
  }

  /// The share of mixed calls that behaves as one fused launch, from a table that holds decodes alone, chunks alone and
  /// both together, of the model that was named.
  void fit_mixed() {
    if (in_.mixed.empty() || context_.layer_model.empty()) return;
    const LlmModel llm = load_llm(context_.layer_model);
    std::vector<AttentionRow> decode;
    std::vector<AttentionRow> prefill;
    std::vector<MixedRow> mixed;
    for (const MixedRow& row : in_.mixed) {
      if (row.chunk > 0 && row.decodes > 0) {
        mixed.push_back(row);
      } else if (row.decodes > 0) {
        decode.push_back({row.decodes, llm.heads, llm.kv_heads, llm.head_dim, 1,
                          std::max<std::int64_t>(row.decode_context, 1) - 1, row.seconds, row.place});
      } else {
        prefill.push_back(
            {1, llm.heads, llm.kv_heads, llm.head_dim, row.chunk, row.chunk_context, row.seconds, row.place});
      }
    }
    constexpr std::size_t kFewest = 16;
    if (decode.size() < kFewest || prefill.size() < kFewest || mixed.size() < kFewest) return;
    begin(Op::mixed_attention);
    const AttentionShape shape{llm.heads, llm.kv_heads, llm.head_dim, 2.0, 2.0};
    const DecodeAttentionTime decode_time(fit_decode_attention(decode, hints_), shape);
    const PrefillAttentionTime prefill_time(fit_prefill_attention(prefill, hints_), shape);
    const auto times = [&](const MixedRow& row) {
      const std::array<PrefillChunk, 1> chunk{{{Tokens(row.chunk), Tokens(row.chunk_context)}}};
      const double each = real(row.decode_context);
      const double all = real(row.decodes) * each;
      return std::pair(decode_time.at(real(row.decodes), all, each).seconds + prefill_time.at(chunk).seconds,
                       prefill_time.at(chunk, real(row.decodes), all, each).seconds);
    };
    const auto ratios = [&](const MixedAttentionModel& model, const std::vector<MixedRow>& rows) {
      std::vector<double> all;
      for (const MixedRow& row : rows) {
        const auto [apart, fused] = times(row);
        all.push_back((apart + model.fused_share * (fused - apart)) / row.seconds);
      }
      return all;
    };
    const auto fit = [&](const std::vector<MixedRow>& rows) { return fit_fused_share(rows, times); };
    std::vector<double> held_out =
        held_out_ratios(mixed, folds_of(mixed, [](const MixedRow& row) { return row.decodes; }), kFewest, fit, ratios);
    const ErrorSummary apart = summarise(ratios({0.0}, mixed));
    FitRecord about = record(mixed, std::move(held_out),
                             fmt::format("whole numbers of decodes; as two launches: {:.1f}% / {:.1f}%",
                                         100.0 * apart.median, 100.0 * apart.p95),
                             {range_of("chunk", mixed, [](const MixedRow& r) { return r.chunk; }),
                              range_of("decodes", mixed, [](const MixedRow& r) { return r.decodes; }),
                              range_of("context", mixed, [](const MixedRow& r) { return r.decode_context; })});
    out_.mixed_attention = Fitted<MixedAttentionModel>{fit(mixed), std::move(about)};
  }

  /// The share in hundredths with the smallest mean of |log(predicted / measured)|.
  template <class Times>
  static MixedAttentionModel fit_fused_share(const std::vector<MixedRow>& rows, const Times& times) {
    std::array<double, 101> loss{};
    for (const MixedRow& row : rows) {
      const auto [apart, fused] = times(row);
      for (std::size_t i = 0; i < loss.size(); ++i) {
        loss[i] +=
            std::abs(std::log((apart + real(static_cast<std::int64_t>(i)) / 100.0 * (fused - apart)) / row.seconds));
      }
    }
    const auto best = std::min_element(loss.begin(), loss.end()) - loss.begin();
    return {static_cast<double>(best) / 100.0};
  }

  /// Whole decode iterations put together from held-out kernels: 32 layers of four multiplications and one attention
  /// call, for the shapes of five models at every batch and context that both were measured at. A shape that was not
  /// measured is replaced by the nearest one that was, in the sum of what was measured as in that of what is predicted.
  void judge_iterations() {
    const std::vector<GemmRow>& gemm = held_out_gemm_.first;
    const std::vector<double>& gemm_ratio = held_out_gemm_.second;
    const std::vector<AttentionRow>& decode = held_out_decode_.first;
    const std::vector<double>& decode_ratio = held_out_decode_.second;
    if (gemm.empty() || decode.empty()) return;
    std::map<std::tuple<std::int64_t, std::int64_t>, std::map<std::int64_t, std::size_t>> by_shape;
    for (std::size_t i = 0; i < gemm.size(); ++i) {
      if (gemm_ratio[i] > 0.0) by_shape[{gemm[i].n, gemm[i].k}][gemm[i].m] = i;
    }
    const auto octaves = [](std::int64_t a, std::int64_t b) { return std::abs(std::log2(real(a) / real(b))); };
    const auto nearest = [&](const Matrix& matrix) {
      return std::min_element(by_shape.begin(), by_shape.end(), [&](const auto& a, const auto& b) {
        const auto distance = [&](const auto& key) {
          return octaves(std::get<0>(key), matrix.outputs) + octaves(std::get<1>(key), matrix.inputs);
        };
        return distance(a.first) < distance(b.first);
      });
    };
    const std::vector<double> gemm_analytic = analytic_ratios(gemm);
    const std::vector<double> decode_analytic = analytic_ratios(decode);
    std::vector<double> sums;
    std::vector<double> analytic_sums;
    for (const auto& [name, tensor_parallel] : kIterationModels) {
      const LlmModel llm = load_llm(name);
      const auto matrices = llm.layer_matrices(tensor_parallel);
      const std::int64_t heads = llm.heads / tensor_parallel;
      const std::int64_t kv_heads = llm.kv_heads_per_gpu(tensor_parallel);
      const auto apart = [&](std::size_t i) {
        return octaves(decode[i].q_heads, heads) + octaves(decode[i].kv_heads, kv_heads);
      };
      // For each batch and context the measured heads nearest to the model's.
      std::map<std::tuple<std::int64_t, std::int64_t>, std::size_t> calls;
      for (std::size_t i = 0; i < decode.size(); ++i) {
        if (decode_ratio[i] <= 0.0) continue;
        const auto [it, fresh] = calls.try_emplace({decode[i].batch, decode[i].context}, i);
        if (!fresh && apart(i) < apart(it->second)) it->second = i;
      }
      for (const auto& [call, i] : calls) {
        double measured = decode[i].seconds;
        double predicted = decode[i].seconds * decode_ratio[i];
        double analytic = decode[i].seconds * decode_analytic[i];
        bool whole = true;
        for (const Matrix& matrix : matrices) {
          const auto& by_tokens = nearest(matrix)->second;
          const auto at = by_tokens.find(std::get<0>(call));
          whole = whole && at != by_tokens.end();
          if (!whole) break;
          measured += gemm[at->second].seconds;
          predicted += gemm[at->second].seconds * gemm_ratio[at->second];
          analytic += gemm[at->second].seconds * gemm_analytic[at->second];
        }
        if (!whole) continue;
        sums.push_back(predicted / measured);  // 32 equal layers cancel
        analytic_sums.push_back(analytic / measured);
      }
    }
    out_.decode_iteration =
        FitRecord{"measured",
                  "sums of the held-out kernels of gemm and decode_attention, five model shapes",
                  summarise(std::move(sums)),
                  "whole (n, k) and (heads, KV heads) series",
                  has_analytic() ? std::optional(summarise(std::move(analytic_sums))) : std::nullopt,
                  {}};
  }

  template <class Row, class Fit, class Key>
  auto fit_folds(Op op, const std::vector<Row>& rows, std::size_t fewest, const Fit& fit, const Key& key,
                 std::string by, std::vector<MeasuredRange> ranges) {
    begin(op);
    enough(op, rows, fewest);
    const auto predict = [](const auto& model, const std::vector<Row>& some) { return ratios(model, some); };
    std::vector<double> held_out = held_out_ratios(rows, folds_of(rows, key), fewest, fit, predict);
    using Model = decltype(fit(rows));
    return Fitted<Model>{fitted_to(rows, fit), record(rows, std::move(held_out), std::move(by), std::move(ranges))};
  }

  void fit_lines() {
    if (!in_.elementwise.empty()) {
      out_.elementwise = fit_folds(
          Op::elementwise, in_.elementwise, kFewestElementwise, [](const auto& rows) { return fit_elementwise(rows); },
          [](const ElementwiseRow& row) { return row.kernel; }, "whole kernels",
          {range_of("bytes", in_.elementwise, [](const ElementwiseRow& r) { return r.bytes; })});
      out_.elementwise->record.roofline = roofline(in_.elementwise);
    }
    if (!in_.cpu_attention.empty()) {
      out_.cpu_attention = fit_folds(
          Op::cpu_attention, in_.cpu_attention, kFewestCpuAttention,
          [](const auto& rows) { return fit_cpu_attention(rows); },
          [](const CpuAttentionRow& row) { return std::tuple(row.threads, row.batch); },
          "whole (threads, batch) series",
          {range_of("threads", in_.cpu_attention, [](const CpuAttentionRow& r) { return r.threads; }),
           range_of("kv_bytes", in_.cpu_attention, [](const CpuAttentionRow& r) { return r.kv_bytes; })});
    }
    if (!in_.host.empty()) {
      out_.host = fit_folds(
          Op::host, in_.host, 3, [](const auto& rows) { return fit_host(rows); },
          [](const HostRow& row) { return std::tuple(row.sequences, row.tensor_parallel); },
          "whole (sequences, tensor_parallel) series",
          {range_of("sequences", in_.host, [](const HostRow& r) { return r.sequences; })});
    }
    if (!in_.iterations.empty()) {
      out_.iteration = fit_folds(
          Op::iteration, in_.iterations, 4, [](const auto& rows) { return fit_iterations(rows); },
          [](const IterationRow& row) { return row.tokens; }, "all iterations of a number of tokens",
          {range_of("tokens", in_.iterations, [](const IterationRow& r) { return r.tokens; }),
           range_of("context", in_.iterations, [](const IterationRow& r) { return r.context; })});
      out_.iteration->model.model = model_name();
    }
  }

  /// Of one curve, the error of every second size when it is predicted from the others. The ends stay, as no curve is
  /// judged beyond what was measured.
  template <class Row, class Size>
  static std::pair<std::vector<Row>, std::vector<Row>> every_second(const std::vector<Row>& rows, const Size& size) {
    std::set<double> sizes;
    for (const Row& row : rows) sizes.insert(size(row));
    std::set<double> held;
    std::size_t index = 0;
    for (const double s : sizes) {
      if (index % 2 == 1 && index + 1 < sizes.size()) held.insert(s);
      ++index;
    }
    std::pair<std::vector<Row>, std::vector<Row>> split;
    for (const Row& row : rows) (held.contains(size(row)) ? split.second : split.first).push_back(row);
    return split;
  }

  void fit_curves() {
    fit_mixed();
    if (!in_.all_reduce.empty()) fit_reductions();
    if (!in_.copies.empty()) fit_links();
    if (!in_.layers.empty() || !in_.mixed.empty()) fit_tables();
  }

  void fit_reductions() {
    begin(Op::all_reduce);
    std::vector<double> held_out;
    std::map<std::int64_t, std::vector<AllReduceRow>> by_ranks;
    for (const AllReduceRow& row : in_.all_reduce) by_ranks[row.ranks].push_back(row);
    for (const auto& [ranks, rows] : by_ranks) {
      const auto [fitted, held] = every_second(rows, [](const AllReduceRow& row) { return real(row.bytes); });
      if (held.empty()) continue;
      const std::vector<double> some = ratios(fit_all_reduce(fitted), held);
      held_out.insert(held_out.end(), some.begin(), some.end());
    }
    FitRecord about = record(in_.all_reduce, std::move(held_out), "every second size",
                             {range_of("ranks", in_.all_reduce, [](const AllReduceRow& r) { return r.ranks; }),
                              range_of("bytes", in_.all_reduce, [](const AllReduceRow& r) { return r.bytes; })});
    if (context_.base != nullptr && context_.base->all_reduce) {
      about.roofline = summarise(roofline_ratios(*context_.base, in_.all_reduce));
    }
    out_.all_reduce = Fitted<AllReduceModel>{fit_all_reduce(in_.all_reduce), std::move(about)};
  }

  /// Sizes from which a copy is judged against the bandwidth; smaller ones are a table.
  static constexpr std::int64_t kLargeCopy = 65'536;

  /// Every block size but the ends predicted from its neighbours: once those at even places, once those at odd ones.
  static std::vector<std::pair<std::int64_t, double>> held_out_copies(const std::vector<CopyRow>& rows) {
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

  void fit_links() {
    begin(Op::copy_h2d);
    std::map<std::tuple<bool, CopyMechanism>, std::vector<CopyRow>> kinds;
    for (const CopyRow& row : in_.copies) {
      if (!row.duplex) kinds[{row.to_device, row.mechanism}].push_back(row);
    }
    for (const auto& [kind, rows] : kinds) {
      std::vector<double> large;
      std::vector<double> small;
      for (const auto& [size, ratio] : held_out_copies(rows)) (size >= kLargeCopy ? large : small).push_back(ratio);
      std::string by = "block sizes of at least 64 KiB, from their neighbours";
      if (!small.empty()) {
        const ErrorSummary below = summarise(small);
        by += fmt::format("; below, {} sizes: {:.1f}% / {:.1f}%", below.n, 100.0 * below.median, 100.0 * below.p95);
      }
      FitRecord about = record(rows, std::move(large), std::move(by),
                               {range_of("block_bytes", rows, [](const CopyRow& r) { return r.block_bytes; })});
      // The analytic model's own link is the line through a loop of copies, or one copy.
      const CopyMechanism mechanism = std::get<1>(kind);
      if (has_analytic() && mechanism != CopyMechanism::many && mechanism != CopyMechanism::single) {
        std::vector<CopyRow> judged;
        std::copy_if(rows.begin(), rows.end(), std::back_inserter(judged),
                     [](const CopyRow& row) { return row.block_bytes >= kLargeCopy; });
        if (!judged.empty()) about.roofline = summarise(roofline_ratios(*context_.base, judged));
      }
      std::vector<CopyModel> models = fitted_to(rows, [](const auto& some) { return fit_copies(some); });
      for (CopyModel& model : models) {
        cap_at_peak(model);
        out_.copies.push_back({std::move(model), about});
      }
    }
  }

  /// The slope between two sizes may exceed what the link can carry, by the noise of both.
  void cap_at_peak(CopyModel& model) const {
    const double peak = context_.base == nullptr ? 0.0 : context_.base->host_link_peak.value();
    if (peak > 0.0 && model.mechanism != CopyMechanism::peer) model.bandwidth = std::min(model.bandwidth, peak);
  }

  /// Attention between the points of its grid: of each axis in turn every second value inside is left out.
  std::string attention_error() const {
    std::vector<double> predicted;
    const auto leave_out = [&](const auto& value) {
      const auto [some, others] = every_second(in_.mixed, [&](const MixedRow& row) { return real(value(row)); });
      if (others.empty()) return;
      const std::vector<double> ratios_of_axis =
          unless_open([&, &kept = some, &held = others] { return ratios(tabulate_layers({}, kept), held); });
      predicted.insert(predicted.end(), ratios_of_axis.begin(), ratios_of_axis.end());
    };
    leave_out([](const MixedRow& row) { return row.chunk; });
    leave_out([](const MixedRow& row) { return row.chunk_context; });
    leave_out([](const MixedRow& row) { return row.decodes; });
    leave_out([](const MixedRow& row) { return row.decode_context; });
    const ErrorSummary error = summary_of(std::move(predicted));
    if (error.n == 0) return "; attention: no row could be held out";
    return fmt::format("; attention, every second value of an axis: {:.1f}% / {:.1f}%", 100.0 * error.median,
                       100.0 * error.p95);
  }

  void fit_tables() {
    // Mixed calls that lie on no grid tell of two launches or one, and make no table.
    if (in_.layers.empty() && unless_open([&] { return tabulate_layers({}, in_.mixed).attention_seconds; }).empty() &&
        !in_.mixed.empty()) {
      if (!out_.mixed_attention) {
        static_cast<void>(fitted_to(in_.mixed, [&](const auto& mixed) { return tabulate_layers({}, mixed); }));
      }
      return;
    }
    begin(Op::layer);
    FitRecord about{"measured", {}, {}, "every second size of each kernel", std::nullopt, {}};
    std::vector<double> held_out;
    std::map<std::tuple<std::string, bool>, std::vector<LayerRow>> kernels;
    for (const LayerRow& row : in_.layers) kernels[{row.kernel, row.per_sequence}].push_back(row);
    std::vector<LayerRow> fitted;
    std::vector<LayerRow> held;
    for (const auto& [kernel, rows] : kernels) {
      const auto [some, others] = every_second(rows, [](const LayerRow& row) { return real(row.count); });
      fitted.insert(fitted.end(), some.begin(), some.end());
      held.insert(held.end(), others.begin(), others.end());
    }
    if (!held.empty()) held_out = ratios(tabulate_layers(fitted, {}), held);
    about.held_out = summary_of(std::move(held_out));
    about.citation = citation(in_, in_.layers);
    if (!in_.mixed.empty()) {
      about.citation += (about.citation.empty() ? "" : "; ") + citation(in_, in_.mixed);
      about.ranges = {range_of("chunk", in_.mixed, [](const MixedRow& r) { return r.chunk; }),
                      range_of("decodes", in_.mixed, [](const MixedRow& r) { return r.decodes; }),
                      range_of("context", in_.mixed,
                               [](const MixedRow& r) { return std::max(r.decode_context, r.chunk_context); })};
    }
    if (!in_.layers.empty()) {
      about.ranges.push_back(range_of("tokens", in_.layers, [](const LayerRow& r) { return r.count; }));
    }
    if (!in_.mixed.empty()) about.held_out_by += attention_error();
    LayerTables tables =
        in_.mixed.empty() ? tabulate_layers(in_.layers, in_.mixed)
                          : fitted_to(in_.mixed, [&](const auto& mixed) { return tabulate_layers(in_.layers, mixed); });
    tables.model = model_name();
    out_.layers = Fitted<LayerTables>{std::move(tables), std::move(about)};
  }

  const Measurements& in_;
  const CalibrationContext& context_;
  const std::function<void(std::string_view)>& progress_;
  FitHints hints_;
  FittedKernels out_;
  // Rows and their held-out predicted / measured.
  std::pair<std::vector<GemmRow>, std::vector<double>> held_out_gemm_;
  std::pair<std::vector<AttentionRow>, std::vector<double>> held_out_decode_;
};

bool inside(const FitRecord& record, const char* quantity, double value) {
  const auto it = std::find_if(record.ranges.begin(), record.ranges.end(),
                               [&](const MeasuredRange& range) { return range.quantity == quantity; });
  return it == record.ranges.end() || (value >= it->low && value <= it->high);
}

/// Collects the lines of a check.
class Checker {
 public:
  explicit Checker(const Measurements& measurements) : in_(measurements) {}

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

/// Erases groups of rows that are not `enough` and all come from files of the microbenchmarks, and says so.
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

constexpr std::string_view kNoModel = "the profile has no fit for them";

}  // namespace

std::vector<std::string> leave_out_scarce(Measurements& in) {
  std::vector<std::string> notes;
  const auto at_least = [](std::size_t fewest) { return [=](const auto& rows) { return rows.size() >= fewest; }; };
  leave_out_groups(
      in, in.gemm, [](const GemmRow& row) { return fmt::format("gemm in {}-byte numbers", row.dtype_bytes); },
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
  return Calibration(measurements, context, progress).run();
}

CheckReport check_profile(const GpuProfile& profile, const Measurements& in) {
  const FittedKernels& kernels = profile.fitted;
  Checker check(in);
  std::map<std::int64_t, std::vector<GemmRow>> formats;
  for (const GemmRow& row : in.gemm) formats[row.dtype_bytes].push_back(row);
  for (const auto& [format, rows] : formats) {
    const auto gemm = std::find_if(kernels.gemm.begin(), kernels.gemm.end(),
                                   [bytes = format](const FittedGemm& g) { return g.dtype_bytes == bytes; });
    if (gemm == kernels.gemm.end()) {
      check.skip(fmt::format("gemm in {}-byte numbers", format), rows.size(), kNoModel);
      continue;
    }
    check.add("gemm" + (format == 2 ? std::string() : fmt::format(" {}-byte", format)), rows,
              gemm_ratios(gemm->model, rows), [&](const GemmRow& r) {
                return inside(gemm->record, "m", real(r.m)) && inside(gemm->record, "n", real(r.n)) &&
                       inside(gemm->record, "k", real(r.k));
              });
  }
  const auto attention = [&](Op op, const auto& fitted, const auto& predict) {
    const std::vector<AttentionRow> rows = decodes_of(in.attention, op == Op::decode_attention);
    if (!fitted) return check.skip(op_name(op), rows.size(), kNoModel);
    check.add(std::string(op_name(op)), rows, predict(fitted->model, rows), [&](const AttentionRow& r) {
      return inside(fitted->record, "batch", real(r.batch)) && inside(fitted->record, "context", real(r.context)) &&
             inside(fitted->record, "new_tokens", real(r.new_tokens)) &&
             inside(fitted->record, "q_heads", real(r.q_heads)) && inside(fitted->record, "kv_heads", real(r.kv_heads));
    });
  };
  attention(Op::decode_attention, kernels.decode_attention,
            [](const auto& model, const auto& rows) { return decode_ratios(model, rows); });
  attention(Op::prefill_attention, kernels.prefill_attention,
            [](const auto& model, const auto& rows) { return prefill_ratios(model, rows); });
  const auto simple = [&](Op op, const auto& fitted, const auto& rows, const char* quantity, const auto& value) {
    if (!fitted) return check.skip(op_name(op), rows.size(), kNoModel);
    check.add(std::string(op_name(op)), rows, ratios(fitted->model, rows),
              [&](const auto& row) { return inside(fitted->record, quantity, static_cast<double>(value(row))); });
  };
  // Of the rows of tables those that the tables tell of.
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
  simple(Op::all_reduce, kernels.all_reduce, in.all_reduce, "bytes", [](const auto& r) { return r.bytes; });
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
  check.skip(op_name(Op::host_stream), in.host_streams.size(), "they tell of a host, not of a GPU");
  return check.finish();
}

CheckReport check_roofline(const GpuProfile& profile, const Measurements& in) {
  const auto copies = [&](bool to_device) {
    return std::any_of(in.copies.begin(), in.copies.end(),
                       [&](const CopyRow& row) { return row.to_device == to_device; });
  };
  if (copies(true)) profile.need({"h2d_bandwidth", "h2d_launch"}, "the analytic model of copies");
  if (copies(false)) profile.need({"d2h_bandwidth", "d2h_launch"}, "the analytic model of copies");
  Checker check(in);
  const auto always = [](const auto&) { return true; };
  std::vector<GemmRow> gemm;
  std::copy_if(in.gemm.begin(), in.gemm.end(), std::back_inserter(gemm),
               [](const GemmRow& row) { return row.dtype_bytes == 2; });
  const auto add = [&](Op op, const auto& rows) {
    check.add(std::string(op_name(op)), rows, roofline_ratios(profile, rows), always);
  };
  add(Op::gemm, gemm);
  add(Op::decode_attention, decodes_of(in.attention, true));
  add(Op::prefill_attention, decodes_of(in.attention, false));
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
  return check.finish();
}

namespace {

template <class Row, class Seconds>
std::vector<double> each_ratio(std::span<const Row> rows, const Seconds& seconds) {
  std::vector<double> ratios;
  ratios.reserve(rows.size());
  for (const Row& row : rows) ratios.push_back(seconds(row) / row.seconds);
  return ratios;
}

}  // namespace

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const GemmRow> rows) {
  return each_ratio(rows, [&](const GemmRow& row) {
    const double m = real(row.m);
    const double n = real(row.n);
    const double k = real(row.k);
    const double compute = 2.0 * m * n * k / (gpu.gemm_compute_efficiency * gpu.peak_flops);
    const double bytes = real(row.dtype_bytes) * (n * k + m * k + m * n);
    const double memory = bytes / (gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value());
    return gpu.kernel_overhead_seconds + std::max(compute, memory);
  });
}

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const AttentionRow> rows) {
  return each_ratio(rows, [&](const AttentionRow& row) {
    const double fresh = real(row.new_tokens);
    const double context = real(row.context);
    const double batch = real(row.batch);
    const double kv = 4.0 * real(row.kv_heads * row.head_dim) * (context + fresh);  // 2 bytes, K and V
    const double query = 4.0 * real(row.q_heads * row.head_dim) * fresh;            // 2 bytes, in and out
    const double memory = batch * (kv + query) / (gpu.decode_attention_efficiency * gpu.memory_bandwidth.value());
    if (row.decode()) return gpu.attention_overhead_seconds + memory;
    const double pairs = batch * (fresh * context + 0.5 * fresh * (fresh + 1.0));
    const double compute =
        4.0 * real(row.q_heads * row.head_dim) * pairs / (gpu.prefill_attention_efficiency * gpu.peak_flops);
    return gpu.attention_overhead_seconds + std::max(compute, memory);
  });
}

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const ElementwiseRow> rows) {
  return each_ratio(rows, [&](const ElementwiseRow& row) {
    return gpu.kernel_overhead_seconds + row.bytes / (gpu.gemm_memory_efficiency * gpu.memory_bandwidth.value());
  });
}

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const CopyRow> rows) {
  return each_ratio(rows, [&](const CopyRow& row) {
    const HostLink& link = row.to_device ? gpu.h2d : gpu.d2h;
    return real(row.copies) * (link.launch_seconds + real(row.block_bytes) / link.bandwidth.value());
  });
}

std::vector<double> roofline_ratios(const GpuProfile& gpu, std::span<const AllReduceRow> rows) {
  return each_ratio(rows, [&](const AllReduceRow& row) {
    const double moved = 2.0 * real(row.ranks - 1) / real(row.ranks) * real(row.bytes);
    return gpu.all_reduce->latency_seconds + moved / gpu.all_reduce->bus_bandwidth.value();
  });
}

}  // namespace spillway::hwmodels
