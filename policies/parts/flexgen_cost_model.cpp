#include "policies/parts/flexgen_cost_model.hpp"

#include <fmt/format.h>
#include <glpk.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policies/parts/quantities.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kTera = 1e12;
// Relative amount by which rounding may lift a peak above the limit.
constexpr double kFitTolerance = 1e-7;
// Throughputs with a smaller relative difference count as equal: rounding errors are far smaller, the effect of one
// more batch is far larger.
constexpr double kRise = 1e-9;

// ---------------------------------------------------------------------------------------------------------------------
// The model: every term is linear in the nine shares.

constexpr std::size_t kShares = 9;

struct Linear {
  std::array<double, kShares> slope{};
  double constant = 0.0;

  Linear& operator+=(const Linear& other) {
    for (std::size_t i = 0; i < kShares; ++i) slope[i] += other.slope[i];
    constant += other.constant;
    return *this;
  }
  friend Linear operator+(Linear a, const Linear& b) { return a += b; }
  friend Linear operator+(Linear a, double b) {
    a.constant += b;
    return a;
  }
  friend Linear operator*(double factor, Linear a) {
    for (double& s : a.slope) s *= factor;
    a.constant *= factor;
    return a;
  }
  [[nodiscard]] double at(const std::array<double, kShares>& shares) const {
    double sum = constant;
    for (std::size_t i = 0; i < kShares; ++i) sum += slope[i] * shares[i];
    return sum;
  }
};

Linear share(std::size_t index) {
  Linear variable;
  variable.slope[index] = 1.0;
  return variable;
}

struct Terms {
  Linear h2d, d2h, disk_read, disk_write, compute;

  [[nodiscard]] FlexgenTerms at(const std::array<double, kShares>& shares) const {
    return {h2d.at(shares), d2h.at(shares), disk_read.at(shares), disk_write.at(shares), compute.at(shares)};
  }
};

struct CostModel {
  Terms prefill, decode;
  Linear gpu_prefill, gpu_decode, cpu_prefill, cpu_decode, disk;  // peaks, bytes
};

CostModel cost_model(const FlexgenModel& model, const FlexgenWorkload& workload, const FlexgenHardware& hw,
                     std::int64_t gpu_batch, double block) {
  const Linear wg = share(0), wc = share(1), wn = share(2);
  const Linear cg = share(3), cc = share(4), cn = share(5);
  const Linear hg = share(6), hc = share(7), hn = share(8);
  const Linear weights_off = wc + wn, cache_off = cc + cn, hidden_off = hc + hn;  // off the GPU

  const double layers = real(model.layers);
  const double h1 = real(model.hidden);
  const double h2 = real(model.ffn);
  const double q = real(model.query);
  const double k = real(model.kv);
  const double nh = real(model.heads);
  const double s = real(workload.prompt);
  const double n = real(workload.generated);
  const double gbs = real(gpu_batch);

  // Bytes of a layer: its weights, and a request block's cache and hidden states.
  const double weights = model.layer_bytes();
  const double prompt_cache = 4.0 * (s + 1.0) * k * block;
  const double mean_cache = 4.0 * (s + n / 2.0) * k * block;
  const double final_cache = 4.0 * (s + n) * k * block;
  const double new_cache = 4.0 * k * block;
  const double prompt_hidden = 2.0 * s * h1 * block;
  const double new_hidden = 2.0 * h1 * block;

  CostModel m;
  m.prefill.h2d = 1.0 / hw.h2d * (weights * weights_off + prompt_hidden * hidden_off);
  m.prefill.d2h = prompt_cache / hw.d2h_cache * cache_off + prompt_hidden / hw.d2h_hidden * hidden_off;
  m.prefill.disk_read = 1.0 / hw.disk_read * (weights * wn + prompt_hidden * hn);
  m.prefill.disk_write =
      prompt_cache / hw.disk_write_cache_prefill * cn + prompt_hidden / hw.disk_write_hidden_prefill * hn;
  m.prefill.compute.constant = block * s * weights / hw.gemm_prefill + 4.0 * block * s * s * q / hw.attention_prefill;

  // Inputs and outputs of CPU attention have the size of a token, so the model does not count them as traffic.
  const double attention_flop = 4.0 * block * (s + n / 2.0) * q;
  m.decode.h2d = 1.0 / hw.h2d * (weights * weights_off + new_hidden * hidden_off);
  m.decode.d2h = new_hidden / hw.d2h_hidden * hidden_off;
  m.decode.disk_read = 1.0 / hw.disk_read * (mean_cache * cn + weights * wn + new_hidden * hn);
  m.decode.disk_write = 1.0 / hw.disk_write_decode * (new_cache * cn + new_hidden * hn);
  m.decode.compute = attention_flop / hw.attention_decode * cg +
                     attention_flop / cpu_attention_rate(hw, gpu_batch, model.hidden) * cache_off +
                     block * weights / hw.gemm_decode;

  // GPU: resident data, two buffers for weights that are not resident, one for a batch's hidden states, and the
  // intermediates of a GPU batch: inputs and outputs of the QKV projection, queries, keys and scores, the embedding,
  // the MLP. In decode, the intermediates of attention cover only the GPU's part of the cache.
  const double projected = 2.0 * h1 + 2.0 * q + 4.0 * k;
  const Linear buffers = 2.0 * weights * weights_off;
  m.gpu_prefill = layers * (weights * wg + final_cache * cg) + prompt_hidden * hg + buffers +
                  2.0 * s * h1 * gbs * hidden_off +
                  gbs * s * (projected + (2.0 * q + 2.0 * k + 2.0 * nh * s) + 4.0 * h1 + 2.0 * (h1 + h2));
  m.gpu_decode = layers * (weights * wg + final_cache * cg) + new_hidden * hg + buffers + 2.0 * h1 * gbs * hidden_off +
                 gbs * (2.0 * q + (s + n) * (2.0 * k + 2.0 * nh)) * cg + gbs * (projected + 4.0 * h1 + 2.0 * (h1 + h2));

  // CPU: resident data and data that passes through. After a decode also the two buffers for a batch's cache from disk,
  // and the scores and results of its attention.
  m.cpu_prefill = layers * (weights * wc + final_cache * cc) + prompt_hidden * hc + weights * weights_off +
                  2.0 * s * h1 * gbs * hidden_off;
  m.cpu_decode = layers * (weights * wc + final_cache * cc) + new_hidden * hc + weights * wn + 2.0 * h1 * gbs * hn +
                 2.0 * 4.0 * (s + n) * k * gbs * cn + gbs * (2.0 * nh * (s + n) + 2.0 * q) * cache_off;

  m.disk = layers * (weights * wn + final_cache * cn) + prompt_hidden * hn;
  return m;
}

