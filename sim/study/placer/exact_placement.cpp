// Placements by branch and bound (GLPK).
//
// Integer variables y[c,s]: models of class c on server s. Servers are equal, so they are numbered by memory left to
// lend, largest first: that removes placements which only exchange servers, and makes the first server the maximum.
// With M the memory of the first server and Q the largest surplus:
//
//   minimise M + gpu_memory Q
//   sum_s y[c,s] = models of c                    every model has a server
//   sum_c gpus_c y[c,s] <= gpus per server
//   M = memory_0 >= memory_1 >= ...               memory_s = sum_c balance_c y[c,s]
//   surplus_s <= Q                                surplus_s = sum_c sign_c y[c,s]
//   M + gpu_memory Q <= best - one step           only better placements; infeasible: the best is optimal
//
// M and Q are also bounded by the means over servers, rounded up.
#include <fmt/format.h>
#include <glpk.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/study/placer/server_loads.hpp"

namespace spillway::placer {
namespace {

/// GLPK keeps one environment per thread. Each thread must free its own.
struct GlpkEnvironment {
  GlpkEnvironment() { glp_term_out(GLP_OFF); }
  ~GlpkEnvironment() { glp_free_env(); }
  GlpkEnvironment(const GlpkEnvironment&) = delete;
  GlpkEnvironment& operator=(const GlpkEnvironment&) = delete;
};

/// One row of a program, as GLPK reads it: from index 1 on.
class Row {
 public:
  void add(int column, double factor) {
    columns_.push_back(column);
    factors_.push_back(factor);
  }
  int append_to(glp_prob* problem, int kind, double low, double high) const {
    const int row = glp_add_rows(problem, 1);
    glp_set_row_bnds(problem, row, kind, low, high);
    glp_set_mat_row(problem, row, static_cast<int>(columns_.size()) - 1, columns_.data(), factors_.data());
    return row;
  }

 private:
  std::vector<int> columns_{0};
  std::vector<double> factors_{0.0};
};

/// What ends the search early, and where it was then.
struct Limit {
  std::int64_t pivots = 0;
  bool reached = false;
  double bound = 0.0;  // of the open nodes, when reached
};

void watch(glp_tree* tree, void* info) {
  auto& limit = *static_cast<Limit*>(info);
  if (glp_ios_reason(tree) != GLP_ISELECT) return;
  glp_prob* problem = glp_ios_get_prob(tree);
  if (std::int64_t{glp_get_it_cnt(problem)} * glp_get_num_rows(problem) < limit.pivots) return;
  const int best = glp_ios_best_node(tree);
  if (best == 0) return;
  limit.reached = true;
  limit.bound = glp_ios_node_bound(tree, best);
  glp_ios_terminate(tree);
}

class IntegerProgram {
 public:
  explicit IntegerProgram(const Classes& classes)
      : classes_(classes), classes_count_(std::ssize(classes.list)), unit_(unit_of(classes)) {
    thread_local GlpkEnvironment environment;
    problem_ = glp_create_prob();
    add_columns();
    add_rows();
    if (classes.compat) forbid_negative_maxima();
  }
  ~IntegerProgram() { glp_delete_prob(problem_); }
  IntegerProgram(const IntegerProgram&) = delete;
  IntegerProgram& operator=(const IntegerProgram&) = delete;

  /// Bytes by which different objectives differ at least; or, where balances have no such unit, an improvement too
  /// small to look for.
  [[nodiscard]] std::int64_t step() const { return unit_; }

  void require_at_most(std::int64_t objective) {
    Row row;
    row.add(memory_, 1.0);
    row.add(surplus_, in_units(classes_.gpu_memory));
    row.append_to(problem_, GLP_UP, 0.0, in_units(objective));
  }

  ExactOutcome solve(std::int64_t pivots) {
    Limit limit{.pivots = pivots};
    glp_iocp options;
    glp_init_iocp(&options);
    options.msg_lev = GLP_MSG_OFF;
    options.presolve = GLP_ON;
    options.br_tech = GLP_BR_DTH;
    options.bt_tech = GLP_BT_BLB;
    options.cb_func = watch;
    options.cb_info = &limit;
    const int failure = glp_intopt(problem_, &options);
    ExactOutcome outcome;
    if (failure == GLP_ENOPFS || failure == GLP_ENODFS) {
      outcome.solvable = false;
      return outcome;
    }
    SPILLWAY_CHECK(failure == 0 || failure == GLP_ESTOP, fmt::format("GLPK's solver failed with code {}", failure));
    const int status = glp_mip_status(problem_);
    outcome.solvable = status != GLP_NOFEAS;
    if (status == GLP_OPT || status == GLP_FEAS) outcome.better = loads();
    // Without any bound of the solver yet, as low as bytes can say.
    constexpr double kLowestBytes = -4e18;
    const double of_solver = limit.reached ? limit.bound : status == GLP_OPT ? glp_mip_obj_val(problem_) : 0.0;
    const double bound = std::max(of_solver, kLowestBytes / static_cast<double>(unit_));
    constexpr double kTolerance = 1e-6;
    if (exact_units()) {  // objectives are multiples of the unit
      outcome.bound = static_cast<std::int64_t>(std::ceil(bound - kTolerance)) * unit_;
    } else {
      outcome.bound = static_cast<std::int64_t>(std::floor((bound - kTolerance) * static_cast<double>(unit_)));
    }
    return outcome;
  }

