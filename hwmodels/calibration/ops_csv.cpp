// Tables with one timed call per row. Shapes are those of one GPU, times those of the whole call:
//   gemm           m,n,k,latency_us[,dtype|gemm_dtype]   bf16 where no type is given; gemm_dtype fp8, fp8_block, ...:
//                                                        x and y in 16 bits, with the quantisation of x
//   attention      batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_us[,kv_dtype]
//   all-reduce     ranks,bytes,latency_us
//   collectives    op,backend,dtype,ranks,bytes,latency_us   the all-reduces of 16-bit numbers by nccl and vllm_graph
//   copies         direction,mechanism,block_bytes,copies,latency_us|bandwidth_gb_s[,duplex]
//   elementwise    kernel,tokens,bytes,latency_us
//   MoE            moe_dtype,kernel,tokens,hidden,inter,topk,experts,tp,ep,distribution,latency_us
//   exchanges      nodes,hidden,tokens,topk,experts,dispatch_us,combine_us                       DeepEP, low latency
//                  nodes,hidden,tokens,topk,experts,dispatch_sms,dispatch_transmit_us,combine_sms,combine_transmit_us
//                  op,kernel,dtype,tokens,hidden,topk,experts,ep,distribution,latency_us            TensorRT-LLM
//   CPU attention  threads,batch,context,kv_bytes,latency_us
//   CPU products   kind,batch,m,n,k,latency_us[,dtype][,threads]   kind gemm and batch 1; bf16 where no type is given
// The column's name gives the unit of the time: us, ms or s. aiconfigurator's tables (ai-dynamo/aiconfigurator,
// Apache-2.0) are usually reduced to the first two.
#include <fmt/format.h>

#include <algorithm>

#include "hwmodels/calibration/csv_table.hpp"

