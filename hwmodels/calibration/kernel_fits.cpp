#include "hwmodels/calibration/kernel_fits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "hwmodels/calibration/least_squares.hpp"
#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

// Rows of the first stage: more rows take longer and change its few parameters by less than their noise.
constexpr std::size_t kParameterRows = 1200;

// Bytes/s that one streaming multiprocessor can read, whatever its share of the GPU's bandwidth: 64 bytes per clock
// from the L2 cache, as on Volta and later (recalled, not looked up), at 1.8 GHz. Tables of equal lengths do not
// determine the time of one long sequence; without this bound a fit may set it to 0.
constexpr double kSmBytesPerSecond = 64.0 * 1.8e9;
// What one block reads per token of context: keys and values of a head of 128 in 2 bytes.
constexpr double kTokenBytes = 2.0 * 128 * 2;

/// At most kParameterRows rows, spread evenly over the rows in the order of `key`, so that the choice does not depend
/// on the order or the grid of the table.
template <class Row, class Key>
std::vector<Row> thinned(std::span<const Row> rows, const Key& key) {
  std::vector<Row> sorted(rows.begin(), rows.end());
  if (sorted.size() <= kParameterRows) return sorted;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
  const std::vector<std::size_t> order = scattered(sorted.size());
  std::vector<Row> kept;
  for (std::size_t i = 0; i < kParameterRows; ++i) kept.push_back(sorted[order[i]]);
  return kept;
}

/// The variant with the smallest loss.
template <class Model>
struct Best {
  std::optional<Model> model;
  double loss = std::numeric_limits<double>::infinity();
  void offer(Model candidate, double candidate_loss) {
    if (!(candidate_loss < loss) && model) return;  // also rejects NaN
    model = std::move(candidate);
    loss = candidate_loss;
  }
};

/// Calls visit(index, kernel) for each row, with one kernel built for all rows of a shape.
template <class Row, class Key, class Build, class Visit>
void by_shape(std::span<const Row> rows, const Key& key, const Build& build, const Visit& visit) {
  std::map<decltype(key(rows[0])), std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) groups[key(rows[i])].push_back(i);
  for (const auto& [shape, members] : groups) {
    const auto kernel = build(rows[members.front()]);
    for (const std::size_t i : members) visit(i, kernel);
  }
}

auto gemm_key(const GemmRow& row) { return std::tuple(row.n, row.k); }
auto attention_key(const AttentionRow& row) {
  return std::tuple(row.q_heads, row.kv_heads, row.head_dim, row.batch, row.new_tokens, row.context);
}
auto heads_key(const AttentionRow& row) { return std::tuple(row.q_heads, row.kv_heads, row.head_dim); }

GemmTime gemm_time(const GemmModel& model, const GemmRow& row) {
  const double element = real(row.dtype_bytes);
  const double weights = real(row.n) * real(row.k);
  if (row.quantization == Quantization::none) return {model, row.n, row.k, element * weights, element};
  const QuantizationFormat& format = format_of(row.quantization);
  return {model, row.n, row.k, format.weight_bytes() * weights, format.input_bytes, element};
}

AttentionShape shape_of(const AttentionRow& row) {
  return {row.q_heads, row.kv_heads, row.head_dim, 2.0, row.fp8_kv ? 1.0 : 2.0};
}

KernelTime decode_time(const DecodeAttentionTime& kernel, const AttentionRow& row) {
  const double each = real(row.context + row.new_tokens);
  return kernel.at(real(row.batch), real(row.batch) * each, each);
}

KernelTime prefill_time(const PrefillAttentionTime& kernel, const AttentionRow& row) {
  return kernel.equal(real(row.batch), {Tokens(row.new_tokens), Tokens(row.context)});
}

template <class Row, class Key, class Build, class Time>
std::vector<double> ratios_of(std::span<const Row> rows, const Key& key, const Build& build, const Time& time) {
  std::vector<double> ratios(rows.size());
  by_shape(rows, key, build,
           [&](std::size_t i, const auto& kernel) { ratios[i] = time(kernel, rows[i]).seconds / rows[i].seconds; });
  return ratios;
}

std::vector<double> logs_of_inverse(std::vector<double> ratios) {
  std::transform(ratios.begin(), ratios.end(), ratios.begin(), [](double ratio) { return -std::log(ratio); });
  return ratios;
}

/// Fits one variant: `with` makes a model of the parameters, `ratios` predicts the rows with it.
template <class Model, class Row, class With, class Ratios>
void try_variant(Best<Model>& best, const std::vector<double>& start, const std::vector<Row>& rows, const With& with,
                 const Ratios& ratios) {
  const FittedParameters fitted =
      fit_positive(start, rows.size(), [&](std::span<const double> parameters, std::span<double> log_ratios) {
        const std::vector<double> predicted = ratios(with(parameters), rows);
        std::transform(predicted.begin(), predicted.end(), log_ratios.begin(), [](double r) { return std::log(r); });
      });
  best.offer(with(fitted.values), fitted.loss);
}

