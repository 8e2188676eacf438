// Vidur's profiling tables (microsoft/vidur, MIT; data/profiling). Times are medians in milliseconds, of a clock with a
// resolution of 1 us. Rows of one key, which Vidur repeats, become one row: the median, at the place of the first.
//
//   mlp.csv  One row per tokens T and GPUs TP. With d = n_embd, H and KV heads of width w = d / H, F = n_expanded_embd,
//     all in 16 bit, the GEMMs of one GPU are: attn_pre_proj n = (H + 2 KV) w / TP, k = d; attn_post_proj n = d,
//     k = H w / TP; mlp_up_proj n = F / TP (2 F / TP with use_gated_mlp), k = d; mlp_down_proj n = d, k = F / TP.
//     The other kernels move these bytes: emb reads and writes a row of d: 4 T d; input_layernorm,
//     post_attention_layernorm read and write d: 4 T d; attn_rope reads and writes query and key, and reads a row of
//     sines and cosines: 4 T (H + KV) w / TP + 2 T w; mlp_act reads F / TP (2 F / TP when gated) and writes F / TP:
//     4 T F / TP (6 T F / TP); add reads two and writes one of d: 6 T d.
//   attention.csv  attn_prefill: batch_size sequences, each a chunk of prefill_chunk_size tokens behind kv_cache_size
//     earlier ones (rows with kv_cache_size < prefill_chunk_size exist, and their sum never exceeds max_model_len).
//     attn_decode: one token behind kv_cache_size ones, in each of batch_size sequences.
//   all_reduce.csv  size is in bytes: were it a count of 16-bit values, the largest buffers would pass at a bus
//   bandwidth of
//     348 GB/s over an A100's NVLink (300 GB/s per direction) and of 729 GB/s over an H100's (450).
//   cpu_overheads.csv  Per batch_size and tensor_parallel_degree; the GPU waits for schedule + sampler_e2e +
//     prepare_inputs_e2e + process_model_outputs. One row per model; hosts are not told apart by model here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "hwmodels/calibration/csv_table.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

/// Below this, the resolution is over 10% of a time. Slightly less than 0.005, so that 0.005 in any notation is
/// included.
constexpr double kLeastMilliseconds = 0.005 - 1e-9;

std::string median_of(std::string_view kernel) { return fmt::format("time_stats.{}.median", kernel); }

/// Rows by their key, in the order of their first appearance.
template <class Row, class Key>
class Merger {
 public:
  void add(const Key& key, Row row, double milliseconds) {
    const auto [it, is_new] = index_.emplace(key, rows_.size());
    if (is_new) {
      rows_.push_back(std::move(row));
      times_.emplace_back();
    }
    times_[it->second].push_back(milliseconds);
    ++measured_;
  }

  /// Appends the rows of at least `least` milliseconds.
  void finish(std::vector<Row>& to, std::vector<std::string>& notes, std::string_view what, double least) {
    std::size_t left_out = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const double milliseconds = median(times_[i]);
      if (milliseconds < least) {
        ++left_out;
        continue;
      }
      rows_[i].seconds = milliseconds * CsvTable::kMillisecond;
      to.push_back(std::move(rows_[i]));
    }
    if (measured_ > rows_.size()) {
      notes.push_back(fmt::format("{} {} measurements are of {} cases: the median of each was taken", measured_, what,
                                  rows_.size()));
    }
    if (left_out > 0) {
      notes.push_back(fmt::format("{} of {} {} cases below 5 us were left out: the file resolves 1 us", left_out,
                                  rows_.size(), what));
    }
  }

 private:
  std::map<Key, std::size_t> index_;
  std::vector<Row> rows_;
  std::vector<std::vector<double>> times_;
  std::size_t measured_ = 0;
};

