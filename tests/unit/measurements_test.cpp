#include "hwmodels/calibration/measurements.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/core/text.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using traces::gzipped;
using traces::problems_of;

Measurements read(const std::string& path, std::optional<Op> only = {}) {
  return read_measurements(std::vector<MeasurementInput>{{path, only}});
}

Measurements read_text(const std::string& text, std::optional<Op> only = {}) {
  const TempFile file(text, ".csv");
  return read(file.path(), only);
}

/// The problems of a file with this text.
std::string problems_in(const std::string& text, std::optional<Op> only = {}) {
  const TempFile file(text, ".csv");
  return problems_of([&] { (void)read(file.path(), only); }, file.path());
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A file of the real data, which is not in the repository; empty when the file is missing.
std::string shared(const std::string& name) {
  const std::string path = source_dir() + "/../shared/data/" + name;
  return std::filesystem::exists(path) ? path : std::string();
}

TEST(Measurements, NamesOfOps_AreThoseOfCalibrateCheck) {
  EXPECT_EQ(all_ops().size(), 18U);
  for (const Op op : all_ops()) EXPECT_EQ(op_named(op_name(op)), op);
  EXPECT_EQ(op_name(Op::copy_d2h), "copy_d2h");
  EXPECT_FALSE(op_named("decode"));
  for (const char* name : {"single", "many", "batched", "kernel", "gather", "peer", "relay"}) {
    ASSERT_TRUE(mechanism_named(name)) << name;
    EXPECT_EQ(mechanism_name(*mechanism_named(name)), name);
  }
  EXPECT_FALSE(mechanism_named("dma"));
}

TEST(Measurements, Gemm_InAnyOrderOfColumnsAndUnit) {
  const Measurements us = read_text("m,n,k,latency_us\n16,4096,2048,12.5\n");
  ASSERT_EQ(us.gemm.size(), 1U);
  EXPECT_EQ(us.gemm[0].m, 16);
  EXPECT_EQ(us.gemm[0].n, 4096);
  EXPECT_EQ(us.gemm[0].k, 2048);
  EXPECT_EQ(us.gemm[0].dtype_bytes, 2);
  EXPECT_DOUBLE_EQ(us.gemm[0].seconds, 12.5e-6);
  EXPECT_EQ(us.gemm[0].place.row, 2);
  ASSERT_EQ(us.files.size(), 1U);
  EXPECT_EQ(us.files[0].format, "ops-gemm-csv");
  EXPECT_EQ(us.files[0].rows, 1);
  EXPECT_EQ(us.files[0].sha256, sha256_hex("m,n,k,latency_us\n16,4096,2048,12.5\n"));
  EXPECT_EQ(place_text(us, us.gemm[0].place), us.files[0].path + " line 2");

  const Measurements mixed =
      read_text("\n note ,latency_ms,k,n,m,gemm_dtype\r\n\"a, b\", 1.5 ,3,2,1,fp8\r\n\r\nx,2e-3,6,5,4,fp32");
  ASSERT_EQ(mixed.gemm.size(), 2U);
  EXPECT_EQ(mixed.gemm[0].m, 1);
  EXPECT_EQ(mixed.gemm[0].k, 3);
  EXPECT_EQ(mixed.gemm[0].dtype_bytes, 2) << "gemm_dtype names the kernel, which quantises 16-bit x";
  EXPECT_EQ(mixed.gemm[0].quantization, Quantization::fp8);
  EXPECT_DOUBLE_EQ(mixed.gemm[0].seconds, 1.5e-3);
  EXPECT_EQ(mixed.gemm[1].quantization, Quantization::none);
  EXPECT_EQ(mixed.gemm[1].dtype_bytes, 4);
  EXPECT_DOUBLE_EQ(mixed.gemm[1].seconds, 2e-6);
  EXPECT_EQ(mixed.gemm[1].place.row, 5);
  EXPECT_DOUBLE_EQ(read_text("m,n,k,latency_s\n1,1,1,0.25\n").gemm[0].seconds, 0.25);

  const Measurements plain = read_text("m,n,k,latency_us,dtype\n1,2,3,4,fp8\n");
  EXPECT_EQ(plain.gemm[0].dtype_bytes, 1) << "dtype names the numbers that are multiplied";
  EXPECT_EQ(plain.gemm[0].quantization, Quantization::none);
  for (const QuantizationFormat& format : kQuantizationFormats) {
    if (format.quantization == Quantization::none) continue;
    const Measurements one = read_text(fmt::format("gemm_dtype,m,n,k,latency_us\n{},1,2,3,4\n", format.name));
    EXPECT_EQ(one.gemm.at(0).quantization, format.quantization);
  }
  EXPECT_EQ(read_text("gemm_dtype,m,n,k,latency_us\nbfloat16,1,2,3,4\n").gemm[0].dtype_bytes, 2);
}

// Batched products are attention's; m are rows, k inputs, n outputs.
TEST(Measurements, HostGemms_AreToldFromProductsOfAGpu) {
  const Measurements rows = read_text(
      "kind,batch,m,n,k,latency_us\nbmm,96,1,1024,128,122.0\ngemm,1,64,3000,2000,500\ngemm,2,64,3000,2000,900\n");
  EXPECT_EQ(rows.files[0].format, "ops-host-gemm-csv");
  EXPECT_THAT(rows.files[0].notes, ElementsAre("2 rows were left out: they are batched products"));
  EXPECT_TRUE(rows.gemm.empty());
  ASSERT_EQ(rows.host_gemms.size(), 1U);
  EXPECT_EQ(rows.host_gemms[0].rows, 64);
  EXPECT_EQ(rows.host_gemms[0].inputs, 2000);
  EXPECT_EQ(rows.host_gemms[0].outputs, 3000);
  EXPECT_EQ(rows.host_gemms[0].threads, 0);
  EXPECT_EQ(rows.host_gemms[0].dtype_bytes, 2);
  EXPECT_DOUBLE_EQ(rows.host_gemms[0].seconds, 5e-4);
  const Measurements more = read_text("kind,batch,m,n,k,latency_ms,dtype,threads\ngemm,1,1,2,3,4,fp32,56\n");
  EXPECT_EQ(more.host_gemms.at(0).dtype_bytes, 4);
  EXPECT_EQ(more.host_gemms.at(0).threads, 56);
}

TEST(Measurements, HostGemms_WhenBad_ThenAreRefused) {
  const auto problem = [](const std::string& row) {
    return problems_in("kind,batch,m,n,k,latency_us,dtype\n" + row + "\n");
  };
  EXPECT_THAT(problem("gemm,1,0,2,3,4,bf16"), HasSubstr("0 is not from 1 to 1000000000000 | FILE line 2, column m"));
  EXPECT_THAT(problem("gemm,1,1,2,3,-4,bf16"), HasSubstr("a time must be above 0, not -4e-06 s"));
  EXPECT_THAT(problem("gem,1,1,2,3,4,bf16"),
              HasSubstr("unknown kind \"gem\" | FILE line 2, column kind | did you mean"));
  EXPECT_THAT(problem("gemm,1,1,2,3,4,fp8"), HasSubstr("unknown type \"fp8\" | FILE line 2, column dtype"));
  EXPECT_THAT(problem("gemm,0,1,2,3,4,bf16"), HasSubstr("FILE line 2, column batch"));
  EXPECT_THAT(problem("gemm,1,10000000,10000000,10000000,1e6,bf16"), HasSubstr("is above 1e+18"));
  EXPECT_THAT(problems_in("kind,batch,m,n,latency_us\ngemm,1,1,2,3\n"),
              HasSubstr("column k is missing | FILE line 1 | ops-host-gemm-csv needs the columns"));
}

TEST(Measurements, Attention_WhenKvIsInOneByte_ThenItsRowsAreApart) {
  const Measurements rows = read_text(
      "batch,q_heads,kv_heads,head_dim,new_tokens,context,kv_dtype,latency_us\n"
      "1,8,8,128,1,100,fp8,5\n1,8,8,128,1,100,bfloat16,6\n1,8,8,128,64,0,fp8,7\n");
  EXPECT_EQ(attention_rows(rows, true).size(), 1U);
  ASSERT_EQ(attention_rows(rows, true, true).size(), 1U);
  EXPECT_DOUBLE_EQ(attention_rows(rows, true, true)[0].seconds, 5e-6);
  ASSERT_EQ(attention_rows(rows, false, true).size(), 1U);
  EXPECT_DOUBLE_EQ(attention_rows(rows, false, true)[0].seconds, 7e-6);
  EXPECT_TRUE(attention_rows(rows, false).empty());
}

// Of the collectives, all-reduces of 16-bit numbers count, by NCCL and by an engine's kernels in CUDA graphs, and
// NCCL's all-gathers and reduce-scatters, as exchanges of expert parallelism.
TEST(Measurements, Collectives_WhenOthersAreThere_ThenTheyAreLeftOutAndCounted) {
  const Measurements rows = read_text(
      "op,backend,dtype,ranks,bytes,latency_us\nall_reduce,nccl,half,2,512,6\nall_reduce,vllm_graph,bfloat16,2,512,4\n"
      "all_reduce,vllm_eager,bfloat16,2,512,20\nall_gather,nccl,half,2,512,5\nall_reduce,nccl,int8,2,512,7\n");
  ASSERT_EQ(rows.all_reduce.size(), 2U);
  EXPECT_FALSE(rows.all_reduce[0].custom);
  EXPECT_DOUBLE_EQ(rows.all_reduce[0].seconds, 6e-6);
  EXPECT_TRUE(rows.all_reduce[1].custom);
  EXPECT_DOUBLE_EQ(rows.all_reduce[1].seconds, 4e-6);
  EXPECT_EQ(rows.exchanges.size(), 1U);
  EXPECT_THAT(rows.files[0].notes, ElementsAre(HasSubstr("2 rows were left out")));
}

TEST(Measurements, GzipIsUnpacked_AndHashedAsItLiesOnDisk) {
  const std::string packed = gzipped("m,n,k,latency_us\n1,2,3,4\n");
  const TempFile file(packed, ".csv.gz");
  const Measurements rows = read(file.path());
  EXPECT_EQ(rows.gemm.size(), 1U);
  EXPECT_EQ(rows.files[0].sha256, sha256_hex(packed));
}

TEST(Measurements, Attention_IsDecodeWithOneNewTokenBehindAContext) {
  const std::string text =
      "batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_us\n8,32,8,128,1,512,20\n1,32,8,128,64,0,30\n"
      "1,32,8,128,1,0,9\n";
  const Measurements rows = read_text(text);
  ASSERT_EQ(rows.attention.size(), 3U);
  EXPECT_TRUE(rows.attention[0].decode());
  EXPECT_FALSE(rows.attention[1].decode());
  EXPECT_FALSE(rows.attention[2].decode());
  EXPECT_EQ(rows.attention[0].batch, 8);
  EXPECT_EQ(rows.attention[0].q_heads, 32);
  EXPECT_EQ(rows.attention[0].kv_heads, 8);
  EXPECT_EQ(rows.attention[0].head_dim, 128);
  EXPECT_EQ(rows.attention[0].context, 512);

  const Measurements decode = read_text(text, Op::decode_attention);
  EXPECT_EQ(decode.attention.size(), 1U);
  EXPECT_EQ(decode.files[0].rows, 1);
  EXPECT_THAT(decode.files[0].notes,
              ElementsAre("only decode_attention was asked for; left out: 2 of prefill_attention"));
  EXPECT_EQ(problems_in(text, Op::gemm),
            "exit 3\nthe file holds no row of gemm | FILE | it holds 1 of decode_attention, 2 of prefill_attention");
}

TEST(Measurements, AllReduceElementwiseAndCpuAttention) {
  const Measurements reduce = read_text("ranks,bytes,latency_us\n8,1048576,40\n");
  ASSERT_EQ(reduce.all_reduce.size(), 1U);
  EXPECT_EQ(reduce.all_reduce[0].ranks, 8);
  EXPECT_EQ(reduce.all_reduce[0].bytes, 1048576);
  const Measurements elementwise = read_text("kernel,tokens,bytes,latency_us\nrmsnorm,64,1.5e6,5\n");
  ASSERT_EQ(elementwise.elementwise.size(), 1U);
  EXPECT_EQ(elementwise.elementwise[0].kernel, "rmsnorm");
  EXPECT_EQ(elementwise.elementwise[0].tokens, 64);
  EXPECT_DOUBLE_EQ(elementwise.elementwise[0].bytes, 1.5e6);
  const Measurements cpu = read_text("threads,batch,context,kv_bytes,latency_us\n32,4,1024,4194304,100\n");
  ASSERT_EQ(cpu.cpu_attention.size(), 1U);
  EXPECT_EQ(cpu.cpu_attention[0].threads, 32);
  EXPECT_DOUBLE_EQ(cpu.cpu_attention[0].kv_bytes, 4194304.0);
}

TEST(Measurements, Copies_ByTimeOrByBandwidth) {
  const Measurements timed = read_text(
      "direction,mechanism,block_bytes,copies,latency_us,duplex\nh2d,many,65536,32,120,0\nd2h,kernel,4096,8,30,True\n");
  ASSERT_EQ(timed.copies.size(), 2U);
  EXPECT_TRUE(timed.copies[0].to_device);
  EXPECT_FALSE(timed.copies[0].duplex);
  EXPECT_EQ(timed.copies[0].mechanism, CopyMechanism::many);
  EXPECT_EQ(timed.copies[0].copies, 32);
  EXPECT_DOUBLE_EQ(timed.copies[0].seconds, 120e-6);
  EXPECT_FALSE(timed.copies[1].to_device);
  EXPECT_TRUE(timed.copies[1].duplex);

  const Measurements rated =
      read_text("direction,mechanism,block_bytes,copies,bandwidth_gb_s\nh2d,single,50000000,2,25\n");
  ASSERT_EQ(rated.copies.size(), 1U);
  EXPECT_DOUBLE_EQ(rated.copies[0].seconds, 4e-3);  // 1e8 bytes at 25e9 bytes/s

  EXPECT_EQ(
      problems_in("direction,mechanism,block_bytes,copies,latency_us,duplex\nup,dma,1,1,1,maybe\n"),
      "exit 3\n"
      "unknown direction \"up\" | FILE line 2, column direction | allowed: h2d, d2h\n"
      "unknown mechanism \"dma\" | FILE line 2, column mechanism | allowed: single, many, batched, kernel, gather, "
      "peer, relay\n"
      "\"maybe\" is neither true nor false | FILE line 2, column duplex | correct or delete the row");
  EXPECT_THAT(problems_in("direction,mechanism,block_bytes,copies\nh2d,single,1,1\n"),
              HasSubstr("one of the columns latency_us, latency_ms, latency_s, bandwidth_gb_s is missing"));
  EXPECT_THAT(problems_in("direction,mechanism,block_bytes,copies,latency_us,bandwidth_gb_s\nh2d,single,1,1,1,1\n"),
              HasSubstr("columns latency_us and bandwidth_gb_s all give the time of a row"));
}

TEST(Measurements, EngineTables) {
  const Measurements dense = read_text("layer,tokens,time_us\nqkv_proj,64,31.5\nfinal_layernorm,1,3\n");
  ASSERT_EQ(dense.layers.size(), 2U);
  EXPECT_EQ(dense.layers[0].kernel, "qkv_proj");
  EXPECT_FALSE(dense.layers[0].per_sequence);
  EXPECT_EQ(dense.layers[0].count, 64);
  EXPECT_DOUBLE_EQ(dense.layers[0].seconds, 31.5e-6);
  const Measurements sampled = read_text("layer,sequences,time_ms\nlm_head,16,0.4\n");
  ASSERT_EQ(sampled.layers.size(), 1U);
  EXPECT_TRUE(sampled.layers[0].per_sequence);
  EXPECT_DOUBLE_EQ(sampled.layers[0].seconds, 0.4e-3);
  EXPECT_THAT(problems_in("layer,tokens,time_us\nqkv_prj,64,31.5\n"),
              HasSubstr("unknown layer \"qkv_prj\" | FILE line 2, column layer | did you mean \"qkv_proj\"? allowed: "
                        "qkv_proj, o_proj, gate_up_proj, down_proj, act_fn, layernorm, rotary_emb, embedding, "
                        "final_layernorm, lm_head, sampler"));

  const Measurements mixed =
      read_text("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,4,1024,21\n512,256,4,1024,88\n");
  ASSERT_EQ(mixed.mixed.size(), 2U);
  EXPECT_EQ(mixed.mixed[1].chunk, 512);
  EXPECT_EQ(mixed.mixed[1].chunk_context, 256);
  EXPECT_EQ(mixed.mixed[1].decodes, 4);
  EXPECT_EQ(mixed.mixed[1].decode_context, 1024);
  EXPECT_EQ(
      problems_in("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,0,0,1\n0,5,1,1,1\n1,0,0,5,1\n1,0,1,0,1\n"),
      "exit 3\n"
      "the call has neither a prefill nor a decode | FILE line 2, column prefill_chunk | correct or delete the row\n"
      "context of a prefill, but the call has no prefill | FILE line 3, column kv_prefill | correct or delete the row\n"
      "context of decodes, but the call has no decode | FILE line 4, column kv_decode | correct or delete the row\n"
      "decodes without context | FILE line 5, column kv_decode | correct or delete the row");

  const Measurements log = read_text("tokens,context,time_ms,chunk_pairs\n512,4096,24.5,131072\n");
  ASSERT_EQ(log.iterations.size(), 1U);
  EXPECT_EQ(log.iterations[0].tokens, 512);
  EXPECT_EQ(log.iterations[0].context, 4096);
  EXPECT_DOUBLE_EQ(log.iterations[0].chunk_pairs, 131072.0);
  EXPECT_DOUBLE_EQ(log.iterations[0].seconds, 24.5e-3);
  EXPECT_DOUBLE_EQ(read_text("tokens,context,time_us\n1,0,5\n").iterations[0].chunk_pairs, 0.0);
  EXPECT_THAT(problems_in("tokens,context,time_us,chunk_pair\n1,0,5,4\n"),
              HasSubstr("unknown column \"chunk_pair\" | FILE line 1 | did you mean \"chunk_pairs\"?"));
}

constexpr const char* kVidurMlp =
    "time_stats.attn_pre_proj.median,time_stats.attn_post_proj.median,time_stats.mlp_up_proj.median,"
    "time_stats.mlp_down_proj.median,time_stats.emb.median,time_stats.input_layernorm.median,"
    "time_stats.attn_rope.median,time_stats.mlp_act.median,time_stats.add.median,n_head,n_kv_head,n_embd,"
    "n_expanded_embd,use_gated_mlp,num_tokens,num_tensor_parallel_workers\n";

TEST(Measurements, VidurMlp_ShapesOfOneGpuAndBytesOfEachKernel) {
  // 16 heads of 128, 4 KV heads, MLP of 8192, on 2 GPUs; 256 tokens.
  const Measurements rows =
      read_text(std::string(kVidurMlp) + "0.15,0.06,0.3,0.14,0.02,0.012,0.01,0.03,0.006,16,4,2048,8192,True,256,2\n");
  ASSERT_EQ(rows.gemm.size(), 4U);
  const auto shape = [](const GemmRow& row) { return std::vector{row.m, row.n, row.k, row.dtype_bytes}; };
  EXPECT_THAT(shape(rows.gemm[0]), ElementsAre(256, (16 + 2 * 4) * 128 / 2, 2048, 2));
  EXPECT_THAT(shape(rows.gemm[1]), ElementsAre(256, 2048, 16 * 128 / 2, 2));
  EXPECT_THAT(shape(rows.gemm[2]), ElementsAre(256, 2 * 8192 / 2, 2048, 2));
  EXPECT_THAT(shape(rows.gemm[3]), ElementsAre(256, 2048, 8192 / 2, 2));
  EXPECT_DOUBLE_EQ(rows.gemm[3].seconds, 0.14e-3);
  ASSERT_EQ(rows.elementwise.size(), 5U);
  const std::vector<std::pair<std::string, double>> expected{{"emb", 4.0 * 256 * 2048},
                                                             {"input_layernorm", 4.0 * 256 * 2048},
                                                             {"attn_rope", 4.0 * 256 * (8 + 2) * 128 + 2.0 * 256 * 128},
                                                             {"mlp_act", 6.0 * 256 * 4096},
                                                             {"add", 6.0 * 256 * 2048}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(rows.elementwise[i].kernel, expected[i].first);
    EXPECT_DOUBLE_EQ(rows.elementwise[i].bytes, expected[i].second) << expected[i].first;
    EXPECT_EQ(rows.elementwise[i].tokens, 256);
  }
  EXPECT_TRUE(rows.files[0].notes.empty());

  EXPECT_EQ(problems_in(std::string(kVidurMlp) +
                        "0.15,0.06,0.3,0.14,0.02,0.012,0.01,0.03,0.006,16,16,2048,8192,False,256,32\n"),
            "exit 3\n16 cannot be split into 32 equal parts | FILE line 2, column n_head | correct or delete the row");
}

TEST(Measurements, VidurMlp_WithoutGateAndWithFewerKvHeadsThanGpus) {
  const Measurements rows =
      read_text(std::string(kVidurMlp) + "0.15,0.06,0.3,0.14,0.02,0.012,0.01,0.03,0.006,16,2,2048,8192,False,256,8\n");
  ASSERT_EQ(rows.gemm.size(), 4U);
  EXPECT_EQ(rows.gemm[0].n, (2 + 2 * 1) * 128) << "a copy of one KV head on every GPU";
  EXPECT_EQ(rows.gemm[2].n, 8192 / 8);
  EXPECT_DOUBLE_EQ(rows.elementwise[3].bytes, 4.0 * 256 * 1024);
}

TEST(Measurements, VidurMlp_MergesRepetitionsAndLeavesOutWhatItsClockCannotTell) {
  const Measurements rows = read_text(std::string(kVidurMlp) +
                                      "0.150,0.005,0.3,0.14,0.002,0.012,0.01,0.03,0,16,4,2048,8192,True,256,2\n"
                                      "0.154,0.005,0.3,0.14,0.002,0.012,0.01,0.03,0,16,4,2048,8192,True,256,2\n"
                                      "0.170,0.004,0.3,0.14,0.002,0.012,0.01,0.03,0,16,4,2048,8192,True,256,2\n");
  ASSERT_EQ(rows.gemm.size(), 4U);
  EXPECT_DOUBLE_EQ(rows.gemm[0].seconds, 0.154e-3);
  EXPECT_EQ(rows.gemm[0].place.row, 2);
  EXPECT_DOUBLE_EQ(rows.gemm[1].seconds, 0.005e-3) << "5 us are in";
  EXPECT_EQ(rows.elementwise.size(), 3U);
  EXPECT_THAT(rows.files[0].notes,
              ElementsAre("12 GEMM measurements are of 4 cases: the median of each was taken",
                          "15 elementwise measurements are of 5 cases: the median of each was taken",
                          "2 of 5 elementwise cases below 5 us were left out: the file resolves 1 us"));
}

TEST(Measurements, VidurAttention) {
  const std::string header =
      "time_stats.attn_decode.median,time_stats.attn_prefill.median,time_stats.attn_output_reshape.median,n_embd,"
      "n_q_head,n_kv_head,num_tensor_parallel_workers,batch_size,prefill_chunk_size,kv_cache_size,is_prefill\n";
  const Measurements rows = read_text(header +
                                      "0.05,,0.001,2048,16,4,2,8,0,512,False\n"
                                      ",0.2,0.001,2048,16,4,2,1,256,128,True\n"
                                      "0.004,,0.001,2048,16,4,2,1,0,32,False\n");
  ASSERT_EQ(rows.attention.size(), 2U);
  const AttentionRow& prefill = rows.attention[0];
  EXPECT_THAT((std::vector{prefill.batch, prefill.q_heads, prefill.kv_heads, prefill.head_dim, prefill.new_tokens,
                           prefill.context}),
              ElementsAre(1, 8, 2, 128, 256, 128));
  EXPECT_DOUBLE_EQ(prefill.seconds, 0.2e-3);
  const AttentionRow& decode = rows.attention[1];
  EXPECT_TRUE(decode.decode());
  EXPECT_THAT((std::vector{decode.batch, decode.context}), ElementsAre(8, 512));
  EXPECT_THAT(
      rows.files[0].notes,
      ElementsAre(
          "1 of 2 decode attention cases below 5 us were left out: the file resolves 1 us",
          "not used, because the file does not state the bytes that they move: time_stats.attn_output_reshape.median"));
  EXPECT_EQ(problems_in(header + ",0.2,0,2050,16,4,2,1,256,128,True\n,,0,2048,16,4,2,1,256,128,True\n"),
            "exit 3\n"
            "2050 cannot be split into 16 equal parts | FILE line 2, column n_embd | correct or delete the row\n"
            "the field is empty | FILE line 3, column time_stats.attn_prefill.median | correct or delete the row");
}

TEST(Measurements, VidurAllReduce_WithinOneNode) {
  const std::string header = ",time_stats.all_reduce.median,rank,num_workers,size,collective,devices_per_node\n";
  const Measurements rows = read_text(header +
                                      "0,0.03,0,4,2048,all_reduce,4\n1,0.05,1,4,2048,all_reduce,4\n"
                                      "2,0.9,0,8,2048,all_reduce,4\n3,0.9,0,4,2048,broadcast,4\n");
  ASSERT_EQ(rows.all_reduce.size(), 1U);
  EXPECT_EQ(rows.all_reduce[0].ranks, 4);
  EXPECT_EQ(rows.all_reduce[0].bytes, 2048);
  EXPECT_DOUBLE_EQ(rows.all_reduce[0].seconds, 0.04e-3);
  EXPECT_THAT(rows.files[0].notes, ElementsAre("2 all-reduce measurements are of 1 cases: the median of each was taken",
                                               "1 rows of GPUs in several nodes were left out",
                                               "1 rows of other collectives were left out"));
  EXPECT_EQ(problems_in(header + "2,0.9,0,8,2048,all_reduce,4\n"),
            "exit 3\nthe file holds no measurement | FILE | 1 rows of GPUs in several nodes were left out");
}

TEST(Measurements, VidurCpuOverheads) {
  const Measurements rows = read_text(
      "schedule_median,sampler_e2e_median,prepare_inputs_e2e_median,process_model_outputs_median,model_name,batch_size,"
      "tensor_parallel_degree\n0.25,0.5,0.75,0.125,some/model,8,2\n0.25,0.5,0.75,0.375,other/model,8,2\n");
  ASSERT_EQ(rows.host.size(), 1U);
  EXPECT_EQ(rows.host[0].sequences, 8);
  EXPECT_EQ(rows.host[0].tensor_parallel, 2);
  EXPECT_DOUBLE_EQ(rows.host[0].seconds, 1.75e-3);
  EXPECT_THAT(rows.files[0].notes, ElementsAre("2 host measurements are of 1 cases: the median of each was taken",
                                               "the medians are over 2 models"));
}

TEST(Measurements, AHeaderThatNearlyFits_NamesTheColumn) {
  EXPECT_EQ(problems_in("batch,q_heads,kv_head,head_dim,new_tokens,context,latency_us\n"),
            "exit 3\ncolumn kv_heads is missing; there is a column \"kv_head\" | FILE line 1 | ops-attention-csv needs "
            "the columns batch, q_heads, kv_heads, head_dim, new_tokens, context, latency_us");
  EXPECT_THAT(problems_in("M,n,k,latency_us\n"), HasSubstr("column m is missing; there is a column \"M\""));
  EXPECT_THAT(problems_in("m,n,k,latency_ns\n"),
              HasSubstr("one of the columns latency_us, latency_ms, latency_s is missing; there is a column "
                        "\"latency_ns\""));
  EXPECT_THAT(
      problems_in("m,n,k,latency_us,latency_ms\n"),
      HasSubstr("columns latency_us and latency_ms all give the time of a row | FILE line 1 | keep one of them"));
  EXPECT_THAT(problems_in("m,n,k,k,latency_us\n"), HasSubstr("column k appears 2 times"));
  EXPECT_THAT(problems_in("m,n,k,latency_us,dtypes\n1,1,1,1,bf16\n"), HasSubstr("did you mean \"dtype\"?"));
  EXPECT_THAT(problems_in("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n"),
              HasSubstr("the first line, \"TIMESTAMP,ContextTokens,GeneratedTokens\", is not the header of a "
                        "known table of measurements | FILE line 1 | known: m, n, k, latency_us; "));
}

TEST(Measurements, BadFields_AreAllTold) {
  EXPECT_EQ(
      problems_in("m,n,k,latency_us,dtype\n0,2,3,1,bf16\n1.5,2,3,1,bf16\n1,-2,3,1,bf16\n1,2,,1,bf16\n1,2,3,nan,bf16\n"
                  "1,2,3,inf,bf16\n1,2,3,0x1p3,bf16\n1,2,3,0,bf16\n1,2,3,-4,bf16\n1,2,3,2e9,bf16\n1,2,3,1e-9,bf16\n"
                  "1,2,3,1,fp4\n1,2,3,1\n99999999999999999999,2,3,1,bf16\n1000000000001,2,3,1,bf16\n"
                  "1000000000000,1000000000000,1,1,bf16\n1,2,3,\"1,5\",bf16\n"),
      "exit 3\n"
      "0 is not from 1 to 1000000000000 | FILE line 2, column m | correct or delete the row\n"
      "\"1.5\" is not a whole number | FILE line 3, column m | correct or delete the row\n"
      "-2 is not from 1 to 1000000000000 | FILE line 4, column n | correct or delete the row\n"
      "the field is empty | FILE line 5, column k | correct or delete the row\n"
      "\"nan\" is not a number | FILE line 6, column latency_us | correct or delete the row\n"
      "\"inf\" is not a number | FILE line 7, column latency_us | correct or delete the row\n"
      "\"0x1p3\" is not a number | FILE line 8, column latency_us | correct or delete the row\n"
      "a time must be above 0, not 0 s | FILE line 9, column latency_us | correct or delete the row\n"
      "a time must be above 0, not -4e-06 s | FILE line 10, column latency_us | correct or delete the row\n"
      "2000 s is longer than any measured time | FILE line 11, column latency_us | the unit is probably "
      "wrong\n"
      "1e-15 s is shorter than any measured time | FILE line 12, column latency_us | the unit is probably "
      "wrong\n"
      "unknown type \"fp4\" | FILE line 13, column dtype | did you mean \"fp8\"? allowed: bf16, fp16, fp8, int8, "
      "fp32\n"
      "the row has 4 columns where the header has 5 | FILE line 14 | complete or delete the row; a file that was "
      "cut off while being copied ends like this\n"
      "\"99999999999999999999\" is not a whole number | FILE line 15, column m | correct or delete the row\n"
      "1000000000001 is not from 1 to 1000000000000 | FILE line 16, column m | correct or delete the row\n"
      "m n k of 1000000000000 x 1000000000000 x 1 is above 1e+18 | FILE line 17, column m | correct or delete the "
      "row\n"
      "\"1,5\" is not a number | FILE line 18, column latency_us | correct or delete the row");
  EXPECT_THAT(problems_in("batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_us\n1,32,5,128,1,1,1\n"
                          "1000000000,32,8,128,1000000,0,1\n"),
              testing::AllOf(HasSubstr("32 query heads are not a multiple of 5 KV heads"),
                             HasSubstr("1000000000 sequences of 1000000 tokens are more than any GPU holds")));
  EXPECT_THAT(problems_in("ranks,bytes,latency_us\n1,8,1\n"), HasSubstr("1 is not from 2 to"));
}

TEST(Measurements, ARowWithMoreFieldsThanTheHeader_IsTold) {
  EXPECT_EQ(problems_in("m,n,k,latency_us\n1,2,3,4\n1,2,3,4,5\n"),
            "exit 3\nthe row has 5 columns where the header has 4 | FILE line 3 | put fields that hold a comma in "
            "double quotes");
}

TEST(Measurements, ManyProblems_AreCutAndCounted) {
  std::string text = "m,n,k,latency_us\n";
  for (int i = 0; i < 50; ++i) text += "1,2,3,x\n";
  const std::string problems = problems_in(text);
  EXPECT_EQ(std::count(problems.begin(), problems.end(), '\n'), 21);
  EXPECT_THAT(problems, HasSubstr("\nand 30 more | FILE | correct these first"));
}

TEST(Measurements, ProblemsOfAllFiles_AreToldAtOnce) {
  const TempFile bad("m,n,k,latency_us\n1,2,3,x\n", ".bad.csv");
  const TempFile good("m,n,k,latency_us\n1,2,3,4\n", ".good.csv");
  const std::vector<MeasurementInput> inputs{{"/nowhere/a.csv", {}}, {good.path(), {}}, {bad.path(), {}}};
  EXPECT_EQ(problems_of([&] { (void)read_measurements(inputs); }, bad.path()),
            "exit 3\nthere is no such file | /nowhere/a.csv | check the path; it is relative to the current folder\n"
            "\"x\" is not a number | FILE line 2, column latency_us | correct or delete the row");
}

TEST(Measurements, RowsOfSeveralFiles_KeepTheirPlaces) {
  const TempFile one("m,n,k,latency_us\n1,2,3,4\n", ".one.csv");
  const TempFile two("m,n,k,latency_us\n1,2,3,4\n5,6,7,8\n", ".two.csv");
  const Measurements rows = read_measurements(std::vector<MeasurementInput>{{one.path(), {}}, {two.path(), Op::gemm}});
  ASSERT_EQ(rows.gemm.size(), 3U) << "repetitions are not merged here";
  EXPECT_EQ(place_text(rows, rows.gemm[0].place), one.path() + " line 2");
  EXPECT_EQ(place_text(rows, rows.gemm[2].place), two.path() + " line 3");
  EXPECT_TRUE(rows.files[1].notes.empty());
  EXPECT_TRUE(read_measurements({}).files.empty());
}

TEST(Measurements, WhatIsNoFileOfRows_IsToldWithItsPath) {
  using namespace std::string_literals;
  EXPECT_EQ(problems_in(""), "exit 3\nthe file is empty | FILE | check that it was copied whole");
  EXPECT_EQ(problems_in("\n\n"), "exit 3\nthe file holds no row | FILE | check that it was copied whole");
  EXPECT_EQ(problems_in("m,n,k,latency_us\n"),
            "exit 3\nthe file holds no measurement | FILE | check that it was copied whole");
  EXPECT_EQ(problems_of([] { (void)read("/tmp"); }),
            "exit 3\nthis is a folder, not a measurement file | /tmp | name one file in it");
  EXPECT_EQ(
      problems_of([] { (void)read("/dev/null"); }),
      "exit 3\nthis is not a regular file, but a measurement file is read more than once | /dev/null | write it to "
      "a file first and name that file");
  EXPECT_EQ(problems_in("m,n,k,latency_us\n1,2,\0003,4\n"s),
            "exit 3\n\"?3\" is not a whole number | FILE line 2, column k | correct or delete the row");
  EXPECT_THAT(problems_in("\x7f"
                          "ELF\x02\x01\xff\xfe,\n"s),
              HasSubstr("is not the header of a known table of measurements"));
  const std::string packed = gzipped("m,n,k,latency_us\n1,2,3,4\n");
  EXPECT_THAT(problems_in(packed.substr(0, packed.size() - 6)),
              HasSubstr("the gzip data ends in the middle | FILE, byte"));
  EXPECT_THAT(problems_in(std::string(2000, ',') + "\n"), HasSubstr("the first line has more than 1000 columns"));
}

// JSON

const json& sample() {
  static const json kSample = json::parse(content_of(source_dir() + "/tests/fuzz/measurements/all_ops.json"));
  return kSample;
}

/// A document with one entry.
std::string document(const json& entry) {
  return json{
      {"schema_version", 1}, {"kind", "measurements"}, {"provenance", json::object()}, {"measurements", {entry}}}
      .dump();
}

const json kGemm{{"op", "gemm"}, {"m", 1}, {"n", 2}, {"k", 3}, {"unit", "us"}, {"median", 4.0}};

json with(json entry, const char* key, const json& value) {
  entry[key] = value;
  return entry;
}

TEST(MeasurementsJson, EveryOpIsRead) {
  const Measurements rows = read_text(sample().dump());
  EXPECT_EQ(rows.device.name, "Example GPU");
  EXPECT_EQ(rows.device.memory_bytes, 80'000'000'000);
  EXPECT_EQ(rows.device.sm_count, 100);
  EXPECT_EQ(rows.device.l2_bytes, 40'000'000);
  EXPECT_EQ(rows.files[0].format, "measurements-json");
  EXPECT_EQ(rows.files[0].rows, 18);
  EXPECT_THAT(rows.files[0].notes,
              ElementsAre("1 attention measurements of kernel \"spillway\" were left out: no engine runs that kernel"));
  ASSERT_EQ(rows.gemm.size(), 1U);
  EXPECT_DOUBLE_EQ(rows.gemm[0].seconds, 15.5e-6);
  ASSERT_EQ(rows.attention.size(), 2U);
  EXPECT_DOUBLE_EQ(rows.attention[1].seconds, 0.09e-3);
  EXPECT_EQ(rows.mixed.size(), 1U);
  EXPECT_EQ(rows.elementwise.size(), 1U);
  EXPECT_EQ(rows.all_reduce.size(), 1U);
  ASSERT_EQ(rows.copies.size(), 2U);
  EXPECT_TRUE(rows.copies[0].duplex);
  EXPECT_EQ(rows.copies[0].mechanism, CopyMechanism::batched);
  EXPECT_FALSE(rows.copies[1].to_device);
  EXPECT_EQ(rows.cpu_attention.size(), 1U);
  ASSERT_EQ(rows.host.size(), 1U);
  EXPECT_EQ(rows.host[0].tensor_parallel, 2);
  ASSERT_EQ(rows.layers.size(), 1U);
  EXPECT_TRUE(rows.layers[0].per_sequence);
  ASSERT_EQ(rows.iterations.size(), 1U);
  EXPECT_DOUBLE_EQ(rows.iterations[0].seconds, 0.0245);
  ASSERT_EQ(rows.interference.size(), 1U);
  EXPECT_EQ(rows.interference[0].compute, R"({"k":4096,"m":1,"n":4096,"op":"gemm"})");
  EXPECT_TRUE(rows.interference[0].beside);
  EXPECT_EQ(rows.interference[0].copy_bytes, 1'048'576);
  ASSERT_EQ(rows.host_streams.size(), 1U);
  EXPECT_EQ(rows.host_streams[0].threads, 8);
  EXPECT_DOUBLE_EQ(rows.host_streams[0].seconds, 0.01);
  ASSERT_EQ(rows.sustained.size(), 1U);
  EXPECT_TRUE(rows.sustained[0].gemm);
  EXPECT_EQ(rows.sustained[0].compute, R"({"k":4096,"m":1,"n":4096,"op":"gemm"})");
  EXPECT_DOUBLE_EQ(rows.sustained[0].end_seconds, 0.5);
  EXPECT_EQ(rows.sustained[0].sm_clock_mhz, 1410);
  EXPECT_EQ(rows.sustained[0].power_w, 300.5);
  EXPECT_DOUBLE_EQ(rows.sustained[0].seconds, 0.002);
  ASSERT_EQ(rows.moe.size(), 1U);
  EXPECT_EQ(rows.moe[0].quantization, Quantization::fp8_block);
  EXPECT_EQ(rows.moe[0].power_law, 1.2);
  ASSERT_EQ(rows.exchanges.size(), 1U);
  EXPECT_EQ(rows.exchanges[0].backend, ExchangeBackend::deepep_low_latency);
  EXPECT_DOUBLE_EQ(rows.exchanges[0].shape.element_bytes, 1.03125);
  ASSERT_EQ(rows.host_gemms.size(), 1U);
  EXPECT_EQ(rows.host_gemms[0].rows, 64);
  EXPECT_EQ(rows.host_gemms[0].inputs, 2048);
  EXPECT_EQ(rows.host_gemms[0].outputs, 768);
  EXPECT_EQ(rows.host_gemms[0].threads, 32);
  EXPECT_EQ(rows.host_gemms[0].dtype_bytes, 4);
  EXPECT_DOUBLE_EQ(rows.host_gemms[0].seconds, 0.0005);
  EXPECT_THAT(place_text(rows, rows.gemm[0].place), testing::EndsWith(" at /measurements/0"));
}

TEST(MeasurementsJson, BadDocuments) {
  EXPECT_THAT(problems_in("{\"schema_version\": 1,"), HasSubstr("not a JSON document"));
  EXPECT_EQ(problems_in("[1]"), "exit 3\nthe file must hold a JSON object | FILE | ");
  EXPECT_EQ(problems_in("{}"), "exit 3\nmust be 1, but is missing | FILE at /schema_version | ");
  EXPECT_EQ(problems_in(R"({"schema_version": 2, "kind": "x"})"),
            "exit 3\nmust be 1, not 2 | FILE at /schema_version | ");
  EXPECT_EQ(problems_in(R"({"schema_version": 1, "kind": "gpu"})"),
            "exit 3\nmust be \"measurements\", not \"gpu\" | FILE at /kind | ");
  EXPECT_EQ(problems_in(R"({"schema_version": 1, "kind": "measurements"})"),
            "exit 3\nmust be an object that says where the measurements come from | FILE at /provenance | \n"
            "must be a list of measurements | FILE at /measurements | ");
  EXPECT_EQ(problems_in(R"({"schema_version": 1, "kind": "measurements", "provenance": {"device": {"name": 1,
                          "sm_count": 0}}, "measurements": [2]})"),
            "exit 3\n1 is not a text | FILE at /provenance/device/name | \n"
            "0 is not a whole number from 1 to 1000000000000000 | FILE at /provenance/device/sm_count | \n"
            "a measurement must be an object | FILE at /measurements/0 | correct or delete the entry");
  EXPECT_EQ(problems_in(R"({"schema_version": 1, "kind": "measurements", "provenance": {}, "measurements": []})"),
            "exit 3\nthe file holds no measurement | FILE | check that it was copied whole");
}

