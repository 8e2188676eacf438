#include "traces/trace_writer.hpp"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "traces/readers/native_binary.hpp"

namespace spillway::traces {
namespace {

constexpr std::size_t kFlushBytes = std::size_t{64} << 10U;

/// `value` * 10^-digits, exactly, without trailing zeros.
void append_decimal(std::string& out, std::int64_t value, int digits) {
  std::int64_t unit = 1;
  for (int i = 0; i < digits; ++i) unit *= 10;
  fmt::format_to(std::back_inserter(out), "{}", value / unit);
  if (value % unit == 0) return;
  fmt::format_to(std::back_inserter(out), ".{:0{}}", value % unit, digits);
  out.erase(out.find_last_not_of('0') + 1);
}
void append_seconds(std::string& out, std::int64_t ns) { append_decimal(out, ns, 9); }
void append_milliseconds(std::string& out, std::int64_t ns) { append_decimal(out, ns, 6); }

/// Writes rows as text, in pieces.
class TextWriter : public TraceWriter {
 public:
  TextWriter(const TraceFacts& facts, ByteSink sink)
      : said_(facts.said), has_times_(facts.has_times), class_names_(facts.class_names), sink_(std::move(sink)) {}
  void finish() final {
    sink_(text_);
    text_.clear();
  }

 protected:
  void end_row() {
    text_ += '\n';
    if (text_.size() >= kFlushBytes) finish();
  }
  /// Null if the class has no name.
  [[nodiscard]] const std::string* class_name(std::uint32_t service_class) const {
    return service_class <= class_names_.size() ? &class_names_[service_class - 1] : nullptr;
  }

  TraceFacts::Said said_;
  bool has_times_;
  std::vector<std::string> class_names_;
  std::string text_;

 private:
  ByteSink sink_;
};

/// True if a CSV field can hold the text unchanged.
bool fits_csv(const std::string& text) {
  const bool quotes = text.find('"') != std::string::npos;
  const bool needs_quotes = text.find(',') != std::string::npos || text.starts_with(' ') || text.ends_with(' ');
  return text.find_first_of("\r\n") == std::string::npos && !(quotes && needs_quotes) && !text.starts_with('"');
}

class CsvWriter final : public TextWriter {
 public:
  CsvWriter(const TraceFacts& facts, ByteSink sink) : TextWriter(facts, std::move(sink)) {
    for (const std::string& name : class_names_) {
      if (fits_csv(name)) continue;
      throw DataError(fmt::format("native-csv cannot hold the class name {}", name), facts.source_name,
                      "convert to native-jsonl or native-binary");
    }
    if (said_.prefix) {
      throw DataError("native-csv cannot hold the prefix ids of these rows", facts.source_name,
                      "convert to native-jsonl or native-binary");
    }
    const auto name = [this](bool said, std::string_view column) {
      if (said) text_ += column;
    };
    name(has_times_, "arrival_s,");
    text_ += "input_tokens,output_tokens";
    name(said_.max_new_tokens, ",max_new_tokens");
    name(said_.client, ",client");
    name(said_.conversation, ",conversation");
    name(said_.turn, ",turn");
    name(said_.think, ",think_s");
    name(said_.service_class, ",class");
    name(said_.ttft, ",slo_ttft_ms");
    name(said_.tpot, ",slo_tpot_ms");
    name(said_.e2e, ",slo_e2e_ms");
    end_row();
  }

  void add(const TraceRow& row) override {
    if (has_times_) {
      if (row.arrival != kNever) append_seconds(text_, row.arrival.ns());
      text_ += ',';
    }
    fmt::format_to(std::back_inserter(text_), "{},{}", row.input.count(), row.output.count());
    number(said_.max_new_tokens, row.max_new_tokens != row.output, row.max_new_tokens.count());
    number(said_.client, row.client != 0, row.client);
    number(said_.conversation, row.conversation.has_value(), row.conversation.value_or(0));
    number(said_.turn, row.turn != 0, row.turn);
    if (said_.think) {
      text_ += ',';
      if (row.think) append_seconds(text_, row.think->count());
    }
    if (said_.service_class) write_class(row.service_class);
    limit(said_.ttft, row.slo.ttft);
    limit(said_.tpot, row.slo.tpot);
    limit(said_.e2e, row.slo.e2e);
    end_row();
  }

 private:
  template <class T>
  void number(bool column, bool stated, T value) {
    if (!column) return;
    text_ += ',';
    if (stated) fmt::format_to(std::back_inserter(text_), "{}", value);
  }
  void limit(bool column, Duration value) {
    if (!column) return;
    text_ += ',';
    if (value != Duration()) append_milliseconds(text_, value.count());
  }
  void write_class(std::uint32_t service_class) {
    text_ += ',';
    if (service_class == 0) return;
    const std::string* name = class_name(service_class);
    if (name == nullptr) {
      fmt::format_to(std::back_inserter(text_), "{}", service_class);
    } else if (name->find('"') != std::string::npos) {
      text_ += *name;
    } else {
      text_ += '"' + *name + '"';
    }
  }
};

class JsonlWriter final : public TextWriter {
 public:
  using TextWriter::TextWriter;

