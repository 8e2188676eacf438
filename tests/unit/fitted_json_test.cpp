// The section "fitted" of GPU profiles: writing and reading agree, and errors name the problem.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "hwmodels/fitted.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Pointer = json::json_pointer;

// All numbers differ, need more digits than a short decimal text, and are not defaults.
constexpr double kThird = 1.0 / 3.0;

FitRecord record(std::int64_t n, const std::string& by, bool roofline) {
  const double x = kThird / static_cast<double>(n);
  FitRecord made{"measured", fmt::format("rows.csv ({} rows)", n), {n, x, 3.0 * x, -x}, by, std::nullopt, {}};
  if (roofline) made.roofline = ErrorSummary{n + 1, 2.0 * x, 5.0 * x, 0.5 * x};
  made.ranges = {{"batch", 1.0, 64.0 + x}, {"tokens", x, 8192.0}};
  return made;
}

ResidualSurface surface(double seed) {
  ResidualSurface made;
  made.work_lengths = {seed + kThird, seed + 2.0 * kThird};
  made.shape_lengths = {seed + 1.0 + kThird, seed + 2.0 + kThird};
  made.anchors = {{{seed, kThird}, {seed + 1.0, 7.0 * kThird}}, {{kThird * seed, 2.0}, {3.0, 4.0 + kThird}}};
  made.weights = {0.123457, -seed};  // of six decimals, as they are written
  return made;
}

/// Every kernel with all possible parts.
FittedKernels everything() {
  FittedKernels all;
  all.gemm.push_back({1,
                      {108, 1e-6 * kThird, 1e15 * kThird, 1e12 * kThird, 0.1 * kThird, 31.5, 0.7, 1.5, surface(1.5)},
                      record(3, "whole series", false)});
  all.gemm.push_back({2,
                      {132, 2e-6 * kThird, 2e15 * kThird, 2e12 * kThird, 0.2 * kThird, 32.5, 0.8, 8.0, surface(2.5)},
                      record(4, "whole series", true)});
  all.decode_attention = {{132, 3e-6 * kThird, 1e-9 * kThird, 3e12 * kThird, 5e-6 * kThird, 6e-9 * kThird, 0.3, 7e-6,
                           4.0, true, surface(3.5)},
                          record(5, "heads", true)};
  all.prefill_attention = {
      {130, 4e-6 * kThird, 4e12 * kThird, 8e-6 * kThird, 9e-6 * kThird, 0.9, 1.0, true, surface(4.5), {}},
      record(6, "heads", true)};
  GemmModel fp8 = all.gemm.back().model;
  fp8.quantise = QuantiseModel{1e-6 * kThird, 1e-9 * kThird, 1e-12 * kThird};
  all.gemm.push_back({2, fp8, record(14, "whole series", false), Quantization::fp8});
  all.decode_attention_fp8_kv = all.decode_attention;
  all.decode_attention_fp8_kv->model.launch_seconds *= 2.0;
  all.prefill_attention_fp8_kv = all.prefill_attention;
  all.prefill_attention_fp8_kv->model.launch_seconds *= 3.0;
  all.prefill_attention_fp8_kv->model.earlier_tile_seconds = 7e-6 * kThird;
  all.prefill_attention_fp8_kv->model.write_token_seconds = 8e-9 * kThird;
  all.decode_attention_fp8_kv->model.kv_head_seconds = 4e-8 * kThird;
  all.mixed_attention = {{0.375, {2e-6 * kThird, 4e-7 * kThird}}, record(7, "", false)};
  all.elementwise = {{5e-6 * kThird, 5e12 * kThird}, record(8, "kernels", true)};
  all.all_reduce_custom = {{{{2, {{{1.0, 3e-6 * kThird}}}}}}, record(15, "sizes", false)};
  all.all_reduce = {{{{2, {{{1.0, 1e-5 * kThird}, {2.5, 2e-5}}}}, {8, {{{1.0, 3e-5}}}}}}, record(9, "sizes", true)};
  Fitted<CopyModel> many;
  many.model = {true, CopyMechanism::many, 6e-6 * kThird, 6e10 * kThird, {}};
  many.record = record(10, "sizes", false);
  Fitted<CopyModel> batched;
  batched.model = {false, CopyMechanism::batched, 7e-6 * kThird, 7e10 * kThird, {{{64.0, 1e-6}, {65536.0, 9e-6}}}};
  batched.record = record(11, "sizes", true);
  all.copies = {many, batched};
  all.cpu_attention = {{1e-3 * kThird, 1e10 * kThird, 1e11 * kThird}, record(12, "threads", false)};
  all.host = {{2e-3 * kThird, 2e-5 * kThird}, record(13, "sequences", false)};
  LayerTables tables;
  tables.model = "llama-3.1-8b";
  tables.per_token = {{"qkv_proj", {{{1.0, 1e-5}, {64.0, 2e-5 * kThird}}}}, {"o_proj", {{{1.0, 3e-5}}}}};
  tables.per_sequence = {{"sampler", {{{1.0, 4e-5 * kThird}}}}};
  tables.chunk_axis = {0.0, 512.0};
  tables.chunk_context_axis = {0.0};
  tables.decodes_axis = {0.0, 1.0, 64.0};
  tables.decode_context_axis = {100.0, 4000.0};
  tables.attention_seconds = {-1.0, -1.0, 1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 5e-5, 6e-5 * kThird, 7e-5, 8e-5, 9e-5};
  all.layers = {tables, record(14, "sizes", false)};
  all.iteration =
      Fitted<IterationModel>{IterationModel{3e-3 * kThird, 3e-5 * kThird, 3e-9 * kThird, 3e-12 * kThird, "opt-13b"},
                             record(15, "iterations", false)};
  all.layer_attention = record(17, "points", false);
  all.decode_iteration = record(16, "sums", false);
  all.decode_iteration->source_kind = "borrowed";
  return all;
}

