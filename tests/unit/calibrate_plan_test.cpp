#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/cost.hpp"
#include "cuda_calibrate/measure/known_gpus.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/rows.hpp"
#include "tests/unit/calibrate_fakes.hpp"

namespace spillway::calibrate {
namespace {

using testing::HasSubstr;

constexpr std::array<const char*, 7> kGpus{"gh200-96gb",     "h100-80gb-sxm", "h200-141gb", "a100-80gb-sxm",
                                           "a100-80gb-pcie", "a10-24gb",      "a10g-24gb"};
constexpr std::array<Level, 3> kLevels{Level::quick, Level::normal, Level::full};

/// A small cloud machine: 8 cores, 32 GiB.
HostFacts small_host() {
  HostFacts host = fake_machine(0).host;
  host.physical_cores = 8;
  host.threads = 16;
  host.memory_bytes = std::int64_t{32} << 30U;
  host.available_bytes = host.memory_bytes;
  host.numa_nodes = 1;
  return host;
}

Plan plan_for(const MachineFacts& facts, Level level) {
  PlanOptions options;
  options.level = level;
  return make_plan(options, facts);
}

std::map<std::string, std::size_t> counts_of(const Plan& plan) {
  std::map<std::string, std::size_t> counts;
  for (const Section& section : plan.sections) counts[section.id] = section.points.size();
  return counts;
}

const Section& section_of(const Plan& plan, const std::string& id) {
  const auto it = std::find_if(plan.sections.begin(), plan.sections.end(),
                               [&](const Section& section) { return section.id == id; });
  if (it == plan.sections.end()) throw std::out_of_range(id);
  return *it;
}

TEST(CalibratePlan, PointsOfAQuickRun) {
  // Two directions, two memories, ten sizes, and eight relays; four sizes; two directions, four mechanisms, three
  // blocks; three computes, two directions; 8 shapes, 6 m; four heads, six shapes each; three kernels, two sizes. Host:
  // 1, half and all of 128 threads, triad once, and beside either copy; 1 and 128 threads, three shapes; four numbers
  // of rows.
  const std::map<std::string, std::size_t> expected{
      {"copy.contig", 48},      {"copy.duplex", 4},        {"copy.scatter", 24},   {"copy.pool", 0},
      {"copy.multi", 0},        {"copy.peer", 0},          {"interference", 6},    {"gemm", 48},
      {"attention.decode", 24}, {"attention.prefill", 24}, {"attention.mixed", 0}, {"launch", 6},
      {"elementwise", 6},       {"sustained", 2},          {"host.stream", 6},     {"host.attention", 6},
      {"host.gemm", 4}};
  EXPECT_EQ(counts_of(plan_for(fake_machine(1), Level::quick)), expected);
}

TEST(CalibratePlan, PointsOfAFullRun) {
  // Two directions, three memories, 19 sizes, and 15 relays; eight sizes, three ratios. Scattered, by direction: four
  // mechanisms times 24 of which 2 move more than 1 GiB, times 8 in sequence, and 5 other numbers of thread blocks
  // times 3. Three traffics on the GPU's node and on each of two; one pair, both ways or one, five sizes. Four
  // computes, three traffics, two mechanisms. 32 shapes, 14 m, and 6 m each of 8 by the best algorithm, 8 others in
  // fp16, 16 in fp8. Four heads, 25 shapes, of which one (32 KV heads, 256 x 32768 tokens, 137 GB) does not fit; four
  // heads, 4 chunks, 3 prefixes, and 8 batches; 24 mixed calls and 16 skewed batches. Four kernels, 3 x 2 sizes. Host:
  // 8 numbers of threads read and triad, 2 beside copies, 2 nodes, 2 pinned, 1 beside both, 9 triads; 4 x 3, and 4 in
  // each of two formats. Three shapes of experts, six numbers of rows.
  const std::map<std::string, std::size_t> expected{{"copy.contig", 129},
                                                    {"copy.duplex", 24},
                                                    {"copy.scatter", 2 * (4 * 22 + 4 * 8 + 15)},
                                                    {"copy.pool", 4},
                                                    {"copy.multi", 9},
                                                    {"copy.peer", 10},
                                                    {"interference", 24},
                                                    {"gemm", 448 + 48 + 48 + 96},
                                                    {"attention.decode", 99},
                                                    {"attention.prefill", 56},
                                                    {"attention.mixed", 40},
                                                    {"launch", 6},
                                                    {"elementwise", 24},
                                                    {"sustained", 2},
                                                    {"host.stream", 32},
                                                    {"host.attention", 20},
                                                    {"host.gemm", 18}};
  EXPECT_EQ(counts_of(plan_for(fake_machine(2), Level::full)), expected);
}

TEST(CalibratePlan, EveryGpu_FitsItsBudget) {
  std::vector<std::string> machines(kGpus.begin(), kGpus.end());
  machines.insert(machines.end(), {"t4-16gb", "g5.16xlarge", "hgx-h100-8", "a100-nvlink-2"});
  for (const std::string& machine : machines) {
    const MachineFacts facts = assumed_facts(machine, small_host());
    for (const Level level : kLevels) {
      const Plan plan = plan_for(facts, level);
      const Budget budget = budget_of(level);
      double allowed = 0.0;
      EXPECT_GT(plan.points(), level == Level::quick ? 150 : 350) << machine;
      EXPECT_LE(plan.estimated_seconds(), budget.run_seconds) << machine << " " << name_of(level);
      for (const Section& section : plan.sections) {
        EXPECT_LE(section.most_seconds, 300.0) << machine << " " << section.id;
        EXPECT_LE(section.estimated_seconds, section.most_seconds) << machine << " " << section.id;
        EXPECT_EQ(section.points.empty(), !section.reason.empty()) << machine << " " << section.id;
        allowed += section.most_seconds;
      }
      EXPECT_LE(allowed, budget.run_seconds * (1 + 1e-9)) << machine << " " << name_of(level);
    }
  }
  EXPECT_EQ(budget_of(Level::quick).run_seconds, 60.0);
  EXPECT_EQ(budget_of(Level::full).run_seconds, 900.0);
}

/// The number format of a GPU computation; empty for other points.
std::vector<Number> numbers_of(const Point& point) {
  if (const auto* gemm = std::get_if<Gemm>(&point)) return {gemm->number};
  if (const auto* decode = std::get_if<DecodeAttention>(&point)) return {decode->number};
  if (const auto* prefill = std::get_if<PrefillAttention>(&point)) return {prefill->number};
  if (const auto* mixed = std::get_if<MixedAttention>(&point)) return {mixed->number};
  if (const auto* both = std::get_if<Interference>(&point)) {
    return {std::visit([](const auto& compute) { return compute.number; }, both->compute)};
  }
  return {};
}

std::set<Number> numbers_of(const Plan& plan) {
  std::set<Number> numbers;
  for (const Section& section : plan.sections) {
    for (const Point& point : section.points) {
      for (const Number number : numbers_of(point)) numbers.insert(number);
    }
  }
  return numbers;
}

TEST(CalibratePlan, FormatsAreThoseOfTheGpu) {
  const auto numbers = [](const char* gpu, Level level) {
    return numbers_of(plan_for(assumed_facts(gpu, small_host()), level));
  };
  EXPECT_EQ(numbers("t4-16gb", Level::full), std::set<Number>{Number::fp16});
  EXPECT_EQ(numbers("a100-80gb-sxm", Level::full), (std::set<Number>{Number::bf16, Number::fp16}));
  EXPECT_EQ(numbers("h100-80gb-sxm", Level::full), (std::set<Number>{Number::bf16, Number::fp16, Number::fp8}));
  EXPECT_EQ(numbers("h100-80gb-sxm", Level::quick), std::set<Number>{Number::bf16});
}

/// A lower bound of the GPU memory for a point's operands, from its definition.
double gpu_bytes(const Point& point) {
  const auto real = [](std::int64_t count) { return static_cast<double>(count); };
  if (const auto* gemm = std::get_if<Gemm>(&point)) {
    return real(gemm->n) * real(gemm->k) + real(gemm->m) * (real(gemm->n) + real(gemm->k));
  }
  if (const auto* decode = std::get_if<DecodeAttention>(&point)) {
    return 2.0 * 2.0 * real(decode->batch) * real(decode->context) * real(decode->heads.kv) * real(decode->heads.size);
  }
  if (const auto* copy = std::get_if<ContiguousCopy>(&point)) return real(copy->bytes);
  if (const auto* copy = std::get_if<ScatteredCopy>(&point)) return real(copy->block_bytes) * real(copy->blocks);
  return 0.0;
}

TEST(CalibratePlan, SmallGpu_HasMemoryForEveryPoint) {
  const MachineFacts t4 = assumed_facts("t4-16gb", small_host());
  double largest = 0.0;
  for (const Section& section : plan_for(t4, Level::full).sections) {
    for (const Point& point : section.points) largest = std::max(largest, gpu_bytes(point));
  }
  EXPECT_LE(largest, 0.5 * static_cast<double>(t4.gpus[0].memory_bytes));
  EXPECT_GT(largest, 1e9);
  // A pool may take half of the 32 GiB: 1, 4 and 16 GiB.
  EXPECT_EQ(counts_of(plan_for(t4, Level::full)).at("copy.pool"), 3U);
}

TEST(CalibratePlan, WithoutAGpu_HostSectionsAreLeft) {
  const Plan plan = plan_for(fake_machine(0), Level::quick);
  for (const Section& section : plan.sections) {
    const bool host = section.id.starts_with("host.");
    EXPECT_EQ(section.reason, host ? "" : "no CUDA device was found") << section.id;
    EXPECT_EQ(section.points.empty(), !host);
  }
  // 1, half and all threads read, and triad once: no copies beside them.
  EXPECT_EQ(counts_of(plan).at("host.stream"), 4U);
  EXPECT_EQ(section_of(plan_for(fake_machine(1), Level::full), "copy.peer").reason,
            "the section needs 2 GPUs, but the machine has 1");
  EXPECT_EQ(section_of(plan_for(fake_machine(1), Level::quick), "attention.mixed").reason, "not part of a quick run");
}

TEST(CalibratePlan, OneThread_HasRowsEnoughForAFit) {
  MachineFacts facts = fake_machine(0);
  facts.host.physical_cores = 1;
  facts.host.threads = 1;
  for (const Level level : kLevels) {
    // Five shapes in bf16, and in a full run in fp16 and fp32.
    const std::size_t others = level == Level::full ? 2 * 5 : 0;
    EXPECT_EQ(counts_of(plan_for(facts, level)).at("host.attention"), 5U + others);
  }
}

// 2048 x 768 numbers of 4 bytes are 6 MiB: 22 are the first that exceed four caches of 32 MiB. 64 cores of two sockets:
// 32 each. 4096 rows of 4096 x 14336 are 0.48 TFLOP: 0.5 s on 32 threads of 30 GFLOP/s, 2 s on 8, of which a point
// would take seven calls or more.
TEST(CalibratePlan, ProductsOnTheHost_AreOfOneSocketAndBeyondTheCaches) {
  MachineFacts facts = fake_machine(0);
  facts.host.sockets = 2;
  const Section section = section_of(plan_for(facts, Level::normal), "host.gemm");
  ASSERT_EQ(section.points.size(), 12U);
  std::vector<std::int64_t> rows;
  for (const Point& point : section.points) {
    const HostGemm gemm = std::get<HostGemm>(point);
    EXPECT_EQ(gemm.threads, 32);
    rows.push_back(gemm.rows);
  }
  EXPECT_THAT(rows, testing::ElementsAre(1, 4, 16, 64, 512, 4096, 1, 4, 16, 64, 512, 4096));
  const HostGemm first = std::get<HostGemm>(section.points.front());
  EXPECT_EQ(first.inputs, 2048);
  EXPECT_EQ(first.outputs, 768);
  EXPECT_EQ(first.experts, 22);
  facts.host.physical_cores = 16;  // the other six points stay
  EXPECT_EQ(section_of(plan_for(facts, Level::normal), "host.gemm").points.size(), 11U);
  // A quarter of 600 MiB holds 22 matrices of 6 MiB, but not the 44 MiB of x and y of 4096 rows as well, nor a matrix
  // of 224 MiB.
  facts.host.available_bytes = std::int64_t{600} << 20U;
  EXPECT_EQ(section_of(plan_for(facts, Level::normal), "host.gemm").points.size(), 5U);
}

TEST(CalibratePlan, SectionsAreChosenByNameOrGroup) {
  const auto ids = [](std::vector<std::string> sections, std::vector<std::string> skip) {
    PlanOptions options;
    options.sections = std::move(sections);
    options.skip = std::move(skip);
    std::vector<std::string> chosen;
    for (const Section& section : make_plan(options, fake_machine(1)).sections) chosen.push_back(section.id);
    return chosen;
  };
  EXPECT_EQ(ids({}, {}), section_ids());
  EXPECT_THAT(ids({"host", "gemm"}, {}), testing::ElementsAre("gemm", "host.stream", "host.attention", "host.gemm"));
  EXPECT_THAT(ids({"attention"}, {"attention.mixed"}), testing::ElementsAre("attention.decode", "attention.prefill"));
  try {
    (void)ids({"gem", "copy.contig"}, {"xyz"});
    FAIL();
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 1U);
    EXPECT_EQ(error.problems()[0].what, "unknown section \"gem\"");
    EXPECT_THAT(error.problems()[0].fix, HasSubstr("did you mean \"gemm\"?"));
  }
}

TEST(CalibratePlan, GpuThatIsNotThere) {
  PlanOptions options;
  options.gpu = 2;
  EXPECT_THROW((void)make_plan(options, fake_machine(2)), ConfigError);
  options.gpu = 1;
  EXPECT_EQ(counts_of(make_plan(options, fake_machine(2))).at("gemm"), 160U);  // 16 shapes, 10 m
}

TEST(CalibratePlan, ShapesOfAModel_AreAdded) {
  PlanOptions options;
  options.level = Level::quick;
  // The second shape is the first designed shape, which is measured only once.
  options.model_shapes = {{6144, 4096}, {4096, 4096}};
  const Section gemm = section_of(make_plan(options, fake_machine(1)), "gemm");
  EXPECT_EQ(gemm.points.size(), 48U + 6U);
  const Gemm first = std::get<Gemm>(gemm.points.front());
  EXPECT_EQ(first.n, 6144);
  EXPECT_EQ(first.k, 4096);
}

/// Every row appears once: readers could not distinguish two measurements of one point.
TEST(CalibratePlan, NoPointTwice) {
  for (const Level level : kLevels) {
    std::set<std::string> seen;
    for (const Section& section : plan_for(fake_machine(4), level).sections) {
      for (const Point& point : section.points) {
        for (const auto& row : rows_of(point)) EXPECT_TRUE(seen.insert(row.dump()).second) << section.id << row.dump();
      }
    }
  }
}

TEST(CalibratePlan, Digest_IsOfThePointsAndTheSampling) {
  const Plan quick = plan_for(fake_machine(1), Level::quick);
  Section section = section_of(quick, "launch");
  const std::string digest = plan_digest(section, Level::quick);
  EXPECT_EQ(digest.size(), 64U);
  EXPECT_EQ(plan_digest(section_of(plan_for(fake_machine(2), Level::quick), "launch"), Level::quick), digest);
  EXPECT_NE(plan_digest(section, Level::full), digest);  // another sampling rule
  section.points.pop_back();
  EXPECT_NE(plan_digest(section, Level::quick), digest);
}

TEST(CalibrateShapes, FarthestPointByDefinition) {
  const std::int64_t most = std::int64_t{1} << 29U;
  const std::vector<WeightShape> shapes = designed_shapes(12, most);
  ASSERT_EQ(shapes.size(), 12U);
  EXPECT_EQ(shapes[0], (WeightShape{4096, 4096}));
  const auto distance = [](const WeightShape& a, const WeightShape& b) {
    const auto log = [](std::int64_t x) { return std::log(static_cast<double>(x)); };
    return std::hypot(log(a.n) - log(b.n), log(a.k) - log(b.k), log(a.n * a.k) - log(b.n * b.k));
  };
  const auto nearest = [&](const WeightShape& shape, std::size_t chosen) {
    double least = 1e9;
    for (std::size_t i = 0; i < chosen; ++i) least = std::min(least, distance(shape, shapes[i]));
    return least;
  };
  std::vector<std::int64_t> steps;
  for (std::int64_t power = 128; power <= 65536; power *= 2) {
    steps.push_back(power);
    if (power >= 256 && power < 65536) steps.push_back(power / 2 * 3);
  }
  std::set<std::pair<std::int64_t, std::int64_t>> once;
  for (std::size_t chosen = 0; chosen < shapes.size(); ++chosen) {
    EXPECT_TRUE(once.emplace(shapes[chosen].n, shapes[chosen].k).second);
    EXPECT_LE(shapes[chosen].n * shapes[chosen].k, most);
    EXPECT_LE(std::max(shapes[chosen].n, shapes[chosen].k), 64 * std::min(shapes[chosen].n, shapes[chosen].k));
    if (chosen == 0) continue;
    for (const std::int64_t n : steps) {
      for (const std::int64_t k : steps) {
        if (n * k > most || n > 64 * k || k > 64 * n) continue;
        EXPECT_LE(nearest({n, k}, chosen), nearest(shapes[chosen], chosen) * (1 + 1e-12)) << n << " " << k;
      }
    }
  }
  EXPECT_TRUE(designed_shapes(0, most).empty());
  EXPECT_EQ(designed_shapes(5, 16384), (std::vector<WeightShape>{{128, 128}}));
}

TEST(CalibrateCost, SpeedsByTheRule) {
  // 108 SMs, 2048 FLOP per clock, 1.41 GHz: 311.9 TFLOP/s, NVIDIA's figure for the A100. 16 lanes of PCIe 4: 25.6 GB/s.
  MachineFacts facts = fake_machine(1);
  GpuFacts& gpu = facts.gpus[0];
  gpu.sm_count = 108;
  gpu.compute_capability = 80;
  gpu.max_sm_clock_mhz = 1410;
  gpu.pcie_generation = 4;
  gpu.pcie_width = 16;
  const Speeds a100 = speeds_of(facts.host, &gpu);
  EXPECT_DOUBLE_EQ(a100.flops, 108 * 2048 * 1.41e9);
  EXPECT_DOUBLE_EQ(a100.link, 25.6e9);
  EXPECT_DOUBLE_EQ(a100.memory, 1800e9);
  EXPECT_DOUBLE_EQ(a100.host, 160e9);  // two nodes
  gpu.compute_capability = 120;        // newer than the table
  gpu.pcie_width.reset();
  const Speeds newer = speeds_of(facts.host, &gpu);
  EXPECT_DOUBLE_EQ(newer.flops, 108 * 4096 * 1.41e9);
  EXPECT_DOUBLE_EQ(newer.link, 12e9);
  EXPECT_EQ(speeds_of(facts.host, nullptr).link, 0.0);
}

TEST(CalibrateCost, SecondsOfAPoint) {
  // 1 ms: 4 to warm up and 50 timings, each with 0.1 ms beside it, and 0.1 s before.
  EXPECT_NEAR(estimated_seconds({1e-3, 1.0, 0.1}, {}), 0.1 + 54 * 1.1e-3, 1e-9);
  // 1 s: warm-up and the minimum number of timings exceed the 2 s limit of a point.
  EXPECT_NEAR(estimated_seconds({1.0, 1.0, 0.0}, {}), 7 * 1.0001, 1e-9);
  // 0.1 s twice over: 24 times would be 4.8 s, the point ends at 2 s.
  EXPECT_NEAR(estimated_seconds({0.1, 2.0, 0.5}, {}), 2.5, 1e-9);
}

// 2 x 100 x 1e6 FLOP at 4 x 30e9 FLOP/s: 1.7 ms, more than the 4e6 bytes of the weights at 32e9 bytes/s take. Of one
// row, these bytes are what takes time.
TEST(CalibrateCost, ProductsOnTheHostTakeTheirArithmeticOrTheirWeights) {
  const Speeds speeds = speeds_of(fake_machine(0).host, nullptr);
  EXPECT_NEAR(cost_of(HostGemm{100, 1000, 1000, 8, 4}, speeds).call_seconds, 10e-6 + 2e8 / 120e9, 1e-12);
  EXPECT_NEAR(cost_of(HostGemm{1, 1000, 1000, 8, 4}, speeds).call_seconds, 10e-6 + 4e6 / 32e9, 1e-12);
}

// Before a call of 1 GiB of KV, 2 threads fill it and four times the 100 MB of the last-level cache, at 0.8e9 bytes/s
// each. Reading host memory needs as much. cuDNN plans decode attention in 0.1 s, from compute capability 80 on.
TEST(CalibrateCost, BuffersBeyondTheCacheAndPlansTakeTheirTime) {
  MachineFacts facts = fake_machine(1);
  facts.host.last_level_cache_bytes = 100'000'000;
  const Speeds speeds = speeds_of(facts.host, &facts.gpus[0]);
  const double filled = ((std::int64_t{1} << 30) + 4e8) / 1.6e9;
  const HostAttention attention{.threads = 2, .batch = 1, .context = (1 << 30) / (4 * 8 * 128)};
  EXPECT_NEAR(cost_of(attention, speeds).prepare_seconds, 3e-3 + filled, 1e-9);
  const HostStream stream{.threads = 2, .bytes = std::int64_t{1} << 30};
  EXPECT_NEAR(cost_of(stream, speeds).prepare_seconds, 3e-3 + filled, 1e-9);
  const auto decode = [&](std::int64_t capability) {
    facts.gpus[0].compute_capability = capability;
    return cost_of(DecodeAttention{Heads{}, 1, 1024, 1.0, Number::fp16}, speeds_of(facts.host, &facts.gpus[0]))
        .prepare_seconds;
  };
  EXPECT_NEAR(decode(80) - decode(75), 0.1, 1e-9);
  // Chunk and decodes in one call run the tool's own kernel. Page-locking takes 3e9 bytes/s more.
  const auto mixed = [&](std::int64_t capability) {
    facts.gpus[0].compute_capability = capability;
    return cost_of(MixedAttention{.chunk = 64, .decodes = 1, .decode_context = 1024},
                   speeds_of(facts.host, &facts.gpus[0]))
        .prepare_seconds;
  };
  EXPECT_NEAR(mixed(80), mixed(75), 1e-9);
  HostStream pinned = stream;
  pinned.pinned = true;
  EXPECT_NEAR(cost_of(pinned, speeds).prepare_seconds, 3e-3 + filled + filled * 1.6 / 3.0, 1e-9);
}

// Two copies at once end with the longer one, whichever direction it has.
TEST(CalibrateCost, DuplexLastsAsLongAsItsLongerCopy) {
  MachineFacts facts = fake_machine(1);
  const Speeds speeds = speeds_of(facts.host, &facts.gpus[0]);
  const auto call = [&](std::int64_t h2d, std::int64_t d2h) {
    return cost_of(DuplexCopy{.h2d_bytes = h2d, .d2h_bytes = d2h}, speeds).call_seconds;
  };
  EXPECT_EQ(call(1 << 30, 1 << 20), call(1 << 30, 1 << 30));
  EXPECT_EQ(call(1 << 20, 1 << 30), call(1 << 30, 1 << 30));
  EXPECT_LT(call(1 << 20, 1 << 20), call(1 << 30, 1 << 20));
}

TEST(CalibrateKnownGpus, FactsAreTheProfiles) {
  const MachineFacts t4 = assumed_facts("t4-16gb", small_host());
  ASSERT_EQ(t4.gpus.size(), 1U);
  EXPECT_EQ(t4.gpus[0].name, "Tesla T4");
  EXPECT_EQ(t4.gpus[0].sm_count, 40);
  EXPECT_EQ(t4.gpus[0].compute_capability, 75);
  EXPECT_FALSE(t4.gpus[0].bf16);
  EXPECT_FALSE(t4.gpus[0].fp8);
  EXPECT_EQ(t4.host.physical_cores, 8);
  const MachineFacts server = assumed_facts("hgx-h100-8", small_host());
  ASSERT_EQ(server.gpus.size(), 8U);
  EXPECT_EQ(server.gpus[7].index, 7);
  EXPECT_TRUE(server.gpus[0].fp8);
  EXPECT_NE(server.host.physical_cores, 8);
  EXPECT_THROW((void)assumed_facts("rtx4090-24gb", small_host()), ConfigError);
  EXPECT_THROW((void)assumed_facts("h100", small_host()), ConfigError);
}

}  // namespace
}  // namespace spillway::calibrate