TEST(MeasurementsJson, BadEntries) {
  const auto problems = [](const json& entry) { return problems_in(document(entry)); };
  EXPECT_EQ(problems(kGemm), "");
  EXPECT_THAT(problems(with(kGemm, "op", "gem")), HasSubstr("unknown op \"gem\" | FILE at /measurements/0/op | did you "
                                                            "mean \"gemm\"? allowed: gemm, decode_attention"));
  EXPECT_THAT(problems(with(kGemm, "unit", "ns")), HasSubstr("unknown unit \"ns\" | FILE at /measurements/0/unit | "
                                                             "allowed: us, ms, s"));
  EXPECT_THAT(problems(with(kGemm, "median", "4")), HasSubstr("\"4\" is not a number"));
  EXPECT_THAT(problems(with(kGemm, "median", 0)), HasSubstr("a time must be above 0"));
  EXPECT_THAT(problems(with(kGemm, "m", 1.5)), HasSubstr("1.5 is not a whole number"));
  EXPECT_THAT(problems(with(kGemm, "m", 18446744073709551615U)), HasSubstr("is not a whole number"));
  EXPECT_THAT(problems(with(kGemm, "p10", 4.5)), HasSubstr("4.5 is above the median, 4"));
  EXPECT_THAT(problems(with(kGemm, "p90", 3.5)), HasSubstr("3.5 is below the median, 4"));
  EXPECT_EQ(problems(with(with(kGemm, "p10", 4.0), "p90", 4.0)), "");
  EXPECT_THAT(problems(with(kGemm, "kernal", "cublas")), HasSubstr("did you mean \"kernel\"?"));
  EXPECT_EQ(problems(with(kGemm, "clock_mhz", 1410)), "");
  const json attention{{"op", "decode_attention"}, {"batch", 1},   {"q_heads", 8}, {"kv_heads", 8}, {"head_dim", 64},
                       {"new_tokens", 2},          {"context", 9}, {"unit", "us"}, {"median", 4}};
  EXPECT_THAT(problems(attention),
              HasSubstr("2 new tokens after 9 are prefill_attention | FILE at /measurements/0/new_tokens"));
}

