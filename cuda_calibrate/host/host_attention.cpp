#include "cuda_calibrate/host/host_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "cuda_calibrate/host/host_facts.hpp"
#include "cuda_calibrate/host/host_memory.hpp"

namespace spillway::calibrate {
namespace {

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Deals pages to threads evenly: shares differ by at most one page.
std::int64_t share(std::int64_t thread, std::int64_t threads, std::int64_t all) { return thread * all / threads; }

std::int64_t checked_group(const HostAttention& point) {
  const Heads& heads = point.heads;
  if (point.batch < 1 || point.context < 1) {
    throw Unsupported(fmt::format("{} sequences of {} tokens leave nothing to compute", point.batch, point.context));
  }
  if (heads.kv < 1 || heads.query < 1 || heads.query % heads.kv != 0) {
    throw Unsupported(fmt::format("{} query heads are not a multiple of {} KV heads", heads.query, heads.kv));
  }
  if (heads.size < 1 || heads.size % kHeadStep != 0) {
    throw Unsupported(fmt::format("a head size of {} is not a multiple of {}", heads.size, kHeadStep));
  }
  return heads.query / heads.kv;
}

/// Prefetches memory that is read next: hardware prefetchers stop at page boundaries.
void prefetch(const std::byte* from, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + at, 0, 2);
}

std::int64_t kv_bytes(const HostAttention& point) {
  return 2 * point.batch * point.context * point.heads.kv * point.heads.size * number_bytes(point.number);
}

}  // namespace

/// Consecutive pages of one item for one thread, and their partial result.
struct CpuAttention::Part {
  std::size_t thread = 0;
  std::int64_t item = 0;
  std::int64_t first = 0;  // first page in the item
  std::int64_t pages = 0;
  std::int64_t place = 0;      // index of the first page in the thread's run
  std::vector<float> highest;  // highest score of each query head
  std::vector<float> weight;   // sum of exp(score - highest)
  LineFloats sums;             // [query head][head size], values weighted by `weight`'s terms
};

/// The data of one thread.
struct alignas(64) CpuAttention::Crew {
  std::int64_t run = 0;             // pages in one cache
  HostBuffer pages;                 // pages of all caches
  std::vector<std::int32_t> table;  // [cache][page of the run] -> page of `pages`
  std::vector<Part> parts;
  LineFloats keys;  // one page of keys, widened
  LineFloats values;
};

CpuAttention::~CpuAttention() = default;

CpuAttention::CpuAttention(const HostAttention& point, const PageKernels& kernels, std::vector<Cpu> cpus,
                           std::int64_t caches, std::uint64_t seed)
    : point_(point),
      kernels_(kernels),
      group_(checked_group(point)),
      items_(point.batch * point.heads.kv),
      pages_((point.context + kPageTokens - 1) / kPageTokens),
      caches_(caches),
      crews_(cpus.size()),
      team_(std::move(cpus)) {
  const std::int64_t head = point.heads.size;
  const std::int64_t page_numbers = 2 * kPageTokens * head;
  const std::int64_t page_bytes = page_numbers * number_bytes(point.number);
  need_memory(caches * items_ * pages_ * page_bytes);
  queries_.resize(index(items_ * group_ * head));
  results_.resize(queries_.size());
  RandomBits random(seed);
  fill_numbers(reinterpret_cast<std::byte*>(queries_.data()), static_cast<std::int64_t>(queries_.size()), Number::fp32,
               random);
  scaled_ = queries_;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head));
  for (float& number : scaled_) number *= scale;

  const auto threads = static_cast<std::int64_t>(team_.size());
  for (std::int64_t thread = 0; thread < threads; ++thread) {
    Crew& crew = crews_[index(thread)];
    const std::int64_t start = share(thread, threads, items_ * pages_);
    const std::int64_t end = share(thread + 1, threads, items_ * pages_);
    crew.run = end - start;
    for (std::int64_t at = start; at < end;) {
      const std::int64_t item = at / pages_;
      const std::int64_t stop = std::min(end, (item + 1) * pages_);
      crew.parts.push_back({index(thread), item, at - item * pages_, stop - at, at - start,
                            std::vector<float>(index(group_)), std::vector<float>(index(group_)),
                            LineFloats(index(group_ * head))});
      at = stop;
    }
  }
  first_part_.assign(index(items_ + 1), 0);
  for (Crew& crew : crews_) {
    for (Part& part : crew.parts) {
      parts_.push_back(&part);
      ++first_part_[index(part.item + 1)];
    }
  }
  std::partial_sum(first_part_.begin(), first_part_.end(), first_part_.begin());

  team_.run([&](std::size_t thread) {
    Crew& crew = crews_[thread];
    const std::int64_t pages = caches_ * crew.run;
    RandomBits own(seed + 1 + thread);
    crew.pages = ordinary_memory(pages * page_bytes);
    fill_numbers(crew.pages.get(), pages * page_numbers, point_.number, own);
    crew.table.resize(index(pages));
    std::iota(crew.table.begin(), crew.table.end(), 0);
    for (std::size_t left = crew.table.size(); left > 1; --left) {
      std::swap(crew.table[left - 1], crew.table[own.below(left)]);
    }
    crew.keys.resize(index(kPageTokens * head));
    crew.values.resize(index(kPageTokens * head));
  });
}

