// From paths to rows: the format of each file, the rows to use, and the problems of all files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "hwmodels/calibration/csv_table.hpp"
#include "hwmodels/calibration/measurement_json.hpp"

namespace spillway::hwmodels {
namespace {

bool is_json(const std::string& path) {
  FileReader file(path, kMeasurementWords);
  std::array<char, 4096> start{};
  const std::string_view text(start.data(), file.read(start.data(), start.size()));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

/// Reads all rows of a file; returns its format.
std::string read_part(const std::string& path, std::int32_t file, FilePart& part, Complaints& complaints) {
  if (is_json(path)) {
    read_json(path, file, part, complaints);
    return "measurements-json";
  }
  LineReader lines(path, kMeasurementWords);
  CsvTable table(lines, file, complaints);
  if (table.format() == nullptr) return {};
  table.format()->read(table, part);
  return std::string(table.format()->name);
}

/// Number of rows, by op.
using Counts = std::map<Op, std::int64_t>;

Counts counts_of(const Measurements& rows) {
  Counts counts;
  visit_rows(rows, rows, [&](const auto& some, const auto&) {
    for (const auto& row : some) ++counts[op_of(row)];
  });
  return counts;
}

std::int64_t total(const Counts& counts) {
  std::int64_t sum = 0;
  for (const auto& [op, count] : counts) sum += count;
  return sum;
}

void keep_only(Op op, FilePart& part, Complaints& complaints) {
  Counts counts = counts_of(part.rows);
  visit_rows(part.rows, part.rows,
             [&](auto& rows, const auto&) { std::erase_if(rows, [&](const auto& row) { return op_of(row) != op; }); });
  const std::int64_t kept = counts[op];
  std::vector<std::string> held;
  for (const Op one : all_ops()) {
    const std::int64_t count = counts[one];
    if (one != op && count > 0) held.push_back(fmt::format("{} of {}", count, op_name(one)));
  }
  if (kept == 0) {
    complaints.add("", fmt::format("the file holds no row of {}", op_name(op)),
                   fmt::format("it holds {}", fmt::join(held, ", ")));
  } else if (!held.empty()) {
    part.notes.push_back(fmt::format("only {} was asked for; left out: {}", op_name(op), fmt::join(held, ", ")));
  }
}

/// Merges facts of the device. Files that contradict each other describe two devices.
void merge_device(const MeasuredDevice& from, MeasuredDevice& to, Complaints& complaints) {
  const auto merge = [&](const auto& value, auto& known, const char* key) {
    if (!value) return;
    if (!known) known = value;
    if (*known == *value) return;
    complaints.add(fmt::format(" at /provenance/device/{}", key),
                   fmt::format("{} here, but {} in a file before", *value, *known), "give the files of one GPU");
  };
  merge(from.name, to.name, "name");
  merge(from.memory_bytes, to.memory_bytes, "memory_bytes");
  merge(from.sm_count, to.sm_count, "sm_count");
  merge(from.l2_bytes, to.l2_bytes, "l2_bytes");
}

/// Keeps what the first file says about the machine: a run's memory and threads may differ from run to run.
void merge_machine(const MeasuredHost& from, MeasuredHost& to) {
  const auto merge = [](const auto& value, auto& known) {
    if (!known) known = value;
  };
  merge(from.cpu_model, to.cpu_model);
  merge(from.physical_cores, to.physical_cores);
  merge(from.threads, to.threads);
  merge(from.memory_bytes, to.memory_bytes);
  merge(from.sockets, to.sockets);
}

void read_input(const MeasurementInput& input, Measurements& all, std::vector<Problem>& problems) {
  Complaints complaints(input.path);
  FilePart part;
  MeasurementFile file{input.path, {}, {}, 0, {}};
  const auto index = static_cast<std::int32_t>(all.files.size());
  try {
    file.format = read_part(input.path, index, part, complaints);
    file.sha256 = file_sha256(input.path, kMeasurementWords);
  } catch (const DataError& error) {
    for (const Problem& problem : complaints.problems()) problems.push_back(problem);
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    return;
  }
  if (!complaints.any()) {
    if (total(counts_of(part.rows)) == 0) {
      complaints.add("", "the file holds no measurement",
                     part.notes.empty() ? std::string("check that it was copied whole")
                                        : fmt::format("{}", fmt::join(part.notes, "; ")));
    } else if (input.only) {
      keep_only(*input.only, part, complaints);
    }
    merge_device(part.rows.device, all.device, complaints);
    merge_machine(part.rows.machine, all.machine);
  }
  for (const Problem& problem : complaints.problems()) problems.push_back(problem);
  file.rows = total(counts_of(part.rows));
  file.notes = std::move(part.notes);
  all.files.push_back(std::move(file));
  visit_rows(part.rows, all, [](auto& from, auto& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  });
}

/// Rows of an engine replace attention rows of cuDNN.
void replace_stand_ins(Measurements& all) {
  for (const Op op : {Op::decode_attention, Op::prefill_attention}) {
    const bool engine = std::any_of(all.attention.begin(), all.attention.end(),
                                    [&](const AttentionRow& row) { return op_of(row) == op && !row.stand_in; });
    std::map<std::int32_t, std::int64_t> counts;
    for (const AttentionRow& row : all.attention) {
      if (op_of(row) == op && row.stand_in) ++counts[row.place.file];
    }
    for (const auto& [index, count] : counts) {
      MeasurementFile& file = all.files.at(static_cast<std::size_t>(index));
      file.notes.push_back(fmt::format("{} measurements of {} ", count, op_name(op)) +
                           (engine ? "by cuDNN were left out: another file has rows of an engine"
                                   : "are of cuDNN, not of an engine: files with an engine's tables replace them"));
      if (engine) file.rows -= count;
    }
    if (!engine) continue;
    std::erase_if(all.attention, [&](const AttentionRow& row) { return op_of(row) == op && row.stand_in; });
  }
}

}  // namespace

Measurements read_measurements(std::span<const MeasurementInput> inputs) {
  Measurements all;
  std::vector<Problem> problems;
  for (const MeasurementInput& input : inputs) read_input(input, all, problems);
  if (!problems.empty()) throw DataError(std::move(problems));
  replace_stand_ins(all);
  return all;
}

}  // namespace spillway::hwmodels
