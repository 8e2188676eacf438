#include "tests/fuzz/sealed_mutation.hpp"

#include <cstdint>

#include "sim/core/error.hpp"
#include "tests/fuzz/mutation.hpp"
#include "traces/readers/native_binary_code.hpp"
#include "traces/trace_writer.hpp"

namespace spillway::fuzz {
namespace {

using namespace traces::native_binary;

constexpr std::size_t kHeadStart = 8 + 2 + 2;  // magic, byte order, version

void append_u32(std::string& out, std::uint32_t value) {
  for (unsigned shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xffU);
}

/// Takes a little-endian number off the start of `bytes`.
std::uint32_t take_u32(std::string_view& bytes) {
  SPILLWAY_CHECK(bytes.size() >= 4, "the sample of native-binary is cut off");
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << 8U * i;
  bytes.remove_prefix(4);
  return value;
}

std::string take_text(std::string_view& bytes, std::size_t size) {
  SPILLWAY_CHECK(bytes.size() >= size, "the sample of native-binary is cut off");
  std::string text(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return text;
}

struct Block {
  std::string payload;
  std::uint32_t rows = 0;
};

struct Parts {
  std::string start;
  std::string facts;
  std::vector<Block> blocks;  // the last has no rows and holds their number
};

Parts parts_of(std::string_view file) {
  Parts parts;
  parts.start = take_text(file, kHeadStart);
  const std::uint32_t size = take_u32(file);
  (void)take_u32(file);
  parts.facts = take_text(file, size);
  while (!file.empty()) {
    Block block;
    const std::uint32_t bytes = take_u32(file);
    block.rows = take_u32(file);
    (void)take_u32(file);
    block.payload = take_text(file, bytes);
    parts.blocks.push_back(std::move(block));
  }
  return parts;
}

std::string sealed(const Parts& parts) {
  std::string file = parts.start;
  append_u32(file, static_cast<std::uint32_t>(parts.facts.size()));
  append_u32(file, checksum({parts.facts}));
  file += parts.facts;
  for (const Block& block : parts.blocks) {
    std::string head;
    append_u32(head, static_cast<std::uint32_t>(block.payload.size()));
    append_u32(head, block.rows);
    append_u32(head, checksum({head, block.payload}));
    file += head + block.payload;
  }
  return file;
}

/// Changes numbers without changing how many bytes they have: the rows behind them keep their positions.
void change_values(std::string& payload, RandomStream& stream) {
  if (payload.empty()) return;
  for (std::size_t changes = 1 + below(4, stream); changes > 0; --changes) {
    char& byte = payload[below(payload.size(), stream)];
    byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << below(7, stream)));
  }
}

}  // namespace

std::string native_binary_of(std::string_view name, const std::vector<traces::TraceRow>& rows,
                             const traces::TraceReader& reader) {
  traces::TraceFacts facts;
  facts.source_name = name;
  for (const traces::TraceRow& row : rows) facts.add(row);
  facts.finish(reader);
  std::string file;
  const auto writer = traces::open_writer("native-binary", facts, [&file](std::string_view bytes) { file += bytes; });
  for (const traces::TraceRow& row : rows) writer->add(row);
  writer->finish();
  return file;
}

std::string sealed_mutation(const std::string& file, RandomStream& stream) {
  Parts parts = parts_of(file);
  Block& block = parts.blocks[below(parts.blocks.size(), stream)];
  switch (below(8, stream)) {
    case 0:
      parts.facts = mutated(std::move(parts.facts), {}, stream);
      break;
    case 1:
      change_values(parts.facts, stream);
      break;
    case 2:
      block.rows ^= 1U << below(20, stream);
      break;
    case 3:
    case 4:
      block.payload = mutated(std::move(block.payload), {}, stream);
      break;
    default:
      change_values(block.payload, stream);
  }
  return sealed(parts);
}

}  // namespace spillway::fuzz