double CpuAttention::run(std::int64_t calls) {
  const auto threads = static_cast<std::int64_t>(team_.size());
  const std::int64_t before = next_;
  const double seconds = team_.timed([&](std::size_t thread) {
    Crew& crew = crews_[thread];
    const auto i = static_cast<std::int64_t>(thread);
    for (std::int64_t call = 0; call < calls; ++call) {
      const std::int64_t cache = (before + call) % caches_;
      for (Part& part : crew.parts) attend(crew, part, cache);
      team_.meet();
      for (std::int64_t item = share(i, threads, items_); item < share(i + 1, threads, items_); ++item) merge(item);
      team_.meet();  // wait: the next call overwrites the parts
    }
  });
  next_ = (before + calls) % caches_;
  return seconds;
}

void CpuAttention::attend(Crew& crew, Part& part, std::int64_t cache) const {
  const std::int64_t head = point_.heads.size;
  const std::int64_t width = number_bytes(point_.number);
  const std::int64_t half = kPageTokens * head;  // numbers of a page that are keys
  const std::int64_t page_bytes = 2 * half * width;
  const std::int64_t piece = (page_bytes + group_ - 1) / group_;
  const std::int32_t* table = crew.table.data() + cache * crew.run + part.place;
  const float* queries = scaled_.data() + part.item * group_ * head;
  std::fill(part.highest.begin(), part.highest.end(), -std::numeric_limits<float>::infinity());
  std::fill(part.weight.begin(), part.weight.end(), 0.0F);
  std::fill(part.sums.begin(), part.sums.end(), 0.0F);
  for (std::int64_t page = 0; page < part.pages; ++page) {
    const std::byte* at = crew.pages.get() + std::int64_t{table[page]} * page_bytes;
    const std::byte* next = crew.pages.get() + std::int64_t{table[std::min(page + 1, part.pages - 1)]} * page_bytes;
    const std::int64_t tokens = std::min(kPageTokens, point_.context - (part.first + page) * kPageTokens);
    kernels_.widen(point_.number, at, tokens * head, crew.keys.data());
    kernels_.widen(point_.number, at + half * width, tokens * head, crew.values.data());
    for (std::int64_t query = 0; query < group_; ++query) {
      alignas(64) float scores[kPageTokens];
      // A piece of the next page: a core waits when it asks for more lines at once than it has buffers for.
      const std::int64_t fetched = std::min(query * piece, page_bytes);
      prefetch(next + fetched, std::min(piece, page_bytes - fetched));
      kernels_.scores(queries + query * head, crew.keys.data(), tokens, head, scores);
      float& highest = part.highest[index(query)];
      const float before = highest;
      highest = std::max(highest, *std::max_element(scores, scores + tokens));
      const float scale = std::exp(before - highest);  // 0 at the first page
      part.weight[index(query)] = part.weight[index(query)] * scale + kernels_.weights(scores, tokens, highest);
      kernels_.accumulate(scores, crew.values.data(), tokens, head, scale, part.sums.data() + query * head);
    }
  }
}

