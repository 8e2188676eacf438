#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "cuda_calibrate/measure/document.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/rows.hpp"
#include "tests/unit/calibrate_fakes.hpp"
#include "tests/unit/calibrate_schema.hpp"

namespace spillway::calibrate {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> ops_of(const Point& point) {
  std::vector<std::string> ops;
  for (const Json& row : rows_of(point)) ops.push_back(row.at("op"));
  return ops;
}

TEST(CalibrateRows, SeriesOfEachPoint) {
  const auto contiguous = rows_of(ContiguousCopy{Direction::d2h, HostMemory::pageable, 4096});
  ASSERT_EQ(contiguous.size(), 2U);
  EXPECT_EQ(contiguous[0], (Json{{"op", "copy_d2h"},
                                 {"mechanism", "single"},
                                 {"block_bytes", 4096},
                                 {"copies", 1},
                                 {"memory", "pageable"},
                                 {"observed", "device"}}));
  EXPECT_EQ(contiguous[1].at("observed"), "host");

  const auto relay = rows_of(RelayCopy{4096, 8});
  ASSERT_EQ(relay.size(), 1U);
  EXPECT_EQ(relay[0], (Json{{"op", "copy_h2d"},
                            {"mechanism", "relay"},
                            {"block_bytes", 4096},
                            {"copies", 1},
                            {"memory", "pageable"},
                            {"observed", "host"},
                            {"threads", 8}}));

  const auto duplex = rows_of(DuplexCopy{1024, 4096});
  ASSERT_EQ(duplex.size(), 2U);
  EXPECT_EQ(duplex[0], (Json{{"op", "copy_h2d"},
                             {"mechanism", "single"},
                             {"block_bytes", 1024},
                             {"copies", 1},
                             {"duplex", true},
                             {"beside_bytes", 4096}}));
  EXPECT_EQ(duplex[1].at("op"), "copy_d2h");
  EXPECT_EQ(duplex[1].at("block_bytes"), 4096);
  EXPECT_EQ(duplex[1].at("beside_bytes"), 1024);

  const auto kernel =
      rows_of(ScatteredCopy{Direction::h2d, Mechanism::kernel, 65536, 256, Order::sequential, 8, 1 << 30});
  ASSERT_EQ(kernel.size(), 1U);
  EXPECT_EQ(kernel[0], (Json{{"op", "copy_h2d"},
                             {"mechanism", "kernel"},
                             {"block_bytes", 65536},
                             {"copies", 256},
                             {"memory", "pinned"},
                             {"order", "sequential"},
                             {"ctas", 8},
                             {"pool_bytes", 1 << 30}}));
  EXPECT_FALSE(
      rows_of(ScatteredCopy{Direction::h2d, Mechanism::gather, 4096, 1, Order::random, 0, 4096})[0].contains("ctas"));

  EXPECT_EQ(ops_of(AllGpusCopy{Traffic::d2h, 4096, 2, -1}), (std::vector<std::string>{"copy_d2h"}));
  const auto everywhere = rows_of(AllGpusCopy{Traffic::both, 4096, 2, 1});
  ASSERT_EQ(everywhere.size(), 2U);
  EXPECT_EQ(everywhere[1].at("op"), "copy_d2h");
  EXPECT_EQ(everywhere[1].at("duplex"), true);
  EXPECT_EQ(everywhere[1].at("gpus"), 2);
  EXPECT_EQ(everywhere[1].at("numa_node"), 1);

  EXPECT_EQ(rows_of(PeerCopy{0, 1, true, 4096})[0],
            (Json{{"op", "peer"}, {"from", 0}, {"to", 1}, {"bytes", 4096}, {"duplex", true}}));
  EXPECT_EQ(rows_of(Gemm{1, 2, 3, Number::fp8})[0],
            (Json{{"op", "gemm"}, {"m", 1}, {"n", 2}, {"k", 3}, {"dtype", "fp8"}}));
  EXPECT_EQ(rows_of(Gemm{1, 2, 3, Number::fp8, 8})[0].at("best_of"), 8);
  EXPECT_EQ(rows_of(DecodeAttention{{8, 2, 64}, 4, 100, 2.0, Number::fp16})[0], (Json{{"op", "decode_attention"},
                                                                                      {"batch", 4},
                                                                                      {"q_heads", 8},
                                                                                      {"kv_heads", 2},
                                                                                      {"head_dim", 64},
                                                                                      {"new_tokens", 1},
                                                                                      {"context", 100},
                                                                                      {"dtype", "fp16"},
                                                                                      {"skew", 2.0}}));
  EXPECT_FALSE(rows_of(DecodeAttention{{}, 4, 100})[0].contains("skew"));
  EXPECT_EQ(rows_of(Launch{LaunchKind::graph, 100})[0], (Json{{"op", "launch"}, {"kind", "graph"}, {"nodes", 100}}));
}

TEST(CalibrateRows, Bytes) {
  // 10 rows of 16 numbers of 2 bytes: read and written once; two read and one written.
  const auto bytes = [](ElementwiseKind kind) { return rows_of(Elementwise{kind, 10, 16})[0].at("bytes"); };
  EXPECT_EQ(bytes(ElementwiseKind::rms_norm), 2 * 10 * 16 * 2);
  EXPECT_EQ(bytes(ElementwiseKind::rope), 2 * 10 * 16 * 2);
  EXPECT_EQ(bytes(ElementwiseKind::copy), 2 * 10 * 16 * 2);
  EXPECT_EQ(bytes(ElementwiseKind::silu_mul), 3 * 10 * 16 * 2);
  // Keys and values of 2 sequences of 7 tokens, 4 heads of 32 numbers.
  const auto kv = [](Number number) { return rows_of(HostAttention{number, 1, {8, 4, 32}, 2, 7})[0].at("kv_bytes"); };
  EXPECT_EQ(kv(Number::bf16), 2 * 2 * 7 * 4 * 32 * 2);
  EXPECT_EQ(kv(Number::fp16), 2 * 2 * 7 * 4 * 32 * 2);
  EXPECT_EQ(kv(Number::fp32), 2 * 2 * 7 * 4 * 32 * 4);
}

TEST(CalibrateRows, ParallelThings_AreToldApart) {
  const auto rows = rows_of(Interference{Gemm{16, 32, 64}, Traffic::both, true, 4096});
  ASSERT_EQ(rows.size(), 6U);
  std::vector<std::pair<std::string, bool>> parts;
  for (const Json& row : rows) {
    parts.emplace_back(row.at("part"), row.at("beside"));
    EXPECT_EQ(row.at("compute"), (Json{{"op", "gemm"}, {"m", 16}, {"n", 32}, {"k", 64}, {"dtype", "bf16"}}));
    EXPECT_EQ(row.at("mechanism"), "kernel");
    EXPECT_EQ(row.at("copy_bytes"), 4096);
  }
  EXPECT_EQ(parts, (std::vector<std::pair<std::string, bool>>{{"compute", false},
                                                              {"compute", true},
                                                              {"copy_h2d", false},
                                                              {"copy_d2h", false},
                                                              {"copy_h2d", true},
                                                              {"copy_d2h", true}}));
  EXPECT_EQ(rows_of(Interference{DecodeAttention{{}, 1, 2}, Traffic::d2h, false, 1}).size(), 4U);

  const auto alone = rows_of(HostStream{StreamKind::triad, 4, 1, true, Traffic::none, 3072, 0});
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0], (Json{{"op", "host_stream"},
                            {"part", "stream"},
                            {"kind", "triad"},
                            {"threads", 4},
                            {"bytes", 3072},
                            {"memory", "pinned"},
                            {"traffic", "none"},
                            {"numa_node", 1}}));
  const auto beside = rows_of(HostStream{StreamKind::read, 4, -1, false, Traffic::both, 3072, 4096});
  ASSERT_EQ(beside.size(), 3U);
  EXPECT_EQ(beside[1].at("part"), "copy_h2d");
  EXPECT_EQ(beside[1].at("bytes"), 4096);
  EXPECT_EQ(beside[2].at("part"), "copy_d2h");
}

