// What the readers of measurement files share: a row in any notation, the rules for its fields, and the problems of a
// file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/calibration/measurements.hpp"
#include "sim/core/error.hpp"
#include "sim/io/file_reader.hpp"

namespace spillway::hwmodels {

inline constexpr FileWords kMeasurementWords{"measurement file", "measurement"};

/// The advice for a bad row.
inline constexpr const char* kCorrectRow = "correct or delete the row";

/// The problems of one file. All are counted; the first kShown are reported.
class Complaints {
 public:
  static constexpr std::size_t kShown = 20;

  explicit Complaints(std::string path) : path_(std::move(path)) {}
  /// `part` follows the path: " line 3, column m", " at /measurements/2/m", or nothing.
  void add(const std::string& part, std::string what, std::string fix);
  [[nodiscard]] bool any() const { return count_ > 0; }
  /// The problems that are shown, then the number of others.
  [[nodiscard]] std::vector<Problem> problems() const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<Problem> shown_;
  std::size_t count_ = 0;
};

/// The fields of the current row, by their names in the file. A field that is missing, of another type or out of range
/// is reported and read as empty.
class RowSource {
 public:
  // Far more than any GPU processes in a second, and small enough that every product of shapes can be checked in
  // double.
  static constexpr std::int64_t kMostCount = 1'000'000'000'000;
  static constexpr double kMostBytes = 1e15;
  static constexpr double kMostSeconds = 1000.0;
  static constexpr double kLeastSeconds = 1e-9;

  RowSource() = default;
  virtual ~RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  [[nodiscard]] virtual RowPlace place() const = 0;
  [[nodiscard]] virtual bool has(std::string_view name) const = 0;
  virtual std::optional<std::string> word(std::string_view name) = 0;
  virtual std::optional<bool> flag(std::string_view name) = 0;
  /// The measured time in seconds; the file states the unit.
  virtual std::optional<double> seconds() = 0;
  virtual void bad(std::string_view name, std::string what, std::string fix) = 0;

  /// From `least` to kMostCount.
  std::optional<std::int64_t> count(std::string_view name, std::int64_t least = 1);
  /// From `least` to `most`; above 0 in any case when `least` is not 0.
  std::optional<double> amount(std::string_view name, double least, double most);

