#include "policies/parts/swap_copies.hpp"

#include <string>

namespace spillway {
namespace {

constexpr const char* kSwapCopies = "policy.swap_copies";

}  // namespace

Parameter swap_copies_key() {
  return {.name = kSwapCopies,
          .type = ParameterType::choice,
          .unit = "-",
          .default_value = "merged",
          .choices = {"merged", "scattered"},
          .doc =
              "merged: blocks that swap together follow each other in memory and go as one copy; scattered: one copy "
              "per block, layer and K or V, each with a launch",
          .source =
              "interestingLSY/swiftLLM (682cf9a), csrc: neighbouring blocks go as one copy (recalled, not looked "
              "up)"};
}

CopyMechanism swap_copies(const Settings& settings) {
  return settings.get<std::string>(kSwapCopies) == "merged" ? CopyMechanism::single : CopyMechanism::many;
}

}  // namespace spillway