TEST(MeasurementsJson, FilesOfTwoDevices_AreRefused) {
  json other = sample();
  other["provenance"]["device"]["name"] = "Another GPU";
  const TempFile one(sample().dump(), ".one.json");
  const TempFile two(other.dump(), ".two.json");
  const std::vector<MeasurementInput> inputs{{one.path(), {}}, {two.path(), {}}};
  EXPECT_EQ(problems_of([&] { (void)read_measurements(inputs); }, two.path()),
            "exit 3\nAnother GPU here, but Example GPU in a file before | FILE at /provenance/device/name | give the "
            "files of one GPU");
}

/// The entry of the schema that describes an op.
json described(const std::string& op) {
  static const json kSchema = json::parse(content_of(source_dir() + "/cuda_calibrate/measurements.schema.json"));
  for (const json& entry : kSchema.at("properties").at("measurements").at("items").at("oneOf")) {
    const json& names = entry.at("properties").at("op").at("enum");
    if (std::find(names.begin(), names.end(), op) != names.end()) return entry;
  }
  return {};
}

TEST(MeasurementsJson, SchemaAndReader_AgreeOnTheSample) {
  std::set<std::string> seen;
  for (const json& entry : sample().at("measurements")) {
    const std::string op = entry.at("op");
    seen.insert(op);
    const json schema = described(op);
    ASSERT_FALSE(schema.is_null()) << op;
    const std::set<std::string> required(schema.at("required").begin(), schema.at("required").end());
    for (const auto& [key, value] : entry.items()) {
      EXPECT_TRUE(schema.at("properties").contains(key)) << op << " " << key;
      json without = entry;
      without.erase(key);
      // Leave out the tool's own kernel, so that a file with only this entry is refused.
      if (without.value("kernel", "") == "spillway") continue;
      EXPECT_EQ(!problems_in(document(without)).empty(), required.contains(key)) << op << " without " << key;
    }
    for (const auto& [key, property] : schema.at("properties").items()) {
      // A value of another type is refused wherever the schema names the key.
      EXPECT_THAT(problems_in(document(with(entry, key.c_str(), json::array()))),
                  HasSubstr("at /measurements/0/" + key))
          << op;
      if (property.contains("minimum")) {
        const json below = property.at("minimum").get<std::int64_t>() - 1;
        EXPECT_THAT(problems_in(document(with(entry, key.c_str(), below))), HasSubstr("at /measurements/0/" + key))
            << op;
      }
      for (const json& word : property.value("enum", json::array())) {
        if (key == "op") continue;
        EXPECT_EQ(problems_in(document(with(with(entry, key.c_str(), word), "p90", 1e6))).find("unknown"),
                  std::string::npos)
            << op << " " << word;
      }
    }
  }
  for (const Op op : all_ops()) EXPECT_TRUE(seen.contains(std::string(op_name(op)))) << op_name(op);
}

