#include "sim/api/registry.hpp"

namespace spillway {

PolicyRegistry& PolicyRegistry::instance() {
  static PolicyRegistry registry;
  return registry;
}

void PolicyRegistry::add(PolicyInfo info) {
  const std::string name = info.name;
  const bool added = policies_.emplace(name, std::move(info)).second;
  SPILLWAY_CHECK(added, "two policies are called " + name);
}

const PolicyInfo* PolicyRegistry::find(const std::string& name) const {
  const auto it = policies_.find(name);
  return it == policies_.end() ? nullptr : &it->second;
}

std::vector<const PolicyInfo*> PolicyRegistry::all() const {
  std::vector<const PolicyInfo*> infos;
  for (const auto& [name, info] : policies_) infos.push_back(&info);
  return infos;
}

}  // namespace spillway
