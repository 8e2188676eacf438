#include "sim/api/router.hpp"

#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

RouterRegistry& RouterRegistry::instance() {
  static RouterRegistry registry;
  return registry;
}

void RouterRegistry::add(RouterInfo info) {
  const std::string name = info.name;
  const bool is_new = routers_.emplace(name, std::move(info)).second;
  SPILLWAY_CHECK(is_new, "two routers are named " + name);
}

const RouterInfo* RouterRegistry::find(const std::string& name) const {
  const auto found = routers_.find(name);
  return found == routers_.end() ? nullptr : &found->second;
}

std::vector<const RouterInfo*> RouterRegistry::all() const {
  std::vector<const RouterInfo*> all;
  for (const auto& [name, info] : routers_) all.push_back(&info);
  return all;
}

}  // namespace spillway
