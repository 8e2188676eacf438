#include "hwmodels/calibration/row_selection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::int64_t kUsualPool = std::int64_t{1} << 30U;

/// The word of an optional key, or `otherwise` without the key; empty when the word is not in `allowed`.
std::optional<std::string> choice(RowSource& row, std::string_view key, const std::vector<std::string>& allowed,
                                  const char* otherwise) {
  if (!row.has(key)) return otherwise;
  auto word = row.word(key);
  if (!word || std::find(allowed.begin(), allowed.end(), *word) != allowed.end()) return word;
  row.bad(key, fmt::format("unknown {} \"{}\"", key, excerpt(*word)), allowed_text(*word, allowed));
  return std::nullopt;
}

/// A count of an optional key.
std::optional<std::int64_t> count(RowSource& row, std::string_view key, std::int64_t least, std::int64_t otherwise) {
  return row.has(key) ? row.count(key, least) : std::optional(otherwise);
}

/// Whether the counts of optional keys are valid. No model depends on them.
bool good_counts(RowSource& row, std::initializer_list<std::string_view> keys, std::int64_t least = 1) {
  bool good = true;
  for (const std::string_view key : keys) good = count(row, key, least, least).has_value() && good;
  return good;
}

const std::vector<std::string> kHalves{"bf16", "fp16"};

auto case_of(const GemmRow& row) { return std::tuple(row.m, row.n, row.k); }
auto case_of(const AttentionRow& row) {
  return std::tuple(row.batch, row.q_heads, row.kv_heads, row.head_dim, row.new_tokens, row.context);
}
auto case_of(const CopyRow& row) { return std::tuple(row.to_device, row.mechanism, row.block_bytes, row.copies); }

/// Appends the rows of cases that `to` does not have yet. Returns the number of other rows.
template <class Row>
std::int64_t add_new_cases(const std::vector<Row>& from, std::vector<Row>& to) {
  std::set<decltype(case_of(std::declval<Row>()))> known;
  for (const Row& row : to) known.insert(case_of(row));
  std::int64_t behind = 0;
  for (const Row& row : from) {
    if (known.contains(case_of(row))) {
      ++behind;
    } else {
      to.push_back(row);
    }
  }
  return behind;
}

}  // namespace

void RowSelection::leave_out(const std::string& what, const std::string& why, std::int64_t count) {
  if (count == 0) return;
  const auto known = std::find_if(left_out_.begin(), left_out_.end(),
                                  [&](const LeftOut& one) { return one.what == what && one.why == why; });
  if (known == left_out_.end()) {
    left_out_.push_back({what, why, count});
  } else {
    known->count += count;
  }
}

void RowSelection::gemm(RowSource& row, const GemmRow& one) {
  const auto best_of = count(row, "best_of", 1, 1);
  if (!best_of) return;
  if (*best_of > 1) return leave_out("GEMMs by the best of several algorithms", "engines run the first one");
  const bool half = row.has("dtype") && row.word("dtype") == "fp16";
  (half ? half_gemm_ : to_.gemm).push_back(one);
}

void RowSelection::attention(RowSource& row, const AttentionRow& one, bool own) {
  const auto dtype = choice(row, "dtype", kHalves, "bf16");
  const auto skew = row.has("skew") ? row.amount("skew", 1.0, 1e12) : std::optional(1.0);
  if (!dtype || !skew) return;
  if (own) return leave_out("attention measurements of kernel \"spillway\"", "no engine runs that kernel");
  if (*skew > 1.0) return leave_out("attention measurements of skewed lengths", "the fits use equal lengths");
  AttentionRow kept = one;
  kept.stand_in = row.has("kernel") && row.word("kernel").value_or("").starts_with("cudnn");
  (*dtype == "fp16" ? half_attention_ : to_.attention).push_back(kept);
}

void RowSelection::mixed(RowSource& row, const MixedRow& one, bool own) {
  if (!choice(row, "dtype", kHalves, "bf16") || !good_counts(row, {"q_heads", "kv_heads", "head_dim"})) return;
  if (own) return leave_out("attention measurements of kernel \"spillway\"", "no engine runs that kernel");
  if (row.has("q_heads")) {
    return leave_out("attention measurements of chunk and decodes in one call",
                     "only the tables of one model hold such calls");
  }
  to_.mixed.push_back(one);
}

