#include "traces/readers/lengths_json.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "traces/length.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {

bool LengthsJsonReader::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 2> kTelling{"max_tokens", "L_gt"};
  return head.starts_with('[') && first_object_has(head, kTelling, 1);
}

LengthsJsonReader::LengthsJsonReader(const std::string& path, const ReaderOptions& options)
    : items_(path), bad_(path, options.skip_bad_rows), values_(kFieldList) {
  pending_ = read_item();
}

/// Reads up to the next item that can be delivered; false at the end of the list or after too many bad items.
bool LengthsJsonReader::read_item() {
  std::string_view object;
  while (!ended_) {
    bad_.begin();
    if (!items_.next(object, bad_)) break;
    values_.read(object, items_.row(), fmt::format("item {}", items_.item()), bad_);
    if (items_.item() == 1) has_inputs_ = values_.has(kPrompt) || !values_.has(kTruth);
    check();
    if (bad_.accepts()) return true;
    if (bad_.full()) break;
  }
  ended_ = true;
  return false;
}

void LengthsJsonReader::check() {
  const auto need = [&](Field field) {
    if (values_.has(field) || bad_.is_bad()) return;
    values_.complain(field, "the key is missing or null",
                     has_inputs_ ? "give every item a prompt and a max_tokens" : "give every item an L_gt");
  };
  if (has_inputs_) {
    need(kPrompt);
    need(kLimit);
  } else {
    need(kTruth);
  }
}

bool LengthsJsonReader::next(TraceRow& row) {
  if (!std::exchange(pending_, false) && !read_item()) {
    bad_.raise();
    return false;
  }
  row.clear();
  set_lengths(row, has_inputs_ ? values_.whole(kPrompt) : 1, values_.whole(has_inputs_ ? kLimit : kTruth));
  return true;
}

}  // namespace spillway::traces
