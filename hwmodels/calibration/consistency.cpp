#include "hwmodels/calibration/consistency.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "hwmodels/calibration/measurement_rows.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::size_t kShown = 20;  // problems of a kind
constexpr double kSameTime = 1e-6;
// No GPU, host or link of 2026 reaches these; the largest cache is 256 MiB.
constexpr double kAnyBandwidth = 2.5e13;
constexpr double kAnyFlops = 1e16;
constexpr double kAnyLink = 2e12;
constexpr double kAnyCpuFlops = 2e15;
constexpr double kAnyL2 = 512e6;
constexpr double kBoost = 1.1;  // highest clock / the datasheet's, see the header
constexpr double kSlow = 100.0;
constexpr double kSlowSeconds = 1e-3;

// What makes two rows measurements of the same thing.
auto key_of(const GemmRow& r) { return std::tuple(r.m, r.n, r.k, r.dtype_bytes, r.quantization); }
auto key_of(const AttentionRow& r) {
  return std::tuple(r.batch, r.q_heads, r.kv_heads, r.head_dim, r.new_tokens, r.context, r.fp8_kv);
}
auto key_of(const MixedRow& r) { return std::tuple(r.chunk, r.chunk_context, r.decodes, r.decode_context); }
auto key_of(const ElementwiseRow& r) { return std::tuple(r.kernel, r.tokens, r.bytes); }
auto key_of(const AllReduceRow& r) { return std::tuple(r.ranks, r.bytes, r.custom); }
auto key_of(const CopyRow& r) {
  return std::tuple(r.to_device, r.mechanism, r.duplex, r.block_bytes, r.copies, r.beside_bytes);
}
auto key_of(const CpuAttentionRow& r) { return std::tuple(r.threads, r.batch, r.context, r.kv_bytes); }
auto key_of(const HostRow& r) { return std::tuple(r.sequences, r.tensor_parallel); }
auto key_of(const InterferenceRow& r) { return std::tuple(r.compute, r.traffic, r.copy_bytes, r.by_kernel, r.beside); }
auto key_of(const HostStreamRow& r) { return std::tuple(r.threads, r.bytes); }
auto key_of(const HostGemmRow& r) { return std::tuple(r.rows, r.inputs, r.outputs, r.threads, r.dtype_bytes); }
auto key_of(const LayerRow& r) { return std::tuple(r.kernel, r.per_sequence, r.count); }

std::string text_of(const GemmRow& r) {
  const bool quantised = r.quantization != Quantization::none;
  return fmt::format("GEMM m={} n={} k={}{}{}", r.m, r.n, r.k, quantised ? " in " : "",
                     quantised ? format_of(r.quantization).name : "");
}
std::string text_of(const AttentionRow& r) {
  return fmt::format("{} attention of {} x {} tokens behind {} ({} query, {} KV heads of {})",
                     r.decode() ? "decode" : "prefill", r.batch, r.new_tokens, r.context, r.q_heads, r.kv_heads,
                     r.head_dim);
}
std::string text_of(const MixedRow& r) {
  return fmt::format("mixed attention of {} tokens behind {} and {} decodes behind {}", r.chunk, r.chunk_context,
                     r.decodes, r.decode_context);
}
std::string text_of(const ElementwiseRow& r) {
  return fmt::format("{} of {} tokens, {:g} bytes", excerpt(r.kernel), r.tokens, r.bytes);
}
std::string text_of(const AllReduceRow& r) { return fmt::format("all-reduce of {} bytes, {} ranks", r.bytes, r.ranks); }
std::string text_of(const CopyRow& r) {
  return fmt::format("{} of {} x {} bytes, {}{}", op_name(op_of(r)), r.copies, r.block_bytes,
                     mechanism_name(r.mechanism), r.duplex ? ", duplex" : "");
}
std::string text_of(const CpuAttentionRow& r) {
  return fmt::format("CPU attention of {} x {} tokens, {} threads", r.batch, r.context, r.threads);
}
std::string text_of(const HostRow& r) {
  return fmt::format("host time of {} sequences, {} GPUs", r.sequences, r.tensor_parallel);
}
std::string text_of(const InterferenceRow& r) {
  return fmt::format("{} {} copies of {} bytes{} ({})", excerpt(r.compute), r.beside ? "beside" : "without",
                     r.copy_bytes, r.by_kernel ? " by a kernel" : "", r.traffic);
}
std::string text_of(const HostStreamRow& r) {
  return fmt::format("{} bytes of host memory, {} threads", r.bytes, r.threads);
}
std::string text_of(const HostGemmRow& r) {
  return fmt::format("product of {} rows on the CPU, {} inputs and {} outputs", r.rows, r.inputs, r.outputs);
}
std::string text_of(const LayerRow& r) {
  return fmt::format("{} of {} {}", r.kernel, r.count, r.per_sequence ? "sequences" : "tokens");
}

