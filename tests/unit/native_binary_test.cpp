#include "traces/readers/native_binary.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "sim/core/random.hpp"
#include "sim/io/file_reader.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/length.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

struct Content {
  std::vector<TraceRow> rows;
  TraceFacts facts;
};

Content content_of(const std::string& path) {
  const OpenedTrace trace = open_trace(path, "auto");
  Content content{drain(*trace.reader), {}};
  content.facts.source_name = std::filesystem::path(path).filename().string();
  content.facts.source_format = trace.format;
  content.facts.source_sha256 = file_sha256(path);
  for (const TraceRow& row : content.rows) content.facts.add(row);
  content.facts.finish(*trace.reader);
  return content;
}

std::string written(const std::string& format, const Content& content) {
  std::string bytes;
  const auto writer = open_writer(format, content.facts, [&](std::string_view part) { bytes += part; });
  for (const TraceRow& row : content.rows) writer->add(row);
  writer->finish();
  return bytes;
}

Content of_rows(std::vector<TraceRow> rows) {
  Content content{std::move(rows), {}};
  content.facts.source_name = "made.csv";
  content.facts.source_format = "native-csv";
  content.facts.source_sha256 = std::string(64, 'a');
  for (const TraceRow& row : content.rows) content.facts.add(row);
  return content;
}

TraceRow plain(std::int64_t input, std::int64_t output) {
  TraceRow row;
  row.input = Tokens(input);
  row.output = row.max_new_tokens = Tokens(output);
  return row;
}

std::string problems_in(const std::string& bytes) {
  const TempFile file(bytes, ".bin");
  return problems_of(
      [&] {
        NativeBinaryReader reader(file.path());
        (void)drain(reader);
      },
      file.path());
}

std::vector<std::string> traces_at_hand() {
  std::vector<std::string> paths;
  for (const std::string folder : {"/traces/samples", "/../shared/data/traces"}) {
    const std::string path = source_dir() + folder;
    if (!std::filesystem::exists(path)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(path)) paths.push_back(entry.path().string());
  }
  return paths;
}

TEST(NativeBinary, EveryTraceIsReadBackAsItWas) {
  int converted = 0;
  for (const std::string& path : traces_at_hand()) {
    Content content;
    try {
      content = content_of(path);
    } catch (const UserError&) {
      continue;  // no trace that is understood
    }
    ++converted;
    for (const std::string& format : written_formats()) {
      const bool text = format != "native-binary";
      if (text && !content.facts.has_inputs) continue;
      if (format == "native-csv" && content.facts.said.prefix) continue;
      const TempFile file(written(format, content), ".converted");
      const OpenedTrace again = open_trace(file.path(), "auto");
      EXPECT_EQ(again.format, format);
      const auto rows = drain(*again.reader);
      ASSERT_EQ(rows.size(), content.rows.size()) << path;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        TraceRow asked = content.rows[i];  // a trace does not say how a request was served
        asked.ttft.reset();
        asked.e2e.reset();
        ASSERT_EQ(rows[i], asked) << path << ", row " << i;
      }
      EXPECT_EQ(again.reader->has_times(), content.facts.has_times);
      EXPECT_EQ(again.reader->class_names(), content.facts.class_names);
      if (text) continue;
      EXPECT_EQ(NativeBinaryReader(file.path()).facts(), content.facts);
      EXPECT_EQ(again.reader->has_inputs(), content.facts.has_inputs);
      EXPECT_EQ(again.reader->zero_outputs(), content.facts.zero_outputs);
      EXPECT_EQ(again.reader->warnings(), content.facts.warnings);
    }
  }
  EXPECT_GE(converted, 9) << "the samples";
}