  void add(const TraceRow& row) override {
    const auto out = std::back_inserter(text_);
    text_ += '{';
    if (row.arrival != kNever) {
      text_ += "\"arrival_s\": ";
      append_seconds(text_, row.arrival.ns());
      text_ += ", ";
    }
    fmt::format_to(out, "\"input_tokens\": {}, \"output_tokens\": {}", row.input.count(), row.output.count());
    if (row.max_new_tokens != row.output) fmt::format_to(out, ", \"max_new_tokens\": {}", row.max_new_tokens.count());
    if (row.client != 0) fmt::format_to(out, ", \"client\": {}", row.client);
    if (row.conversation) fmt::format_to(out, ", \"conversation\": {}", *row.conversation);
    if (row.turn != 0) fmt::format_to(out, ", \"turn\": {}", row.turn);
    if (row.think) {
      text_ += ", \"think_s\": ";
      append_seconds(text_, row.think->count());
    }
    if (row.service_class != 0) write_class(row.service_class);
    limit("slo_ttft_ms", row.slo.ttft);
    limit("slo_tpot_ms", row.slo.tpot);
    limit("slo_e2e_ms", row.slo.e2e);
    if (!row.prefix_ids.empty()) fmt::format_to(out, ", \"prefix_ids\": [{}]", fmt::join(row.prefix_ids, ", "));
    if (row.prefix_id_tokens != 0) fmt::format_to(out, ", \"prefix_block_tokens\": {}", row.prefix_id_tokens);
    text_ += '}';
    end_row();
  }

 private:
  void limit(std::string_view key, Duration value) {
    if (value == Duration()) return;
    fmt::format_to(std::back_inserter(text_), ", \"{}\": ", key);
    append_milliseconds(text_, value.count());
  }
  void write_class(std::uint32_t service_class) {
    text_ += ", \"class\": ";
    const std::string* name = class_name(service_class);
    if (name == nullptr) {
      fmt::format_to(std::back_inserter(text_), "{}", service_class);
      return;
    }
    text_ += '"';
    for (const char c : *name) {
      if (c == '"' || c == '\\') text_ += '\\';
      if (static_cast<unsigned char>(c) < 0x20U) {
        fmt::format_to(std::back_inserter(text_), "\\u{:04x}", static_cast<unsigned char>(c));
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }
};

}  // namespace

void TraceFacts::add(const TraceRow& row) {
  ++rows;
  said.max_new_tokens = said.max_new_tokens || row.max_new_tokens != row.output;
  said.client = said.client || row.client != 0;
  said.conversation = said.conversation || row.conversation.has_value();
  said.turn = said.turn || row.turn != 0;
  said.think = said.think || row.think.has_value();
  said.service_class = said.service_class || row.service_class != 0;
  said.ttft = said.ttft || row.slo.ttft != Duration();
  said.tpot = said.tpot || row.slo.tpot != Duration();
  said.e2e = said.e2e || row.slo.e2e != Duration();
  said.prefix = said.prefix || !row.prefix_ids.empty() || row.prefix_id_tokens != 0;
}

void TraceFacts::finish(const TraceReader& reader) {
  has_times = reader.has_times();
  has_inputs = reader.has_inputs();
  zero_outputs = reader.zero_outputs();
  skipped = reader.skipped();
  first_skipped = reader.first_skipped();
  warnings = reader.warnings();
  class_names = reader.class_names();
}

const std::vector<std::string>& written_formats() {
  static const std::vector<std::string> kFormats{"native-binary", "native-csv", "native-jsonl"};
  return kFormats;
}

std::unique_ptr<TraceWriter> open_writer(const std::string& format, const TraceFacts& facts, ByteSink sink) {
  if (format == "native-binary") return std::make_unique<NativeBinaryWriter>(facts, std::move(sink));
  if (!facts.has_inputs) {
    throw DataError(fmt::format("{} cannot hold these rows: they have output lengths only", format), facts.source_name,
                    "convert to native-binary, or write a workload: spillway trace synth workload.trace=FILE "
                    "workload.input_tokens=LENGTH");
  }
  if (format == "native-csv") return std::make_unique<CsvWriter>(facts, std::move(sink));
  SPILLWAY_CHECK(format == "native-jsonl", format + " is no format that can be written");
  return std::make_unique<JsonlWriter>(facts, std::move(sink));
}

}  // namespace spillway::traces
