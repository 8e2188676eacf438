// Which replica serves a request: the role of a router. A router is one .cpp in policies/routers/ that registers
// itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/api/parameter.hpp"
#include "sim/core/random.hpp"
#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// What a router may see of the replicas, numbered from 0. Calls are O(1).
class Replicas {
 public:
  virtual ~Replicas() = default;
  [[nodiscard]] virtual std::size_t count() const = 0;
  [[nodiscard]] virtual SimTime now() const = 0;
  /// Those that are up, ascending. A request goes to one of them.
  [[nodiscard]] virtual std::span<const std::size_t> up() const = 0;
  /// Requests that were sent to it and have not ended.
  [[nodiscard]] virtual std::int64_t outstanding(std::size_t replica) const = 0;
  /// Share of the KV blocks of its GPU that requests hold.
  [[nodiscard]] virtual double kv_used(std::size_t replica) const = 0;
};

class Router {
 public:
  virtual ~Router() = default;
  /// The replica that serves a request: one that is up, and some replica is. The request is outstanding there from then
  /// on.
  [[nodiscard]] virtual std::size_t choose(const RequestSpec& request) = 0;
  /// A request that another replica has refused was sent to this one, without choose(). It is outstanding here from
  /// then on.
  virtual void sent_on(const RequestSpec& request, std::size_t replica) { (void)request, (void)replica; }
  /// A request that was sent to the replica has ended; it is not outstanding any more.
  virtual void ended(std::size_t replica) { (void)replica; }
  /// The replica went down, and its requests have ended; or it is up again, without any KV.
  virtual void changed(std::size_t replica, bool up) { (void)replica, (void)up; }
};

/// The input from which a router is built. `replicas` is valid for the whole run, the rest during `make` only.
struct RouterContext {
  const Settings& settings;  // `router.*` of this router included
  const Replicas& replicas;
  Tokens block_tokens{};  // of one id of RequestSpec::prefix_ids
  RandomStream random;    // of this run
};

struct RouterInfo {
  std::string name;
  std::string summary;
  std::string source;
  std::vector<Parameter> parameters;  // its `router.*` keys
  std::function<std::unique_ptr<Router>(const RouterContext&)> make;
};

class RouterRegistry {
 public:
  static RouterRegistry& instance();
  /// Throws InvariantError on a second router of the same name.
  void add(RouterInfo info);
  /// Null when the name is unknown.
  [[nodiscard]] const RouterInfo* find(const std::string& name) const;
  /// In alphabetical order.
  [[nodiscard]] std::vector<const RouterInfo*> all() const;

 private:
  std::map<std::string, RouterInfo> routers_;
};

/// `const RegisterRouter kRegistered{RouterInfo{...}};` at namespace scope registers a router before main.
struct RegisterRouter {
  explicit RegisterRouter(RouterInfo info) { RouterRegistry::instance().add(std::move(info)); }
};

}  // namespace spillway