/// `value` / `parts`, which must be whole.
std::optional<std::int64_t> split(CsvTable& table, std::string_view name, std::int64_t value, std::int64_t parts) {
  if (value % parts == 0) return value / parts;
  table.bad(name, fmt::format("{} cannot be split into {} equal parts", value, parts), kCorrectRow);
  return std::nullopt;
}

/// KV heads of one GPU. With more GPUs than heads, each GPU has a copy of one head.
std::int64_t kv_heads_of(std::int64_t heads, std::int64_t gpus) { return std::max<std::int64_t>(1, heads / gpus); }

/// The model and the batch of one row of mlp.csv, on one GPU.
struct Mlp {
  std::int64_t tokens = 0;
  std::int64_t embedding = 0;
  std::int64_t query = 0;  // widths of one GPU
  std::int64_t key = 0;
  std::int64_t ffn = 0;
  std::int64_t head_dim = 0;
  bool gated = false;
};

std::optional<Mlp> mlp_of(CsvTable& table) {
  // These bounds keep every product within int64.
  const auto heads = table.count("n_head");
  const auto kv_heads = table.count("n_kv_head");
  const auto embedding = table.count("n_embd");
  const auto ffn = table.count("n_expanded_embd");
  const auto tokens = table.count("num_tokens");
  const auto gpus = table.count("num_tensor_parallel_workers");
  const auto gated = table.flag("use_gated_mlp");
  if (!heads || !kv_heads || !embedding || !ffn || !tokens || !gpus || !gated) return std::nullopt;
  constexpr std::int64_t kWidest = 10'000'000;
  for (const auto& [name, width] : {std::pair("n_embd", *embedding), std::pair("n_expanded_embd", *ffn),
                                    std::pair("num_tokens", *tokens), std::pair("n_kv_head", *kv_heads)}) {
    if (width <= kWidest) continue;
    table.bad(name, fmt::format("{} is above {}", width, kWidest), kCorrectRow);
    return std::nullopt;
  }
  const auto head_dim = split(table, "n_embd", *embedding, *heads);
  const auto heads_here = split(table, "n_head", *heads, *gpus);
  const auto ffn_here = split(table, "n_expanded_embd", *ffn, *gpus);
  if (!head_dim || !heads_here || !ffn_here) return std::nullopt;
  return Mlp{*tokens,   *embedding, *heads_here * *head_dim, kv_heads_of(*kv_heads, *gpus) * *head_dim, *ffn_here,
             *head_dim, *gated};
}

struct Gemm {
  std::string_view kernel;
  std::int64_t n;
  std::int64_t k;
};
std::array<Gemm, 4> gemms_of(const Mlp& mlp) {
  return {{{"attn_pre_proj", mlp.query + 2 * mlp.key, mlp.embedding},
           {"attn_post_proj", mlp.embedding, mlp.query},
           {"mlp_up_proj", (mlp.gated ? 2 : 1) * mlp.ffn, mlp.embedding},
           {"mlp_down_proj", mlp.embedding, mlp.ffn}}};
}

struct Moved {
  std::string_view kernel;
  std::int64_t values;  // of 2 bytes, read and written for one token
};
std::array<Moved, 6> moved_by(const Mlp& mlp) {
  return {{{"emb", 2 * mlp.embedding},
           {"input_layernorm", 2 * mlp.embedding},
           {"post_attention_layernorm", 2 * mlp.embedding},
           {"attn_rope", 2 * (mlp.query + mlp.key) + mlp.head_dim},
           {"mlp_act", (mlp.gated ? 3 : 2) * mlp.ffn},
           {"add", 3 * mlp.embedding}}};
}