// Files of the microbenchmarks

/// A document of these entries; each takes 4 us.
std::string document_of(json entries) {
  for (json& entry : entries) {
    entry["unit"] = "us";
    if (!entry.contains("median")) entry["median"] = 4.0;
  }
  return json{{"schema_version", 1},
              {"kind", "measurements"},
              {"provenance", json::object()},
              {"measurements", std::move(entries)}}
      .dump();
}

/// A copy of 1 MiB to the GPU, with these additional keys.
json copied(const char* mechanism, const json& more = json::object()) {
  json entry{{"op", "copy_h2d"}, {"mechanism", mechanism}, {"block_bytes", 1 << 20}, {"copies", 1}};
  entry.update(more);
  return entry;
}

json decoded(std::int64_t batch, const json& more = json::object()) {
  json entry{{"op", "decode_attention"}, {"batch", batch},  {"q_heads", 8},   {"kv_heads", 8},
             {"head_dim", 64},           {"new_tokens", 1}, {"context", 1024}};
  entry.update(more);
  return entry;
}

TEST(Microbenchmarks, RowsThatNoModelTakes_AreLeftOutWithANoteForEachKind) {
  const json stream{{"op", "host_stream"}, {"part", "stream"},     {"kind", "read"},   {"threads", 8},
                    {"bytes", 1 << 30},    {"memory", "pageable"}, {"traffic", "none"}};
  const json interference{{"op", "interference"}, {"part", "compute"},     {"beside", false},   {"compute", kGemm},
                          {"traffic", "h2d"},     {"mechanism", "single"}, {"copy_bytes", 4096}};
  const Measurements rows = read_text(
      document_of({copied("single", {{"memory", "pinned"}, {"observed", "device"}}),
                   copied("single", {{"memory", "pinned"}, {"observed", "host"}}),
                   copied("single", {{"memory", "pageable"}, {"observed", "device"}}),
                   copied("single", {{"memory", "pageable"}, {"observed", "host"}}),
                   copied("single", {{"memory", "registered"}, {"observed", "device"}}),
                   copied("relay", {{"memory", "pageable"}, {"observed", "host"}, {"threads", 8}}),
                   copied("relay", {{"memory", "pinned"}, {"observed", "host"}, {"threads", 8}}),
                   copied("relay", {{"memory", "pageable"}, {"observed", "device"}, {"threads", 8}}),
                   copied("single", {{"duplex", true}, {"beside_bytes", 4096}}),
                   copied("single", {{"gpus", 1}}),
                   copied("single", {{"gpus", 8}, {"numa_node", 0}, {"duplex", true}, {"beside_bytes", 1 << 20}}),
                   copied("many", {{"order", "random"}, {"pool_bytes", 1 << 30}}),
                   copied("many", {{"order", "random"}, {"pool_bytes", std::int64_t{4} << 30}}),
                   copied("many", {{"order", "sequential"}, {"pool_bytes", 1 << 30}}),
                   copied("many", {{"order", "random"}, {"pool_bytes", 1 << 30}, {"median", 5.0}}),
                   with(kGemm, "best_of", 1),
                   with(kGemm, "best_of", 8),
                   decoded(1, {{"kernel", "spillway"}}),
                   decoded(2, {{"skew", 1.0}}),
                   decoded(2, {{"skew", 4.0}}),
                   {{"op", "mixed_attention"},
                    {"chunk", 512},
                    {"chunk_context", 0},
                    {"decodes", 8},
                    {"decode_context", 64},
                    {"q_heads", 8},
                    {"kv_heads", 8},
                    {"head_dim", 64}},
                   {{"op", "peer"}, {"from", 0}, {"to", 1}, {"bytes", 4096}},
                   {{"op", "launch"}, {"kind", "graph"}, {"nodes", 10}},
                   {{"op", "launch"}, {"kind", "kernel"}, {"nodes", 1}},
                   interference,
                   with(interference, "part", "copy_h2d"),
                   with(interference, "mechanism", "kernel"),
                   with(interference, "kernel", "spillway"),
                   stream,
                   with(stream, "kind", "triad"),
                   with(stream, "memory", "pinned"),
                   with(stream, "numa_node", 1),
                   with(stream, "traffic", "both"),
                   with(with(stream, "part", "copy_d2h"), "traffic", "d2h")}));
  ASSERT_EQ(rows.copies.size(), 4U);
  EXPECT_FALSE(rows.copies[0].duplex);
  EXPECT_EQ(rows.copies[1].mechanism, CopyMechanism::relay);
  EXPECT_TRUE(rows.copies[2].duplex);
  EXPECT_EQ(rows.copies[2].beside_bytes, 4096);
  EXPECT_EQ(rows.copies[3].mechanism, CopyMechanism::many);
  EXPECT_DOUBLE_EQ(rows.copies[3].seconds, 4e-6);
  EXPECT_EQ(rows.gemm.size(), 1U);
  ASSERT_EQ(rows.attention.size(), 1U);
  EXPECT_EQ(rows.attention[0].batch, 2);
  EXPECT_TRUE(rows.mixed.empty());
  ASSERT_EQ(rows.interference.size(), 2U);
  EXPECT_FALSE(rows.interference[0].by_kernel);
  EXPECT_TRUE(rows.interference[1].by_kernel);
  EXPECT_EQ(rows.host_streams.size(), 1U);
  EXPECT_EQ(rows.files[0].rows, 9);
  const std::string reading =
      "the bandwidth of a host is that of reading pageable memory on all NUMA nodes, without copies";
  EXPECT_THAT(
      rows.files[0].notes,
      ElementsAre(
          "1 copies timed by the host were left out: the fits use the GPU's times",
          "2 copies from and to pageable memory were left out: engines copy from and to pinned memory",
          "1 copies from and to registered memory were left out: engines copy from and to pinned memory",
          "2 relay copies from page-locked memory or timed by the GPU alone were left out: a relay copies memory "
          "that is not page-locked, and its time includes the copy by the CPU",
          "2 copies of all GPUs at once were left out: their limits belong to a server",
          "1 copies of blocks of pools above 1 GiB were left out: the fits do not depend on the pool",
          "1 copies of blocks in sequence were left out: KV blocks lie anywhere",
          "1 repeated copies of a case were left out: the first of each was used",
          "1 GEMMs by the best of several algorithms were left out: engines run the first one",
          "1 attention measurements of kernel \"spillway\" were left out: no engine runs that kernel",
          "1 attention measurements of skewed lengths were left out: the fits use equal lengths",
          "1 attention measurements of chunk and decodes in one call were left out: only the tables of "
          "one model hold such calls",
          "1 copies from one GPU to another were left out: their link belongs to a server",
          "2 launch measurements were left out: launches belong to an engine",
          "1 interference measurements of copies were left out: no profile says how compute slows these down",
          "1 interference measurements of kernel \"spillway\" were left out: no engine runs that kernel",
          "1 host memory measurements by triad were left out: " + reading,
          "1 host memory measurements of pinned memory were left out: " + reading,
          "1 host memory measurements of one NUMA node were left out: " + reading,
          "2 host memory measurements beside copies were left out: " + reading));
}