/// Writes a profile's text and reads it back.
FittedKernels through_text(const FittedKernels& kernels) {
  std::vector<Problem> problems;
  FittedKernels again = read_fitted(json::parse(to_json(kernels).dump()), "/fitted", problems);
  for (const Problem& problem : problems) ADD_FAILURE() << problem.where << ": " << problem.what;
  return again;
}

void expect_same(const ResidualSurface& a, const ResidualSurface& b) {
  EXPECT_EQ(a.work_lengths, b.work_lengths);
  EXPECT_EQ(a.shape_lengths, b.shape_lengths);
  EXPECT_EQ(a.weights, b.weights);
  ASSERT_EQ(a.anchors.size(), b.anchors.size());
  for (std::size_t i = 0; i < a.anchors.size(); ++i) {
    EXPECT_EQ(a.anchors[i].work, b.anchors[i].work);
    EXPECT_EQ(a.anchors[i].shape, b.anchors[i].shape);
  }
}

void expect_same(const FitRecord& a, const FitRecord& b) {
  EXPECT_EQ(a.source_kind, b.source_kind);
  EXPECT_EQ(a.citation, b.citation);
  EXPECT_EQ(a.held_out, b.held_out);
  EXPECT_EQ(a.held_out_by, b.held_out_by);
  EXPECT_EQ(a.roofline, b.roofline);
  ASSERT_EQ(a.ranges.size(), b.ranges.size());
  for (std::size_t i = 0; i < a.ranges.size(); ++i) {
    EXPECT_EQ(a.ranges[i].quantity, b.ranges[i].quantity);
    EXPECT_EQ(a.ranges[i].low, b.ranges[i].low);
    EXPECT_EQ(a.ranges[i].high, b.ranges[i].high);
  }
}

