#include "traces/think_time.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/text.hpp"

namespace spillway::traces {
namespace {

constexpr const char* kThinkTimeForms =
    "use exponential(60s), 60s (the same), lognormal(MEAN,CV) such as lognormal(120s,2), constant(10s) or trace";

std::optional<double> seconds_of(std::string_view text) {
  const auto duration = parse_duration(trimmed(text));
  if (!duration || *duration < Duration(0)) return std::nullopt;
  const double seconds = to_seconds(*duration);
  return seconds <= kMaxThinkSeconds ? std::optional(seconds) : std::nullopt;
}

}  // namespace

ThinkTime ThinkTime::of_trace() { return {}; }

ThinkTime ThinkTime::constant(double seconds) {
  ThinkTime result;
  result.kind_ = Kind::constant;
  result.mean_s_ = seconds;
  return result;
}

ThinkTime ThinkTime::exponential(double mean_seconds) {
  ThinkTime result;
  result.kind_ = Kind::exponential;
  result.mean_s_ = mean_seconds;
  return result;
}

ThinkTime ThinkTime::lognormal(double mean_seconds, double cv) {
  if (mean_seconds == 0.0) return constant(0.0);  // 0 has no logarithm
  ThinkTime result;
  result.kind_ = Kind::lognormal;
  result.lognormal_ = lognormal_of(mean_seconds, cv);
  return result;
}

Duration ThinkTime::sample(RandomStream& stream) const {
  double seconds = mean_s_;
  if (kind_ == Kind::exponential) seconds = stream.exponential(mean_s_);
  if (kind_ == Kind::lognormal) seconds = stream.lognormal(lognormal_.mu, lognormal_.sigma);
  return round_seconds(std::min(seconds, kMaxThinkSeconds));
}

double ThinkTime::mean_seconds() const {
  if (kind_ != Kind::lognormal) return mean_s_;
  return portable_exp(lognormal_.mu + 0.5 * lognormal_.sigma * lognormal_.sigma);
}

Duration ThinkTime::sample_remainder(RandomStream& stream) const {
  if (kind_ == Kind::exponential) return sample(stream);
  // In proportion to its length, a lognormal has the same sigma and mu + sigma^2.
  double seconds = mean_s_;
  if (kind_ == Kind::lognormal) {
    seconds = stream.lognormal(lognormal_.mu + lognormal_.sigma * lognormal_.sigma, lognormal_.sigma);
  }
  return round_seconds(stream.uniform() * std::min(seconds, kMaxThinkSeconds));
}

std::optional<ThinkTime> parse_think_time(std::string_view text, const std::string& key,
                                          std::vector<Problem>& problems) {
  const std::string_view value = trimmed(text);
  if (value == "trace") return ThinkTime::of_trace();
  if (const auto seconds = seconds_of(value)) return ThinkTime::exponential(*seconds);
  if (const auto argument = call_arguments("exponential", value)) {
    if (const auto seconds = seconds_of(*argument)) return ThinkTime::exponential(*seconds);
  }
  if (const auto argument = call_arguments("constant", value)) {
    if (const auto seconds = seconds_of(*argument)) return ThinkTime::constant(*seconds);
  }
  if (const auto arguments = call_arguments("lognormal", value)) {
    const std::size_t comma = arguments->find(',');
    const auto mean = seconds_of(arguments->substr(0, comma));
    const auto cv =
        comma == std::string_view::npos ? std::nullopt : parse_number(trimmed(arguments->substr(comma + 1)));
    if (mean && cv && *cv >= 0.0 && *cv <= kMaxCv) return ThinkTime::lognormal(*mean, *cv);
  }
  problems.push_back({fmt::format("\"{}\" is not a think time (means and times up to {:.0f} s, CV up to {:.0f})", value,
                                  kMaxThinkSeconds, kMaxCv),
                      key, kThinkTimeForms});
  return std::nullopt;
}

}  // namespace spillway::traces
