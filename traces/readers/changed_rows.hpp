// The base of readers that change the rows of another reader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Answers everything but `next` as the reader whose rows are changed.
class ChangedRows : public TraceReader {
 public:
  [[nodiscard]] bool has_times() const override { return reader_->has_times(); }
  [[nodiscard]] bool has_inputs() const override { return reader_->has_inputs(); }
  [[nodiscard]] bool has_texts() const override { return reader_->has_texts(); }
  [[nodiscard]] std::int64_t zero_outputs() const override { return reader_->zero_outputs(); }
  [[nodiscard]] std::int64_t row() const override { return reader_->row(); }
  [[nodiscard]] std::int64_t skipped() const override { return reader_->skipped(); }
  [[nodiscard]] std::string first_skipped() const override { return reader_->first_skipped(); }
  [[nodiscard]] std::vector<std::string> warnings() const override { return reader_->warnings(); }
  [[nodiscard]] std::vector<std::string> files() const override { return reader_->files(); }
  [[nodiscard]] std::vector<std::string> class_names() const override { return reader_->class_names(); }

 protected:
  explicit ChangedRows(std::unique_ptr<TraceReader> reader) : reader_(std::move(reader)) {}
  [[nodiscard]] TraceReader& reader() { return *reader_; }

 private:
  std::unique_ptr<TraceReader> reader_;
};

}  // namespace spillway::traces