void RowSelection::elementwise(RowSource& row, ElementwiseRow one) {
  if (good_counts(row, {"width"})) to_.elementwise.push_back(std::move(one));
}

void RowSelection::copy(RowSource& row, const CopyRow& one) {
  const auto memory = choice(row, "memory", {"pinned", "pageable", "registered"}, "pinned");
  const auto observed = choice(row, "observed", {"device", "host"}, "device");
  const auto order = choice(row, "order", {"random", "sequential"}, "random");
  const auto ctas = count(row, "ctas", 1, 0);
  const auto pool = count(row, "pool_bytes", 1, 1);
  const auto beside = count(row, "beside_bytes", 1, 0);
  const bool counts = good_counts(row, {"gpus", "threads"}) && good_counts(row, {"numa_node"}, 0);
  if (!memory || !observed || !order || !ctas || !pool || !beside || !counts) return;
  if (one.mechanism == CopyMechanism::relay) {
    if (*memory != "pageable" || *observed != "host") {
      return leave_out("relay copies from page-locked memory or timed by the GPU alone",
                       "a relay copies memory that is not page-locked, and its time includes the copy by the CPU");
    }
    return to_.copies.push_back(one);
  }
  if (*memory != "pinned") {
    return leave_out(fmt::format("copies from and to {} memory", *memory), "engines copy from and to pinned memory");
  }
  if (*observed == "host") return leave_out("copies timed by the host", "the fits use the GPU's times");
  if (row.has("gpus")) return leave_out("copies of all GPUs at once", "their limits belong to a server");
  if (*pool > kUsualPool) {
    return leave_out("copies of blocks of pools above 1 GiB", "the fits do not depend on the pool");
  }
  if (*order == "sequential") return leave_out("copies of blocks in sequence", "KV blocks lie anywhere");
  CopyRow kept = one;
  kept.beside_bytes = *beside;
  if (*ctas > 0) return kernel_copies_.push_back({*ctas, kept});
  if (!row.has("pool_bytes")) return to_.copies.push_back(kept);
  // Sweeps of blocks and sweeps of pools have some cases in common.
  const bool again = std::any_of(pooled_.begin(), pooled_.end(),
                                 [&](const CopyRow& other) { return case_of(other) == case_of(kept); });
  if (again) return leave_out("repeated copies of a case", "the first of each was used");
  pooled_.push_back(kept);
  to_.copies.push_back(kept);
}

void RowSelection::cpu_attention(RowSource& row, const CpuAttentionRow& one) {
  auto dtype = choice(row, "dtype", {"bf16", "fp16", "fp32"}, "bf16");
  if (!dtype || !good_counts(row, {"q_heads", "kv_heads", "head_dim"})) return;
  cpu_attention_.emplace_back(std::move(*dtype), one);
}

void RowSelection::interference(RowSource& row, const std::optional<std::string>& compute, bool own) {
  const auto part = row.word("part");
  const auto known = part ? choice(row, "part", {"compute", "copy_h2d", "copy_d2h"}, "") : std::nullopt;
  const auto beside = row.flag("beside");
  const auto traffic = row.word("traffic") ? choice(row, "traffic", {"h2d", "d2h", "both"}, "") : std::nullopt;
  const auto mechanism = row.word("mechanism") ? choice(row, "mechanism", {"single", "kernel"}, "") : std::nullopt;
  const auto bytes = row.count("copy_bytes");
  const auto seconds = row.seconds();
  if (!known || !beside || !traffic || !mechanism || !bytes || !seconds || !compute) return;
  if (*known != "compute") {
    return leave_out("interference measurements of copies", "no profile says how compute slows these down");
  }
  if (own) return leave_out("interference measurements of kernel \"spillway\"", "no engine runs that kernel");
  to_.interference.push_back({*compute, *traffic, *bytes, *beside, *seconds, row.place(), *mechanism == "kernel"});
}

