#include "hwmodels/calibration/moe_fits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "hwmodels/calibration/least_squares.hpp"
#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/numbers.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

// Rows of one fit of parameters, and of each fit that only compares facts of the benchmark.
constexpr std::size_t kMoeParameterRows = 1200;
constexpr std::size_t kComparedRows = 250;

// L2 caches of the GPUs that serve models today, T4 to B200 (datasheets; A100 and A10: 40 and 6 MB).
constexpr std::array<double, 8> kKnownCaches{4.2e6, 6.3e6, 4.19e7, 5.24e7, 7.55e7, 1.007e8, 1.32e8, 2.6e8};

// Tables have few series of some kernels, which then stay near what all kernels of the GPU have in common.
constexpr double kMoePrior = 0.2;

// Of one table: the residual beyond it says something of the call that its neighbours do not share, such as tiles that
// nobody tuned.
constexpr double kLargestResidual = 0.5;

/// Experts of Nemotron-H, which have no gate: hidden size and width differ, experts and top_k are these.
bool has_gate(const MoeRow& row) {
  const bool large = row.experts == 512 && row.top_k == 22;
  const bool small = row.hidden == 2688 && row.intermediate == 1856;
  return !large && !small;
}

struct FormatCase {
  const MoeCase* one = nullptr;
  Quantization quantization = Quantization::none;
};

/// Tensor cores are faster by the ratio of the bits where activations are quantised, too.
double flops_factor(Quantization quantization) {
  const QuantizationFormat& format = format_of(quantization);
  return format.input_bytes < 2.0 ? 16.0 / real(format.bits) : 1.0;
}

constexpr std::size_t kParameters = 13;

std::vector<double> parameters_of(const MoeModel& m) {
  return {m.launch_seconds,    m.flops,          m.bandwidth,           m.edge_rows,          m.prologue,
          m.ragged_loss,       m.pair_seconds,   m.pair_hidden_seconds, m.pair_width_seconds, m.row_hidden_seconds,
          m.row_width_seconds, m.expert_seconds, m.token_hidden_seconds};
}

MoeModel with_parameters(MoeModel model, std::span<const double> p) {
  SPILLWAY_CHECK(p.size() == kParameters, "one value per parameter");
  model.launch_seconds = p[0];
  model.flops = p[1];
  model.bandwidth = p[2];
  model.edge_rows = p[3];
  model.prologue = p[4];
  model.ragged_loss = p[5];
  model.pair_seconds = p[6];
  model.pair_hidden_seconds = p[7];
  model.pair_width_seconds = p[8];
  model.row_hidden_seconds = p[9];
  model.row_width_seconds = p[10];
  model.expert_seconds = p[11];
  model.token_hidden_seconds = p[12];
  return model;
}

/// Launches of 20 us; the traffic of reading and writing activations once or twice at the bandwidth of the memory.
MoeModel first_guess(const FitHints& hints) {
  MoeModel model;
  model.sm_count = hints.sm_count;
  const double element = 4.0 / hints.bandwidth;
  return with_parameters(model, std::array{2e-5, 0.6 * hints.flops, 0.85 * hints.bandwidth, 16.0, 64.0, 0.5, 1e-10,
                                           element / 2.0, element, element, element, 1e-8, element});
}

/// At most `most` of them, evenly spread.
template <class T>
std::vector<T> spread(const std::vector<T>& all, std::size_t most) {
  if (all.size() <= most) return all;
  const std::vector<std::size_t> order = scattered(all.size());
  std::vector<T> kept;
  kept.reserve(most);
  for (std::size_t i = 0; i < most; ++i) kept.push_back(all[order[i]]);
  return kept;
}

struct MoeAttempt {
  MoeModel model;
  double loss = std::numeric_limits<double>::infinity();
};

/// The parameters of one exponent. The FLOP/s are those of 16 bits, scaled for each case.
MoeAttempt fit_parameters(const std::vector<FormatCase>& cases, MoeModel start, double exponent, double cache_bytes) {
  start.norm_exponent = exponent;
  start.residual = {};
  const FittedParameters found = fit_positive(
      parameters_of(start), cases.size(),
      [&](std::span<const double> parameters, std::span<double> log_ratios) {
        MoeModel model = with_parameters(start, parameters);
        for (std::size_t i = 0; i < cases.size(); ++i) {
          const MoeCase& one = *cases[i].one;
          model.quantization = cases[i].quantization;
          model.flops = parameters[1] * flops_factor(model.quantization);
          log_ratios[i] =
              std::log(modelled_moe(model, one.shape, one.tokens, one.load, cache_bytes).seconds / one.seconds);
        }
      },
      kMoePrior);
  return {with_parameters(start, found.values), found.loss};
}