TEST(FittedJson, RoundTrip_OfMultiplications_IsExact) {
  const FittedKernels all = everything();
  const FittedKernels again = through_text(all);
  ASSERT_EQ(again.gemm.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const FittedGemm& a = all.gemm[i];
    const FittedGemm& b = again.gemm[i];
    EXPECT_EQ(a.dtype_bytes, b.dtype_bytes);
    EXPECT_EQ(a.quantization, b.quantization);
    ASSERT_EQ(a.model.quantise.has_value(), b.model.quantise.has_value());
    if (a.model.quantise) {
      EXPECT_EQ(a.model.quantise->launch_seconds, b.model.quantise->launch_seconds);
      EXPECT_EQ(a.model.quantise->column_seconds, b.model.quantise->column_seconds);
      EXPECT_EQ(a.model.quantise->element_seconds, b.model.quantise->element_seconds);
    }
    EXPECT_EQ(a.model.sm_count, b.model.sm_count);
    EXPECT_EQ(a.model.launch_seconds, b.model.launch_seconds);
    EXPECT_EQ(a.model.flops, b.model.flops);
    EXPECT_EQ(a.model.bandwidth, b.model.bandwidth);
    EXPECT_EQ(a.model.edge_loss, b.model.edge_loss);
    EXPECT_EQ(a.model.prologue, b.model.prologue);
    EXPECT_EQ(a.model.split_cost, b.model.split_cost);
    EXPECT_EQ(a.model.norm_exponent, b.model.norm_exponent);
    expect_same(a.model.residual, b.model.residual);
    expect_same(a.record, b.record);
  }
}

TEST(FittedJson, RoundTrip_OfAttention_IsExact) {
  const FittedKernels all = everything();
  const FittedKernels again = through_text(all);
  ASSERT_TRUE(again.decode_attention && again.prefill_attention && again.mixed_attention);
  ASSERT_TRUE(again.decode_attention_fp8_kv && again.prefill_attention_fp8_kv);
  EXPECT_EQ(again.decode_attention_fp8_kv->model.launch_seconds, all.decode_attention_fp8_kv->model.launch_seconds);
  EXPECT_EQ(again.prefill_attention_fp8_kv->model.launch_seconds, all.prefill_attention_fp8_kv->model.launch_seconds);
  EXPECT_EQ(again.prefill_attention_fp8_kv->model.earlier_tile_seconds, 7e-6 * kThird);
  EXPECT_EQ(again.prefill_attention_fp8_kv->model.write_token_seconds, 8e-9 * kThird);
  EXPECT_EQ(again.decode_attention_fp8_kv->model.kv_head_seconds, 4e-8 * kThird);
  const DecodeAttentionModel& a = all.decode_attention->model;
  const DecodeAttentionModel& b = again.decode_attention->model;
  EXPECT_EQ(a.sm_count, b.sm_count);
  EXPECT_EQ(a.launch_seconds, b.launch_seconds);
  EXPECT_EQ(a.head_seconds, b.head_seconds);
  EXPECT_EQ(a.bandwidth, b.bandwidth);
  EXPECT_EQ(a.block_seconds, b.block_seconds);
  EXPECT_EQ(a.token_seconds, b.token_seconds);
  EXPECT_EQ(a.group_growth, b.group_growth);
  EXPECT_EQ(a.split_seconds, b.split_seconds);
  EXPECT_EQ(a.norm_exponent, b.norm_exponent);
  EXPECT_EQ(b.kv_head_seconds, std::nullopt);
  EXPECT_EQ(a.splits_grouped_heads_only, b.splits_grouped_heads_only);
  expect_same(a.residual, b.residual);
  expect_same(all.decode_attention->record, again.decode_attention->record);
  const PrefillAttentionModel& p = all.prefill_attention->model;
  const PrefillAttentionModel& q = again.prefill_attention->model;
  EXPECT_EQ(p.sm_count, q.sm_count);
  EXPECT_EQ(p.launch_seconds, q.launch_seconds);
  EXPECT_EQ(p.bandwidth, q.bandwidth);
  EXPECT_EQ(p.tile_seconds, q.tile_seconds);
  EXPECT_EQ(p.earlier_tile_seconds, q.earlier_tile_seconds);
  EXPECT_EQ(p.write_token_seconds, q.write_token_seconds);
  EXPECT_EQ(p.block_seconds, q.block_seconds);
  EXPECT_EQ(p.longest_weight, q.longest_weight);
  EXPECT_EQ(p.norm_exponent, q.norm_exponent);
  EXPECT_EQ(p.packs_groups, q.packs_groups);
  expect_same(p.residual, q.residual);
  expect_same(all.prefill_attention->record, again.prefill_attention->record);
  EXPECT_EQ(again.mixed_attention->model.fused_share, 0.375);
  EXPECT_EQ(again.mixed_attention->model.decodes.block_seconds, 2e-6 * kThird);
  EXPECT_EQ(again.mixed_attention->model.decodes.empty_seconds, 4e-7 * kThird);
  expect_same(all.mixed_attention->record, again.mixed_attention->record);
}