FlexgenEstimate estimate(const FlexgenModel& model, const FlexgenWorkload& workload, const FlexgenHardware& hw,
                         const FlexgenPolicy& policy) {
  const CostModel m = cost_model(model, workload, hw, policy.gpu_batch, policy.block());
  const std::array<double, kShares> shares{policy.weights.gpu, policy.weights.cpu, policy.weights.disk,
                                           policy.cache.gpu,   policy.cache.cpu,   policy.cache.disk,
                                           policy.hidden.gpu,  policy.hidden.cpu,  policy.hidden.disk};
  FlexgenEstimate e;
  e.prefill = m.prefill.at(shares);
  e.decode = m.decode.at(shares);
  e.prefill_layer =
      std::max({e.prefill.h2d + e.prefill.disk_read, e.prefill.d2h + e.prefill.disk_write, e.prefill.compute});
  e.decode_layer = e.decode.h2d + std::max({e.decode.d2h, e.decode.disk_read, e.decode.disk_write, e.decode.compute});
  e.total = real(model.layers) * (e.prefill_layer + real(workload.generated - 1) * e.decode_layer);
  e.throughput = policy.block() * real(workload.generated) / e.total;
  e.gpu_peak = std::max(m.gpu_prefill.at(shares), m.gpu_decode.at(shares));
  e.cpu_peak = std::max(m.cpu_prefill.at(shares), m.cpu_decode.at(shares));
  e.disk_peak = m.disk.at(shares);
  const double limit = hw.usable * (1.0 + kFitTolerance);
  e.fits = e.gpu_peak <= limit * hw.gpu_memory && e.cpu_peak <= limit * hw.cpu_memory &&
           e.disk_peak <= limit * hw.disk_memory;
  return e;
}

// ---------------------------------------------------------------------------------------------------------------------
// Ranges of the arguments.