void read_mlp(CsvTable& table, FilePart& part) {
  Merger<GemmRow, std::tuple<std::int64_t, std::int64_t, std::int64_t>> gemms;
  Merger<ElementwiseRow, std::tuple<std::string, std::int64_t, std::int64_t>> others;
  while (table.next()) {
    const auto mlp = mlp_of(table);
    if (!mlp) continue;
    for (const Gemm& gemm : gemms_of(*mlp)) {
      if (const auto time = table.milliseconds(median_of(gemm.kernel))) {
        gemms.add({mlp->tokens, gemm.n, gemm.k}, {mlp->tokens, gemm.n, gemm.k, 2, 0.0, table.place()}, *time);
      }
    }
    for (const Moved& moved : moved_by(*mlp)) {
      const std::string column = median_of(moved.kernel);
      if (!table.has(column)) continue;
      const std::int64_t bytes = 2 * moved.values * mlp->tokens;
      if (const auto time = table.milliseconds(column)) {
        const std::string kernel(moved.kernel);
        others.add({kernel, mlp->tokens, bytes}, {kernel, mlp->tokens, static_cast<double>(bytes), 0.0, table.place()},
                   *time);
      }
    }
  }
  gemms.finish(part.rows.gemm, part.notes, "GEMM", kLeastMilliseconds);
  others.finish(part.rows.elementwise, part.notes, "elementwise", kLeastMilliseconds);
}

std::optional<AttentionRow> attention_of(CsvTable& table, bool prefill) {
  const auto heads = table.count("n_q_head");
  const auto kv_heads = table.count("n_kv_head");
  const auto embedding = table.count("n_embd");
  const auto gpus = table.count("num_tensor_parallel_workers");
  const auto batch = table.count("batch_size");
  const auto chunk = prefill ? table.count("prefill_chunk_size") : std::optional<std::int64_t>(1);
  const auto context = table.count("kv_cache_size", prefill ? 0 : 1);
  if (!heads || !kv_heads || !embedding || !gpus || !batch || !chunk || !context) return std::nullopt;
  constexpr std::int64_t kMost = 1'000'000'000;
  for (const auto& [name, value] : {std::pair("n_embd", *embedding), std::pair("batch_size", *batch),
                                    std::pair("prefill_chunk_size", *chunk), std::pair("kv_cache_size", *context)}) {
    if (value <= kMost) continue;
    table.bad(name, fmt::format("{} is above {}", value, kMost), kCorrectRow);
    return std::nullopt;
  }
  const auto head_dim = split(table, "n_embd", *embedding, *heads);
  const auto heads_here = split(table, "n_q_head", *heads, *gpus);
  if (!head_dim || !heads_here) return std::nullopt;
  const std::int64_t kv_here = kv_heads_of(*kv_heads, *gpus);
  if (!split(table, "n_q_head", *heads_here, kv_here)) return std::nullopt;
  return AttentionRow{*batch, *heads_here, kv_here, *head_dim, *chunk, *context, 0.0, table.place()};
}

void read_attention(CsvTable& table, FilePart& part) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  Merger<AttentionRow, Key> prefills;
  Merger<AttentionRow, Key> decodes;
  while (table.next()) {
    const auto prefill = table.flag("is_prefill");
    if (!prefill) continue;
    const auto row = attention_of(table, *prefill);
    const auto time = table.milliseconds(median_of(*prefill ? "attn_prefill" : "attn_decode"));
    if (!row || !time) continue;
    (*prefill ? prefills : decodes)
        .add({row->batch, row->q_heads, row->kv_heads, row->head_dim, row->new_tokens, row->context}, *row, *time);
  }
  prefills.finish(part.rows.attention, part.notes, "prefill attention", kLeastMilliseconds);
  decodes.finish(part.rows.attention, part.notes, "decode attention", kLeastMilliseconds);
  std::vector<std::string> others;
  for (const std::string& name : table.header()) {
    if (name.ends_with(".median") && name != median_of("attn_prefill") && name != median_of("attn_decode")) {
      others.push_back(name);
    }
  }
  if (!others.empty()) {
    part.notes.push_back(
        fmt::format("not used, because the file does not state the bytes that they move: {}", fmt::join(others, ", ")));
  }
}