// Of m = 1 both formats were measured, of m = 2 only fp16; of CPU attention bf16 is there.
TEST(Microbenchmarks, FormatsOfTwoBytes_ShareTheirFits) {
  const auto cpu = [](const char* dtype, std::int64_t batch) {
    return json{{"op", "cpu_attention"}, {"threads", 4},     {"batch", batch},
                {"context", 64},         {"kv_bytes", 8192}, {"dtype", dtype}};
  };
  const json second = with(kGemm, "m", 2);
  const Measurements rows = read_text(document_of(
      {with(kGemm, "dtype", "fp16"), with(kGemm, "dtype", "bf16"), with(second, "dtype", "fp16"),
       with(kGemm, "dtype", "fp8"), decoded(1, {{"dtype", "bf16"}}), decoded(1, {{"dtype", "fp16"}, {"median", 5.0}}),
       cpu("fp16", 1), cpu("bf16", 1), cpu("fp32", 1), cpu("bf16", 2)}));
  ASSERT_EQ(rows.gemm.size(), 3U);
  EXPECT_EQ(rows.gemm[0].place.row, 1);
  EXPECT_EQ(rows.gemm[1].dtype_bytes, 1);
  EXPECT_EQ(rows.gemm[2].m, 2);
  ASSERT_EQ(rows.attention.size(), 1U);
  EXPECT_DOUBLE_EQ(rows.attention[0].seconds, 4e-6);
  ASSERT_EQ(rows.cpu_attention.size(), 2U);
  EXPECT_EQ(rows.cpu_attention[1].batch, 2);
  EXPECT_THAT(rows.files[0].notes,
              ElementsAre("1 GEMMs in fp16 that were also measured in bf16 were left out: one set of fits stands for "
                          "both formats of 2 bytes",
                          "1 attention measurements in fp16 that were also made in bf16 were left out: one set of "
                          "fits stands for both formats of 2 bytes",
                          "1 CPU attention measurements in fp16 were left out: the fit uses bf16",
                          "1 CPU attention measurements in fp32 were left out: the fit uses bf16"));
  EXPECT_EQ(read_text(document_of({cpu("fp32", 1)})).cpu_attention.size(), 1U);
}

