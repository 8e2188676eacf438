#include "traces/length.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/core/text.hpp"

namespace spillway::traces {
namespace {

/// The largest middle of a uniform length: its largest value is below twice that.
constexpr std::int64_t kMaxMiddle = kMaxTokens / 2;
constexpr const char* kLengthForms =
    "use a whole number of tokens (512), uniform(MIDDLE,SPREAD), e.g. uniform(512,0.1), or lognormal(MEAN,CV), e.g. "
    "lognormal(512,0.8)";

/// "A,B" at its first comma; B is empty without one.
std::pair<std::string_view, std::string_view> two_arguments(std::string_view arguments) {
  const std::size_t comma = std::min(arguments.find(','), arguments.size());
  return {trimmed(arguments.substr(0, comma)), trimmed(arguments.substr(std::min(comma + 1, arguments.size())))};
}

std::optional<LengthDistribution> parse_lognormal(std::string_view arguments, const std::string& whole,
                                                  const std::string& key, std::vector<Problem>& problems) {
  const auto [first, second] = two_arguments(arguments);
  const double mean = parse_number(first).value_or(-1.0);
  const double cv = parse_number(second).value_or(-1.0);
  const bool mean_possible = mean >= 1.0 && mean <= static_cast<double>(kMaxTokens);
  const bool cv_possible = cv >= 0.0 && cv <= kMaxCv;
  if (!mean_possible) {
    problems.push_back(
        {fmt::format("\"{}\": MEAN must be a number from 1 to {} tokens", whole, kMaxTokens), key, kLengthForms});
  }
  if (!cv_possible) {
    problems.push_back(
        {fmt::format("\"{}\": CV (standard deviation over mean) must be a number from 0 to {}", whole, kMaxCv), key,
         kLengthForms});
  }
  if (!mean_possible || !cv_possible) return std::nullopt;
  return LengthDistribution::lognormal(mean, cv);
}

std::optional<LengthDistribution> parse_uniform(std::string_view arguments, const std::string& whole,
                                                const std::string& key, std::vector<Problem>& problems) {
  const auto [first, second] = two_arguments(arguments);
  const std::int64_t middle = parse_integer(first).value_or(-1);
  const double spread = parse_number(second).value_or(-1.0);
  const bool middle_possible = middle >= 1 && middle <= kMaxMiddle;
  const bool spread_possible = spread >= 0.0 && spread < 1.0;
  if (!middle_possible) {
    problems.push_back({fmt::format("\"{}\": MIDDLE must be a whole number from 1 to {} tokens", whole, kMaxMiddle),
                        key, kLengthForms});
  }
  if (!spread_possible) {
    problems.push_back(
        {fmt::format("\"{}\": SPREAD must be a share of the middle, from 0 to below 1", whole), key, kLengthForms});
  }
  if (!middle_possible || !spread_possible) return std::nullopt;
  return LengthDistribution::uniform(Tokens(middle), spread);
}

}  // namespace

LengthDistribution LengthDistribution::fixed(Tokens tokens) {
  LengthDistribution result;
  result.least_ = tokens.count();
  return result;
}

LengthDistribution LengthDistribution::lognormal(double mean, double cv) {
  LengthDistribution result;
  result.kind_ = Kind::lognormal;
  result.lognormal_ = lognormal_of(mean, cv);
  return result;
}

LengthDistribution LengthDistribution::uniform(Tokens middle, double spread) {
  LengthDistribution result;
  result.kind_ = Kind::uniform;
  // 0.29 * 100 is 28.999999999999996: the small addend makes up for such rounding.
  const auto half = static_cast<std::int64_t>(static_cast<double>(middle.count()) * spread + 1e-6);
  const std::int64_t within = std::min(half, middle.count() - 1);
  result.least_ = middle.count() - within;
  result.values_ = 2 * within + 1;
  return result;
}

Tokens LengthDistribution::sample(RandomStream& stream) const {
  if (kind_ == Kind::fixed) return Tokens(least_);
  if (kind_ == Kind::uniform) {
    return Tokens(least_ + static_cast<std::int64_t>(stream.uniform() * static_cast<double>(values_)));
  }
  const double value = stream.lognormal(lognormal_.mu, lognormal_.sigma);
  const double limited = std::clamp(value, 1.0, static_cast<double>(kMaxTokens));
  return Tokens(static_cast<std::int64_t>(limited + 0.5));
}

std::optional<LengthDistribution> parse_length(std::string_view text, const std::string& key,
                                               std::vector<Problem>& problems, std::optional<double> spread) {
  const std::string_view value = trimmed(text);
  const std::string whole(value);
  if (const auto arguments = call_arguments("lognormal", value))
    return parse_lognormal(*arguments, whole, key, problems);
  if (const auto arguments = call_arguments("uniform", value)) return parse_uniform(*arguments, whole, key, problems);
  const auto tokens = parse_integer(value);
  if (!tokens) {
    problems.push_back({fmt::format("\"{}\" is not a length", whole), key, kLengthForms});
    return std::nullopt;
  }
  const std::int64_t most = spread ? kMaxMiddle : kMaxTokens;
  if (*tokens < 1 || *tokens > most) {
    problems.push_back({fmt::format("{} tokens: a length is from 1 to {} tokens", *tokens, most), key, kLengthForms});
    return std::nullopt;
  }
  if (spread) return LengthDistribution::uniform(Tokens(*tokens), *spread);
  return LengthDistribution::fixed(Tokens(*tokens));
}

}  // namespace spillway::traces
