// Tables of a real engine's iterations:
//   dense          layer,tokens,time_us           one kernel by the tokens of the iteration
//   per sequence   layer,sequences,time_us        one kernel by the sampled sequences
//   attention      prefill_chunk,kv_prefill,n_decode,kv_decode,time_us   one fused call
//   iteration log  tokens,context,time_ms[,chunk_pairs]                  whole iterations
// LLMServingSim's profiler (casys-kaist/LLMServingSim, MIT) writes the first three. Its documents do not say what
// kv_decode and kv_prefill count, so the meaning was derived from the tables of Llama-3.1-8B on an RTX 4090 (vLLM 0.19;
// one layer, 32 query and 8 KV heads of 128: 4096 bytes of KV per token):
//   kv_decode is of each sequence. Over the 99 rows without a prefill, n_decode from 1 to 256, the time is 27 us + 4.30
//   ns times n_decode kv_decode with R^2 = 0.99994; that is 953 GB/s of the GPU's 1008. Over kv_decode alone R^2 is
//   0.27. kv_prefill is the context before the chunk, without the chunk. Rows with kv_prefill < prefill_chunk exist,
//   and 2048 tokens behind 0 and behind 16 take 336 and 335 us. Over the rows without a decode and with chunks of 512
//   and more, the time is linear in chunk (kv_prefill + chunk / 2) with R^2 = 0.998; with the chunk counted in
//   kv_prefill it is 0.97.
#include "hwmodels/calibration/csv_table.hpp"

namespace spillway::hwmodels {
namespace {

constexpr MixedNames kMixed{"prefill_chunk", "kv_prefill", "n_decode", "kv_decode"};

void read_mixed(CsvTable& table, FilePart& part) {
  while (table.next()) {
    if (const auto row = mixed_row(table, kMixed)) part.rows.mixed.push_back(*row);
  }
}

void read_layers(CsvTable& table, FilePart& part, std::string_view count, bool per_sequence) {
  while (table.next()) {
    if (auto row = layer_row(table, "layer", count, per_sequence)) part.rows.layers.push_back(std::move(*row));
  }
}

void read_iterations(CsvTable& table, FilePart& part) {
  while (table.next()) {
    if (const auto row = iteration_row(table)) part.rows.iterations.push_back(*row);
  }
}

}  // namespace

std::span<const CsvFormat> engine_formats() {
  static const std::vector<CsvFormat> kFormats{
      {"engine-dense-csv",
       {"layer", "tokens"},
       {},
       "time",
       {},
       [](CsvTable& table, FilePart& part) { read_layers(table, part, "tokens", false); }},
      {"engine-per-sequence-csv",
       {"layer", "sequences"},
       {},
       "time",
       {},
       [](CsvTable& table, FilePart& part) { read_layers(table, part, "sequences", true); }},
      {"engine-attention-csv",
       {kMixed.chunk, kMixed.chunk_context, kMixed.decodes, kMixed.decode_context},
       {},
       "time",
       {},
       read_mixed},
      {"iteration-log-csv", {"tokens", "context"}, {"chunk_pairs"}, "time", {}, read_iterations}};
  return kFormats;
}

}  // namespace spillway::hwmodels
