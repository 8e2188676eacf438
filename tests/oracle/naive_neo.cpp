#include "tests/oracle/naive_neo.hpp"

#include <algorithm>
#include <cmath>

namespace spillway::oracle {
namespace {

using Requests = std::vector<NaiveNeoRequest>;

/// A batch as lists, from which every time is computed when it is asked for.
struct ListedBatch {
  Requests prompts;         // that stay on the GPU, then those for the host
  std::size_t to_host = 0;  // how many of them, at the end
  Requests gpu;
  Requests cpu;

  [[nodiscard]] std::int64_t tokens() const {
    std::int64_t sum = static_cast<std::int64_t>(gpu.size() + cpu.size());
    for (const NaiveNeoRequest& prompt : prompts) sum += prompt.known - prompt.cached;
    return sum;
  }
  [[nodiscard]] std::int64_t sequences() const {
    return static_cast<std::int64_t>(prompts.size() + gpu.size() + cpu.size());
  }
};

std::int64_t context(const Requests& requests) {
  std::int64_t sum = 0;
  for (const NaiveNeoRequest& one : requests) sum += one.known;
  return sum;
}

struct Decision {
  const NaiveNeoSetting& setting;
  const NaiveNeoTimes& times;

  [[nodiscard]] std::int64_t blocks(const NaiveNeoRequest& request) const {
    std::int64_t count = 0;
    while (count * setting.block < request.known) ++count;
    return count;
  }
  [[nodiscard]] std::int64_t blocks(const Requests& requests) const {
    std::int64_t sum = 0;
    for (const NaiveNeoRequest& one : requests) sum += blocks(one);
    return sum;
  }
  [[nodiscard]] std::int64_t residents() const { return setting.rules == NaiveNeoRules::fastdecode ? 0 : setting.gpu; }

