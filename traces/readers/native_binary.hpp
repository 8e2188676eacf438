// Spillway's own binary trace format: convert other formats into it once, then read it fast.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/file_reader.hpp"
#include "traces/readers/row_checks.hpp"
#include "traces/readers/trace_reader.hpp"
#include "traces/trace_writer.hpp"

namespace spillway::traces {

/// The format, version 1. Fixed numbers are little-endian; a varint is LEB128: seven bits per byte, the lowest first,
/// the top bit set in all bytes but the last. A signed number is folded: 0, -1, 1, -2, ... are 0, 1, 2, 3, ...; a text
/// is a varint of its bytes and these.
///
///   head    "\x89SWT\r\n\x1a\n" (a transfer as text would spoil it), u16 0x0102 (byte order), u16 version, u32 bytes
///   of
///           the facts, u32 CRC-32 of the facts, facts
///   facts   texts: name, format and SHA-256 of the source; varints: rows, bits (1: times, 2: inputs, 4 and on: what
///           TraceFacts::Said says, in its order), zero outputs, skipped rows; text: the first skipped; a varint and
///           that many texts: warnings; likewise class names
///   blocks  u32 bytes of the payload, u32 rows, u32 CRC-32 of these eight bytes and the payload, payload
///   end     a block without rows; its payload is the number of rows of the file, as u64
///
/// A row is a varint of the bits in native_binary_code.hpp, then varints: arrival (ns, signed, since the last one
/// stated), input, output, and what the bits tell of, in their order. Prefix ids: tokens per id, how many ids, how many
/// of them the row shares with the last row that had any, then each id after them as a signed difference to the one
/// before. Rows of plain traces take 8 to 10 bytes.
class NativeBinaryWriter final : public TraceWriter {
 public:
  NativeBinaryWriter(const TraceFacts& facts, ByteSink sink);
  void add(const TraceRow& row) override;
  /// Throws InvariantError if the number of rows differs from the facts.
  void finish() override;

 private:
  void add_prefix(const TraceRow& row);
  void end_block();
  void write_block(std::string_view payload, std::uint32_t rows);

  ByteSink sink_;
  std::int64_t rows_;
  std::int64_t written_ = 0;
  std::string payload_;
  std::uint32_t block_rows_ = 0;
  SimTime arrival_{};
  std::uint32_t client_ = 0;
  std::uint64_t conversation_ = 0;
  std::vector<std::uint64_t> ids_;
};

/// Reads that format. Delivers rows of a block only if its checksum is right, and refuses a file without its end.
/// Memory: a block (64 KiB, or one row with all its ids) and the ids of one row. Measured: 19 to 34 million plain
/// rows/s on one core of a 2.5 GHz Xeon.
class NativeBinaryReader final : public TraceReader {
 public:
  /// Reads the head. Throws DataError when the file cannot be read, is of another version, or is cut off or corrupt
  /// there; the message says at which byte (of the text, where the file is packed). No row is ever skipped.
  explicit NativeBinaryReader(const std::string& path, const ReaderOptions& options = {});

  /// Throws DataError on a corrupt block, a file that is cut off, and a file that continues after its end.
  bool next(TraceRow& row) override;
  [[nodiscard]] bool has_times() const override { return facts_.has_times; }
  [[nodiscard]] bool has_inputs() const override { return facts_.has_inputs; }
  [[nodiscard]] std::int64_t row() const override { return delivered_; }
  /// Counts and texts of the whole source, from the start.
  [[nodiscard]] std::int64_t zero_outputs() const override { return facts_.zero_outputs; }
  [[nodiscard]] std::int64_t skipped() const override { return facts_.skipped; }
  [[nodiscard]] std::string first_skipped() const override { return facts_.first_skipped; }
  [[nodiscard]] std::vector<std::string> warnings() const override { return facts_.warnings; }
  [[nodiscard]] std::vector<std::string> class_names() const override { return facts_.class_names; }
  /// Source and number of the rows.
  [[nodiscard]] const TraceFacts& facts() const { return facts_; }

  /// True if the file starts with the format's mark, in any version.
  static bool recognises(std::string_view head);

 private:
  void read_head();
  void read_facts(const std::string& payload);
  bool read_block();
  void read_end();
  bool decode(TraceRow& row);
  bool decode_prefix(TraceRow& row);
  /// The next `size` bytes; throws when the file ends before.
  void take(std::string& bytes, std::size_t size);
  [[noreturn]] void corrupt(std::string what) const;

  FileReader file_;
  std::uint64_t at_ = 0;           // bytes taken
  std::uint64_t block_begin_ = 0;  // start of the current head or block
  TraceFacts facts_;
  std::string payload_;
  const unsigned char* next_ = nullptr;  // rest of the payload: [next_, end_)
  const unsigned char* end_ = nullptr;
  std::uint32_t block_rows_ = 0;  // not yet delivered
  std::int64_t delivered_ = 0;
  bool ended_ = false;
  ArrivalOrder order_;
  SimTime arrival_{};
  std::uint32_t client_ = 0;
  std::uint64_t conversation_ = 0;
  std::vector<std::uint64_t> ids_;
};

}  // namespace spillway::traces