class Problems {
 public:
  void unless(bool good, std::string_view name, double value, std::string_view range) {
    if (good) return;
    problems_.push_back({fmt::format("{} is {}, but must be {}", name, value, range), "FlexGen's cost model", {}});
  }
  void at_least_one(std::string_view name, std::int64_t value) { unless(value >= 1, name, real(value), "at least 1"); }
  void positive(std::string_view name, double value) {
    unless(std::isfinite(value) && value > 0.0, name, value, "positive and finite");
  }
  void not_negative(std::string_view name, double value) {
    unless(std::isfinite(value) && value >= 0.0, name, value, "finite and not negative");
  }
  void report() const {
    if (!problems_.empty()) throw ConfigError(problems_);
  }

 private:
  std::vector<Problem> problems_;
};

void check(Problems& problems, const FlexgenModel& model, const FlexgenWorkload& workload, const FlexgenHardware& hw) {
  problems.at_least_one("layers", model.layers);
  problems.at_least_one("hidden size", model.hidden);
  problems.at_least_one("FFN size", model.ffn);
  problems.at_least_one("heads", model.heads);
  problems.at_least_one("width of queries", model.query);
  problems.at_least_one("width of keys", model.kv);
  problems.at_least_one("prompt length", workload.prompt);
  problems.at_least_one("generated tokens", workload.generated);
  for (const auto& [name, value] : {std::pair<std::string_view, double>{"H2D bandwidth", hw.h2d},
                                    {"D2H bandwidth of the cache", hw.d2h_cache},
                                    {"D2H bandwidth of hidden states", hw.d2h_hidden},
                                    {"disk read bandwidth", hw.disk_read},
                                    {"disk write bandwidth of the cache in prefill", hw.disk_write_cache_prefill},
                                    {"disk write bandwidth of hidden states in prefill", hw.disk_write_hidden_prefill},
                                    {"disk write bandwidth in decode", hw.disk_write_decode},
                                    {"GEMM rate in prefill", hw.gemm_prefill},
                                    {"GEMM rate in decode", hw.gemm_decode},
                                    {"attention rate in prefill", hw.attention_prefill},
                                    {"attention rate in decode", hw.attention_decode},
                                    {"CPU attention rate", hw.cpu_attention},
                                    {"GPU memory", hw.gpu_memory},
                                    {"CPU memory", hw.cpu_memory}}) {
    problems.positive(name, value);
  }
  problems.not_negative("disk", hw.disk_memory);
  problems.not_negative("CPU rate's factor of batch and hidden size", hw.cpu_batch_and_hidden);
  problems.not_negative("CPU rate's factor of batch", hw.cpu_batch);
  problems.not_negative("CPU rate's factor of hidden size", hw.cpu_hidden);
  problems.unless(hw.usable > 0.0 && hw.usable <= 1.0, "usable share of memory", hw.usable, "in (0, 1]");
}

void check(Problems& problems, std::string_view what, const FlexgenShares& shares) {
  for (const double part : {shares.gpu, shares.cpu, shares.disk}) {
    problems.unless(part >= 0.0 && part <= 1.0, fmt::format("a share of the {}", what), part, "in [0, 1]");
  }
  const double sum = shares.gpu + shares.cpu + shares.disk;
  problems.unless(std::abs(sum - 1.0) <= 1e-9, fmt::format("the sum of the shares of the {}", what), sum, "1");
}

// ---------------------------------------------------------------------------------------------------------------------
// The linear program.

/// GLPK keeps one environment per thread. Each thread must free its own.
struct GlpkEnvironment {
  GlpkEnvironment() { glp_term_out(GLP_OFF); }
  ~GlpkEnvironment() { glp_free_env(); }
  GlpkEnvironment(const GlpkEnvironment&) = delete;
  GlpkEnvironment& operator=(const GlpkEnvironment&) = delete;
};

/// Minimises over shares in [0, 1] and two times >= 0. The caller chooses the unit of each time so that the time is
/// near 1.
class LinearProgram {
 public:
  enum class Time { prefill, decode };

  LinearProgram() {
    thread_local GlpkEnvironment environment;
    problem_ = glp_create_prob();
    glp_add_cols(problem_, kColumns);
    for (int column = 1; column <= kFractions; ++column) {
      glp_set_col_bnds(problem_, column, GLP_DB, 0.0, 1.0);
      glp_set_obj_coef(problem_, column, kTieBreak * ((column - 1) % 3));  // GPU, CPU, disk
    }
    for (int column = kFractions + 1; column <= kColumns; ++column) {
      glp_set_col_bnds(problem_, column, GLP_LO, 0.0, 0.0);
    }
  }
  ~LinearProgram() { glp_delete_prob(problem_); }
  LinearProgram(const LinearProgram&) = delete;
  LinearProgram& operator=(const LinearProgram&) = delete;