namespace spillway::hwmodels {
namespace {

template <class Row>
void read_all(CsvTable& table, std::vector<Row>& rows, std::optional<Row> (*read)(RowSource&)) {
  while (table.next()) {
    if (auto row = read(table)) rows.push_back(std::move(*row));
  }
}

// Layouts of GPUs and elements that the tables of exchanges do not state. DeepEP sends fp8 with a 4-byte scale for each
// 128 elements there and bf16 back (the GB/s of its tables agree), its kernels for prefills bf16 both ways.
constexpr std::int64_t kGpusPerNode = 8;
constexpr double kHalfBytes = 2.0;
constexpr double kScaledFp8Bytes = 1.0 + 4.0 / 128.0;
constexpr std::int64_t kDeepEpSms = 20;  // DeepEP's default, of memory
constexpr double kMicrosecond = 1e-6;

/// The fields that both DeepEP tables share; `column` has the time in us.
void read_deepep(CsvTable& table, ExchangeBackend backend, ExchangeStep step, const char* column, double element_bytes,
                 std::vector<ExchangeRow>& rows) {
  const auto nodes = table.count("nodes");
  const auto hidden = table.count("hidden");
  const auto tokens = table.count("tokens");
  const auto top_k = table.count("topk");
  const auto experts = table.count("experts");
  const auto time =
      table.amount(column, RowSource::kLeastSeconds / kMicrosecond, RowSource::kMostSeconds / kMicrosecond);
  if (!nodes || !hidden || !tokens || !top_k || !experts || !time) return;
  if (*top_k > *experts) {
    return table.bad("topk", fmt::format("{} experts per token, but {} experts", *top_k, *experts), kCorrectRow);
  }
  rows.push_back({backend,
                  step,
                  kGpusPerNode * *nodes,
                  {*tokens, *hidden, *top_k, element_bytes},
                  *experts,
                  kMicrosecond * *time,
                  table.place()});
}

void read_deepep_low_latency(CsvTable& table, FilePart& part) {
  while (table.next()) {
    const auto read = [&](ExchangeStep step, const char* column, double bytes) {
      read_deepep(table, ExchangeBackend::deepep_low_latency, step, column, bytes, part.rows.exchanges);
    };
    read(ExchangeStep::dispatch, "dispatch_us", kScaledFp8Bytes);
    read(ExchangeStep::combine, "combine_us", kHalfBytes);
  }
}

void read_deepep_normal(CsvTable& table, FilePart& part) {
  std::int64_t others = 0;
  while (table.next()) {
    const auto read = [&](ExchangeStep step, const char* sms, const char* column) {
      const auto count = table.count(sms);
      if (!count) return;
      if (*count != kDeepEpSms) {
        ++others;
      } else {
        read_deepep(table, ExchangeBackend::deepep_normal, step, column, kHalfBytes, part.rows.exchanges);
      }
    };
    read(ExchangeStep::dispatch, "dispatch_sms", "dispatch_transmit_us");
    read(ExchangeStep::combine, "combine_sms", "combine_transmit_us");
  }
  if (others > 0) part.notes.push_back(fmt::format("{} calls on other than {} SMs were left out", others, kDeepEpSms));
}

/// TensorRT-LLM's exchanges over NVLink. The type is that of dispatched elements; bf16 comes back.
void read_alltoall(CsvTable& table, FilePart& part) {
  std::int64_t others = 0;
  while (table.next()) {
    const std::string_view op = table.field("op");
    const std::string_view kernel = table.field("kernel");
    const std::string_view type = table.field("dtype");
    const std::string_view step_name = op.starts_with("alltoall_") ? op.substr(9) : std::string_view();
    const auto step = exchange_step_named(step_name);
    const bool one_sided = kernel == "NVLinkOneSided";
    const bool half = type == "bfloat16" || type == "float16";
    const auto quantization = half ? std::optional(Quantization::none) : quantization_named(type);
    if (!step || (!one_sided && kernel != "NVLinkTwoSided") || !quantization ||
        table.field("distribution") != "balanced") {
      ++others;
      continue;
    }
    const ExchangeStep kind = step.value_or(ExchangeStep::prepare);
    const auto tokens = table.count("tokens");
    const auto hidden = table.count("hidden");
    const auto top_k = table.count("topk");
    const auto experts = table.count("experts");
    const auto ranks = table.count("ep", 2);
    const auto seconds = table.seconds();
    if (!tokens || !hidden || !top_k || !experts || !ranks || !seconds) continue;
    const double bytes = kind == ExchangeStep::combine ? kHalfBytes : format_of(*quantization).input_bytes;
    part.rows.exchanges.push_back({one_sided ? ExchangeBackend::nvlink_one_sided : ExchangeBackend::nvlink_two_sided,
                                   kind,
                                   *ranks,
                                   {*tokens, *hidden, *top_k, bytes},
                                   *experts,
                                   *seconds,
                                   table.place()});
  }
  if (others > 0) {
    part.notes.push_back(
        fmt::format("{} rows were left out: they are not balanced prepare, dispatch or combine calls of NVLinkOneSided "
                    "or NVLinkTwoSided in a known type",
                    others));
  }
}

/// An all-gather or reduce-scatter of one element for each token: only the bytes count.
void read_nccl_exchange(CsvTable& table, bool gather, FilePart& part) {
  const auto ranks = table.count("ranks", 2);
  const auto bytes = table.count("bytes");
  const auto seconds = table.seconds();
  if (!ranks || !bytes || !seconds) return;
  const std::int64_t tokens = std::max<std::int64_t>(1, *bytes / 2 / *ranks);
  part.rows.exchanges.push_back({ExchangeBackend::nccl,
                                 gather ? ExchangeStep::dispatch : ExchangeStep::combine,
                                 *ranks,
                                 {tokens, 1, 1, kHalfBytes},
                                 0,
                                 *seconds,
                                 table.place()});
}

/// NCCL's all-reduces, and those of vLLM's kernels in CUDA graphs. Eager calls hold a tensor copy and the launch.
void read_collectives(CsvTable& table, FilePart& part) {
  std::int64_t others = 0;
  while (table.next()) {
    const bool half = table.field("dtype") == "half" || table.field("dtype") == "bfloat16";
    const bool custom = table.field("backend") == "vllm_graph";
    const std::string_view op = table.field("op");
    const bool nccl = table.field("backend") == "nccl";
    if (half && nccl && (op == "all_gather" || op == "reduce_scatter")) {
      read_nccl_exchange(table, op == "all_gather", part);
    } else if (op != "all_reduce" || !half || (!custom && !nccl)) {
      ++others;
    } else if (auto row = all_reduce_row(table)) {
      row->custom = custom;
      part.rows.all_reduce.push_back(*row);
    }
  }
  if (others == 0) return;
  part.notes.push_back(fmt::format(
      "{} rows were left out: they are not all-reduces of 16-bit numbers by nccl or vllm_graph, nor all-gathers or "
      "reduce-scatters by nccl",
      others));
}

/// Products of one matrix on the CPU. Batched products (kind bmm) are attention's.
void read_host_gemms(CsvTable& table, FilePart& part) {
  std::int64_t others = 0;
  while (table.next()) {
    const auto kind = table.word("kind");
    const bool known = kind == "gemm" || kind == "bmm";
    if (kind && !known) {
      table.bad("kind", fmt::format("unknown kind \"{}\"", excerpt(*kind)), allowed_text(*kind, {"gemm", "bmm"}));
    }
    const auto batch = table.count("batch");
    const auto row = host_gemm_row(table, {"m", "k", "n"});
    if (!known || !batch || !row) continue;
    if (kind == "gemm" && *batch == 1) {
      part.rows.host_gemms.push_back(*row);
    } else {
      ++others;
    }
  }
  if (others > 0) part.notes.push_back(fmt::format("{} rows were left out: they are batched products", others));
}

void read_copies(CsvTable& table, FilePart& part) {
  while (table.next()) {
    const auto direction = table.word("direction");
    const bool known = direction == "h2d" || direction == "d2h";
    if (direction && !known) {
      table.bad("direction", fmt::format("unknown direction \"{}\"", excerpt(*direction)), "allowed: h2d, d2h");
    }
    const auto row = copy_row(table, direction == "h2d", table.has("bandwidth_gb_s"));
    if (row && known) part.rows.copies.push_back(*row);
  }
}

}  // namespace

std::span<const CsvFormat> ops_formats() {
  static const std::vector<CsvFormat> kFormats{
      {"ops-gemm-csv",
       {"m", "n", "k"},
       {"dtype", "gemm_dtype"},
       "latency",
       {},
       [](CsvTable& table, FilePart& part) { read_all(table, part.rows.gemm, gemm_row); }},
      {"ops-host-gemm-csv", {"kind", "batch", "m", "n", "k"}, {"dtype", "threads"}, "latency", {}, read_host_gemms},
      {"ops-attention-csv",
       {"batch", "q_heads", "kv_heads", "head_dim", "new_tokens", "context"},
       {"kv_dtype"},
       "latency",
       {},
       [](CsvTable& table, FilePart& part) { read_all(table, part.rows.attention, attention_row); }},
      {"ops-collectives-csv", {"op", "backend", "dtype", "ranks", "bytes"}, {}, "latency", {}, read_collectives},
      {"ops-all-reduce-csv",
       {"ranks", "bytes"},
       {},
       "latency",
       {},
       [](CsvTable& table, FilePart& part) { read_all(table, part.rows.all_reduce, all_reduce_row); }},
      {"ops-copies-csv",
       {"direction", "mechanism", "block_bytes", "copies"},
       {"duplex"},
       "latency",
       "bandwidth_gb_s",
       read_copies},
      {"ops-moe-csv",
       {"moe_dtype", "kernel", "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "distribution"},
       {},
       "latency",
       {},
       [](CsvTable& table, FilePart& part) { read_all(table, part.rows.moe, moe_row); }},
      {"ops-deepep-ll-csv",
       {"nodes", "hidden", "tokens", "topk", "experts", "dispatch_us", "combine_us"},
       {"dispatch_gb_s", "combine_gb_s"},
       {},
       {},
       read_deepep_low_latency},
      {"ops-deepep-normal-csv",
       {"nodes", "hidden", "tokens", "topk", "experts", "dispatch_sms", "dispatch_transmit_us", "combine_sms",
        "combine_transmit_us"},
       {"dispatch_notify_us", "combine_notify_us"},
       {},
       {},
       read_deepep_normal},
      {"ops-alltoall-csv",
       {"op", "kernel", "dtype", "tokens", "hidden", "topk", "experts", "ep", "distribution"},
       {},
       "latency",
       {},
       read_alltoall},
      {"ops-elementwise-csv",
       {"kernel", "tokens", "bytes"},
       {},
       "latency",
       {},
       [](CsvTable& table, FilePart& part) { read_all(table, part.rows.elementwise, elementwise_row); }},
      {"ops-cpu-attention-csv",
       {"threads", "batch", "context", "kv_bytes"},
       {},
       "latency",
       {},
       [](CsvTable& table, FilePart& part) { read_all(table, part.rows.cpu_attention, cpu_attention_row); }}};
  return kFormats;
}

}  // namespace spillway::hwmodels
