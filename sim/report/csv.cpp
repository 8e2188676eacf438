#include <fmt/format.h>

#include <iterator>

#include "sim/report/report.hpp"

namespace spillway {

std::string to_csv(const Result& result) {
  std::string csv = "name,value,unit,n\n";
  for (const Metric& metric : result.statistics.metrics) {
    const std::string value = metric.value ? fmt::format("{}", *metric.value) : "";
    fmt::format_to(std::back_inserter(csv), "{},{},{},{}\n", metric.name, value, metric.unit, metric.n);
  }
  return csv;
}

}  // namespace spillway
