// Runs with a disk behind the connector's tier: times to the nanosecond, and hits to the block against a naive model.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/oracle/replay.hpp"
#include "tests/oracle/route_by.hpp"
#include "tests/unit/token_time_model.hpp"

namespace spillway {
namespace {

using oracle::replay;
using oracle::Replay;
using oracle::request;

/// A block takes 2,000 ns to read and 4,000 ns to write, `speedup` times less on a faster disk.
KvLayout layout(std::int64_t gpu, std::int64_t slots, std::int64_t disk, std::int64_t depth, double speedup = 1.0) {
  KvLayout kv{Blocks(gpu), Blocks(0), Tokens(16), Bytes(2000), 1, true, Blocks(slots)};
  kv.connector = ConnectorTimes{};
  kv.disk = DiskLayout{.blocks = Blocks(disk),
                       .speed = {.read = BytesPerSecond(1e9 * speedup),
                                 .write = BytesPerSecond(0.5e9 * speedup),
                                 .read_operations = 1e9,
                                 .write_operations = 1e9,
                                 .depth = depth}};
  return kv;
}

/// Whole blocks, and `more` tokens.
RequestSpec prompt(std::int64_t arrival, std::vector<std::uint64_t> ids, std::int64_t output = 1,
                   std::int64_t more = 1) {
  RequestSpec spec = request(arrival, static_cast<std::int64_t>(ids.size()) * 16 + more, output);
  spec.prefix_ids = std::move(ids);
  return spec;
}

const EngineTotals& totals(const Replay& run) { return run.result.statistics.engine; }

// 6 GPU blocks, 4 slots on the host. A, then B, then A again.
//   t = 0        A computes 65 tokens: 65,001 ns. Its 4 blocks go to the host until 73,001.
//   t = 100,000  B stores 4 blocks, so A's go to the disk, one write of 16,000 ns. On the GPU, B takes the free block
//                and all of A's but the first.
//   t = 200,000  A finds block 1 on the GPU and 2 to 4 on the disk. They take the slots of 3 of B's blocks, which are
//                written to the disk after the read, in 12,000 ns.
// With one place the read takes 6,000 ns, the write waits for these, the copy to the GPU takes 6,000 ns, and A computes
// one token, 1,001 ns: 13,001 ns. With two places the read shares the disk with the write: 12,000 ns, 19,001 in all.
TEST(DiskRun, ARead_IsFollowedByTheCopyToTheGpu) {
  const TokenTimeModel model;
  const std::vector<RequestSpec> requests{prompt(0, {1, 2, 3, 4}), prompt(100'000, {5, 6, 7, 8}),
                                          prompt(200'000, {1, 2, 3, 4})};
  const Replay one = replay("vllm", {}, layout(6, 4, 100, 1), requests, model);
  EXPECT_EQ(one.of(1).end, SimTime(165'001));
  EXPECT_EQ(one.of(2).end, SimTime(213'001));
  EXPECT_EQ(totals(one).disk,
            (DiskCounts{.written = Blocks(7), .read = Blocks(3), .transfers = 3, .waited = Duration(6'000)}));
  EXPECT_EQ(one.of(2).cached, Tokens(64));
  EXPECT_EQ(totals(one).prefix_hit, Tokens(64));
  EXPECT_EQ(totals(one).prefix_hit_disk, Tokens(48));
  EXPECT_EQ(totals(one).prefix_hit_host, Tokens(0));
  EXPECT_EQ(totals(one).offloading.loaded, Blocks(3));
  EXPECT_EQ(totals(one).offloading.stored, Blocks(8));
  EXPECT_EQ(totals(one).offloading.evicted, Blocks(7));
  EXPECT_EQ(totals(one).moved_h2d, Bytes(6'000));

  const Replay two = replay("vllm", {}, layout(6, 4, 100, 2), requests, model);
  EXPECT_EQ(two.of(2).end, SimTime(219'001));
  EXPECT_EQ(totals(two).disk.waited, Duration(0));
}

// The same with a disk that takes 25,000 ns to write a block: A's are written from 100,000 to 200,000 ns. The third
// request can read them then, but not 1 ns before: it computes the 48 tokens behind its first block itself.
TEST(DiskRun, ABlockIsReadOnceItIsWritten) {
  const TokenTimeModel model;
  KvLayout kv = layout(6, 4, 100, 1);
  kv.disk->speed.write = BytesPerSecond(2000.0 / 25'000e-9);
  const auto third = [&](std::int64_t arrival) {
    return replay("vllm", {}, kv,
                  {prompt(0, {1, 2, 3, 4}), prompt(100'000, {5, 6, 7, 8}), prompt(arrival, {1, 2, 3, 4})}, model);
  };
  EXPECT_EQ(third(199'999).of(2).cached, Tokens(16));
  EXPECT_EQ(third(200'000).of(2).cached, Tokens(64));
}

// The same with one place, and with the third request comes a fourth of 10 tokens, which computes for 10,001 ns. The
// read ends at 206,000, the engine sees that at the next step: the copy starts at 210,001 and ends at 216,001.
TEST(DiskRun, AReadThatEndsInAStep_IsSeenAfterIt) {
  const TokenTimeModel model;
  const Replay run = replay(
      "vllm", {}, layout(6, 4, 100, 1),
      {prompt(0, {1, 2, 3, 4}), prompt(100'000, {5, 6, 7, 8}), prompt(200'000, {1, 2, 3, 4}), request(200'000, 10, 1)},
      model);
  EXPECT_EQ(run.of(3).end, SimTime(210'001));
  EXPECT_EQ(run.of(2).end, SimTime(217'002));
}

// 5 slots: A's 4 blocks, then B's, of which the tier evicts A's blocks 4, 3 and 2. A, now of 4 whole blocks, finds
// block 1 on the host as well as on the GPU. B's end has evicted all of the GPU: A's block 1, too, with 5 GPU blocks.
// So block 1 comes from the host, 2 to 4 from the disk, and the last token of block 4 is computed: 16 and 47 tokens.
TEST(DiskRun, HitsCountForTheTierThatHasTheBlocks) {
  const TokenTimeModel model;
  const Replay run =
      replay("vllm", {}, layout(5, 5, 100, 1),
             {prompt(0, {1, 2, 3, 4}), prompt(100'000, {5, 6, 7, 8}), prompt(200'000, {1, 2, 3, 4}, 1, 0)}, model);
  EXPECT_EQ(run.of(2).cached, Tokens(63));
  EXPECT_EQ(totals(run).prefix_hit, Tokens(63));
  EXPECT_EQ(totals(run).prefix_hit_host, Tokens(16));
  EXPECT_EQ(totals(run).prefix_hit_disk, Tokens(47));
  EXPECT_EQ(totals(run).disk.read, Blocks(3));
  // 3 blocks read in 6,000 ns and 4 copied in 8,000, then one token in 1,001.
  EXPECT_EQ(run.of(2).end, SimTime(215'001));
}

// The requests of the first test on each of two instances, the second 50,000 ns later. They share a link that slows
// nothing, so each does what it does alone.
TEST(DiskRun, InstancesThatShareALink_ReadAsAlone) {
  const TokenTimeModel model;
  const PolicyInfo& policy = *PolicyRegistry::instance().find("vllm");
  const Settings settings = oracle::policy_settings(policy, {});
  std::vector<RequestSpec> requests;
  for (const std::int64_t begin : {0, 50'000, 100'000, 150'000, 200'000, 250'000}) {
    const bool other = begin == 100'000 || begin == 150'000;
    requests.push_back(
        prompt(begin, other ? std::vector<std::uint64_t>{5, 6, 7, 8} : std::vector<std::uint64_t>{1, 2, 3, 4}));
  }
  oracle::ListSource source(requests);
  std::vector<SimTime> ends(requests.size());
  SimulationConfig config;
  for (int i = 0; i < 2; ++i) {
    InstanceConfig& instance = config.instances.emplace_back();
    instance.model = &model;
    instance.policy = &policy;
    instance.settings = &settings;
    instance.kv = layout(6, 4, 100, 1);
    instance.max_model_len = Tokens(96);
    instance.route = {.h2d = {{0}}, .d2h = {{0}}};
  }
  config.links = {BytesPerSecond(1e15)};
  config.router = oracle::route_by([turn = std::size_t{0}](const RequestSpec&) mutable { return turn++ % 2; });
  config.source = &source;
  config.on_request = [&](const RequestRecord& record) { ends[record.index] = record.end; };
  const SimulationResult result = simulate(config);
  EXPECT_EQ(ends[4], SimTime(213'001));
  EXPECT_EQ(ends[5], SimTime(263'001));
  for (const EngineTotals& one : result.instances) {
    EXPECT_EQ(one.disk,
              (DiskCounts{.written = Blocks(7), .read = Blocks(3), .transfers = 3, .waited = Duration(6'000)}));
  }
  EXPECT_EQ(totals({{}, result}).disk.read, Blocks(6));
}

/// What tier and disk do for prompts that come one after the other, each alone, when the GPU keeps only the last and
/// the disk is done before the next one starts.
struct NaiveCycle {
  std::size_t slots, disk_blocks;
  std::vector<std::uint64_t> tier{}, disk{};  // least recently used first
  std::int64_t stored = 0, evicted = 0, refused = 0, written = 0, read = 0, dropped = 0;

  static bool has(const std::vector<std::uint64_t>& blocks, std::uint64_t id) {
    return std::ranges::count(blocks, id) > 0;
  }
  static void touch(std::vector<std::uint64_t>& blocks, const std::vector<std::uint64_t>& ids) {
    std::for_each(ids.rbegin(), ids.rend(), [&](std::uint64_t id) {
      if (std::erase(blocks, id) > 0) blocks.push_back(id);
    });
  }
  /// The tier evicts blocks, but none of `kept`, until it has room for so many.
  std::vector<std::uint64_t> make_room(std::size_t count, const std::vector<std::uint64_t>& kept) {
    std::vector<std::uint64_t> gone;
    while (tier.size() + count > slots) {
      const auto victim = std::ranges::find_if(tier, [&](std::uint64_t id) { return !has(kept, id); });
      gone.push_back(*victim);
      tier.erase(victim);
      ++evicted;
    }
    return gone;
  }
  /// Writes blocks; those in `busy` are being read. Returns what is on its way, which counts as used when it has ended.
  void write(const std::vector<std::uint64_t>& ids, const std::vector<std::uint64_t>& busy) {
    std::vector<std::uint64_t> idle = ids;
    std::erase_if(idle, [&](std::uint64_t id) { return has(busy, id); });
    touch(disk, idle);
    std::vector<std::uint64_t> fresh;
    for (const std::uint64_t id : ids) {
      if (has(disk, id) || has(fresh, id)) continue;
      if (disk.size() + fresh.size() == disk_blocks) {
        const auto victim = std::ranges::find_if(disk, [&](std::uint64_t other) { return !has(busy, other); });
        if (victim == disk.end()) {
          ++dropped;
          continue;
        }
        disk.erase(victim);
      }
      fresh.push_back(id);
    }
    written += std::ssize(fresh);
    touch(disk, busy);  // the read ends first
    disk.insert(disk.end(), fresh.rbegin(), fresh.rend());
  }

  /// Returns the blocks that the prompt loads. It takes part in `steps` steps.
  std::int64_t visit(const std::vector<std::uint64_t>& ids, std::int64_t steps) {
    touch(tier, ids);
    touch(disk, ids);
    std::vector<std::uint64_t> found, from_disk;
    for (const std::uint64_t id : ids) {
      if ((!has(tier, id) && !has(disk, id)) || found.size() == slots) break;
      if (!has(tier, id)) from_disk.push_back(id);
      found.push_back(id);
    }
    read += std::ssize(from_disk);
    const std::vector<std::uint64_t> gone = make_room(from_disk.size(), found);
    write(gone, from_disk);
    tier.insert(tier.end(), from_disk.rbegin(), from_disk.rend());
    const std::int64_t hits = std::ssize(found);
    std::vector<std::uint64_t> fresh;
    for (const std::uint64_t id : ids) {
      if (!has(found, id) && !has(tier, id)) fresh.push_back(id);
    }
    if (hits == std::ssize(ids)) return hits;
    if (fresh.size() > slots) {
      refused += steps;
      return hits;
    }
    write(make_room(fresh.size(), {}), {});
    stored += std::ssize(fresh);
    tier.insert(tier.end(), fresh.begin(), fresh.end());
    touch(tier, ids);
    return hits;
  }
};

// 4 prompts of 5 blocks, visited 6 times in turn, 1 ms apart, 3 steps each, as in the test of the tier alone. Tiers and
// disks below one prompt, below the working set of 20 blocks, at it and above it.
TEST(DiskRun, ACyclicWorkingSet_HitsAsTheRulesSay) {
  const TokenTimeModel model;
  std::vector<std::vector<std::uint64_t>> prompts(4);
  for (std::uint64_t p = 0; p < prompts.size(); ++p) {
    for (std::uint64_t b = 0; b < 5; ++b) prompts[p].push_back(100 * p + b);
  }
  std::vector<RequestSpec> requests;
  for (std::int64_t i = 0; i < 24; ++i) {
    requests.push_back(prompt(1'000'000 * i, prompts[static_cast<std::size_t>(i % 4)], 3));
  }
  std::int64_t reads = 0, drops = 0;
  for (const std::size_t slots : {1U, 4U, 5U, 7U, 12U, 19U, 20U}) {
    for (const std::size_t blocks : {1U, 3U, 5U, 8U, 13U, 15U, 16U, 19U, 20U, 40U}) {
      const std::string where = std::to_string(slots) + " slots, " + std::to_string(blocks) + " blocks on the disk";
      const KvLayout kv = layout(6, static_cast<std::int64_t>(slots), static_cast<std::int64_t>(blocks), 1, 100.0);
      const Replay run = replay("vllm", {}, kv, requests, model);
      NaiveCycle naive{.slots = slots, .disk_blocks = blocks};
      std::int64_t loaded = 0;
      for (std::uint64_t i = 0; i < requests.size(); ++i) {
        const std::int64_t hits = naive.visit(prompts[i % 4], 3);
        loaded += hits;
        EXPECT_EQ(run.of(i).cached, Tokens(16 * hits)) << where << ", request " << i;
      }
      EXPECT_EQ(totals(run).offloading.loaded, Blocks(loaded)) << where;
      EXPECT_EQ(totals(run).offloading.stored, Blocks(naive.stored)) << where;
      EXPECT_EQ(totals(run).offloading.evicted, Blocks(naive.evicted)) << where;
      EXPECT_EQ(totals(run).offloading.refused_stores, naive.refused) << where;
      EXPECT_EQ(totals(run).disk.written, Blocks(naive.written)) << where;
      EXPECT_EQ(totals(run).disk.read, Blocks(naive.read)) << where;
      EXPECT_EQ(totals(run).disk.dropped, Blocks(naive.dropped)) << where;
      EXPECT_EQ(totals(run).prefix_hit_disk, Tokens(16 * naive.read)) << where;
      EXPECT_EQ(totals(run).prefix_hit_host, Tokens(16 * (loaded - naive.read))) << where;
      reads += naive.read;
      drops += naive.dropped;
      // A disk of the working set hits ever after, however small the tier that takes a prompt is.
      if (slots >= 5 && blocks >= 20) {
        EXPECT_EQ(loaded, 20 * 5) << where;
      }
    }
  }
  EXPECT_GT(reads, 1000);
  EXPECT_GT(drops, 0);
}

// A slow disk: B's step at 100,000 ns has A's 4 blocks written by 900,000. The third request comes at 1,000,000 and
// reads 3 blocks until 1,300,000, but its client gives up at 1,070,000. The blocks are on the host all the same, and
// the GPU blocks are free: the prompt comes again at 2,000,000, loads 3 blocks in 6,000 ns and computes a token in
// 1,001.
TEST(DiskRun, ARequestThatEndsWhileItsBlocksAreRead_LeavesThemOnTheHost) {
  const TokenTimeModel model;
  const PolicyInfo& policy = *PolicyRegistry::instance().find("vllm");
  const Settings settings = oracle::policy_settings(policy, {});
  const std::vector<RequestSpec> requests{prompt(0, {1, 2, 3, 4}), prompt(100'000, {5, 6, 7, 8}),
                                          prompt(1'000'000, {1, 2, 3, 4}), prompt(2'000'000, {1, 2, 3, 4})};
  oracle::ListSource source(requests);
  std::vector<RequestRecord> records;
  SimulationConfig config;
  InstanceConfig& instance = config.instances.emplace_back();
  instance.model = &model;
  instance.policy = &policy;
  instance.settings = &settings;
  instance.kv = layout(6, 4, 100, 1, 0.02);
  instance.max_model_len = Tokens(96);
  config.source = &source;
  config.request_timeout = Duration(70'000);
  config.on_request = [&](const RequestRecord& record) { records.push_back(record); };
  const EngineTotals totals = simulate(config).statistics.engine;
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[2].outcome, Outcome::timed_out);
  EXPECT_EQ(records[2].end, SimTime(1'070'000));
  EXPECT_EQ(records[3].outcome, Outcome::finished);
  EXPECT_EQ(records[3].end, SimTime(2'007'001));
  EXPECT_EQ(totals.prefix_hit_host, Tokens(48));
  EXPECT_EQ(totals.disk.read, Blocks(3));
  EXPECT_EQ(totals.moved_h2d, Bytes(6'000));
}

}  // namespace
}  // namespace spillway
