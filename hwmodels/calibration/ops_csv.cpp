// Tables with one timed call per row. Shapes are those of one GPU, times those of the whole call:
//   gemm           m,n,k,latency_us[,dtype|gemm_dtype]   bf16 where no type is given; gemm_dtype fp8, fp8_block, ...:
//                                                        x and y in 16 bits, with the quantisation of x
//   attention      batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_us[,kv_dtype]
//   all-reduce     ranks,bytes,latency_us
//   collectives    op,backend,dtype,ranks,bytes,latency_us   the all-reduces of 16-bit numbers by nccl and vllm_graph
//   copies         direction,mechanism,block_bytes,copies,latency_us|bandwidth_gb_s[,duplex]
//   elementwise    kernel,tokens,bytes,latency_us
//   MoE            moe_dtype,kernel,tokens,hidden,inter,topk,experts,tp,ep,distribution,latency_us
//   CPU attention  threads,batch,context,kv_bytes,latency_us
// The column's name gives the unit of the time: us, ms or s. aiconfigurator's tables (ai-dynamo/aiconfigurator,
// Apache-2.0) are usually reduced to the first two.
#include <fmt/format.h>

#include "hwmodels/calibration/csv_table.hpp"

namespace spillway::hwmodels {
namespace {

template <class Row>
void read_all(CsvTable& table, std::vector<Row>& rows, std::optional<Row> (*read)(RowSource&)) {
  while (table.next()) {
    if (auto row = read(table)) rows.push_back(std::move(*row));
  }
}

/// NCCL's all-reduces, and those of vLLM's kernels in CUDA graphs. Eager calls hold a tensor copy and the launch.
void read_collectives(CsvTable& table, FilePart& part) {
  std::int64_t others = 0;
  while (table.next()) {
    const bool half = table.field("dtype") == "half" || table.field("dtype") == "bfloat16";
    const bool custom = table.field("backend") == "vllm_graph";
    if (table.field("op") != "all_reduce" || !half || (!custom && table.field("backend") != "nccl")) {
      ++others;
    } else if (auto row = all_reduce_row(table)) {
      row->custom = custom;
      part.rows.all_reduce.push_back(*row);
    }
  }
  if (others == 0) return;
  part.notes.push_back(
      fmt::format("{} rows were left out: they are not all-reduces of 16-bit numbers by nccl or vllm_graph", others));
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
