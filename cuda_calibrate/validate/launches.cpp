#include "cuda_calibrate/validate/launches.hpp"

#include <array>
#include <cstddef>

namespace spillway::calibrate {

std::vector<bool> waited_for(const Schedule& schedule) {
  std::vector<bool> waited(schedule.operations.size(), false);
  for (const Operation& operation : schedule.operations) {
    for (const std::int32_t other : operation.waits) waited[static_cast<std::size_t>(other)] = true;
  }
  for (const std::int32_t end : schedule.ends) waited[static_cast<std::size_t>(end)] = true;
  return waited;
}

bool gated(const Schedule& schedule, std::int64_t most) {
  std::array<std::int64_t, kStreams> copies{};
  for (const Operation& operation : schedule.operations) {
    const auto* copy = std::get_if<CopyWork>(&operation.work);
    if (copy == nullptr || copy->mechanism != CopyMechanism::many) continue;
    std::int64_t& of_stream = copies[static_cast<std::size_t>(operation.stream)];
    of_stream += copy->blocks;
    if (of_stream > most) return false;
  }
  return true;
}

}  // namespace spillway::calibrate