std::string micro(double seconds) { return fmt::format("{:.6g} us", seconds * 1e6); }

/// Calls visit(rows) for each kind of row of which a case is measured once. A log holds many iterations of one size.
template <class Rows, class Visit>
void visit_cases(Rows& in, const Visit& visit) {
  visit(in.gemm);
  visit(in.attention);
  visit(in.mixed);
  visit(in.elementwise);
  visit(in.all_reduce);
  visit(in.copies);
  visit(in.cpu_attention);
  visit(in.host);
  visit(in.layers);
  visit(in.interference);
  visit(in.host_streams);
  visit(in.host_gemms);
}

/// A limit and its origin.
struct Limit {
  double value;
  std::string source;
};

class ConsistencyCheck {
 public:
  ConsistencyCheck(const Measurements& measurements, const DeviceLimits& limits, const LlmModel* layers_of)
      : all_(measurements),
        layers_of_(layers_of),
        datasheet_(limits.peak_flops && limits.memory_bandwidth),
        flops_(limit(limits.peak_flops, kAnyFlops, limits.name, "FLOP/s")),
        bandwidth_(limit(limits.memory_bandwidth, kAnyBandwidth, limits.name, "B/s of memory bandwidth")),
        link_(limit(limits.link_peak, kAnyLink, limits.name, "B/s of the host link")),
        l2_(limits.l2_bytes.value_or(kAnyL2)),
        l2_text_(limits.l2_bytes ? fmt::format("the L2 of {:g} bytes", l2_)
                                 : fmt::format("{:g} bytes, more L2 than any GPU of 2026 has", l2_)) {}

  std::vector<Problem> run() {
    visit_cases(all_, [&](const auto& rows) { repeated(rows); });
    for (const GemmRow& row : all_.gemm) check(row);
    for (const AttentionRow& row : all_.attention) check(row);
    for (const ElementwiseRow& row : all_.elementwise) check(row);
    if (layers_of_ != nullptr) {
      for (const LayerRow& row : all_.layers) check(row, *layers_of_);
      for (const MixedRow& row : all_.mixed) check(row, *layers_of_);
    }
    for (const CopyRow& row : all_.copies) check(row);
    for (const AllReduceRow& row : all_.all_reduce) {
      const double ranks = static_cast<double>(row.ranks);
      any_link(row, "all-reduce", 2.0 * (ranks - 1.0) / ranks * static_cast<double>(row.bytes));
    }
    for (const CpuAttentionRow& row : all_.cpu_attention) any_link(row, "CPU attention", row.kv_bytes);
    for (const HostStreamRow& row : all_.host_streams) any_link(row, "host memory", static_cast<double>(row.bytes));
    for (const HostGemmRow& row : all_.host_gemms) {
      any_link(row, "weights of a product", real(row.dtype_bytes) * product({row.inputs, row.outputs}));
      compute(row, 2.0 * product({row.rows, row.inputs, row.outputs}), kAnyCpuFlops,
              fmt::format("{:.4g} FLOP/s, more than any CPU of 2026 has", kAnyCpuFlops));
    }
    return finish();
  }
  /// Whether a problem is about the row. Call run() first.
  [[nodiscard]] bool blamed(const RowPlace& place) const { return blamed_.contains({place.file, place.row}); }

