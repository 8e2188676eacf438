#include "sim/api/key_owners.hpp"

#include "sim/api/router.hpp"

namespace spillway {

std::vector<KeyOwner> key_owners() {
  std::vector<KeyOwner> owners = PolicyRegistry::instance().key_owners();
  for (const RouterInfo* const info : RouterRegistry::instance().all()) {
    owners.push_back({kRouterKey, info->name, &info->parameters});
  }
  return owners;
}

}  // namespace spillway
