// A router that a test gives as a function.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "sim/engine/pool_config.hpp"

namespace spillway::oracle {

class RouteBy final : public Router {
 public:
  using Choice = std::function<std::size_t(const RequestSpec&)>;
  explicit RouteBy(Choice choice) : choice_(std::move(choice)) {}
  [[nodiscard]] std::size_t choose(const RequestSpec& request) override { return choice_(request); }

 private:
  Choice choice_;
};

inline MakeRouter route_by(RouteBy::Choice choice) {
  return [choice = std::move(choice)](const Replicas&) { return std::make_unique<RouteBy>(choice); };
}

}  // namespace spillway::oracle