 private:
  static Limit limit(const std::optional<double>& known, double any, const std::string& name, const char* unit) {
    if (!known) return {any, fmt::format("{:.4g} {}, more than any machine of 2026 has", any, unit)};
    return {*known, fmt::format("{:.4g} {} of {}", *known, unit, name.empty() ? "the datasheet" : name)};
  }

  struct Kind {
    std::string name;
    std::vector<Problem> shown;
    std::size_t count = 0;
    std::string first;  // place
  };

  template <class Row>
  void add(const char* kind, const Row& row, std::string what, std::string fix) {
    auto it = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& one) { return one.name == kind; });
    blamed_.emplace(row.place.file, row.place.row);
    if (it == kinds_.end()) it = kinds_.insert(kinds_.end(), Kind{kind, {}, 0, place_text(all_, row.place)});
    if (it->count++ >= kShown) return;
    it->shown.push_back(
        {fmt::format("{}: {}: {}", kind, text_of(row), what), place_text(all_, row.place), std::move(fix)});
  }

  std::vector<Problem> finish() {
    std::vector<Problem> problems;
    for (Kind& kind : kinds_) {
      const std::size_t more = kind.count - kind.shown.size();
      std::move(kind.shown.begin(), kind.shown.end(), std::back_inserter(problems));
      if (more > 0) problems.push_back({fmt::format("{}: and {} more", kind.name, more), kind.first, {}});
    }
    return problems;
  }

  template <class Row>
  void repeated(const std::vector<Row>& rows) {
    std::map<decltype(key_of(std::declval<Row>())), const Row*> first;
    for (const Row& row : rows) {
      const auto [it, is_new] = first.emplace(key_of(row), &row);
      if (is_new) continue;
      const Row& other = *it->second;
      const std::string where = place_text(all_, other.place);
      if (std::abs(row.seconds - other.seconds) <= kSameTime * other.seconds) {
        add("duplicate", row, fmt::format("{}, as at {}", micro(row.seconds), where), "delete one of the rows");
      } else {
        blamed_.emplace(other.place.file, other.place.row);
        add("contradictory", row, fmt::format("{}, but {} at {}", micro(row.seconds), micro(other.seconds), where),
            "keep the row that was measured as an engine would run it");
      }
    }
  }

  template <class Row>
  void compute(const Row& row, double flops, double peak, const std::string& source) {
    const double rate = flops / row.seconds;
    if (rate <= kBoost * peak) return;
    add("above the peak", row, fmt::format("{:.4g} FLOP/s in {} are above {}", rate, micro(row.seconds), source),
        "check the unit of the time and the shape; delete the row if they are right");
  }

  /// Checks bytes that an engine reads from memory for every call: weights or KV.
  template <class Row>
  void streamed(const Row& row, const char* what, double bytes) {
    const double rate = bytes / row.seconds;
    if (rate <= bandwidth_.value) return;
    if (bytes <= l2_) {
      add("L2-resident", row,
          fmt::format(
              "{:.4g} bytes of {} in {} are {:.4g} B/s, above {}: they fit {}, so they were read from the cache", bytes,
              what, micro(row.seconds), rate, bandwidth_.source, l2_text_),
          "an engine reads them from memory: measure with a cold cache, or delete the row");
    } else {
      above_bandwidth(row, fmt::format("{:.4g} bytes of {}", bytes, what), rate);
    }
  }

  template <class Row>
  void above_bandwidth(const Row& row, const std::string& what, double rate) {
    add("above the bandwidth", row,
        fmt::format("{} in {} are {:.4g} B/s, above {}", what, micro(row.seconds), rate, bandwidth_.source),
        "check the unit of the time and the shape; delete the row if they are right");
  }

  /// Checks the bytes beyond the size of the L2.
  template <class Row>
  void beyond_l2(const Row& row, double bytes) {
    const double rate = (bytes - l2_) / row.seconds;
    if (rate > bandwidth_.value)
      above_bandwidth(row, fmt::format("{:.4g} bytes beyond {}", bytes - l2_, l2_text_), rate);
  }

  template <class Row>
  void not_slow(const Row& row, double flops, double bytes) {
    const double least = std::max(flops / flops_.value, bytes / bandwidth_.value);
    if (!datasheet_ || row.seconds <= kSlowSeconds + kSlow * least) return;
    add("far too slow", row,
        fmt::format("{} where {} and {} allow {}", micro(row.seconds), flops_.source, bandwidth_.source, micro(least)),
        "check the unit of the time and the shape; delete the row if they are right");
  }

  void check(const LayerRow& row, const LlmModel& llm) {
    const auto matrices = llm.layer_matrices(1);
    const Matrix head = llm.head_matrix(1);
    const std::array<std::pair<const char*, Matrix>, 5> known{{{"qkv_proj", matrices[0]},
                                                               {"o_proj", matrices[1]},
                                                               {"gate_up_proj", matrices[2]},
                                                               {"down_proj", matrices[3]},
                                                               {"lm_head", head}}};
    const auto* const it =
        std::find_if(known.begin(), known.end(), [&](const auto& one) { return row.kernel == one.first; });
    if (it == known.end()) return;
    const bool is_head = it == known.end() - 1;
    const double weights = static_cast<double>((is_head ? llm.head_bytes(head) : llm.linear_bytes(it->second)).count());
    const double flops = 2.0 * product({row.count, it->second.inputs, it->second.outputs});
    compute(row, flops, flops_.value, flops_.source);
    beyond_l2(row, weights);
    not_slow(row, flops, weights);
  }

  void check(const MixedRow& row, const LlmModel& llm) {
    const double chunk = static_cast<double>(row.chunk);
    const double pairs = chunk * static_cast<double>(row.chunk_context) + chunk * (chunk + 1.0) / 2.0;
    compute(row, 4.0 * product({llm.heads, llm.head_dim}) * pairs, flops_.value, flops_.source);
    beyond_l2(row, 4.0 * product({row.decodes, row.decode_context, llm.kv_heads, llm.head_dim}));
  }

  void check(const GemmRow& row) {
    const QuantizationFormat& format = format_of(row.quantization);
    const bool quantised = row.quantization != Quantization::none;
    // Tensor cores multiply in the format of the activations: scales aside, 16, 8 or 4 bits.
    const double bits = quantised && format.input_bytes < 2.0
                            ? static_cast<double>(format.bits)
                            : 8.0 * static_cast<double>(quantised ? 2 : row.dtype_bytes);
    const double faster = bits < 16.0 ? 16.0 / bits : 1.0;
    const double flops = 2.0 * product({row.m, row.n, row.k});
    const double weights =
        quantised ? format.weight_bytes() * product({row.n, row.k}) : product({row.n, row.k, row.dtype_bytes});
    compute(row, flops, faster * flops_.value,
            faster == 1.0   ? flops_.source
            : faster == 2.0 ? "twice the " + flops_.source
                            : fmt::format("{:g} times the {}", faster, flops_.source));
    not_slow(row, flops, weights);
    streamed(row, "weights", weights);
    // Rows whose weights alone are too fast have been reported.
    if (weights <= bandwidth_.value * row.seconds) {
      beyond_l2(row, weights + product({row.m, row.k, row.dtype_bytes}) + product({row.m, row.n, row.dtype_bytes}));
    }
  }

  void check(const AttentionRow& row) {
    if (row.decode()) {
      return streamed(row, "KV",
                      (row.fp8_kv ? 2.0 : 4.0) * product({row.batch, row.context, row.kv_heads, row.head_dim}));
    }
    const double length = static_cast<double>(row.new_tokens);
    const double pairs = length * static_cast<double>(row.context) + length * (length + 1.0) / 2.0;
    compute(row, 4.0 * product({row.batch, row.q_heads, row.head_dim}) * pairs, flops_.value, flops_.source);
  }

  void check(const ElementwiseRow& row) { beyond_l2(row, row.bytes); }

  void check(const CopyRow& row) {
    const double bytes = product({row.block_bytes, row.copies});
    if (row.mechanism == CopyMechanism::peer) return any_link(row, "copy", bytes);
    if (bytes / row.seconds > link_.value)
      too_fast("above the link's peak", row, "copy", bytes / row.seconds, link_.source);
  }

  template <class Row>
  void any_link(const Row& row, const char* what, double bytes) {
    if (bytes / row.seconds <= kAnyLink) return;
    too_fast("faster than any machine", row, what, bytes / row.seconds,
             fmt::format("{:.4g} B/s, more than any machine of 2026 has", kAnyLink));
  }

  template <class Row>
  void too_fast(const char* kind, const Row& row, const char* what, double rate, const std::string& source) {
    add(kind, row, fmt::format("{} at {:.4g} B/s is above {}", what, rate, source),
        "check the unit of the time and the bytes; delete the row if they are right");
  }

  const Measurements& all_;
  const LlmModel* layers_of_;
  bool datasheet_;
  Limit flops_;
  Limit bandwidth_;
  Limit link_;
  double l2_;
  std::string l2_text_;
  std::set<std::pair<std::int32_t, std::int64_t>> blamed_;  // locations of rows with a problem
  std::vector<Kind> kinds_;                                 // in the order of their first problem
};

}  // namespace