TEST(FittedJson, RoundTrip_OfLinesAndLinks_IsExact) {
  const FittedKernels all = everything();
  const FittedKernels again = through_text(all);
  ASSERT_TRUE(again.elementwise && again.all_reduce && again.cpu_attention && again.host && again.iteration);
  EXPECT_EQ(all.elementwise->model.launch_seconds, again.elementwise->model.launch_seconds);
  EXPECT_EQ(all.elementwise->model.bandwidth, again.elementwise->model.bandwidth);
  expect_same(all.elementwise->record, again.elementwise->record);
  ASSERT_EQ(again.all_reduce->model.by_ranks.size(), 2U);
  for (const auto& [ranks, curve] : all.all_reduce->model.by_ranks) {
    EXPECT_EQ(again.all_reduce->model.by_ranks.at(ranks).points, curve.points);
  }
  expect_same(all.all_reduce->record, again.all_reduce->record);
  ASSERT_EQ(again.copies.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(all.copies[i].model.to_device, again.copies[i].model.to_device);
    EXPECT_EQ(all.copies[i].model.mechanism, again.copies[i].model.mechanism);
    EXPECT_EQ(all.copies[i].model.launch_seconds, again.copies[i].model.launch_seconds);
    EXPECT_EQ(all.copies[i].model.bandwidth, again.copies[i].model.bandwidth);
    EXPECT_EQ(all.copies[i].model.small.points, again.copies[i].model.small.points);
    expect_same(all.copies[i].record, again.copies[i].record);
  }
  EXPECT_EQ(all.cpu_attention->model.launch_seconds, again.cpu_attention->model.launch_seconds);
  EXPECT_EQ(all.cpu_attention->model.bandwidth_per_thread, again.cpu_attention->model.bandwidth_per_thread);
  EXPECT_EQ(all.cpu_attention->model.bandwidth, again.cpu_attention->model.bandwidth);
  expect_same(all.cpu_attention->record, again.cpu_attention->record);
  EXPECT_EQ(all.host->model.fixed_seconds, again.host->model.fixed_seconds);
  EXPECT_EQ(all.host->model.per_sequence_seconds, again.host->model.per_sequence_seconds);
  expect_same(all.host->record, again.host->record);
  EXPECT_EQ(all.iteration->model.fixed_seconds, again.iteration->model.fixed_seconds);
  EXPECT_EQ(all.iteration->model.token_seconds, again.iteration->model.token_seconds);
  EXPECT_EQ(all.iteration->model.context_seconds, again.iteration->model.context_seconds);
  EXPECT_EQ(all.iteration->model.pair_seconds, again.iteration->model.pair_seconds);
  EXPECT_EQ(again.iteration->model.model, "opt-13b");
  expect_same(all.iteration->record, again.iteration->record);
  ASSERT_TRUE(again.decode_iteration);
  expect_same(*all.decode_iteration, *again.decode_iteration);
}

