// Plain models of policies: what a policy decides, written a second time from its rule, for tests alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/api/registry.hpp"

namespace spillway::oracle {

/// A second, independent statement of a policy. It shares no code with policies/ and keeps no sums: whatever a rule
/// needs is counted anew from the View. Slow on purpose.
struct PlainPolicy {
  std::string name;                                  // of the policy that it models
  std::function<Policy(const PolicyContext&)> make;  // as PolicyInfo::make
  /// As PolicyInfo::layout; empty: the policy does not stream layers.
  std::function<Layout(const Deployment&, const Settings&)> layout{};
};

/// The plain model of the policy `name`; null when there is none.
[[nodiscard]] const PlainPolicy* find_plain(const std::string& name);
/// In alphabetical order.
[[nodiscard]] std::vector<std::string> plain_names();

/// `const RegisterPlain kRegistered{PlainPolicy{...}};` at namespace scope registers a model before main.
struct RegisterPlain {
  explicit RegisterPlain(PlainPolicy policy);
};

}  // namespace spillway::oracle
