#include "hwmodels/calibration/exchange_fits.hpp"

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

namespace spillway::hwmodels {
namespace {

constexpr std::size_t kFewestExchanges = 4;

auto model_key(const ExchangeRow& row) { return std::tuple(row.shape.hidden, row.shape.top_k, row.experts); }

/// What a GPU has to send, of each token once.
double own_bytes(const ExchangeRow& row) {
  return real(row.shape.tokens) * real(row.shape.hidden) * row.shape.element_bytes;
}

}  // namespace

ExchangeModel fit_exchange(std::span<const ExchangeRow> rows) {
  const ExchangeRow& first = rows.front();
  const bool many = std::any_of(rows.begin(), rows.end(),
                                [&](const ExchangeRow& row) { return row.shape.hidden != first.shape.hidden; });
  std::vector<ExchangeCopies> variants{ExchangeCopies::per_gpu, ExchangeCopies::per_expert};
  if (first.backend == ExchangeBackend::nccl) variants = {ExchangeCopies::all_gpus};
  // 10 us, 300 GB/s and 1 ns for each token.
  std::vector<double> start{1e-5, 3e-12};
  if (many) start.push_back(1e-9);
  ExchangeModel best;
  double least = std::numeric_limits<double>::infinity();
  for (const ExchangeCopies copies : variants) {
    for (const double exponent : kNormExponents) {
      const auto with = [&](std::span<const double> p) {
        return ExchangeModel{first.backend, first.step, first.ranks, copies, p[0], many ? p[2] : 0.0, p[1], exponent};
      };
      const FittedParameters fit =
          fit_positive(start, rows.size(), [&](std::span<const double> p, std::span<double> log_ratios) {
            const std::vector<double> ratios = exchange_ratios(with(p), rows);
            std::transform(ratios.begin(), ratios.end(), log_ratios.begin(), [](double r) { return std::log(r); });
          });
      if (fit.loss < least) best = with(fit.values);
      least = std::min(least, fit.loss);
    }
  }
  return best;
}

std::vector<double> exchange_ratios(const ExchangeModel& model, std::span<const ExchangeRow> rows) {
  std::vector<double> ratios;
  ratios.reserve(rows.size());
  for (const ExchangeRow& row : rows) ratios.push_back(exchange_seconds(model, row.shape) / row.seconds);
  return ratios;
}

void calibrate_exchanges(const CalibrationTask& task, FittedKernels& out) {
  std::map<std::tuple<ExchangeBackend, ExchangeStep, std::int64_t>, std::vector<ExchangeRow>> kernels;
  for (const ExchangeRow& row : task.in().exchanges) kernels[{row.backend, row.step, row.ranks}].push_back(row);
  for (const auto& [kernel, rows] : kernels) {
    task.begin(Op::expert_exchange);
    task.require_rows(Op::expert_exchange, rows, kFewestExchanges);
    std::set<decltype(model_key(rows.front()))> models;
    for (const ExchangeRow& row : rows) models.insert(model_key(row));
    const bool by_model = models.size() > 1;
    const auto folds = folds_of(rows, [&](const ExchangeRow& row) {
      return std::tuple_cat(model_key(row), std::tuple(by_model ? 0 : row.shape.tokens));
    });
    const auto fit = [](const std::vector<ExchangeRow>& some) { return fit_exchange(some); };
    const auto ratios = [](const ExchangeModel& model, const std::vector<ExchangeRow>& some) {
      return exchange_ratios(model, some);
    };
    FitRecord about = task.record(rows, held_out_ratios(rows, folds, kFewestExchanges, fit, ratios),
                                  by_model ? "whole models" : "numbers of tokens",
                                  {range_of("tokens", rows, [](const ExchangeRow& r) { return r.shape.tokens; }),
                                   range_of("bytes", rows, own_bytes)});
    out.exchanges.push_back({fit(rows), std::move(about)});
  }
}

}  // namespace spillway::hwmodels