TEST(FittedJson, RoundTrip_OfTables_IsExact) {
  const FittedKernels all = everything();
  const FittedKernels again = through_text(all);
  ASSERT_TRUE(again.layers);
  const LayerTables& a = all.layers->model;
  const LayerTables& b = again.layers->model;
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.chunk_axis, b.chunk_axis);
  EXPECT_EQ(a.chunk_context_axis, b.chunk_context_axis);
  EXPECT_EQ(a.decodes_axis, b.decodes_axis);
  EXPECT_EQ(a.decode_context_axis, b.decode_context_axis);
  EXPECT_EQ(a.attention_seconds, b.attention_seconds);
  ASSERT_EQ(b.per_token.size(), 2U);
  for (const auto& [kernel, curve] : a.per_token) EXPECT_EQ(b.per_token.at(kernel).points, curve.points);
  ASSERT_EQ(b.per_sequence.size(), 1U);
  EXPECT_EQ(b.per_sequence.at("sampler").points, a.per_sequence.at("sampler").points);
  expect_same(all.layers->record, again.layers->record);
  ASSERT_TRUE(again.layer_attention);
  expect_same(*all.layer_attention, *again.layer_attention);
}

TEST(FittedKernels, KnownBeyond_WhenNoCallHadEarlierTokens_ThenIsTheErrorOfTheLaw) {
  for (const char* op : {"prefill_attention", "prefill_attention fp8 kv"}) {
    EXPECT_EQ(known_beyond(op, {"context", 0.0, 0.0}, {}),
              "extrapolated with a median / p95 error of 4.1% / 7.8% on RTX 4090 and 2.7% / 7.1% on A100");
    EXPECT_EQ(known_beyond(op, {"context", 0.0, 128.0}, {}), "");
    EXPECT_EQ(known_beyond(op, {"batch", 0.0, 0.0}, {}), "");
  }
  EXPECT_EQ(known_beyond("decode_attention", {"context", 0.0, 0.0}, {}), "");
}

TEST(FittedKernels, KnownBeyond_WhenSingleTokensHadMoreKvHeads_ThenIsTheErrorOfCarryingThemOver) {
  FitRecord record;
  record.ranges = {{"kv_heads", 1.0, 8.0}};
  for (const char* op : {"decode_attention", "decode_attention fp8 kv"}) {
    EXPECT_EQ(known_beyond(op, record.ranges[0], record), "");
  }
  record.ranges.push_back({"single_token_kv_heads", 12.0, 64.0});
  for (const char* op : {"decode_attention", "decode_attention fp8 kv"}) {
    EXPECT_EQ(known_beyond(op, record.ranges[0], record),
              "carried over from single tokens with a median / p95 error of 5.4% / 26.7% on B200");
    EXPECT_EQ(known_beyond(op, {"q_heads", 1.0, 64.0}, record), "");
  }
  EXPECT_EQ(known_beyond("prefill_attention", record.ranges[0], record), "");
}

TEST(FittedKernels, Lent_WhenTheLenderIsAnotherGpu_ThenKernelsAndLinksAreMarkedAndTheRestIsLeftOut) {
  const FittedKernels all = everything();
  const FittedKernels kernels = lent(all, "other-gpu");
  // Three of GEMM, two of copies, both kinds of attention with KV in two bytes and in one, mixed calls, elementwise
  // kernels, and the all-reduces of NCCL and of engines.
  EXPECT_EQ(fit_lines(kernels).size(), 13U);
  for (const FitLine& line : fit_lines(kernels)) {
    EXPECT_EQ(line.record->source_kind, "borrowed") << line.op;
    EXPECT_EQ(line.record->citation, "borrowed from other-gpu, not calibrated") << line.op;
    EXPECT_EQ(line.record->held_out, ErrorSummary{}) << line.op;
    EXPECT_EQ(line.record->held_out_by, "") << line.op;
    EXPECT_FALSE(line.record->roofline) << line.op;
  }
  EXPECT_FALSE(kernels.cpu_attention || kernels.host || kernels.layers || kernels.iteration);
  EXPECT_FALSE(kernels.layer_attention || kernels.decode_iteration);
  EXPECT_EQ(kernels.gemm.front().record.ranges.size(), all.gemm.front().record.ranges.size());
  EXPECT_EQ(kernels.decode_attention->model.bandwidth, all.decode_attention->model.bandwidth);
}

