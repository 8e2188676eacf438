// Tables with one timed call per row. Shapes are those of one GPU, times those of the whole call:
//   gemm           m,n,k,latency_us[,dtype|gemm_dtype]   bf16 where no type is given
//   attention      batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_us
//   all-reduce     ranks,bytes,latency_us
//   copies         direction,mechanism,block_bytes,copies,latency_us|bandwidth_gb_s[,duplex]
//   elementwise    kernel,tokens,bytes,latency_us
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
       {},
       "latency",
       {},
       [](CsvTable& table, FilePart& part) { read_all(table, part.rows.attention, attention_row); }},
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
