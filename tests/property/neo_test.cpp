// NEO's decisions on random queues: the policy against a model written from the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/naive_neo.hpp"
#include "tests/oracle/replay.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::NaiveNeoRules;

/// What a sub-batch computes: decodes on the GPU and on the CPU, what they attend to, and prompts: new tokens and those
/// before them.
struct Work {
  std::int64_t gpu = 0;
  std::int64_t gpu_context = 0;
  std::int64_t cpu = 0;
  std::int64_t cpu_context = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> prompts{};
  bool operator==(const Work&) const = default;
};

/// WholeModel, which notes the sub-batches that run. Shapes that only fill tables have no samples.
class NotingModel final : public ExecutionModel {
 public:
  [[nodiscard]] std::int32_t layers() const override { return model_.layers(); }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    if (shape.sampled_sequences > 0) {
      Work& work = seen_.emplace_back();
      work = {shape.decode_sequences, shape.decode_context.count(), shape.cpu_sequences, shape.cpu_context.count(), {}};
      for (const PrefillChunk& chunk : shape.chunks) {
        work.prompts.emplace_back(chunk.new_tokens.count(), chunk.context.count());
      }
    }
    return model_.iteration(shape);
  }
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism how) const override {
    return model_.copy(direction, copies, bytes, how);
  }
  [[nodiscard]] CpuAttentionTime cpu_attention(std::int64_t sequences, Tokens context) const override {
    return model_.cpu_attention(sequences, context);
  }
  [[nodiscard]] const std::vector<Work>& seen() const { return seen_; }

 private:
  oracle::WholeModel model_{1, 1, {}, 6};
  mutable std::vector<Work> seen_;
};

/// A straight line between the powers of two around x; f(0) = 0, and each number up to `each` is exact.
template <class Function>
double interpolated(std::int64_t x, std::int64_t each, Function f) {
  if (x == 0) return 0.0;
  if (x <= each) return f(x);
  std::int64_t lower = 1;
  while (lower * 2 <= x) lower *= 2;
  return f(lower) + (f(lower * 2) - f(lower)) * static_cast<double>(x - lower) / static_cast<double>(lower);
}

/// The predictions for a model of `longest` tokens per request, as the tables have them.
oracle::NaiveNeoTimes predictions(std::int64_t longest, std::int64_t launch) {
  static const oracle::WholeModel kModel{1, 1, {}, 6};
  const auto ns = [](Duration time) { return static_cast<double>(time.count()); };
  oracle::NaiveNeoTimes times;
  times.launch = static_cast<double>(launch);
  times.linear = [ns](std::int64_t tokens) {
    return interpolated(tokens, 511, [&](std::int64_t x) { return ns(kModel.iteration({.cpu_sequences = x}).layer); });
  };
  times.prompt = [ns](std::int64_t length) {
    return interpolated(length, 1, [&](std::int64_t x) {
      const std::vector<PrefillChunk> chunk{{Tokens(x), Tokens(0)}};
      return ns(kModel.iteration({.chunks = chunk}).attention);
    });
  };
  times.gpu_decodes = [ns, longest](std::int64_t context) {
    return interpolated(context, 1, [&](std::int64_t x) {
      const std::int64_t half = std::max<std::int64_t>(1, longest / 2);
      return ns(kModel.iteration({.decode_sequences = (x + half - 1) / half, .decode_context = Tokens(x)}).attention);
    });
  };
  times.cpu_decodes = [ns](std::int64_t sequences, std::int64_t context) {
    return interpolated(sequences, 1, [&](std::int64_t s) {
      return interpolated(context, 1, [&](std::int64_t c) { return ns(kModel.cpu_attention(s, Tokens(c)).attention); });
    });
  };
  return times;
}

/// A prefix cache that never loses a block: the contents of full blocks, as paths in a tree.
class PlainCache {
 public:
  PlainCache(std::int64_t block, const std::vector<RequestSpec>& requests) : block_(block) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      int node = 0;
      std::vector<int>& path = paths_.emplace_back();
      for (std::int64_t b = 0; (b + 1) * block <= (requests[i].input + requests[i].output).count(); ++b) {
        const auto at = static_cast<std::size_t>(b);
        const auto& ids = requests[i].prefix_ids;
        // What the request does not state is its own.
        const std::int64_t id =
            at < ids.size() ? static_cast<std::int64_t>(ids[at]) : -1 - static_cast<std::int64_t>(i);
        node = nodes_.try_emplace({node, id}, static_cast<int>(nodes_.size()) + 1).first->second;
        path.push_back(node);
      }
    }
  }
  /// Tokens of a prompt of so many that are cached: whole blocks, and at least one token is left.
  [[nodiscard]] std::int64_t cached(std::int64_t request, std::int64_t known) const {
    std::int64_t blocks = 0;
    const std::vector<int>& path = paths_[static_cast<std::size_t>(request)];
    while ((blocks + 1) * block_ < known && there_.contains(path[static_cast<std::size_t>(blocks)])) ++blocks;
    return blocks * block_;
  }
  /// The KV of so many tokens of the request exists.
  void fill(std::int64_t request, std::int64_t tokens) {
    const std::vector<int>& path = paths_[static_cast<std::size_t>(request)];
    there_.insert(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(tokens / block_));
  }

 private:
  std::int64_t block_;
  std::map<std::pair<int, std::int64_t>, int> nodes_;
  std::vector<std::vector<int>> paths_;  // of each request
  std::set<int> there_;
};