// To the GPU, 4 KiB and 64 KiB were measured with 1, 8 and 32 thread blocks: 8 us x 80 us, 4 x 50 and 5 x 45, of which
// 4 x 50 is the least product; 1 MiB, which 32 is fastest at, was measured with 8 and 32 only. From it, with 2 alone.
TEST(Microbenchmarks, CopyKernels_AreThoseOfTheFastestNumberOfThreadBlocks) {
  const auto kernel = [](const char* op, std::int64_t ctas, std::int64_t bytes, double micros) {
    return json{{"op", op},     {"mechanism", "kernel"}, {"block_bytes", bytes}, {"copies", 256},
                {"ctas", ctas}, {"pool_bytes", 1 << 28}, {"median", micros}};
  };
  const Measurements rows = read_text(document_of(
      {kernel("copy_h2d", 1, 4096, 8.0), kernel("copy_h2d", 1, 65536, 80.0), kernel("copy_h2d", 8, 4096, 4.0),
       kernel("copy_h2d", 8, 65536, 50.0), kernel("copy_h2d", 8, 1 << 20, 900.0), kernel("copy_h2d", 32, 4096, 5.0),
       kernel("copy_h2d", 32, 65536, 45.0), kernel("copy_h2d", 32, 1 << 20, 600.0), kernel("copy_d2h", 2, 4096, 7.0)}));
  std::vector<double> micros;
  for (const CopyRow& row : rows.copies) micros.push_back(std::round(row.seconds * 1e6));
  EXPECT_THAT(micros, ElementsAre(4.0, 50.0, 900.0, 7.0));
  EXPECT_THAT(rows.files[0].notes,
              ElementsAre("5 copies by a kernel of another number of thread blocks than the fastest were left out: a "
                          "profile has one copy kernel of each direction"));
  // 16 is faster than 8 by 1%, which is noise, and was measured in fewer cases.
  const Measurements noise =
      read_text(document_of({kernel("copy_h2d", 16, 4096, 99.0), kernel("copy_h2d", 8, 4096, 100.0),
                             kernel("copy_h2d", 8, 65536, 300.0), kernel("copy_h2d", 4, 4096, 103.0)}));
  ASSERT_EQ(noise.copies.size(), 2U);
  EXPECT_DOUBLE_EQ(noise.copies[0].seconds, 100e-6);
}