  /// The weights add up to 1.
  void minimise(double prefill, double decode) {
    glp_set_obj_coef(problem_, column(Time::prefill), prefill);
    glp_set_obj_coef(problem_, column(Time::decode), decode);
  }
  void fix(std::size_t index, double share) {
    glp_set_col_bnds(problem_, static_cast<int>(index) + 1, GLP_FX, share, share);
  }
  void equal(const Linear& sum, double value) { add(sum, GLP_FX, value, 0, 0.0); }
  void at_most(const Linear& sum, double limit) { add((1.0 / limit) * sum, GLP_UP, 1.0, 0, 0.0); }
  /// Requires that the time, in `unit` seconds, is at least `sum` seconds.
  void at_least(Time time, double unit, const Linear& sum) { add((1.0 / unit) * sum, GLP_UP, 0.0, column(time), -1.0); }

  /// Empty when the rows have no solution.
  std::optional<std::array<double, kShares>> solve() {
    glp_smcp options;
    glp_init_smcp(&options);
    options.msg_lev = GLP_MSG_OFF;
    // In floating point, GLPK gives up on a few of these programs or calls them infeasible although they are feasible.
    // Exact arithmetic starts from the floating-point basis, mostly the optimal one, and decides.
    glp_scale_prob(problem_, GLP_SF_GM | GLP_SF_EQ | GLP_SF_2N);
    if (glp_simplex(problem_, &options) != 0) glp_std_basis(problem_);
    const int failure = glp_exact(problem_, &options);
    SPILLWAY_CHECK(failure == 0, fmt::format("GLPK's exact simplex method failed with code {}", failure));
    const int status = glp_get_status(problem_);
    if (status == GLP_NOFEAS) return std::nullopt;
    SPILLWAY_CHECK(status == GLP_OPT, fmt::format("GLPK's exact simplex method ended in state {}", status));
    std::array<double, kShares> shares{};
    for (int i = 0; i < kFractions; ++i) {
      shares[static_cast<std::size_t>(i)] = std::clamp(glp_get_col_prim(problem_, i + 1), 0.0, 1.0);
    }
    return shares;
  }

 private:
  static constexpr int kFractions = static_cast<int>(kShares);
  static constexpr int kColumns = kFractions + 2;
  /// Far below any difference in time, but visible to exact arithmetic.
  static constexpr double kTieBreak = 1e-12;
  static int column(Time time) { return kFractions + (time == Time::prefill ? 1 : 2); }

  void add(const Linear& sum, int kind, double bound, int extra_column, double extra) {
    std::array<int, kColumns + 1> columns{};  // GLPK counts from 1
    std::array<double, kColumns + 1> values{};
    int count = 0;
    for (int i = 0; i < kFractions; ++i) {
      const double slope = sum.slope[static_cast<std::size_t>(i)];
      if (slope == 0.0) continue;
      columns[static_cast<std::size_t>(++count)] = i + 1;
      values[static_cast<std::size_t>(count)] = slope;
    }
    if (extra_column > 0) {
      columns[static_cast<std::size_t>(++count)] = extra_column;
      values[static_cast<std::size_t>(count)] = extra;
    }
    const int row = glp_add_rows(problem_, 1);
    const double right = bound - sum.constant;
    glp_set_row_bnds(problem_, row, kind, right, right);
    glp_set_mat_row(problem_, row, count, columns.data(), values.data());
  }

  glp_prob* problem_ = nullptr;
};

/// Three of the solver's shares. Without the solver's rounding they would add up to 1.
FlexgenShares exact(const std::array<double, kShares>& shares, std::size_t first) {
  const double sum = shares[first] + shares[first + 1] + shares[first + 2];
  return {shares[first] / sum, shares[first + 1] / sum, shares[first + 2] / sum};
}