/// Rows with arbitrary values near the limits of every field.
std::vector<TraceRow> random_rows(std::size_t count) {
  RandomStream random(1, 0, "test");
  const auto below = [&](std::uint64_t n) { return random.next_u64() % n; };
  const auto maybe = [&] { return below(3) == 0; };
  const auto length = [&] { return static_cast<std::int64_t>(1 + below(std::uint64_t{1} << below(25))); };
  std::vector<TraceRow> rows(count);
  SimTime latest{};
  for (TraceRow& row : rows) {
    row = plain(length(), length());
    if (!maybe()) {
      row.arrival = latest + Duration(static_cast<std::int64_t>(below(std::uint64_t{1} << below(50))));
      if (maybe() && latest > SimTime(2'000'000'000)) row.arrival = latest - Duration(1'000'000'000);
      latest = std::max(latest, row.arrival);
    }
    if (maybe()) row.max_new_tokens = Tokens(kMaxTokens);
    if (maybe()) row.client = maybe() ? UINT32_MAX : static_cast<std::uint32_t>(below(4));
    if (maybe()) row.service_class = static_cast<std::uint32_t>(1 + below(1000));
    if (maybe()) row.conversation = maybe() ? random.next_u64() : below(9);
    if (maybe()) row.turn = maybe() ? INT32_MAX : static_cast<std::int32_t>(1 + below(9));
    if (maybe()) row.think = Duration(static_cast<std::int64_t>(below(std::uint64_t{1} << 50U)));
    if (maybe()) row.slo.ttft = Duration(static_cast<std::int64_t>(1 + below(1'000'000'000)));
    if (maybe()) row.slo.e2e = Duration(INT64_MAX);
    if (maybe()) row.prefix_id_tokens = static_cast<std::int64_t>(1 + below(512));
    if (maybe()) {
      const std::uint64_t first = maybe() ? random.next_u64() : 7;
      for (std::uint64_t i = below(40); i > 0; --i) row.prefix_ids.push_back(maybe() ? random.next_u64() : first + i);
    }
  }
  return rows;
}

TEST(NativeBinary, EveryFieldIsReadBackAsItWas) {
  const Content content = of_rows(random_rows(5000));
  const TempFile file(written("native-binary", content), ".bin");
  NativeBinaryReader reader(file.path());
  EXPECT_EQ(reader.facts(), content.facts);
  TraceRow row;
  for (std::size_t i = 0; i < content.rows.size(); ++i) {
    ASSERT_TRUE(reader.next(row));
    ASSERT_EQ(row, content.rows[i]) << i;
    EXPECT_EQ(reader.row(), static_cast<std::int64_t>(i + 1));
  }
  EXPECT_FALSE(reader.next(row));
  EXPECT_FALSE(reader.next(row)) << "for ever";
}

TEST(NativeBinary, WhatTheSourceSaidIsKept) {
  Content content = of_rows({plain(1, 2)});
  content.facts.has_times = true;
  content.facts.zero_outputs = 3;
  content.facts.skipped = 2;
  content.facts.first_skipped = "made.csv, row 7: the field is empty";
  content.facts.warnings = {"lengths are estimated", ""};
  content.facts.class_names = {"chat", "a, \"b\""};
  const TempFile file(written("native-binary", content), ".bin");
  const OpenedTrace trace = open_trace(file.path(), "auto");
  EXPECT_EQ(trace.format, "native-binary");
  EXPECT_TRUE(trace.reader->has_times());
  EXPECT_TRUE(trace.reader->has_inputs());
  EXPECT_EQ(trace.reader->zero_outputs(), 3);
  EXPECT_EQ(trace.reader->skipped(), 2);
  EXPECT_EQ(trace.reader->first_skipped(), content.facts.first_skipped);
  EXPECT_EQ(trace.reader->warnings(), content.facts.warnings);
  EXPECT_EQ(trace.reader->class_names(), content.facts.class_names);
}

TEST(NativeBinary, PlainRowsAreSmall) {
  // Bits 1, arrival 4 (100 ms is 27 bits, folded 28), input 2, output 1.
  std::vector<TraceRow> rows;
  for (std::int64_t i = 0; i < 10'000; ++i) {
    rows.push_back(plain(1000 + i % 100, 100));
    rows.back().arrival = SimTime(i * 100'000'000);
  }
  EXPECT_NEAR(static_cast<double>(written("native-binary", of_rows(std::move(rows))).size()), 10'000 * 8.0, 300.0);
}

TEST(NativeBinary, MayBePackedWithGzip) {
  const Content content = of_rows(random_rows(300));
  const TempFile file(gzipped(written("native-binary", content)), ".bin.gz");
  const OpenedTrace trace = open_trace(file.path(), "auto");
  EXPECT_EQ(trace.format, "native-binary");
  EXPECT_EQ(drain(*trace.reader), content.rows);
}

TEST(NativeBinary, ATruncatedFileIsTold) {
  const std::string bytes = written("native-binary", of_rows(random_rows(20)));
  for (std::size_t length = 4; length < bytes.size(); ++length) {
    ASSERT_EQ(
        problems_in(bytes.substr(0, length)),
        fmt::format("exit 3\nthe file ends in the middle | FILE, byte {} | it was cut off; copy the file again, or "
                    "convert its source again",
                    length));
  }
}

TEST(NativeBinary, EveryCorruptByteIsTold) {
  const std::string bytes = written("native-binary", of_rows(random_rows(20)));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const char flip : {'\x01', '\x80'}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      ASSERT_TRUE(problems_in(changed).starts_with("exit 3\n")) << i;
    }
  }
  const std::string again = " | copy the file again, or convert its source again";
  std::string changed = bytes;
  changed[100] ^= 1;  // within the facts: name, format and checksum of the source alone are longer
  EXPECT_EQ(problems_in(changed), "exit 3\nthe file's head is corrupt | FILE, byte 0" + again);
  changed = bytes;
  changed[bytes.size() - 21] ^= 1;  // the last byte of the rows: the end is 12 + 8 bytes
  const std::string found = problems_in(changed);
  EXPECT_TRUE(found.starts_with("exit 3\nthe block that begins here is corrupt | FILE, byte 1")) << found;
  EXPECT_EQ(problems_in(bytes + "x"),
            fmt::format("exit 3\nthe file continues after its end | FILE, byte {}", bytes.size()) + again);
}

TEST(NativeBinary, OtherVersionsAndByteOrdersAreTold) {
  const std::string bytes = written("native-binary", of_rows({plain(1, 1)}));
  std::string changed = bytes;
  changed[10] = 2;
  EXPECT_EQ(problems_in(changed),
            "exit 3\nthe file is in version 2 of native-binary, and this Spillway reads version 1 | FILE, byte 8 | "
            "convert its source with this Spillway, or use the one that wrote it");
  changed = bytes;
  std::swap(changed[8], changed[9]);
  EXPECT_EQ(problems_in(changed),
            "exit 3\nthe file is written in the other byte order | FILE, byte 8 | "
            "convert its source with this Spillway");
  changed = bytes;
  changed.replace(4, 2, "\n");  // CR LF became LF
  EXPECT_EQ(problems_in(changed),
            "exit 3\nthe file was damaged: a transfer as text changed its bytes | FILE, byte 0 | "
            "copy it as a binary file");
  EXPECT_EQ(problems_in("input_tokens,output_tokens\n"),
            "exit 3\nthis is not a native-binary trace | FILE, byte 0 | "
            "leave workload.format out, or name the file's own format");
}

TEST(NativeBinary, RowsThatNoReaderMayDeliverAreTold) {
  const auto told = [](const TraceRow& row) {
    return problems_in(written("native-binary", of_rows({row}))).find("row 1, in the block") != std::string::npos;
  };
  TraceRow row = plain(5, 5);
  EXPECT_FALSE(told(row));
  EXPECT_TRUE(told(plain(0, 1)));
  EXPECT_TRUE(told(plain(1, kMaxTokens + 1)));
  row.max_new_tokens = Tokens(4);
  EXPECT_TRUE(told(row));
  row = plain(5, 5);
  row.arrival = SimTime(-1);
  EXPECT_TRUE(told(row));
  TraceRow early = plain(5, 5);
  early.arrival = SimTime(5'000'000'000);
  row.arrival = early.arrival - kReorderWindow - Duration(1);
  EXPECT_NE(problems_in(written("native-binary", of_rows({early, row}))).find("row 2, in the block"),
            std::string::npos);
}

TEST(TraceWriter, TextFormatsKeepNamesOfClasses) {
  const std::string lines =
      "{\"input_tokens\": 8, \"output_tokens\": 9, \"class\": \"a, \\u0062\"}\n"
      "{\"input_tokens\": 8, \"output_tokens\": 9, \"class\": \"say \\\"hi\\\"\\\\\"}\n";
  const TempFile source(lines, ".jsonl");
  Content content = content_of(source.path());
  EXPECT_EQ(content.facts.class_names, (std::vector<std::string>{"a, b", "say \"hi\"\\"}));
  for (const char* format : {"native-csv", "native-jsonl"}) {
    const TempFile file(written(format, content), ".converted");
    const OpenedTrace again = open_trace(file.path(), "auto");
    EXPECT_EQ(drain(*again.reader), content.rows);
    EXPECT_EQ(again.reader->class_names(), content.facts.class_names) << format;
  }
}

TEST(TraceWriter, CsvHasTheColumnsThatSaySomething) {
  TraceRow first = plain(8, 9);
  first.arrival = SimTime(1'500'000'000);
  first.conversation = 7;
  first.turn = 1;
  TraceRow second = plain(20, 9);
  second.conversation = 7;
  second.turn = 2;
  second.think = Duration(1);
  second.slo.tpot = Duration(50'000'000);
  second.client = 3;
  Content content = of_rows({first, second});
  content.facts.has_times = true;
  EXPECT_EQ(written("native-csv", content),
            "arrival_s,input_tokens,output_tokens,client,conversation,turn,think_s,slo_tpot_ms\n"
            "1.5,8,9,,7,1,,\n,20,9,3,7,2,0.000000001,50\n");
}

TEST(TraceWriter, WhatAFormatCannotHoldIsTold) {
  const auto told = [](const std::string& format, const Content& content) {
    return problems_of([&] { (void)written(format, content); });
  };
  TraceRow row = plain(8, 9);
  row.prefix_ids = {1};
  EXPECT_EQ(told("native-csv", of_rows({row})),
            "exit 3\nnative-csv cannot hold the prefix ids of these rows | made.csv | "
            "convert to native-jsonl or native-binary");
  EXPECT_EQ(told("native-jsonl", of_rows({row})), "");
  Content lengths = of_rows({plain(1, 9)});
  lengths.facts.has_inputs = false;
  EXPECT_EQ(
      told("native-jsonl", lengths),
      "exit 3\nnative-jsonl cannot hold these rows: they have output lengths only | made.csv | convert to "
      "native-binary, or write a workload: spillway trace synth workload.trace=FILE workload.input_tokens=LENGTH");
  Content names = of_rows({plain(1, 9)});
  names.facts.class_names = {"a,\"b"};
  EXPECT_EQ(told("native-csv", names),
            "exit 3\nnative-csv cannot hold the class name a,\"b | made.csv | "
            "convert to native-jsonl or native-binary");
}

}  // namespace
}  // namespace spillway::traces