MoeModel fit_exponents(const std::vector<FormatCase>& cases, const MoeModel& start, double cache_bytes) {
  MoeAttempt best;
  const auto offer = [&](const MoeModel& from, double exponent) {
    MoeAttempt fit = fit_parameters(cases, from, exponent, cache_bytes);
    if (fit.loss < best.loss || best.model.sm_count == 0) best = std::move(fit);
  };
  for (const double exponent : {2.0, 4.0, 8.0}) offer(start, exponent);
  return best.model;
}

/// The same for one kernel, which may store its experts padded: gpt-oss's on a B200 takes as long with a width of 90 as
/// with 180, both padded to 256.
MoeModel fit_padded(const std::vector<FormatCase>& cases, MoeModel start, double cache_bytes) {
  const MoeModel plain = fit_exponents(cases, start, cache_bytes);
  MoeAttempt best = fit_parameters(cases, plain, plain.norm_exponent, cache_bytes);
  for (const std::int64_t multiple : {128, 256}) {
    const auto padded = [&](const FormatCase& one) { return one.one->shape.width % multiple != 0; };
    if (std::ranges::none_of(cases, padded)) continue;
    start.width_multiple = multiple;
    MoeAttempt fit{fit_exponents(cases, start, cache_bytes)};
    fit = fit_parameters(cases, fit.model, fit.model.norm_exponent, cache_bytes);
    if (fit.loss < best.loss) best = std::move(fit);
  }
  return best.model;
}

std::vector<FormatCase> in_formats(const std::vector<MoeCase>& cases, const std::vector<MoeRow>& rows) {
  std::vector<FormatCase> all;
  for (std::size_t i = 0; i < cases.size(); ++i) all.push_back({&cases[i], rows[i].quantization});
  return all;
}

/// Some rows of each kernel.
std::vector<std::vector<MoeRow>> by_kernel(std::span<const MoeRow> rows) {
  std::map<std::pair<Quantization, std::string>, std::vector<MoeRow>> kernels;
  for (const MoeRow& row : rows) kernels[{row.quantization, row.kernel}].push_back(row);
  std::vector<std::vector<MoeRow>> some;
  some.reserve(kernels.size());
  for (const auto& [kernel, all] : kernels) some.push_back(spread(all, kComparedRows));
  return some;
}

/// What fits of each kernel leave unexplained.
double total_loss(const std::vector<std::vector<MoeRow>>& kernels, const MoeBenchmark& benchmark,
                  const FitHints& hints) {
  double loss = 0.0;
  for (const std::vector<MoeRow>& rows : kernels) {
    const std::vector<MoeCase> cases = moe_cases(rows, benchmark);
    loss += fit_parameters(in_formats(cases, rows), first_guess(hints), 2.0, benchmark.cache_bytes).loss;
  }
  return loss;
}

/// Coordinates to two decimals, as the profile's text keeps them.
ResidualPoint rounded(ResidualPoint point) {
  for (auto* axis : {&point.work, &point.shape}) {
    for (double& value : *axis) value = std::round(value * 100.0) / 100.0;
  }
  return point;
}

SurfaceShape surface_of(std::size_t cases) {
  // Lengths, noise and anchors: the best of a few settings in cross-validation over whole shapes of the A100, H100,
  // B200 and L40S tables. Twice as many anchors change the median error by less than half a percentage point.
  constexpr std::size_t kFewest = 32;
  constexpr std::size_t kMost = 200;
  return {{2.0, 2.0}, {4.0, 4.0}, 0.3, std::clamp(cases / 5, kFewest, kMost)};
}

}  // namespace

std::vector<MoeCase> moe_cases(std::span<const MoeRow> rows, const MoeBenchmark& benchmark) {
  using Key = std::tuple<std::optional<double>, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Key, MostLoadedRank> ranks;
  std::map<std::pair<const MostLoadedRank*, std::int64_t>, RankLoad> loads;
  const auto ties = benchmark.ties_in_order ? ExpertLoad::Ties::in_order : ExpertLoad::Ties::by_draw;
  std::vector<MoeCase> cases;
  cases.reserve(rows.size());
  for (const MoeRow& row : rows) {
    const Key key{row.power_law, row.top_k, row.experts, row.expert_parallel};
    auto it = ranks.find(key);
    if (it == ranks.end()) {
      const ExpertLoad load = row.power_law ? ExpertLoad::power_law(*row.power_law, ties) : ExpertLoad::balanced();
      it = ranks.emplace(key, MostLoadedRank(load, row.top_k, row.experts, row.expert_parallel)).first;
    }
    const auto [load, fresh] = loads.try_emplace({&it->second, row.tokens});
    if (fresh) load->second = it->second.at(row.tokens);
    const std::int64_t matrices = benchmark.gates_always || has_gate(row) ? 3 : 2;
    cases.push_back(
        {{row.hidden, row.intermediate / row.tensor_parallel, row.top_k, row.experts, row.expert_parallel, matrices},
         row.tokens,
         load->second,
         row.seconds,
         row.place});
  }
  return cases;
}