/// All requests are there from the start. Every request that runs gets a token. `caches`: prefixes are shared.
std::vector<Work> expected(const oracle::NaiveNeoSetting& setting, const oracle::NaiveNeoTimes& times,
                           const std::vector<RequestSpec>& requests, bool caches) {
  PlainCache cache(setting.block, requests);
  // On the GPU a block is in the cache as soon as it is to be computed, on the host at the end of the iteration.
  const bool at_once = setting.rules != NaiveNeoRules::fastdecode;
  oracle::NaiveNeoQueues queues;
  std::vector<std::int64_t> known;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    known.push_back(requests[i].input.count());
    queues.waiting.push_back({static_cast<std::int64_t>(i), known.back()});
  }
  std::vector<Work> all;
  while (!queues.waiting.empty() || !queues.gpu.empty() || !queues.host.empty()) {
    for (auto& one : queues.waiting) one.cached = caches ? cache.cached(one.name, one.known) : 0;
    const oracle::NaiveNeoIteration runs = oracle::naive_neo(setting, times, queues);
    Work work[2];
    std::vector<std::int64_t> got;
    const auto count = [&](std::int64_t name, std::int64_t& sequences, std::int64_t& context) {
      ++sequences;
      context += known[static_cast<std::size_t>(name)];
      got.push_back(name);
    };
    for (const std::int64_t name : runs.prompts) {
      const std::int64_t length = known[static_cast<std::size_t>(name)];
      const std::int64_t found = caches ? cache.cached(name, length) : 0;
      work[0].prompts.emplace_back(length - found, found);
      got.push_back(name);
      if (at_once) cache.fill(name, length);
    }
    for (const std::int64_t name : runs.gpu_decodes) count(name, work[0].gpu, work[0].gpu_context);
    for (int j = 0; j < 2; ++j) {
      for (const std::int64_t name : runs.cpu_decodes[j]) count(name, work[j].cpu, work[j].cpu_context);
    }
    for (const Work& one : work) {
      if (one != Work{}) all.push_back(one);
    }
    for (const std::int64_t name : got) {
      cache.fill(name, known[static_cast<std::size_t>(name)]);
      ++known[static_cast<std::size_t>(name)];
    }
    for (auto* const queue : {&queues.waiting, &queues.gpu, &queues.host}) {
      for (auto& one : *queue) one.known = known[static_cast<std::size_t>(one.name)];
      std::erase_if(*queue, [&](const auto& one) {
        const RequestSpec& spec = requests[static_cast<std::size_t>(one.name)];
        return one.known == (spec.input + spec.output).count();
      });
    }
  }
  return all;
}

struct Seen {
  std::int64_t pipelined = 0;
  std::int64_t sequential = 0;
  std::int64_t both_attend = 0;  // sub-batch 0 has decodes on the CPU beside a second one
  std::int64_t prompts = 0;
  std::int64_t cached = 0;  // prompts that begin with cached tokens
};

/// Blocks that the request shares with others: those of one of three prefixes, up to a point.
std::vector<std::uint64_t> shared_blocks(oracle::Dice& dice, std::int64_t blocks) {
  const std::int64_t prefix = dice.between(1, 3);
  std::vector<std::uint64_t> ids;
  for (std::int64_t b = dice.between(0, blocks); b > 0; --b) ids.push_back(static_cast<std::uint64_t>(prefix));
  return ids;
}