/// `weights_on_host`: the share of the weights there; empty: any.
std::optional<FlexgenChoice> place(const FlexgenModel& model, const FlexgenWorkload& workload,
                                   const FlexgenHardware& hw, std::int64_t gpu_batch, std::int64_t batches,
                                   std::optional<double> weights_on_host) {
  using Time = LinearProgram::Time;
  FlexgenPolicy policy{.gpu_batch = gpu_batch, .batches = batches};
  const CostModel m = cost_model(model, workload, hw, gpu_batch, policy.block());
  const double prefill_unit = m.prefill.compute.constant;
  const double decode_unit = m.decode.compute.constant;

  LinearProgram program;
  const double prefills = prefill_unit;
  const double decodes = real(workload.generated - 1) * decode_unit;
  program.minimise(prefills / (prefills + decodes), decodes / (prefills + decodes));
  for (const std::size_t first : {0U, 3U, 6U}) {
    program.equal(share(first) + share(first + 1) + share(first + 2), 1.0);
    if (hw.disk_memory == 0.0) program.fix(first + 2, 0.0);
  }
  if (weights_on_host) {
    program.fix(1, *weights_on_host);
    program.fix(2, 0.0);
  }
  for (const Linear& busy :
       {m.prefill.h2d + m.prefill.disk_read, m.prefill.d2h + m.prefill.disk_write, m.prefill.compute}) {
    program.at_least(Time::prefill, prefill_unit, busy);
  }
  for (const Linear& busy : {m.decode.d2h, m.decode.disk_read, m.decode.disk_write, m.decode.compute}) {
    program.at_least(Time::decode, decode_unit, m.decode.h2d + busy);
  }
  for (const Linear& peak : {m.gpu_prefill, m.gpu_decode}) program.at_most(peak, hw.usable * hw.gpu_memory);
  for (const Linear& peak : {m.cpu_prefill, m.cpu_decode}) program.at_most(peak, hw.usable * hw.cpu_memory);
  if (hw.disk_memory > 0.0) program.at_most(m.disk, hw.usable * hw.disk_memory);

  const std::optional<std::array<double, kShares>> shares = program.solve();
  if (!shares) return std::nullopt;
  policy.weights =
      weights_on_host ? FlexgenShares{.gpu = 1.0 - *weights_on_host, .cpu = *weights_on_host} : exact(*shares, 0);
  policy.cache = exact(*shares, 3);
  policy.hidden = exact(*shares, 6);
  return FlexgenChoice{policy, estimate(model, workload, hw, policy)};
}

/// Whether `a` exists and is faster than `b` by more than rounding.
bool faster(const std::optional<FlexgenChoice>& a, const std::optional<FlexgenChoice>& b) {
  return a && (!b || a->estimate.throughput > b->estimate.throughput * (1.0 + kRise));
}

/// The number of batches at which throughput stops rising; nothing if not even one fits.
std::optional<FlexgenChoice> best_block(const FlexgenModel& model, const FlexgenWorkload& workload,
                                        const FlexgenHardware& hw, std::int64_t gpu_batch,
                                        std::optional<double> weights_on_host) {
  std::map<std::int64_t, std::optional<FlexgenChoice>> known;
  const auto with = [&](std::int64_t batches) -> const std::optional<FlexgenChoice>& {
    const auto [at, fresh] = known.try_emplace(batches);
    if (fresh) at->second = place(model, workload, hw, gpu_batch, batches, weights_on_host);
    return at->second;
  };
  const auto rises = [&](std::int64_t batches) { return faster(with(batches), with(batches - 1)); };
  if (!with(1)) return std::nullopt;
  std::int64_t last_rise = 1;
  std::int64_t beyond = 2;
  for (; rises(beyond); beyond *= 2) last_rise = beyond;
  while (beyond - last_rise > 1) {
    const std::int64_t middle = last_rise + (beyond - last_rise) / 2;
    (rises(middle) ? last_rise : beyond) = middle;
  }
  return with(last_rise);
}

}  // namespace

FlexgenHardware t4_constants() {
  // Defaults of the fields of cost_model.py, "aligned on google cloud T4". GB means 2^30 bytes there, T 10^12.
  return {.h2d = 12.89 * kGiB,                        // ctog_bdw
          .d2h_cache = 0.97 * kGiB,                   // gtoc_bdw_cache
          .d2h_hidden = 4.82 * kGiB,                  // gtoc_bdw_hidden
          .disk_read = 0.473 * kGiB,                  // dtoc_bdw
          .disk_write_cache_prefill = 0.746 * kGiB,   // ctod_bdw_cache_p
          .disk_write_hidden_prefill = 2.015 * kGiB,  // ctod_bdw_hidden_p
          .disk_write_decode = 2.015 * kGiB,          // ctod_bdw_g
          .gemm_prefill = 21.24 * kTera,              // mm_flops_p
          .gemm_decode = 4.3 * kTera,                 // mm_flops_g
          .attention_prefill = 9.97 * kTera,          // bmm_flops_p
          .attention_decode = 0.079 * kTera,          // bmm_flops_g
          .cpu_attention = 0.0123 * kTera,            // cpu_flops
          .cpu_batch_and_hidden = 0.0168,             // c1
          .cpu_batch = 0.0328,                        // c2
          .cpu_hidden = 0.0621,                       // c3
          .gpu_memory = 15.0 * kGiB,                  // gmem
          .cpu_memory = 204.0 * kGiB,                 // cmem
          .disk_memory = 1500.0 * kGiB,               // nmem
          .usable = 0.8};                             // limit in cost_model.py's memory constraints
}

