#include "sim/study/shard.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "sim/core/text.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kMostShards = 1'000'000;

std::optional<std::int64_t> variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : parse_integer(text);
}

/// Task numbers may start anywhere and may have gaps of equal size.
std::optional<Shard> slurm_shard() {
  const auto task = variable("SLURM_ARRAY_TASK_ID");
  const auto count = variable("SLURM_ARRAY_TASK_COUNT");
  if (!task || !count) return std::nullopt;
  const std::int64_t first = variable("SLURM_ARRAY_TASK_MIN").value_or(0);
  const std::int64_t step = variable("SLURM_ARRAY_TASK_STEP").value_or(1);
  if (step < 1 || *task < first || (*task - first) % step != 0) return std::nullopt;
  const Shard shard{(*task - first) / step + 1, *count};
  return shard.index <= shard.count ? std::optional(shard) : std::nullopt;
}

}  // namespace

std::optional<Shard> parse_shard(const std::string& text, const std::string& where, std::vector<Problem>& problems) {
  const std::size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const auto index = parse_integer(text.substr(0, slash));
    const auto count = parse_integer(text.substr(slash + 1));
    if (index && count && 1 <= *index && *index <= *count && *count <= kMostShards) return Shard{*index, *count};
  }
  problems.push_back(
      {fmt::format("\"{}\" is not a shard", text), where, "write i/n with i from 1 to n, as in 1/4, 2/4, 3/4 and 4/4"});
  return std::nullopt;
}

std::optional<Shard> chosen_shard(const std::optional<std::string>& flag, std::vector<Problem>& problems) {
  if (flag) {
    const auto shard = parse_shard(*flag, "--shard " + *flag, problems);
    return shard && shard->count == 1 ? std::nullopt : shard;
  }
  const auto shard = slurm_shard();
  if (!shard || shard->count == 1) return std::nullopt;
  fmt::print(stderr, "note: running shard {}/{}, from SLURM_ARRAY_TASK_ID; use --shard 1/1 for the whole sweep\n",
             shard->index, shard->count);
  return shard;
}

}  // namespace spillway