TEST(Microbenchmarks, CudnnsAttention_GivesWayToAnEngines) {
  const TempFile tool(document_of({decoded(1, {{"kernel", "cudnn"}}),
                                   decoded(2, {{"kernel", "cudnn_frontend"}}),
                                   {{"op", "prefill_attention"},
                                    {"batch", 1},
                                    {"q_heads", 8},
                                    {"kv_heads", 8},
                                    {"head_dim", 64},
                                    {"new_tokens", 512},
                                    {"context", 0},
                                    {"kernel", "cudnn"}}}),
                      ".json");
  const TempFile engine("batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_us\n1,8,8,64,1,1024,9\n", ".csv");
  const Measurements rows = read_measurements(std::vector<MeasurementInput>{{tool.path(), {}}, {engine.path(), {}}});
  ASSERT_EQ(rows.attention.size(), 2U);
  EXPECT_EQ(rows.attention[0].new_tokens, 512);
  EXPECT_TRUE(rows.attention[0].stand_in);
  EXPECT_DOUBLE_EQ(rows.attention[1].seconds, 9e-6);
  EXPECT_FALSE(rows.attention[1].stand_in);
  EXPECT_EQ(rows.files[0].rows, 1);
  EXPECT_THAT(
      rows.files[0].notes,
      ElementsAre("2 measurements of decode_attention by cuDNN were left out: another file has rows of an engine",
                  "1 measurements of prefill_attention are of cuDNN, not of an engine: files with an "
                  "engine's tables replace them"));
  EXPECT_TRUE(rows.files[1].notes.empty());
}

