#include "traces/readers/json_row.hpp"

#include <fmt/format.h>

#include <utility>

#include "sim/core/text.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {

void JsonRow::complain(std::size_t field, std::string what, std::string fix) {
  bad_->add(row_, fmt::format("{}{}key \"{}\"", part_, part_.empty() ? "" : ", ", fields_[field].name), std::move(what),
            std::move(fix));
}

void JsonRow::read(std::string_view text, std::int64_t row, const std::string& part, BadRows& bad) {
  row_ = row;
  part_ = part;
  bad_ = &bad;
  for (Value& value : values_) {
    value.seen = false;
    value.present = false;
    value.ids.clear();
  }
  JsonCursor cursor(text);
  const std::string_view wanted = scan_object(cursor, [&](std::string_view key) -> std::string_view {
    std::size_t field = 0;
    while (field < fields_.size() && fields_[field].name != key) ++field;
    if (field < fields_.size()) return scan_value(cursor, field);
    return cursor.pass_value();
  });
  if (!wanted.empty()) {
    add_broken(bad, row, part, cursor, wanted);
    return;
  }
  for (std::size_t field = 0; field < fields_.size(); ++field) {
    if (fields_[field].required && !values_[field].seen) {
      bad.add(row, part, fmt::format("key \"{}\" is missing", fields_[field].name), kCorrectRow);
    }
  }
}

/// Reads the value of a field. Empty, or what should stand at the cursor.
std::string_view JsonRow::scan_value(JsonCursor& cursor, std::size_t field) {
  Value& value = values_[field];
  if (std::exchange(value.seen, true)) complain(field, "the key appears twice", kCorrectRow);
  const bool list = fields_[field].kind == JsonField::Kind::ids;
  const char first = cursor.peek();
  if (list && first == '[') {
    std::string complaint;
    const std::string_view wanted = cursor.ids(value.ids, complaint);
    value.present = complaint.empty();
    if (!complaint.empty()) complain(field, std::move(complaint), kCorrectRow);
    return wanted;
  }
  if (first == '"' || first == '{' || first == '[') {
    if (const std::string_view wanted = cursor.pass_value(); !wanted.empty()) return wanted;
    complain(field, list ? "the value must be a list of whole numbers" : "the value must be a number", kCorrectRow);
    return {};
  }
  const std::string_view word = cursor.word();
  if (word.empty()) return "a value";
  if (word != "null" || fields_[field].required) read_number(field, word);
  return {};
}

void JsonRow::read_number(std::size_t index, std::string_view word) {
  const JsonField& field = fields_[index];
  Value& value = values_[index];
  std::string complaint;
  if (field.kind == JsonField::Kind::whole) {
    const auto number = whole_number<std::int64_t>(word, field.least, field.most, complaint);
    value.present = number.has_value();
    value.whole = number.value_or(0);
  } else if (field.kind == JsonField::Kind::real) {
    const auto number = parse_number(word);
    value.present = number && *number >= static_cast<double>(field.least) && *number <= static_cast<double>(field.most);
    value.real = number.value_or(0.0);
    if (!value.present) {
      complaint = fmt::format("{} is not a number from {} to {}", excerpt(word), field.least, field.most);
    }
  } else {
    complaint = fmt::format("{} is not a list of whole numbers", excerpt(word));
  }
  if (!complaint.empty()) complain(index, std::move(complaint), kCorrectRow);
}

bool JsonlReader::next(TraceRow& row) {
  std::string_view line;
  while (!ended_ && lines_.next(line)) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    row.clear();
    bad_.begin();
    values_.read(line, lines_.row(), {}, bad_);
    if (!is_bad()) parse(values_, row);
    if (bad_.accepts()) return true;
    if (bad_.full()) break;
  }
  ended_ = true;
  bad_.raise();
  return false;
}

}  // namespace spillway::traces