MoeBenchmark guess_moe_benchmark(std::span<const MoeRow> rows, const FitHints& hints) {
  const std::vector<std::vector<MoeRow>> kernels = by_kernel(rows);
  MoeBenchmark best;
  double least = std::numeric_limits<double>::infinity();
  const auto offer = [&](const MoeBenchmark& candidate) {
    const double loss = total_loss(kernels, candidate, hints);
    if (loss < least) best = candidate;
    least = std::min(least, loss);
  };
  offer(best);
  if (std::any_of(rows.begin(), rows.end(), [](const MoeRow& row) { return row.power_law.has_value(); }))
    offer({best.cache_bytes, best.gates_always, true});
  if (!std::all_of(rows.begin(), rows.end(), has_gate)) offer({best.cache_bytes, true, best.ties_in_order});
  const MoeBenchmark found = best;
  for (const double cache : kKnownCaches) offer({cache, found.gates_always, found.ties_in_order});
  return best;
}

FitHints guess_moe_hints(std::span<const MoeRow> rows) {
  FitHints hints;
  hints.flops = 0.0;
  std::vector<double> bandwidths;
  const std::vector<MoeCase> cases = moe_cases(rows, {});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const MoeCase& one = cases[i];
    const Quantization quantization = rows[i].quantization;
    const double weights = product({one.shape.hidden, one.shape.width, one.shape.matrices});
    hints.flops = std::max(hints.flops, 2.0 * one.load.rows * weights / flops_factor(quantization) / one.seconds);
    bandwidths.push_back(one.load.active * weights * format_of(quantization).weight_bytes() / one.seconds);
  }
  hints.flops *= 1.2;
  // The fastest rows may read their weights from the cache.
  std::sort(bandwidths.begin(), bandwidths.end());
  hints.bandwidth = 1.1 * quantile(bandwidths, 0.9);
  const std::vector<std::vector<MoeRow>> kernels = by_kernel(rows);
  double least = std::numeric_limits<double>::infinity();
  FitHints best = hints;
  for (const std::int64_t count : kKnownSmCounts) {
    hints.sm_count = count;
    const double loss = total_loss(kernels, {}, hints);
    if (loss < least) best = hints;
    least = std::min(least, loss);
  }
  return best;
}

MoeModel fit_moe_start(std::span<const MoeRow> all, const MoeBenchmark& benchmark, const FitHints& hints) {
  const std::vector<MoeRow> rows = spread(std::vector<MoeRow>(all.begin(), all.end()), kMoeParameterRows);
  const std::vector<MoeCase> cases = moe_cases(rows, benchmark);
  return fit_exponents(in_formats(cases, rows), first_guess(hints), benchmark.cache_bytes);
}

MoeModel fit_moe(std::span<const MoeCase> cases, Quantization quantization, const MoeModel& start, double cache_bytes) {
  std::vector<FormatCase> all;
  all.reserve(cases.size());
  for (const MoeCase& one : cases) all.push_back({&one, quantization});
  MoeModel model = fit_padded(spread(all, kMoeParameterRows), start, cache_bytes);
  model.quantization = quantization;
  model.flops *= flops_factor(quantization);
  std::vector<ResidualPoint> points;
  std::vector<double> logs;
  for (const MoeCase& one : cases) {
    points.push_back(rounded(moe_point(one.tokens, one.load, one.shape)));
    const double modelled = modelled_moe(model, one.shape, one.tokens, one.load, cache_bytes).seconds;
    logs.push_back(std::clamp(std::log(one.seconds / modelled), -kLargestResidual, kLargestResidual));
  }
  model.residual = fit_residual(points, logs, surface_of(cases.size()));
  return model;
}

std::vector<double> moe_ratios(const MoeModel& model, std::span<const MoeCase> cases, double cache_bytes) {
  std::map<std::array<double, 2>, ResidualSlice> slices;
  std::vector<double> ratios;
  ratios.reserve(cases.size());
  for (const MoeCase& one : cases) {
    const ResidualPoint point = moe_point(one.tokens, one.load, one.shape);
    auto it = slices.find(point.shape);
    if (it == slices.end()) it = slices.emplace(point.shape, ResidualSlice(model.residual, point.shape)).first;
    const double modelled = modelled_moe(model, one.shape, one.tokens, one.load, cache_bytes).seconds;
    ratios.push_back(modelled * it->second.ratio(point.work) / one.seconds);
  }
  return ratios;
}

}  // namespace spillway::hwmodels