 protected:
  virtual std::optional<std::int64_t> integer(std::string_view name) = 0;
  virtual std::optional<double> number(std::string_view name) = 0;
  /// `seconds` when kernels can take so long, else a complaint about the field.
  std::optional<double> duration(std::string_view name, double seconds);
};

// Rows from fields of these names (and `seconds`); empty when a field or their combination is bad.
/// m, n, k and, where the file has them, dtype or gemm_dtype.
std::optional<GemmRow> gemm_row(RowSource& row);
/// batch, q_heads, kv_heads, head_dim, new_tokens, context.
std::optional<AttentionRow> attention_row(RowSource& row);
/// ranks, bytes.
std::optional<AllReduceRow> all_reduce_row(RowSource& row);
/// kernel, tokens, bytes.
std::optional<ElementwiseRow> elementwise_row(RowSource& row);
/// mechanism, block_bytes, copies, duplex if there; bandwidth_gb_s (GB = 1e9) instead of the time when `by_bandwidth`.
std::optional<CopyRow> copy_row(RowSource& row, bool to_device, bool by_bandwidth);
/// threads, batch, context, kv_bytes.
std::optional<CpuAttentionRow> cpu_attention_row(RowSource& row);
/// tokens, context, chunk_pairs if there.
std::optional<IterationRow> iteration_row(RowSource& row);

/// moe_dtype, kernel, tokens, hidden, inter, topk, experts, tp, ep, distribution (balanced or power_law_ALPHA).
std::optional<MoeRow> moe_row(RowSource& row);

/// backend, step, ranks, tokens, hidden, topk, element_bytes, and experts if there.
std::optional<ExchangeRow> exchange_row(RowSource& row);

/// Names of the fields of a product on the CPU.
struct HostGemmNames {
  std::string_view rows;
  std::string_view inputs;
  std::string_view outputs;
};
/// The three, and threads and dtype (bf16, fp16 or fp32) if there.
std::optional<HostGemmRow> host_gemm_row(RowSource& row, const HostGemmNames& names);

/// Names of the fields of a mixed call.
struct MixedNames {
  std::string_view chunk;
  std::string_view chunk_context;
  std::string_view decodes;
  std::string_view decode_context;
};
std::optional<MixedRow> mixed_row(RowSource& row, const MixedNames& names);
std::optional<LayerRow> layer_row(RowSource& row, std::string_view kernel, std::string_view count, bool per_sequence);

/// "allowed: a, b, c", with "did you mean" in front when one of them is near `word`.
[[nodiscard]] std::string allowed_text(std::string_view word, const std::vector<std::string>& allowed);
/// The name in `known` of which `name` is probably a misspelling: one letter differs, in a name of at least four
/// letters. Empty for a known name and for any other name.
[[nodiscard]] std::string slip_of(std::string_view name, const std::vector<std::string>& known);

/// Rows of one file, before they join those of other files.
struct FilePart {
  Measurements rows;
  std::vector<std::string> notes;
};

[[nodiscard]] inline Op op_of(const GemmRow&) { return Op::gemm; }
[[nodiscard]] inline Op op_of(const AttentionRow& row) {
  return row.decode() ? Op::decode_attention : Op::prefill_attention;
}
[[nodiscard]] inline Op op_of(const MixedRow&) { return Op::mixed_attention; }
[[nodiscard]] inline Op op_of(const ElementwiseRow&) { return Op::elementwise; }
[[nodiscard]] inline Op op_of(const AllReduceRow&) { return Op::all_reduce; }
[[nodiscard]] inline Op op_of(const CopyRow& row) { return row.to_device ? Op::copy_h2d : Op::copy_d2h; }
[[nodiscard]] inline Op op_of(const CpuAttentionRow&) { return Op::cpu_attention; }
[[nodiscard]] inline Op op_of(const HostRow&) { return Op::host; }
[[nodiscard]] inline Op op_of(const LayerRow&) { return Op::layer; }
[[nodiscard]] inline Op op_of(const IterationRow&) { return Op::iteration; }
[[nodiscard]] inline Op op_of(const InterferenceRow&) { return Op::interference; }
[[nodiscard]] inline Op op_of(const HostStreamRow&) { return Op::host_stream; }
[[nodiscard]] inline Op op_of(const SustainedRow&) { return Op::sustained; }
[[nodiscard]] inline Op op_of(const MoeRow&) { return Op::moe; }
[[nodiscard]] inline Op op_of(const ExchangeRow&) { return Op::expert_exchange; }
[[nodiscard]] inline Op op_of(const HostGemmRow&) { return Op::host_gemm; }

/// Calls visit(first's rows, second's rows) for each kind of row.
template <class First, class Second, class Visit>
void visit_rows(First& first, Second& second, Visit visit) {
  visit(first.gemm, second.gemm);
  visit(first.attention, second.attention);
  visit(first.mixed, second.mixed);
  visit(first.elementwise, second.elementwise);
  visit(first.all_reduce, second.all_reduce);
  visit(first.copies, second.copies);
  visit(first.cpu_attention, second.cpu_attention);
  visit(first.host, second.host);
  visit(first.layers, second.layers);
  visit(first.iterations, second.iterations);
  visit(first.interference, second.interference);
  visit(first.host_streams, second.host_streams);
  visit(first.sustained, second.sustained);
  visit(first.moe, second.moe);
  visit(first.exchanges, second.exchanges);
  visit(first.host_gemms, second.host_gemms);
}

}  // namespace spillway::hwmodels
