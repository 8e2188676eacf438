// Plain models of policies: what a policy decides, written a second time from its rule, for tests alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/api/registry.hpp"
#include "tests/oracle/random_case.hpp"

namespace spillway::oracle {

/// A second, independent statement of a policy. It shares no code with policies/ and keeps no sums: whatever a rule
/// needs is counted anew from the View. Slow on purpose.
struct PlainPolicy {
  std::string name;                                  // of the policy that it models
  std::function<Policy(const PolicyContext&)> make;  // as PolicyInfo::make
  /// As PolicyInfo::layout; empty: the policy does not stream layers.
  std::function<Layout(const Deployment&, const Settings&)> layout{};
  /// Draws keys of the policy that draw_case leaves at their defaults, small enough to matter in a small case.
  std::function<void(Dice&, Settings&)> vary{};
  /// It also says why the head of the queue is left waiting (Decision::blocked), in every iteration.
  bool explains_waiting = false;
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