TEST(FittedJson, RoundTrip_OfNothing_IsNothing) {
  EXPECT_EQ(to_json({}), json::object());
  EXPECT_TRUE(through_text({}).empty());
  EXPECT_EQ(to_json(through_text(everything())), to_json(everything()));
  EXPECT_EQ(fit_lines(everything()).size(), 19U);  // three of GEMM, two of copies, fourteen others
}

// What is written has six decimals of a weight: 1e-6 in the logarithm of a time.
TEST(FittedJson, WeightsAreRoundedToAMillionth) {
  FittedKernels all = everything();
  all.gemm[0].model.residual.weights = {0.1234564999, -2e-7};
  EXPECT_THAT(through_text(all).gemm[0].model.residual.weights, ElementsAre(0.123456, 0.0));
}

/// Problems as "pointer: what".
std::vector<std::string> problems_in(const json& section) {
  std::vector<Problem> problems;
  static_cast<void>(read_fitted(section, "/fitted", problems));
  std::vector<std::string> texts;
  texts.reserve(problems.size());
  for (const Problem& problem : problems) texts.push_back(problem.where + ": " + problem.what);
  return texts;
}

bool names(const std::vector<std::string>& problems, const std::string& place) {
  return std::any_of(problems.begin(), problems.end(),
                     [&](const std::string& text) { return text.starts_with(place + ":"); });
}

/// Pointers to all leaf values and to all objects.
struct Places {
  std::vector<Pointer> leaves;
  std::vector<Pointer> objects;
};
void find_places(const json& value, const Pointer& at, Places& places) {
  if (value.is_object()) places.objects.push_back(at);
  if (!value.is_structured()) return places.leaves.push_back(at);
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) find_places(member, at / key, places);
  } else {
    for (std::size_t i = 0; i < value.size(); ++i) find_places(value[i], at / i, places);
  }
}
Places all_places() {
  Places places;
  find_places(to_json(everything()), Pointer(), places);
  return places;
}

/// Objects with names as keys; any name is allowed.
bool is_map(const Pointer& at) {
  const std::string name = at.empty() ? "" : at.back();
  return name == "measured" || name.starts_with("seconds_by_");
}

TEST(FittedJson, AValueOfAnotherType_IsNamed) {
  const json good = to_json(everything());
  const Places places = all_places();
  EXPECT_GT(places.leaves.size(), 200U);
  for (const Pointer& at : places.leaves) {
    for (const json& wrong : {json("7"), json(nullptr), json::array({1.0}), json::object(), json(true)}) {
      if (good[at].type() == wrong.type()) continue;
      json bad = good;
      bad[at] = wrong;
      EXPECT_TRUE(names(problems_in(bad), "/fitted" + at.to_string())) << at << " = " << wrong;
    }
  }
  for (const Pointer& at : places.objects) {
    for (const json& wrong : {json("7"), json(nullptr), json(3)}) {
      json bad = good;
      bad[at] = wrong;
      EXPECT_TRUE(names(problems_in(bad), "/fitted" + at.to_string())) << at << " = " << wrong;
    }
  }
}

TEST(FittedJson, AMissingField_IsNamed) {
  const json good = to_json(everything());
  for (const Pointer& object : all_places().objects) {
    if (object.empty() || is_map(object)) continue;
    for (const auto& [key, value] : good[object].items()) {
      json bad = good;
      bad[object].erase(key);
      const std::string place = "/fitted" + (object / key).to_string();
      if (key == "roofline" || key == "earlier_tile_s" || key == "write_token_s" || key == "kv_head_s") {
        EXPECT_THAT(problems_in(bad), IsEmpty()) << place;
      } else if (key == "quantization") {
        EXPECT_TRUE(names(problems_in(bad), "/fitted" + (object / "dtype_bytes").to_string())) << "as another entry";
      } else {
        EXPECT_TRUE(names(problems_in(bad), place)) << place;
      }
    }
  }
}