template <class Row, class Point>
std::vector<ResidualPoint> points_of(std::span<const Row> rows, const Point& point) {
  std::vector<ResidualPoint> points;
  points.reserve(rows.size());
  for (const Row& row : rows) points.push_back(point(row));
  return points;
}

// Lengths and noise: the best of a few settings in cross-validation over whole (n, k) and (heads, KV heads) series of
// A100, H100 and H200 tables. Neighbouring settings differ by less than half a percentage point of median error.
const SurfaceShape kGemmSurface{{1.5, 1.0}, {1.5, 1.5}, 0.3, 600};
const SurfaceShape kDecodeSurface{{4.0, 4.0}, {4.0, 4.0}, 0.05, 600};
const SurfaceShape kPrefillSurface{{4.0, 4.0}, {4.0, 4.0}, 0.15, 600};

/// Whether rows tell the time of the cache write from that of the queries.
bool differ_in_kv_heads(const std::vector<AttentionRow>& rows) {
  std::set<std::int64_t> heads;
  for (const AttentionRow& row : rows) heads.insert(row.kv_heads);
  return heads.size() > 2;
}

/// Of the fresh tokens alone, from calls in which these take at least half of the time.
ResidualSurface fit_prefill_residual(const PrefillAttentionModel& model, std::span<const AttentionRow> rows) {
  std::vector<ResidualPoint> points;
  std::vector<double> logs;
  by_shape(
      rows, heads_key, [&](const AttentionRow& row) { return PrefillAttentionTime(model, shape_of(row)); },
      [&](std::size_t i, const PrefillAttentionTime& kernel) {
        const AttentionRow& row = rows[i];
        const double fresh = kernel.equal(real(row.batch), {Tokens(row.new_tokens), Tokens(0)}).seconds;
        const double rest = row.seconds - (prefill_time(kernel, row).seconds - fresh);
        if (row.context > 0 && rest < 0.5 * row.seconds) return;
        points.push_back(prefill_point(real(row.batch), real(row.new_tokens), row.q_heads, row.kv_heads));
        logs.push_back(std::log(rest / fresh));
      });
  return points.empty() ? ResidualSurface{} : fit_residual(points, logs, kPrefillSurface);
}

}  // namespace

std::vector<double> gemm_ratios(const GemmModel& model, std::span<const GemmRow> rows) {
  return ratios_of(
      rows, gemm_key, [&](const GemmRow& row) { return gemm_time(model, row); },
      [](const GemmTime& kernel, const GemmRow& row) { return kernel.at(row.m); });
}

std::vector<double> decode_ratios(const DecodeAttentionModel& model, std::span<const AttentionRow> rows) {
  return ratios_of(
      rows, heads_key, [&](const AttentionRow& row) { return DecodeAttentionTime(model, shape_of(row)); }, decode_time);
}

std::vector<double> prefill_ratios(const PrefillAttentionModel& model, std::span<const AttentionRow> rows) {
  return ratios_of(
      rows, heads_key, [&](const AttentionRow& row) { return PrefillAttentionTime(model, shape_of(row)); },
      prefill_time);
}

GemmModel fit_gemm(std::span<const GemmRow> rows, const FitHints& hints) {
  const std::vector<GemmRow> few = thinned(rows, [](const GemmRow& row) { return std::tuple(row.n, row.k, row.m); });
  const Quantization quantization = rows.front().quantization;
  const bool quantises = quantization != Quantization::none && format_of(quantization).input_bytes < 2.0;
  // The tensor cores are faster by the ratio of the bits.
  std::vector<double> start{3e-6, 0.8 * hints.flops, 0.85 * hints.bandwidth, 0.1, 64.0, 0.5};
  if (quantises) {
    start[1] *= 16.0 / real(format_of(quantization).bits);
    // The first is now the launch of the quantisation. 0.3 ns per column: one block reads its row twice. Per element
    // two bytes are read and one is written.
    start[0] = 1.5e-6;
    start.insert(start.end(), {3e-10, 3.0 / (0.85 * hints.bandwidth)});
  }
  Best<GemmModel> best;
  for (const double norm : kNormExponents) {
    try_variant(
        best, start, few,
        [&](std::span<const double> p) {
          GemmModel model{hints.sm_count, p[0], p[1], p[2], p[3], p[4], p[5], norm, {}};
          if (quantises) {
            model.launch_seconds = hints.gemm_launch;
            model.edge_loss = hints.edge_loss;
            model.quantise = QuantiseModel{p[0], p[6], p[7]};
          }
          return model;
        },
        gemm_ratios);
  }
  GemmModel model = *best.model;
  const auto points = points_of(rows, [](const GemmRow& row) { return gemm_point(row.m, row.n, row.k); });
  model.residual = fit_residual(points, logs_of_inverse(gemm_ratios(model, rows)), kGemmSurface);
  return model;
}