 private:
  /// Coefficients of the program are balances in this unit: their common divisor, or a millionth of a GPU's memory.
  static std::int64_t unit_of(const Classes& classes) {
    constexpr std::int64_t kFinest = 1'000'000;
    return std::max(classes.unit(), classes.gpu_memory / kFinest);
  }
  [[nodiscard]] bool exact_units() const { return classes_.unit() == unit_; }
  [[nodiscard]] double in_units(std::int64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(unit_);
  }
  [[nodiscard]] int column(std::int64_t of, std::int64_t server) const {
    return static_cast<int>(server * classes_count_ + of) + 1;
  }
  [[nodiscard]] const ModelClass& model_class(std::int64_t c) const {
    return classes_.list[static_cast<std::size_t>(c)];
  }

  void add_columns() {
    const std::int64_t counts = classes_count_ * classes_.servers;
    glp_add_cols(problem_, static_cast<int>(counts) + 2);
    for (std::int64_t s = 0; s < classes_.servers; ++s) {
      for (std::int64_t c = 0; c < classes_count_; ++c) {
        const ModelClass& of = model_class(c);
        const auto most = std::min<std::int64_t>(std::ssize(of.models), classes_.gpus_per_server / of.gpus);
        glp_set_col_kind(problem_, column(c, s), GLP_IV);
        glp_set_col_bnds(problem_, column(c, s), GLP_DB, 0.0, static_cast<double>(most));
      }
    }
    memory_ = static_cast<int>(counts) + 1;
    surplus_ = memory_ + 1;
    glp_set_col_bnds(problem_, memory_, GLP_LO, in_units(classes_.least_memory()), 0.0);
    glp_set_col_bnds(problem_, surplus_, GLP_LO, static_cast<double>(classes_.least_surplus()), 0.0);
    glp_set_col_kind(problem_, surplus_, GLP_IV);
    if (exact_units()) glp_set_col_kind(problem_, memory_, GLP_IV);
    glp_set_obj_coef(problem_, memory_, 1.0);
    glp_set_obj_coef(problem_, surplus_, in_units(classes_.gpu_memory));
  }

  void add_rows() {
    for (std::int64_t c = 0; c < classes_count_; ++c) {
      Row all;
      for (std::int64_t s = 0; s < classes_.servers; ++s) all.add(column(c, s), 1.0);
      const auto models = static_cast<double>(model_class(c).models.size());
      all.append_to(problem_, GLP_FX, models, models);
    }
    for (std::int64_t s = 0; s < classes_.servers; ++s) {
      Row gpus;
      Row surplus;
      Row memory;  // of the server before, less that of this server
      for (std::int64_t c = 0; c < classes_count_; ++c) {
        const ModelClass& of = model_class(c);
        gpus.add(column(c, s), static_cast<double>(of.gpus));
        if (of.sign != 0) surplus.add(column(c, s), static_cast<double>(of.sign));
        if (of.balance == 0) continue;
        memory.add(column(c, s), -in_units(of.balance));
        if (s > 0) memory.add(column(c, s - 1), in_units(of.balance));
      }
      gpus.append_to(problem_, GLP_UP, 0.0, static_cast<double>(classes_.gpus_per_server));
      surplus.add(surplus_, -1.0);
      surplus.append_to(problem_, GLP_UP, 0.0, 0.0);
      if (s == 0) memory.add(memory_, 1.0);
      memory.append_to(problem_, s == 0 ? GLP_FX : GLP_LO, 0.0, 0.0);
    }
  }

  /// Some server has a surplus of 0 or more: z[s] says that server s does. The lower bound of M does the same for it.
  void forbid_negative_maxima() {
    Row any;
    for (std::int64_t s = 0; s < classes_.servers; ++s) {
      const int chosen = glp_add_cols(problem_, 1);
      glp_set_col_kind(problem_, chosen, GLP_BV);
      any.add(chosen, 1.0);
      Row surplus;  // >= -gpus per server (1 - z)
      for (std::int64_t c = 0; c < classes_count_; ++c) {
        if (model_class(c).sign != 0) surplus.add(column(c, s), static_cast<double>(model_class(c).sign));
      }
      const auto most = static_cast<double>(classes_.gpus_per_server);
      surplus.add(chosen, -most);
      surplus.append_to(problem_, GLP_LO, -most, 0.0);
    }
    any.append_to(problem_, GLP_LO, 1.0, 0.0);
  }

  [[nodiscard]] ServerLoads loads() const {
    ServerLoads loads(classes_);
    for (std::int64_t s = 0; s < classes_.servers; ++s) {
      for (std::int64_t c = 0; c < classes_count_; ++c) {
        loads.add(static_cast<std::size_t>(c), static_cast<std::size_t>(s),
                  std::llround(glp_mip_col_val(problem_, column(c, s))));
      }
    }
    return loads;
  }

  const Classes& classes_;
  std::int64_t classes_count_ = 0;
  std::int64_t unit_ = 1;
  glp_prob* problem_ = nullptr;
  int memory_ = 0;
  int surplus_ = 0;
};

}  // namespace

ExactOutcome solve_exactly(const Classes& classes, const std::optional<ServerLoads>& best, std::int64_t pivots) {
  const std::int64_t bound = objective_value(classes, classes.least_memory(), classes.least_surplus());
  IntegerProgram program(classes);
  if (best && best->value() < kForbidden) program.require_at_most(best->value() - program.step());
  ExactOutcome outcome = program.solve(pivots);
  if (!outcome.solvable && best && best->value() < kForbidden) {
    // None is better by a step.
    outcome.solvable = true;
    outcome.bound = best->value() - program.step() + classes.unit();
  }
  outcome.bound = std::max(outcome.bound, bound);
  return outcome;
}

}  // namespace spillway::placer