void read_all_reduce(CsvTable& table, FilePart& part) {
  Merger<AllReduceRow, std::pair<std::int64_t, std::int64_t>> merger;
  std::int64_t across = 0;
  std::int64_t foreign = 0;
  while (table.next()) {
    const auto ranks = table.count("num_workers", 2);
    const auto bytes = table.count("size");
    const auto in_node = table.count("devices_per_node");
    const auto time = table.milliseconds(median_of("all_reduce"));
    if (!ranks || !bytes || !in_node || !time) continue;
    if (table.field("collective") != "all_reduce") {
      ++foreign;
    } else if (*in_node < *ranks) {
      ++across;
    } else {
      merger.add({*ranks, *bytes}, {*ranks, *bytes, 0.0, table.place()}, *time);
    }
  }
  merger.finish(part.rows.all_reduce, part.notes, "all-reduce", kLeastMilliseconds);
  if (across > 0) part.notes.push_back(fmt::format("{} rows of GPUs in several nodes were left out", across));
  if (foreign > 0) part.notes.push_back(fmt::format("{} rows of other collectives were left out", foreign));
}

constexpr std::array<std::string_view, 4> kHostStages{"schedule_median", "sampler_e2e_median",
                                                      "prepare_inputs_e2e_median", "process_model_outputs_median"};

void read_cpu_overheads(CsvTable& table, FilePart& part) {
  Merger<HostRow, std::pair<std::int64_t, std::int64_t>> merger;
  std::set<std::string, std::less<>> models;
  while (table.next()) {
    const auto sequences = table.count("batch_size");
    const auto gpus = table.count("tensor_parallel_degree");
    double sum = 0.0;
    bool whole = true;
    for (const std::string_view stage : kHostStages) {
      const auto time = table.milliseconds(stage);
      whole = whole && time.has_value();
      sum += time.value_or(0.0);
    }
    if (!sequences || !gpus || !whole) continue;
    if (sum <= 0.0) {
      table.bad(kHostStages.front(), "the times of the four stages are all 0", kCorrectRow);
      continue;
    }
    if (table.has("model_name")) models.emplace(table.field("model_name"));
    merger.add({*sequences, *gpus}, {*sequences, *gpus, 0.0, table.place()}, sum);
  }
  merger.finish(part.rows.host, part.notes, "host", 0.0);
  if (models.size() > 1) part.notes.push_back(fmt::format("the medians are over {} models", models.size()));
}

std::vector<std::string_view> host_columns() {
  std::vector<std::string_view> columns(kHostStages.begin(), kHostStages.end());
  columns.insert(columns.end(), {"batch_size", "tensor_parallel_degree"});
  return columns;
}

}  // namespace

std::span<const CsvFormat> vidur_formats() {
  static const std::vector<CsvFormat> kFormats{
      {"vidur-mlp-csv",
       {"time_stats.attn_pre_proj.median", "time_stats.attn_post_proj.median", "time_stats.mlp_up_proj.median",
        "time_stats.mlp_down_proj.median", "n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp",
        "num_tokens", "num_tensor_parallel_workers"},
       {"time_stats.emb.median", "time_stats.input_layernorm.median", "time_stats.post_attention_layernorm.median",
        "time_stats.attn_rope.median", "time_stats.mlp_act.median", "time_stats.add.median"},
       {},
       {},
       read_mlp},
      {"vidur-attention-csv",
       {"time_stats.attn_prefill.median", "time_stats.attn_decode.median", "n_embd", "n_q_head", "n_kv_head",
        "num_tensor_parallel_workers", "batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill"},
       {},
       {},
       {},
       read_attention},
      {"vidur-all-reduce-csv",
       {"time_stats.all_reduce.median", "num_workers", "size", "devices_per_node", "collective"},
       {},
       {},
       {},
       read_all_reduce},
      {"vidur-cpu-overheads-csv", host_columns(), {"model_name"}, {}, {}, read_cpu_overheads}};
  return kFormats;
}

}  // namespace spillway::hwmodels