TEST(Microbenchmarks, MachineIsThatOfTheFirstFileThatStatesIt) {
  json first = json::parse(document(kGemm));
  first["provenance"]["device"] = nullptr;
  json second = first;
  first["provenance"]["host"] = {{"cpu_model", "A CPU"}, {"physical_cores", 8}, {"threads", 16}};
  second["provenance"]["host"] = {{"cpu_model", "A CPU"}, {"threads", 4}, {"memory_bytes", 1000}};
  const TempFile one(first.dump(), ".one.json");
  const TempFile two(second.dump(), ".two.json");
  const Measurements rows = read_measurements(std::vector<MeasurementInput>{{one.path(), {}}, {two.path(), {}}});
  EXPECT_EQ(rows.machine.cpu_model, "A CPU");
  EXPECT_EQ(rows.machine.physical_cores, 8);
  EXPECT_EQ(rows.machine.threads, 16);
  EXPECT_EQ(rows.machine.memory_bytes, 1000);
  EXPECT_FALSE(rows.device.name.has_value());
  first["provenance"]["host"] = {{"cpu_model", 1}, {"threads", 0}};
  EXPECT_EQ(problems_in(first.dump()),
            "exit 3\n1 is not a text | FILE at /provenance/host/cpu_model | \n"
            "0 is not a whole number from 1 to 1000000000000000 | FILE at /provenance/host/threads | ");
}

// Real files

TEST(Measurements, RealTables_GiveEveryRow) {
  if (shared("ops").empty()) GTEST_SKIP() << "../shared/data/ops is not there";
  struct Table {
    const char* file;
    std::int64_t rows;
  };
  // `wc -l` less the header.
  for (const Table& table :
       {Table{"ops/a100-sxm/gemm.csv.gz", 9240}, Table{"ops/a100-sxm/decode_attention.csv.gz", 5431},
        Table{"ops/a100-sxm/prefill_attention.csv.gz", 5049}, Table{"ops/h100-sxm/gemm.csv.gz", 384},
        Table{"ops/h200-sxm/decode_attention.csv.gz", 96}, Table{"engine-logs/rtx4090-llama31-8b/dense.csv", 1368},
        Table{"engine-logs/rtx4090-llama31-8b/per_sequence.csv", 80},
        Table{"engine-logs/rtx4090-llama31-8b/attention.csv", 8643}}) {
    EXPECT_EQ(read(shared(table.file)).files[0].rows, table.rows) << table.file;
  }
  EXPECT_EQ(read(shared("ops/h100-sxm/decode_attention.csv.gz"), Op::decode_attention).attention.size(), 96U);
}

TEST(Measurements, RealTablesOfVidur) {
  if (shared("ops").empty()) GTEST_SKIP() << "../shared/data/ops is not there";
  const Measurements mlp = read(shared("ops/vidur-a100/Llama-2-7b-hf-mlp.csv.gz"));
  // 259 token counts on 1, 2, 4 and 8 GPUs; four GEMMs each, none of them below 5 us.
  EXPECT_EQ(mlp.gemm.size(), 259U * 4U * 4U);
  EXPECT_THAT(mlp.files[0].notes,
              testing::Contains("4176 GEMM measurements are of 4144 cases: the median of each was taken"));
  // 128 batches of 79 contexts, one of which was measured twice; all of them 9 us or longer.
  const Measurements attention = read(shared("ops/vidur-a100/attention.csv.gz"), Op::decode_attention);
  EXPECT_EQ(attention.attention.size(), 128U * 79U);
  // 993 sizes on 2, 4 and 8 GPUs of one node; 16 GPUs are in two.
  const Measurements a100 = read(shared("ops/vidur-a100/all_reduce.csv.gz"));
  EXPECT_EQ(a100.all_reduce.size(), 993U * 3U);
  EXPECT_THAT(a100.files[0].notes, testing::Contains("3976 rows of GPUs in several nodes were left out"));
  EXPECT_EQ(read(shared("ops/vidur-h100/all_reduce.csv.gz")).all_reduce.size(), 993U * 3U);
  // 12 batch sizes on 1, 2 and 4 GPUs.
  const Measurements host = read(shared("ops/vidur-a100/cpu_overheads.csv"));
  EXPECT_EQ(host.host.size(), 36U);
  EXPECT_THAT(host.files[0].notes, testing::Contains("the medians are over 6 models"));
}

}  // namespace
}  // namespace spillway::hwmodels