void RowSelection::host_stream(RowSource& row) {
  const auto part = row.word("part") ? choice(row, "part", {"stream", "copy_h2d", "copy_d2h"}, "") : std::nullopt;
  const auto kind = row.word("kind") ? choice(row, "kind", {"triad", "read"}, "") : std::nullopt;
  const auto memory = row.word("memory") ? choice(row, "memory", {"pinned", "pageable"}, "") : std::nullopt;
  const auto traffic = row.word("traffic") ? choice(row, "traffic", {"none", "h2d", "d2h", "both"}, "") : std::nullopt;
  const auto threads = row.count("threads");
  const auto bytes = row.count("bytes");
  const auto node = count(row, "numa_node", 0, 0);
  const auto seconds = row.seconds();
  if (!part || !kind || !memory || !traffic || !threads || !bytes || !node || !seconds) return;
  const std::string why =
      "the bandwidth of a host is that of reading pageable memory on all NUMA nodes, without copies";
  if (*traffic != "none") return leave_out("host memory measurements beside copies", why);
  if (*kind != "read") return leave_out("host memory measurements by triad", why);
  if (*memory != "pageable") return leave_out("host memory measurements of pinned memory", why);
  if (row.has("numa_node")) return leave_out("host memory measurements of one NUMA node", why);
  to_.host_streams.push_back({*threads, *bytes, *seconds, row.place()});
}

bool RowSelection::without_place(const std::string& op) {
  if (op == "peer") {
    leave_out("copies from one GPU to another", "their link belongs to a server");
  } else if (op == "launch") {
    leave_out("launch measurements", "launches belong to an engine");
  } else {
    return false;
  }
  return true;
}

/// A profile has one set of kernels for 2-byte numbers and one for CPU attention. It uses bf16 rows, and other formats
/// only for cases without bf16.
void RowSelection::choose_formats() {
  const std::string why = "one set of fits stands for both formats of 2 bytes";
  leave_out("GEMMs in fp16 that were also measured in bf16", why, add_new_cases(half_gemm_, to_.gemm));
  leave_out("attention measurements in fp16 that were also made in bf16", why,
            add_new_cases(half_attention_, to_.attention));
  std::string format;
  for (const char* one : {"fp32", "fp16", "bf16"}) {
    const bool there =
        std::any_of(cpu_attention_.begin(), cpu_attention_.end(), [&](const auto& row) { return row.first == one; });
    if (there) format = one;
  }
  for (const auto& [dtype, row] : cpu_attention_) {
    if (dtype == format) {
      to_.cpu_attention.push_back(row);
    } else {
      leave_out(fmt::format("CPU attention measurements in {}", dtype), fmt::format("the fit uses {}", format));
    }
  }
}

/// For each direction, chooses the fastest number of thread blocks, by the mean log time over the cases that all
/// numbers have in common. Numbers within 2% count as equally fast: of these, the one with the most cases, then the
/// smallest.
void RowSelection::choose_ctas() {
  constexpr double kAsFast = 0.02;
  for (const bool to_device : {true, false}) {
    std::map<std::int64_t, std::map<decltype(case_of(CopyRow{})), double>> by_ctas;
    for (const KernelCopy& copy : kernel_copies_) {
      if (copy.row.to_device == to_device) by_ctas[copy.ctas].emplace(case_of(copy.row), copy.row.seconds);
    }
    std::map<std::int64_t, double> mean;
    double least = HUGE_VAL;
    for (const auto& [ctas, times] : by_ctas) {
      double sum = 0.0;
      double cases = 0.0;
      for (const auto& [point, seconds] : times) {
        const bool everywhere = std::all_of(by_ctas.begin(), by_ctas.end(), [&, &key = point](const auto& other) {
          return other.second.contains(key);
        });
        if (!everywhere) continue;
        sum += std::log(seconds);
        cases += 1.0;
      }
      mean[ctas] = cases > 0.0 ? sum / cases : 0.0;
      least = std::min(least, mean[ctas]);
    }
    std::int64_t best = 0;
    std::size_t most = 0;
    for (const auto& [ctas, times] : by_ctas) {
      if (mean[ctas] > least + kAsFast || times.size() <= most) continue;
      best = ctas;
      most = times.size();
    }
    for (const KernelCopy& copy : kernel_copies_) {
      if (copy.row.to_device != to_device) continue;
      if (copy.ctas == best) {
        to_.copies.push_back(copy.row);
      } else {
        leave_out("copies by a kernel of another number of thread blocks than the fastest",
                  "a profile has one copy kernel of each direction");
      }
    }
  }
}

std::vector<std::string> RowSelection::finish() {
  choose_formats();
  choose_ctas();
  std::vector<std::string> notes;
  notes.reserve(left_out_.size());
  for (const LeftOut& one : left_out_) {
    notes.push_back(fmt::format("{} {} were left out: {}", one.count, one.what, one.why));
  }
  return notes;
}

}  // namespace spillway::hwmodels
