#include "traces/length.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/text.hpp"

namespace spillway::traces {
namespace {

constexpr double kMaxCv = 100.0;
constexpr const char* kForms = "use a whole number of tokens (512) or lognormal(MEAN,CV), e.g. lognormal(512,0.8)";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<LengthDistribution> parse_lognormal(std::string_view arguments, const std::string& whole,
                                                  const std::string& key, std::vector<Problem>& problems) {
  const std::size_t comma = std::min(arguments.find(','), arguments.size());
  const double mean = parse_number(trimmed(arguments.substr(0, comma))).value_or(-1.0);
  const double cv = parse_number(trimmed(arguments.substr(std::min(comma + 1, arguments.size())))).value_or(-1.0);
  const bool mean_possible = mean >= 1.0 && mean <= static_cast<double>(kMaxTokens);
  const bool cv_possible = cv >= 0.0 && cv <= kMaxCv;
  if (!mean_possible) {
    problems.push_back(
        {fmt::format("\"{}\": MEAN must be a number from 1 to {} tokens", whole, kMaxTokens), key, kForms});
  }
  if (!cv_possible) {
    problems.push_back(
        {fmt::format("\"{}\": CV (standard deviation over mean) must be a number from 0 to {}", whole, kMaxCv), key,
         kForms});
  }
  if (!mean_possible || !cv_possible) return std::nullopt;
  return LengthDistribution::lognormal(mean, cv);
}

}  // namespace

LengthDistribution LengthDistribution::fixed(Tokens tokens) {
  LengthDistribution result;
  result.tokens_ = tokens.count();
  return result;
}

LengthDistribution LengthDistribution::lognormal(double mean, double cv) {
  LengthDistribution result;
  const double variance = portable_log(1.0 + cv * cv);
  result.sigma_ = std::sqrt(variance);
  result.mu_ = portable_log(mean) - 0.5 * variance;
  return result;
}

Tokens LengthDistribution::sample(RandomStream& stream) const {
  if (tokens_ > 0) return Tokens(tokens_);
  const double value = stream.lognormal(mu_, sigma_);
  const double limited = std::clamp(value, 1.0, static_cast<double>(kMaxTokens));
  return Tokens(static_cast<std::int64_t>(limited + 0.5));
}

std::optional<LengthDistribution> parse_length(std::string_view text, const std::string& key,
                                               std::vector<Problem>& problems) {
  constexpr std::string_view kLognormal = "lognormal(";
  const std::string_view value = trimmed(text);
  const std::string whole(value);
  if (value.starts_with(kLognormal) && value.ends_with(')')) {
    const std::string_view arguments = value.substr(kLognormal.size(), value.size() - kLognormal.size() - 1);
    return parse_lognormal(arguments, whole, key, problems);
  }
  const auto tokens = parse_integer(value);
  if (!tokens) {
    problems.push_back({fmt::format("\"{}\" is not a length", whole), key, kForms});
    return std::nullopt;
  }
  if (*tokens < 1 || *tokens > kMaxTokens) {
    problems.push_back({fmt::format("{} tokens: a length is from 1 to {} tokens", *tokens, kMaxTokens), key, kForms});
    return std::nullopt;
  }
  return LengthDistribution::fixed(Tokens(*tokens));
}

}  // namespace spillway::traces