/// `caches`: with a prefix cache, on the GPU or, for FastDecode, on the host, in memory that suffices for everything.
Seen match(const std::string& name, NaiveNeoRules rules, std::uint64_t first_seed, bool caches = false) {
  Seen seen;
  for (std::uint64_t seed = first_seed; seed < first_seed + random_cases(3000); ++seed) {
    SCOPED_TRACE(name + " seed " + std::to_string(seed));
    oracle::Dice dice(seed);
    const std::int64_t block = dice.between(caches ? 8 : 1, 16);
    // 40 requests of up to 450 tokens fill at most 40 x 57 blocks.
    const std::int64_t gpu = caches ? 4'000 : dice.between(2, 60);
    oracle::NaiveNeoSetting setting{.rules = rules,
                                    .block = block,
                                    .gpu = gpu * 6 / 7,
                                    .host = caches ? 40'000 : dice.between(1, 200),
                                    .tokens = dice.chance(30) ? dice.between(1, 60) : dice.between(60, 900),
                                    .seats = dice.chance(30) ? dice.between(1, 6) : dice.between(6, 60)};
    const std::int64_t longest = setting.gpu * block;
    if (longest < 3) continue;
    const std::int64_t launch = dice.between(0, 60);
    std::vector<RequestSpec> requests;
    for (std::int64_t n = dice.between(1, 40); n > 0; --n) {
      const std::int64_t input = dice.between(1, std::min<std::int64_t>(longest - 2, dice.chance(60) ? 40 : 400));
      requests.push_back(oracle::request(0, input, dice.between(1, std::min<std::int64_t>(longest - input, 50))));
      if (caches) requests.back().prefix_ids = shared_blocks(dice, 2 + input / block);
    }
    const NotingModel model;
    KvLayout kv{Blocks(gpu), Blocks(setting.host), Tokens(block), Bytes(640), 2, caches};
    if (caches && name == "fastdecode") kv.host_cache_blocks = Blocks(40'000);
    std::vector<std::pair<std::string, Value>> settings{
        {"engine.max_num_batched_tokens", setting.tokens},
        {"engine.max_num_seqs", setting.seats},
        {"engine.chunked_prefill", false},
        {"policy.launch", Duration(launch)},
        {"engine.preemption", std::string(name == "fastdecode" ? "recompute" : "swap")}};
    if (name == "neo")
      settings.emplace_back("policy.rules", std::string(rules == NaiveNeoRules::paper ? "paper" : "code"));
    static_cast<void>(oracle::replay(name, settings, kv, requests, model));
    const std::vector<Work> all = expected(setting, predictions(longest, launch), requests, caches);
    EXPECT_EQ(model.seen().size(), all.size());
    for (std::size_t i = 0; i < std::min(all.size(), model.seen().size()); ++i) {
      const Work& a = model.seen()[i];
      const Work& b = all[i];
      EXPECT_TRUE(a == b) << "sub-batch " << i << ": GPU " << a.gpu << "/" << b.gpu << " CPU " << a.cpu << "/" << b.cpu
                          << " context " << a.cpu_context << "/" << b.cpu_context << " prompts " << a.prompts.size()
                          << "/" << b.prompts.size();
      if (testing::Test::HasFailure()) return seen;
      seen.pipelined += a.cpu > 0 ? 1 : 0;
      seen.sequential += a.cpu == 0 ? 1 : 0;
      seen.both_attend += a.cpu > 0 && a.gpu > 0 ? 1 : 0;
      seen.prompts += static_cast<std::int64_t>(a.prompts.size());
      for (const auto& [computed, found] : a.prompts) seen.cached += found > 0 ? 1 : 0;
    }
    if (testing::Test::HasFailure()) return seen;
  }
  return seen;
}

TEST(NaiveNeo, AgreesWithTheRulesOfThePublicCode) {
  const Seen seen = match("neo", NaiveNeoRules::code, 1);
  EXPECT_GT(seen.pipelined, more_than(0));
  EXPECT_GT(seen.sequential, more_than(0));
  EXPECT_GT(seen.both_attend, more_than(0));
  EXPECT_GT(seen.prompts, more_than(0));
}

TEST(NaiveNeo, AgreesWithTheRulesOfThePaper) {
  const Seen seen = match("neo", NaiveNeoRules::paper, 1'000'001);
  EXPECT_GT(seen.pipelined, more_than(0));
  EXPECT_GT(seen.both_attend, more_than(0));
}

TEST(NaiveNeo, AgreesOnPrefixesOnTheGpu) {
  EXPECT_GT(match("neo", NaiveNeoRules::code, 3'000'001, /*caches=*/true).cached, 0);
}

TEST(NaiveNeo, AgreesOnPrefixesOnTheHost) {
  const Seen seen = match("fastdecode", NaiveNeoRules::fastdecode, 4'000'001, /*caches=*/true);
  EXPECT_GT(seen.cached, more_than(0));
  EXPECT_GT(seen.pipelined, more_than(0));
}

TEST(NaiveNeo, AgreesWithFastDecode) {
  const Seen seen = match("fastdecode", NaiveNeoRules::fastdecode, 2'000'001);
  EXPECT_GT(seen.pipelined, more_than(0));
}

}  // namespace
}  // namespace spillway