std::vector<Problem> inconsistencies(const Measurements& measurements, const DeviceLimits& limits,
                                     const LlmModel* layers_of) {
  return ConsistencyCheck(measurements, limits, layers_of).run();
}

namespace {

template <class Row>
void merge_rows(std::vector<Row>& rows, std::vector<MeasurementFile>& files) {
  constexpr double kNoise = 0.2;
  std::map<decltype(key_of(std::declval<Row>())), std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) groups[key_of(rows[i])].push_back(i);
  std::vector<bool> gone(rows.size());
  std::map<std::int32_t, std::int64_t> merged;
  for (const auto& [key, members] : groups) {
    std::set<std::string> sources;
    std::vector<double> times;
    for (const std::size_t i : members) {
      sources.insert(files[static_cast<std::size_t>(rows[i].place.file)].sha256);
      times.push_back(rows[i].seconds);
    }
    if (members.size() < 2 || sources.size() < members.size()) continue;
    std::sort(times.begin(), times.end());
    const double median = 0.5 * (times[(times.size() - 1) / 2] + times[times.size() / 2]);
    if (times.front() < (1.0 - kNoise) * median || times.back() > (1.0 + kNoise) * median) continue;
    rows[members.front()].seconds = median;
    for (std::size_t j = 1; j < members.size(); ++j) {
      gone[members[j]] = true;
      ++merged[rows[members[j]].place.file];
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!gone[i]) std::swap(rows[kept++], rows[i]);
  }
  rows.resize(kept);
  for (const auto& [file, count] : merged) {
    files[static_cast<std::size_t>(file)].notes.push_back(
        fmt::format("{} rows repeat those of another file within 20%: the median of each was taken", count));
  }
}

}  // namespace

void merge_repeats(Measurements& measurements) {
  visit_cases(measurements, [&](auto& rows) { merge_rows(rows, measurements.files); });
}

std::int64_t drop_inconsistent(Measurements& measurements, const DeviceLimits& limits, const LlmModel* layers_of) {
  ConsistencyCheck checker(measurements, limits, layers_of);
  static_cast<void>(checker.run());
  std::size_t dropped = 0;
  visit_cases(measurements, [&](auto& rows) {
    dropped += std::erase_if(rows, [&](const auto& row) { return checker.blamed(row.place); });
  });
  return static_cast<std::int64_t>(dropped);
}

}  // namespace spillway::hwmodels
