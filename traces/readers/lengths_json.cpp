#include "traces/readers/lengths_json.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "traces/length.hpp"

namespace spillway::traces {
namespace {

enum Field : std::size_t { kPrompt, kLimit, kTruth, kFields };
constexpr std::array<JsonField, kFields> kFieldList{{{"prompt", JsonField::Kind::whole, 1, kMaxTokens, false},
                                                     {"max_tokens", JsonField::Kind::whole, 1, kMaxTokens, false},
                                                     {"L_gt", JsonField::Kind::whole, 1, kMaxTokens, false}}};

}  // namespace

bool LengthsJsonReader::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 2> kTelling{"max_tokens", "L_gt"};
  return head.starts_with('[') && first_object_has(head, kTelling, 1);
}

LengthsJsonReader::LengthsJsonReader(const std::string& path) : items_(path), bad_(path), row_(kFieldList) {
  pending_ = read_item();
}

/// Takes items up to the next good one; false at the end of the list or after too many bad ones. Once an item was bad
/// none counts as good, but the rest is looked through for more.
bool LengthsJsonReader::read_item() {
  std::string_view object;
  while (!ended_ && items_.next(object, bad_)) {
    row_.read(object, items_.row(), fmt::format("item {}", items_.item()), bad_);
    if (items_.item() == 1) has_inputs_ = row_.has(kPrompt) || !row_.has(kTruth);
    check();
    if (!bad_.any()) return true;
    if (bad_.full()) break;
  }
  ended_ = true;
  return false;
}

void LengthsJsonReader::check() {
  const auto need = [&](Field field) {
    if (row_.has(field) || bad_.has(items_.row())) return;
    row_.complain(field, "the key is missing or null",
                  has_inputs_ ? "give every item a prompt and a max_tokens" : "give every item an L_gt");
  };
  if (has_inputs_) {
    need(kPrompt);
    need(kLimit);
  } else {
    need(kTruth);
  }
}

bool LengthsJsonReader::next(RequestSpec& request) {
  if (!std::exchange(pending_, false) && !read_item()) {
    bad_.raise();
    return false;
  }
  request.arrival = SimTime();
  request.input = Tokens(has_inputs_ ? row_.whole(kPrompt) : 1);
  request.output = Tokens(row_.whole(has_inputs_ ? kLimit : kTruth));
  request.max_new_tokens = request.output;
  request.client = 0;
  request.prefix_ids.clear();
  return true;
}

}  // namespace spillway::traces