double cpu_attention_rate(const FlexgenHardware& hardware, std::int64_t gpu_batch, std::int64_t hidden) {
  const double a = std::max(0.0, std::log2(64.0 / real(gpu_batch)));
  const double b = std::max(0.0, std::log2(4096.0 / real(hidden)));
  return hardware.cpu_attention *
         std::max(0.1, 1.0 + hardware.cpu_batch_and_hidden * a * b - hardware.cpu_batch * a - hardware.cpu_hidden * b);
}

FlexgenEstimate flexgen_estimate(const FlexgenModel& model, const FlexgenWorkload& workload,
                                 const FlexgenHardware& hardware, const FlexgenPolicy& policy) {
  Problems problems;
  check(problems, model, workload, hardware);
  problems.at_least_one("GPU batch", policy.gpu_batch);
  problems.at_least_one("number of batches", policy.batches);
  check(problems, "weights", policy.weights);
  check(problems, "cache", policy.cache);
  check(problems, "hidden states", policy.hidden);
  problems.report();
  return estimate(model, workload, hardware, policy);
}

std::optional<FlexgenChoice> flexgen_place(const FlexgenModel& model, const FlexgenWorkload& workload,
                                           const FlexgenHardware& hardware, std::int64_t gpu_batch,
                                           std::int64_t batches) {
  Problems problems;
  check(problems, model, workload, hardware);
  problems.at_least_one("GPU batch", gpu_batch);
  problems.at_least_one("number of batches", batches);
  problems.report();
  return place(model, workload, hardware, gpu_batch, batches, std::nullopt);
}

std::optional<FlexgenChoice> flexgen_search(const FlexgenModel& model, const FlexgenWorkload& workload,
                                            const FlexgenHardware& hardware) {
  return flexgen_search(model, workload, [&](std::int64_t) { return hardware; }, {});
}

std::optional<FlexgenChoice> flexgen_search(const FlexgenModel& model, const FlexgenWorkload& workload,
                                            const std::function<FlexgenHardware(std::int64_t)>& hardware,
                                            std::span<const double> weights_on_host) {
  const std::vector<std::optional<double>> weights =
      weights_on_host.empty() ? std::vector<std::optional<double>>{std::nullopt}
                              : std::vector<std::optional<double>>(weights_on_host.begin(), weights_on_host.end());
  std::optional<FlexgenChoice> best;
  for (std::int64_t gpu_batch = 1;; gpu_batch = gpu_batch < 4 ? gpu_batch + 1 : 2 * gpu_batch) {
    const FlexgenHardware speeds = hardware(gpu_batch);
    Problems problems;
    check(problems, model, workload, speeds);
    problems.report();
    std::optional<FlexgenChoice> of_batch;
    for (const std::optional<double>& share : weights) {
      const std::optional<FlexgenChoice> choice = best_block(model, workload, speeds, gpu_batch, share);
      if (faster(choice, of_batch)) of_batch = choice;
    }
    if (!of_batch) return best;
    if (!faster(best, of_batch)) best = of_batch;
  }
}

double slo_aware_host_fraction(double compute, double delta, double weight_bytes, double bandwidth,
                               std::int64_t gpus_on_bus) {
  Problems problems;
  problems.not_negative("compute time of a layer", compute);
  problems.not_negative("slack of the objective", delta);
  problems.not_negative("weights of a layer", weight_bytes);
  problems.positive("bandwidth", bandwidth);
  problems.at_least_one("GPUs on the bus", gpus_on_bus);
  problems.report();
  const double in_time = (1.0 + delta) * compute * bandwidth / real(gpus_on_bus);
  return in_time >= weight_bytes ? 1.0 : in_time / weight_bytes;
}

}  // namespace spillway
