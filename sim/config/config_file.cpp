// Configuration files and arguments -> assignments with their locations.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/config/config.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/whole_file.hpp"

namespace spillway {
namespace {

/// Reads characters and records how far the parser has read: nlohmann::json keeps no positions of valid input.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = std::max(*furthest_, ++at_);
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

/// Flattens nested objects into dotted keys.
class ConfigReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `line` and `pointer`: of the object in the file.
  ConfigReader(const char* begin, const char* const* furthest, std::string name, std::ptrdiff_t line,
               std::string pointer, std::vector<Problem>& problems)
      : counted_to_(begin),
        furthest_(furthest),
        name_(std::move(name)),
        pointer_(std::move(pointer)),
        problems_(problems),
        line_(line) {}
  [[nodiscard]] std::vector<Assignment>& assignments() { return assignments_; }

  bool null() override { return value(std::nullopt); }
  bool boolean(bool flag) override { return value(flag ? "true" : "false"); }
  bool number_integer(number_integer_t number) override { return value(fmt::format("{}", number)); }
  bool number_unsigned(number_unsigned_t number) override { return value(fmt::format("{}", number)); }
  bool number_float(number_float_t, const string_t& digits) override { return value(digits); }
  bool string(string_t& text) override { return value(text); }
  bool binary(binary_t&) override { return value(std::nullopt); }
  bool start_object(std::size_t) override {
    if (arrays_ > 0 && !structured()) complain("holds more than plain values");
    empty_.push_back(true);
    return true;
  }
  bool end_object() override {
    const bool empty = empty_.back();
    empty_.pop_back();
    if (arrays_ > 0 || path_.empty()) return true;
    if (empty) assignments_.push_back({dotted_path(), std::nullopt, Origin::file, where(), {}, true});
    path_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    if (path_.empty() || (arrays_ > 0 && !structured())) {
      complain(path_.empty() ? "is a list" : "holds more than plain values");
    }
    if (arrays_ == 0) {
      count_lines();
      list_begin_ = *furthest_ - 1;
      list_where_ = where();
    }
    ++arrays_;
    list_.clear();
    return true;
  }
  bool end_array() override {
    if (--arrays_ > 0 || path_.empty()) return true;
    if (structured()) {
      assignments_.push_back({dotted_path(), std::string(list_begin_, *furthest_), Origin::file, list_where_, {}});
    } else {
      assignments_.push_back({dotted_path(), std::nullopt, Origin::file, where(), list_});
    }
    path_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    count_lines();
    empty_.back() = false;
    if (arrays_ == 0) path_.push_back(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    count_lines();
    const std::string_view text = error.what();  // "[json.exception...] parse error at line 2, column 5: ..."
    const std::size_t at = text.find(": ");
    problems_.push_back({"not valid JSON: " + brief(at == text.npos ? text : text.substr(at + 2)),
                         fmt::format("{}:{}", name_, line_), "correct or complete the file"});
    return false;
  }

 private:
  bool value(std::optional<std::string> text) {
    if (arrays_ > 0) {
      list_.push_back(text.value_or("null"));
      return true;
    }
    if (path_.empty()) {
      complain("is not an object of keys and values");
      return true;
    }
    assignments_.push_back({dotted_path(), std::move(text), Origin::file, where(), {}});
    path_.pop_back();
    return true;
  }
  void complain(const std::string& what) {
    problems_.push_back({(path_.empty() ? "the file" : brief(dotted_path())) + " " + what, where(),
                         path_.empty() ? R"(write {"key": value, ...})" : "give numbers, strings, true or false"});
  }
  /// The value of the key is a list of objects, which the key's reader reads from the text.
  [[nodiscard]] bool structured() const {
    // "models" is the list of a cluster file (spillway place).
    return path_.size() == 1 &&
           (path_.front() == "events" || path_.front() == kInstancesKey || path_.front() == "models");
  }
  [[nodiscard]] std::string dotted_path() const { return fmt::format("{}", fmt::join(path_, ".")); }
  [[nodiscard]] std::string where() const {
    std::string pointer = pointer_;
    for (const std::string& step : path_) pointer += "/" + step;
    return fmt::format("{}:{}{}", name_, line_, pointer.empty() ? "" : " (" + brief(pointer) + ")");
  }
  void count_lines() {
    line_ += std::count(counted_to_, *furthest_, '\n');
    counted_to_ = *furthest_;
  }

  const char* counted_to_;
  const char* const* furthest_;
  std::string name_;
  std::string pointer_;
  std::vector<Problem>& problems_;
  std::vector<Assignment> assignments_;
  std::vector<std::string> path_;
  std::vector<std::string> list_;
  const char* list_begin_ = nullptr;
  std::string list_where_;
  std::vector<bool> empty_;  // for each open object: no key so far
  std::ptrdiff_t line_;
  int arrays_ = 0;
};

std::vector<Assignment> parse_object(std::string_view content, const std::string& name, std::ptrdiff_t line,
                                     const std::string& pointer, std::vector<Problem>& problems) {
  const char* const begin = content.data();
  const char* furthest = begin;
  ConfigReader reader(begin, &furthest, name, line, pointer, problems);
  nlohmann::json::sax_parse(CountingIterator(begin, &furthest), CountingIterator(begin + content.size(), &furthest),
                            &reader, nlohmann::json::input_format_t::json, true, /*ignore_comments=*/true);
  return std::move(reader.assignments());
}

/// Finds where the elements of a list begin and end.
class ElementFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ElementFinder(const char* const* furthest) : furthest_(furthest) {}
  struct Element {
    const char* begin = nullptr;
    const char* end = nullptr;
    bool object = false;
  };
  [[nodiscard]] const std::vector<Element>& elements() const { return elements_; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool value() {
    if (depth_ == 1) elements_.push_back({*furthest_ - 1, *furthest_, false});
    return true;
  }
  bool open(bool object) {
    if (depth_++ == 1) elements_.push_back({*furthest_ - 1, nullptr, object});
    return true;
  }
  bool close() {
    if (--depth_ == 1) elements_.back().end = *furthest_;
    return true;
  }

  const char* const* furthest_;
  int depth_ = 0;
  std::vector<Element> elements_;
};

struct FilePlace {
  std::string file;
  std::ptrdiff_t line = 1;
  std::string pointer;
};
/// "c.json:14 (/instances)" is line 14 of c.json. What a file does not give is one of its own.
FilePlace file_place(const ResolvedKey& key) {
  const std::string pointer = "/" + key.parameter.name;
  if (key.origin != Origin::file) return {std::string(origin_name(key.origin)), 1, pointer};
  const std::size_t space = key.where.rfind(" (");
  const std::size_t colon = space == key.where.npos ? key.where.npos : key.where.rfind(':', space);
  if (colon == key.where.npos) return {key.where, 1, pointer};
  return {key.where.substr(0, colon), std::strtol(key.where.c_str() + colon + 1, nullptr, 10), pointer};
}

}  // namespace

std::vector<Assignment> parse_config(std::string_view content, const std::string& name,
                                     std::vector<Problem>& problems) {
  return parse_object(content, name, 1, "", problems);
}

std::vector<std::vector<Assignment>> parse_objects(const ResolvedKey& key, std::vector<Problem>& problems) {
  const std::string& list = key.text;
  const char* const begin = list.data();
  const char* furthest = begin;
  ElementFinder finder(&furthest);
  const bool valid =
      nlohmann::json::sax_parse(CountingIterator(begin, &furthest), CountingIterator(begin + list.size(), &furthest),
                                &finder, nlohmann::json::input_format_t::json, true, /*ignore_comments=*/true);
  if (!valid || !list.starts_with('[')) {
    problems.push_back(
        {fmt::format("{} is not a JSON list", key.parameter.name), key.where, R"(write [{"key": value, ...}, ...])"});
    return {};
  }
  const FilePlace place = file_place(key);
  const char* counted_to = begin;
  std::ptrdiff_t line = place.line;
  std::vector<std::vector<Assignment>> objects;
  std::size_t number = 0;
  for (const ElementFinder::Element& element : finder.elements()) {
    const std::string pointer = fmt::format("{}/{}", place.pointer, number++);
    line += std::count(counted_to, element.begin, '\n');
    counted_to = element.begin;
    if (!element.object) {
      problems.push_back({"an element of the list is not an object",
                          fmt::format("{}:{} ({})", place.file, line, pointer), R"(write {"key": value, ...})"});
      continue;
    }
    const auto length = static_cast<std::size_t>(element.end - element.begin);
    objects.push_back(parse_object({element.begin, length}, place.file, line, pointer, problems));
  }
  return objects;
}

std::vector<Assignment> read_config_file(const std::string& path, std::vector<Problem>& problems) {
  constexpr std::size_t kMostFileBytes = std::size_t{16} << 20U;  // a thousand times what every key needs
  const WholeFile file = read_whole_file(path, kMostFileBytes);
  if (!file.ok()) {
    problems.push_back({fmt::format("cannot read the configuration file {}: {}", brief(path), file.fault), brief(path),
                        "check its name and its permissions; a setting is written key=value"});
    return {};
  }
  return parse_config(file.bytes, brief(path), problems);
}

std::vector<Assignment> parse_arguments(std::span<const std::string> arguments, std::vector<Problem>& problems) {
  std::vector<Assignment> assignments;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    const std::string where = "argument " + brief(argument);
    if (equals == std::string::npos || equals == 0) {
      problems.push_back(
          {"\"" + brief(argument) + "\" is not of the form key=value", where, "write for example seed=2"});
      continue;
    }
    std::optional<std::string> text = argument.substr(equals + 1);
    if (*text == "null") text.reset();
    assignments.push_back({argument.substr(0, equals), std::move(text), Origin::argument, where, {}});
  }
  return assignments;
}

}  // namespace spillway