TEST(FittedJson, AnUnknownField_IsNamedWithTheNearest) {
  const json good = to_json(everything());
  for (const Pointer& object : all_places().objects) {
    if (is_map(object)) continue;
    json bad = good;
    bad[object]["spped"] = 1.0;
    EXPECT_THAT(problems_in(bad), ElementsAre("/fitted" + object.to_string() + "/spped: unknown field"));
  }
  json bad = good;
  bad["host"]["fixd_s"] = 1.0;
  std::vector<Problem> problems;
  static_cast<void>(read_fitted(bad, "/fitted", problems));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].fix, "did you mean \"fixed_s\"?");
}

TEST(FittedJson, ANumberThatNoMachineHas_IsNamedWithTheRule) {
  struct Case {
    const char* at;
    json value;
    const char* rule;
  };
  const std::vector<Case> cases{
      {"/gemm/0/dtype_bytes", 9, "must be an integer between 1 and 8, not 9"},
      {"/gemm/1/dtype_bytes", 1, "must not be that of another entry"},
      {"/gemm/2/quantization", "int3", "must be fp8, fp8_block, nvfp4, mxfp4 or int4"},
      {"/gemm/2/quantization", "none", "must be fp8, fp8_block, nvfp4, mxfp4 or int4"},
      {"/gemm/2/quantise/column_s", -1.0, "must be a time of 0 to 10 s"},
      {"/gemm/0/sm_count", 0, "must be an integer between 1 and 100000, not 0"},
      {"/gemm/0/launch_s", -1e-9, "must be a time of 0 to 10 s, not -1e-09"},
      {"/gemm/0/flops_per_s", 1e17, "(no GPU of today is faster), not 1e+17"},
      {"/gemm/0/bandwidth_bytes_per_s", 0.0, "(no memory of today is faster), not 0.0"},
      {"/mixed_attention/fused_share", 1.5, "must be between 0 and 1, not 1.5"},
      {"/mixed_attention/empty_block_s", 11.0, "must be a time of 0 to 10 s, not 11.0"},
      {"/decode_attention_fp8_kv/kv_head_s", -1.0, "must be a time of 0 to 10 s, not -1.0"},
      {"/prefill_attention_fp8_kv/earlier_tile_s", -1.0, "must be a time of 0 to 10 s, not -1.0"},
      {"/prefill_attention_fp8_kv/write_token_s", -1.0, "must be a time of 0 to 10 s, not -1.0"},
      {"/gemm/0/edge_loss", -0.5, "must be between 0 and 1e6, not -0.5"},
      {"/gemm/0/norm_exponent", 3.0, "must be one of 1, 1.5, 2, 4, 8"},
      {"/gemm/0/residual_lengths_octaves", {1.0, 1.0, 1.0}, "must hold 4 numbers"},
      {"/gemm/0/residual_lengths_octaves/2", 0.0, "between 0.01 and 100 octaves, not 0.0"},
      {"/gemm/0/residual_points/1", {1.0, 2.0, 3.0, 4.0}, "must be a list of 5 numbers, not [1.0,2.0,3.0,4.0]"},
      {"/gemm/0/residual_points", "many", "must be a list, not \"many\""},
      {"/decode_attention/group_growth", 1e7, "must be between 0 and 1e6"},
      {"/decode_attention/held_out/n", -1, "must be an integer between 0 and"},
      {"/decode_attention/held_out/median", -2.0, "must be at least -1, not -2.0"},
      {"/decode_attention/source/kind", "guessed", "must be \"measured\" or \"borrowed\""},
      {"/decode_attention/measured/batch", {5.0, 1.0}, "must be [lowest, highest]"},
      {"/decode_attention/measured/batch", {5.0}, "must be [lowest, highest]"},
      {"/all_reduce/seconds_by_bytes_by_ranks", json::object(), "must hold at least one number of ranks"},
      {"/all_reduce/seconds_by_bytes_by_ranks/1", json::array({{1.0, 1e-6}}), "must be a number of ranks, at least 2"},
      {"/all_reduce/seconds_by_bytes_by_ranks/two", json::array({{1.0, 1e-6}}), "must be a number of ranks"},
      {"/all_reduce/seconds_by_bytes_by_ranks/2", json::array(), "must hold at least one point"},
      {"/all_reduce/seconds_by_bytes_by_ranks/2", json::array({{2.0, 1e-6}, {2.0, 2e-6}}), "sizes must ascend"},
      {"/all_reduce/seconds_by_bytes_by_ranks/2", json::array({{2.0, 1e4}}), "a time must be at most 1000 s"},
      {"/copies/0/direction", "h2h", "must be \"h2d\" or \"d2h\""},
      {"/copies/0/mechanism", "dma", "must be one of single, many, batched, kernel, gather, peer"},
      {"/layer/chunk_tokens", {512.0, 0.0}, "must ascend"},
      {"/layer/chunk_tokens", {1.0, 512.0}, "must begin with 0"},
      {"/layer/decodes", {1.0, 2.0, 64.0}, "must begin with 0"},
      {"/layer/decode_context_tokens", {100.0, 100.0}, "must ascend"},
      {"/layer/attention_s/4", -1.0, "must be a time: the call has a chunk or a decode"},
      {"/layer/attention_s/4", 1e5, "must be a time of at most 1000 s"},
      {"/layer/seconds_by_tokens/o_proj", json::array(), "must hold at least one point"},
      {"/iteration/pair_s", 11.0, "must be a time of 0 to 10 s, not 11.0"},
  };
  for (const Case& one : cases) {
    json bad = to_json(everything());
    bad[Pointer(one.at)] = one.value;
    const std::vector<std::string> problems = problems_in(bad);
    EXPECT_THAT(problems, testing::Contains(
                              testing::AllOf(StartsWith("/fitted" + std::string(one.at) + ": "), HasSubstr(one.rule))))
        << one.value;
  }
}