/// k, from single tokens whose blocks all run at once, so that little but the launch takes time.
std::optional<double> kv_head_seconds(const DecodeAttentionModel& model, std::vector<AttentionRow> singles) {
  std::erase_if(singles, [&](const AttentionRow& row) { return row.batch * row.kv_heads > model.sm_count; });
  if (singles.empty()) return std::nullopt;
  Best<DecodeAttentionModel> best;
  try_variant(
      best, {1e-8}, singles,
      [&](std::span<const double> p) {
        DecodeAttentionModel candidate = model;
        candidate.kv_head_seconds = p[0];
        return candidate;
      },
      decode_ratios);
  return best.model->kv_head_seconds;
}

DecodeAttentionModel fit_decode_attention(std::span<const AttentionRow> rows, const FitHints& hints) {
  std::int64_t most = 0;  // KV heads of decodes
  for (const AttentionRow& row : rows) most = std::max(most, row.decode() ? row.kv_heads : 0);
  // Single tokens without earlier ones, of more KV heads than any decode, tell k and the residual alone.
  std::vector<AttentionRow> decodes;
  std::vector<AttentionRow> singles;
  for (const AttentionRow& row : rows)
    (row.decode() || row.kv_heads <= most || most == 0 ? decodes : singles).push_back(row);
  const std::vector<AttentionRow> few = thinned(std::span<const AttentionRow>(decodes), attention_key);
  Best<DecodeAttentionModel> best;
  for (const bool grouped_only : {false, true}) {
    for (const double norm : kNormExponents) {
      try_variant(
          best, {8e-6, 1e-10, 0.9 * hints.bandwidth, 1e-6, 2e-9, 0.05, 2e-6}, few,
          [&](std::span<const double> p) {
            return DecodeAttentionModel{
                hints.sm_count, p[0], p[1], p[2],         p[3], kTokenBytes / kSmBytesPerSecond + p[4],
                p[5],           p[6], norm, grouped_only, {},   {}};
          },
          decode_ratios);
    }
  }
  DecodeAttentionModel model = *best.model;
  model.kv_head_seconds = kv_head_seconds(model, std::move(singles));
  const auto points = points_of(rows, [](const AttentionRow& row) {
    return decode_point(real(row.batch), real(row.context + row.new_tokens), row.q_heads, row.kv_heads);
  });
  model.residual = fit_residual(points, logs_of_inverse(decode_ratios(model, rows)), kDecodeSurface);
  return model;
}

PrefillAttentionModel fit_prefill_attention(std::span<const AttentionRow> rows, const FitHints& hints) {
  const std::vector<AttentionRow> few = thinned(rows, attention_key);
  const bool behind = std::any_of(few.begin(), few.end(), [](const AttentionRow& row) { return row.context > 0; });
  const double tile = 4.0 * 128 * 128 * 128 * real(hints.sm_count) / (0.65 * hints.flops);
  const auto fit = [&](bool writes, bool own_tile) {
    std::vector<double> start{9e-6, 0.6 * hints.bandwidth, tile, 1e-6, 1.0};
    // A block of 512 threads takes 2 us, and an SM holds four of them.
    if (writes) start.push_back(2e-6 / (4.0 * real(hints.sm_count)));
    if (own_tile) start.push_back(tile);
    Best<PrefillAttentionModel> best;
    for (const bool packed : {false, true}) {
      for (const double norm : kNormExponents) {
        try_variant(
            best, start, few,
            [&](std::span<const double> p) {
              PrefillAttentionModel model{hints.sm_count, p[0], p[1], p[2], p[3], p[4], norm, packed, {}, {}, {}};
              if (writes) model.write_token_seconds = p[5];
              if (behind) model.earlier_tile_seconds = own_tile ? p.back() : p[2];
              return model;
            },
            prefill_ratios);
      }
    }
    return best;
  };
  // More parameters must explain more, because few rows determine them only by others.
  const auto explains = [&](const Best<PrefillAttentionModel>& more, const Best<PrefillAttentionModel>& less) {
    constexpr double kFewerErrors = 0.8;
    constexpr double kNoError = 1e-5;  // of a row: 0.3%
    return more.loss < kFewerErrors * less.loss - kNoError * real(static_cast<std::int64_t>(few.size()));
  };
  const Best<PrefillAttentionModel> plain = fit(false, false);
  const Best<PrefillAttentionModel> written = differ_in_kv_heads(few) ? fit(true, false) : plain;
  const bool writes = explains(written, plain);
  const Best<PrefillAttentionModel>& same = writes ? written : plain;
  const Best<PrefillAttentionModel> other = behind ? fit(writes, true) : same;
  // Tiles of new and earlier tokens are the same work.
  const bool own = explains(other, same);
  PrefillAttentionModel model = own ? *other.model : *same.model;
  model.residual = fit_prefill_residual(model, rows);
  if (!own) return model;
  // Systematic errors of the new tokens, which the residual has taken up now, had bent the time of the earlier ones.
  Best<PrefillAttentionModel> again;
  try_variant(
      again, {*model.earlier_tile_seconds}, few,
      [&](std::span<const double> p) {
        PrefillAttentionModel candidate = model;
        candidate.earlier_tile_seconds = p[0];
        return candidate;
      },
      prefill_ratios);
  model = *again.model;
  model.residual = {};
  model.residual = fit_prefill_residual(model, rows);
  return model;
}

}  // namespace spillway::hwmodels