  [[nodiscard]] double prompt_time(const ListedBatch& batch) const {
    double sum = 0.0;
    for (const NaiveNeoRequest& prompt : batch.prompts) sum += times.prompt(prompt.known) - times.prompt(prompt.cached);
    return sum;
  }
  /// GPU time of a batch: linear layers, prompts unless the paper's rules leave them out, decodes.
  [[nodiscard]] double gpu_time(const ListedBatch& batch) const {
    return times.linear(batch.tokens()) + attention(batch);
  }
  [[nodiscard]] double attention(const ListedBatch& batch) const {
    const double prompts = setting.rules == NaiveNeoRules::paper ? 0.0 : prompt_time(batch);
    return prompts + times.gpu_decodes(context(batch.gpu));
  }
  /// Time that the CPU has for sub-batch j, less what it needs.
  [[nodiscard]] double slack(const ListedBatch (&batches)[2], int j) const {
    const double launch = setting.rules == NaiveNeoRules::paper ? 0.0 : times.launch;
    const Requests& cpu = batches[j].cpu;
    const double needed = times.cpu_decodes(static_cast<std::int64_t>(cpu.size()), context(cpu)) + launch;
    return times.linear(batches[1 - j].tokens()) + attention(batches[j]) - needed;
  }
  [[nodiscard]] bool hides(const ListedBatch (&batches)[2]) const {
    return slack(batches, 0) >= 0.0 && slack(batches, 1) >= 0.0;
  }
  static ListedBatch without_last(ListedBatch batch) {
    batch.prompts.pop_back();
    --batch.to_host;
    return batch;
  }
};

}  // namespace

NaiveNeoIteration naive_neo(const NaiveNeoSetting& setting, const NaiveNeoTimes& times, NaiveNeoQueues& queues) {
  const Decision by{setting, times};
  NaiveNeoIteration result;
  // Steps 1 and 2: what decodes on the GPU takes a seat, a token and its blocks; too many move to the host.
  bool moved = false;
  const auto gpu_size = [&] { return static_cast<std::int64_t>(queues.gpu.size()); };
  while (by.blocks(queues.gpu) > by.residents() || gpu_size() > setting.seats || gpu_size() > setting.tokens) {
    moved = true;
    const NaiveNeoRequest victim = queues.gpu.back();
    queues.gpu.pop_back();
    const bool room = by.blocks(queues.host) + by.blocks(victim) <= setting.host;
    (room ? queues.host : queues.waiting).insert((room ? queues.host : queues.waiting).begin(), victim);
  }
  // Step 3: round() of Python, half to even, of 0.95 G.
  const double threshold = std::nearbyint(static_cast<double>(95 * by.residents()) / 100.0);
  while (!moved && !queues.host.empty() && gpu_size() < setting.seats && gpu_size() < setting.tokens) {
    const std::int64_t needed = by.blocks(queues.gpu) + by.blocks(queues.host.front());
    if (static_cast<double>(needed) > threshold) break;
    queues.gpu.push_back(queues.host.front());
    queues.host.erase(queues.host.begin());
  }
  // Not in the original: the host may be too small for the next tokens.
  while (by.blocks(queues.host) > setting.host) {
    queues.waiting.insert(queues.waiting.begin(), queues.host.back());
    queues.host.pop_back();
  }
  // Step 4
  ListedBatch first;
  Requests for_host;
  std::int64_t seats = setting.seats - gpu_size();
  std::int64_t tokens = setting.tokens - gpu_size();
  const std::int64_t room_on_host = setting.host - by.residents();
  for (std::size_t i = 0; i < queues.waiting.size();) {
    const NaiveNeoRequest candidate = queues.waiting[i];
    const std::int64_t needed = by.blocks(candidate);
    if (candidate.known > setting.tokens || needed > setting.gpu || needed > room_on_host) {
      result.rejected.push_back(candidate.name);
      queues.waiting.erase(queues.waiting.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    std::int64_t staged = needed - candidate.cached / setting.block;
    for (const NaiveNeoRequest& other : for_host) staged += by.blocks(other) - other.cached / setting.block;
    if (staged > setting.gpu) break;
    if (by.blocks(queues.host) + by.blocks(for_host) + needed > room_on_host) break;
    const std::int64_t computed = candidate.known - candidate.cached;
    if (seats < 1 || tokens < computed) break;
    seats -= 1;
    tokens -= computed;
    const std::int64_t on_gpu = by.blocks(queues.gpu) + by.blocks(first.prompts) + needed;
    (for_host.empty() && on_gpu <= by.residents() ? first.prompts : for_host).push_back(candidate);
    ++i;
  }
  // Step 5
  first.to_host = for_host.size();
  first.prompts.insert(first.prompts.end(), for_host.begin(), for_host.end());
  first.gpu = queues.gpu;
  ListedBatch gpu_only = first;
  const bool alone = first.sequences() == 0;
  ListedBatch batches[2] = {first, {}};
  bool pipelined = false;
  if (setting.rules == NaiveNeoRules::fastdecode || alone) {
    // All that the budget allows, where the CPU has more time left.
    int next = 1;
    for (const NaiveNeoRequest& decode : queues.host) {
      if (seats < 1 || tokens < 1) break;
      --seats;
      --tokens;
      batches[next].cpu.push_back(decode);
      next = by.slack(batches, 1) > by.slack(batches, 0) ? 1 : 0;
    }
    pipelined = true;
  } else {
    // Step 6
    while (gpu_only.to_host > 0 && Decision::without_last(gpu_only).tokens() >= 128) {
      gpu_only = Decision::without_last(gpu_only);
    }
    // Step 7
    int next = 1;
    std::int64_t refused = -1;
    for (const NaiveNeoRequest& decode : queues.host) {
      const bool paper = setting.rules == NaiveNeoRules::paper;
      if (seats < 1 || tokens < 1) break;
      if (!paper && refused >= 0 && decode.known >= refused) continue;
      bool taken = false;
      for (const int j : paper ? std::vector<int>{1, 0} : std::vector<int>{next}) {
        if (taken) continue;
        batches[j].cpu.push_back(decode);
        taken = by.hides(batches);
        if (!taken) batches[j].cpu.pop_back();
      }
      if (!taken) {
        refused = decode.known;
        continue;
      }
      --seats;
      --tokens;
      next = by.slack(batches, 1) > by.slack(batches, 0) ? 1 : 0;
    }
    // Steps 8 and 9
    if (!batches[1].cpu.empty()) {
      while (batches[0].to_host > 0) {
        ListedBatch smaller[2] = {Decision::without_last(batches[0]), batches[1]};
        if (smaller[0].tokens() < 128 || !by.hides(smaller)) break;
        batches[0] = smaller[0];
      }
      const double time = by.gpu_time(batches[0]) + by.gpu_time(batches[1]);
      const auto both = static_cast<double>(batches[0].sequences() + batches[1].sequences());
      pipelined = both * by.gpu_time(gpu_only) > static_cast<double>(gpu_only.sequences()) * time;
    }
  }
  // Step 10
  const ListedBatch& runs = pipelined ? batches[0] : gpu_only;
  for (const NaiveNeoRequest& prompt : runs.prompts) {
    result.prompts.push_back(prompt.name);
    queues.waiting.erase(queues.waiting.begin());
  }
  for (const NaiveNeoRequest& decode : queues.gpu) result.gpu_decodes.push_back(decode.name);
  for (int j = 0; pipelined && j < 2; ++j) {
    for (const NaiveNeoRequest& decode : batches[j].cpu) result.cpu_decodes[j].push_back(decode.name);
  }
  for (std::size_t i = 0; i < runs.prompts.size(); ++i) {
    const NaiveNeoRequest& prompt = runs.prompts[i];
    (i + runs.to_host < runs.prompts.size() ? queues.gpu : queues.host).push_back({prompt.name, prompt.known});
  }
  return result;
}

}  // namespace spillway::oracle
