// Short names of metrics, as heads of tables that a terminal can show.
#pragma once

#include <string>

namespace spillway {

/// "request_throughput_per_s" -> "req/s", "p99_ttft_ms" -> "p99 TTFT\nms", on two lines; a metric without a short name
/// keeps its own. Two metrics never have the same head.
[[nodiscard]] std::string metric_head(const std::string& metric);

}  // namespace spillway