TEST(CalibrateRows, ProductsOnTheHost_NameTheirShapeAndFormat) {
  const auto rows = rows_of(HostGemm{64, 2048, 768, 22, 32});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0], (Json{{"op", "host_gemm"},
                           {"rows", 64},
                           {"inputs", 2048},
                           {"outputs", 768},
                           {"experts", 22},
                           {"threads", 32},
                           {"dtype", "fp32"}}));
}

TEST(CalibrateRows, EveryPlannedPoint_GivesRowsOfTheSchema) {
  const nlohmann::json& form = measurements_schema().at("properties").at("measurements").at("items");
  PlanOptions options;
  options.level = Level::full;
  std::set<std::size_t> kinds;
  std::set<std::string> ops;
  for (const Section& section : make_plan(options, fake_machine(2)).sections) {
    for (const Point& point : section.points) {
      kinds.insert(point.index());
      SectionResult result;
      result.id = section.id;
      if (std::holds_alternative<Sustained>(point)) {
        const SustainedRun run{{{0.1, 9, 1e-3, {}}, {0.2, 9, 1e-3, GpuSensors{1410, 300.5, 65, "none"}}}, false};
        add_sustained(result, point, run, "fake", false);
      } else {
        Timings timings;
        timings.series.assign(rows_of(point).size(), {1e-3, 2e-3});
        add_measurements(result, point, timings, "fake", false);
      }
      for (const Json& row : result.measurements) {
        ops.insert(row.at("op").get<std::string>());
        const auto problems = schema_problems(form, nlohmann::json(row), section.id);
        EXPECT_TRUE(problems.empty()) << row.dump() << "\n" << problems.front();
      }
    }
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Point>);
  EXPECT_EQ(ops, (std::set<std::string>{"copy_h2d", "copy_d2h", "peer", "interference", "gemm", "decode_attention",
                                        "prefill_attention", "mixed_attention", "launch", "elementwise", "sustained",
                                        "host_stream", "cpu_attention", "host_gemm"}));
}

}  // namespace
}  // namespace spillway::calibrate