void CpuAttention::merge(std::int64_t item) {
  const std::int64_t head = point_.heads.size;
  const std::span<Part* const> parts(parts_.data() + first_part_[index(item)],
                                     parts_.data() + first_part_[index(item + 1)]);
  for (std::int64_t query = 0; query < group_; ++query) {
    float* result = results_.data() + (item * group_ + query) * head;
    float highest = -std::numeric_limits<float>::infinity();
    for (const Part* part : parts) highest = std::max(highest, part->highest[index(query)]);
    float weight = 0.0F;
    std::fill(result, result + head, 0.0F);
    for (const Part* part : parts) {
      const float scale = std::exp(part->highest[index(query)] - highest);
      weight += scale * part->weight[index(query)];
      for (std::int64_t i = 0; i < head; ++i) result[i] += scale * part->sums[index(query * head + i)];
    }
    for (std::int64_t i = 0; i < head; ++i) result[i] /= weight;
  }
}

std::vector<float> CpuAttention::key(std::int64_t sequence, std::int64_t kv_head, std::int64_t token) const {
  return numbers(sequence, kv_head, token, 0);
}

std::vector<float> CpuAttention::value(std::int64_t sequence, std::int64_t kv_head, std::int64_t token) const {
  return numbers(sequence, kv_head, token, kPageTokens);
}

std::vector<float> CpuAttention::numbers(std::int64_t sequence, std::int64_t kv_head, std::int64_t token,
                                         std::int64_t skipped) const {
  const std::int64_t head = point_.heads.size;
  const std::int64_t item = sequence * point_.heads.kv + kv_head;
  const std::int64_t page = token / kPageTokens;
  const auto part = std::find_if(parts_.begin() + static_cast<std::ptrdiff_t>(first_part_[index(item)]), parts_.end(),
                                 [&](const Part* some) { return page < some->first + some->pages; });
  const Crew& crew = crews_[(*part)->thread];
  const std::int64_t place = (*part)->place + page - (*part)->first;
  const std::int64_t at = crew.table[index(next_ * crew.run + place)];
  const std::int64_t number = (at * 2 * kPageTokens + skipped + token % kPageTokens) * head;
  std::vector<float> all(index(head));
  kernels_.widen(point_.number, crew.pages.get() + number * number_bytes(point_.number), head, all.data());
  return all;
}

std::vector<float> CpuAttention::query(std::int64_t sequence, std::int64_t query_head) const {
  const std::int64_t head = point_.heads.size;
  const float* at = queries_.data() + (sequence * point_.heads.query + query_head) * head;
  return {at, at + head};
}

std::span<const float> CpuAttention::result(std::int64_t sequence, std::int64_t query_head) const {
  const std::int64_t head = point_.heads.size;
  return {results_.data() + (sequence * point_.heads.query + query_head) * head, index(head)};
}

namespace {

class HostAttentionCase final : public Case {
 public:
  HostAttentionCase(const HostAttention& point, std::uint64_t seed)
      : attention_(point, best_page_kernels(), spread(usable_cpus(), point.threads),
                   buffers_beyond_cache(kv_bytes(point), last_level_cache_bytes()), seed) {}

  std::vector<double> sample(std::int64_t calls) override {
    return {attention_.run(calls) / static_cast<double>(calls)};
  }
  [[nodiscard]] std::int64_t most_calls() const override { return std::int64_t{1} << 20U; }
  [[nodiscard]] std::string kernel() const override {
    return fmt::format("spillway-{}", best_page_kernels().extension);
  }
  [[nodiscard]] std::string note() const override { return attention_.note(); }

 private:
  CpuAttention attention_;
};

}  // namespace

std::unique_ptr<Case> make_host_attention(const HostAttention& point, std::uint64_t seed) {
  (void)checked_group(point);
  return std::make_unique<HostAttentionCase>(point, seed);
}

}  // namespace spillway::calibrate
