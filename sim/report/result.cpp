#include "sim/report/result.hpp"

namespace spillway {

Verdict judge(const Condition& condition, const RunStatistics& statistics) {
  Verdict verdict{.condition = condition};
  const Metric* metric = statistics.find(condition.metric);
  if (metric != nullptr) verdict.value = metric->value;
  verdict.met = verdict.value && condition.holds(*verdict.value);
  return verdict;
}

}  // namespace spillway
