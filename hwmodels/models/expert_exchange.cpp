#include "hwmodels/models/expert_exchange.hpp"

#include <algorithm>

#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::array<std::string_view, 5> kBackendNames{"deepep_low_latency", "deepep_normal", "nvlink_one_sided",
                                                        "nvlink_two_sided", "nccl"};
constexpr std::array<std::string_view, 3> kStepNames{"prepare", "dispatch", "combine"};
constexpr std::array<std::string_view, 3> kCopiesNames{"per_expert", "per_gpu", "all_gpus"};

template <class Value, class Names>
std::optional<Value> exchange_named(const Names& names, std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  return it == names.end() ? std::nullopt : std::optional(static_cast<Value>(it - names.begin()));
}

}  // namespace

std::string_view exchange_name(ExchangeBackend backend) { return kBackendNames.at(static_cast<std::size_t>(backend)); }
std::string_view exchange_name(ExchangeStep step) { return kStepNames.at(static_cast<std::size_t>(step)); }
std::string_view exchange_name(ExchangeCopies copies) { return kCopiesNames.at(static_cast<std::size_t>(copies)); }

std::optional<ExchangeBackend> exchange_backend_named(std::string_view name) {
  return exchange_named<ExchangeBackend>(kBackendNames, name);
}
std::optional<ExchangeStep> exchange_step_named(std::string_view name) {
  return exchange_named<ExchangeStep>(kStepNames, name);
}
std::optional<ExchangeCopies> exchange_copies_named(std::string_view name) {
  return exchange_named<ExchangeCopies>(kCopiesNames, name);
}

double exchange_copies(const ExchangeModel& model, std::int64_t top_k) {
  const double ranks = real(model.ranks);
  if (model.copies == ExchangeCopies::per_expert) return real(top_k);
  if (model.copies == ExchangeCopies::all_gpus) return ranks;
  double missed = 1.0;
  for (std::int64_t i = 0; i < top_k; ++i) missed *= 1.0 - 1.0 / ranks;
  return ranks * (1.0 - missed);
}

double exchange_seconds(const ExchangeModel& model, const ExchangeShape& shape) {
  const double bytes = exchange_copies(model, shape.top_k) * real(shape.hidden) * shape.element_bytes;
  const double sent = real(shape.tokens) * (model.token_seconds + model.byte_seconds * bytes);
  return p_norm(model.launch_seconds, sent, model.norm_exponent);
}

}  // namespace spillway::hwmodels