TEST(FittedJson, TablesOfAnotherSizeThanTheirAxes_AreRefused) {
  json bad = to_json(everything());
  bad["layer"]["attention_s"].erase(3);
  EXPECT_THAT(problems_in(bad),
              ElementsAre("/fitted/layer/attention_s: must hold 12 numbers, the product of the axes, not 11"));
  bad = to_json(everything());
  bad["layer"]["decodes"].push_back(128.0);
  EXPECT_THAT(problems_in(bad),
              ElementsAre("/fitted/layer/attention_s: must hold 16 numbers, the product of the axes, not 12"));
}

TEST(FittedJson, CopiesOfOneKindTwice_AreRefused) {
  json bad = to_json(everything());
  bad["copies"].push_back(bad["copies"][1]);
  EXPECT_THAT(problems_in(bad),
              ElementsAre("/fitted/copies/2: must not have direction and mechanism of another entry"));
}

TEST(FittedJson, ManyProblems_AreToldAtOnceUpToAHundred) {
  json bad = to_json(everything());
  bad["host"]["fixed_s"] = "x";
  bad["iteration"]["token_s"] = nullptr;
  EXPECT_THAT(problems_in(bad), testing::UnorderedElementsAre(StartsWith("/fitted/host/fixed_s: "),
                                                              StartsWith("/fitted/iteration/token_s: ")));
  for (int i = 0; i < 1000; ++i) bad["gemm"][0]["residual_points"].push_back("x");
  EXPECT_EQ(problems_in(bad).size(), 100U);
}

}  // namespace
}  // namespace spillway::hwmodels
