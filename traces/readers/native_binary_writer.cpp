#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "traces/readers/native_binary.hpp"
#include "traces/readers/native_binary_code.hpp"

namespace spillway::traces {

namespace {

constexpr std::size_t kBlockBytes = std::size_t{64} << 10U;

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80U; value >>= 7U) out += static_cast<char>(value | 0x80U);
  out += static_cast<char>(value);
}
void append_count(std::string& out, std::int64_t value) { append_varint(out, static_cast<std::uint64_t>(value)); }
void append_text(std::string& out, std::string_view text) {
  append_varint(out, text.size());
  out += text;
}
void append_texts(std::string& out, const std::vector<std::string>& texts) {
  append_varint(out, texts.size());
  for (const std::string& text : texts) append_text(out, text);
}
template <class T>
void append_fixed(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(std::uint64_t{value} >> (8U * i) & 0xffU);
}

std::uint64_t said_bits(const TraceFacts::Said& said) {
  std::uint64_t bits = 0;
  unsigned at = 0;
  for (const bool one : {said.max_new_tokens, said.client, said.conversation, said.turn, said.think, said.service_class,
                         said.ttft, said.tpot, said.e2e, said.prefix}) {
    bits |= std::uint64_t{one ? 1U : 0U} << at++;
  }
  return bits;
}

}  // namespace

NativeBinaryWriter::NativeBinaryWriter(const TraceFacts& facts, ByteSink sink)
    : sink_(std::move(sink)), rows_(facts.rows) {
  using namespace native_binary;
  std::string payload;
  append_text(payload, facts.source_name);
  append_text(payload, facts.source_format);
  append_text(payload, facts.source_sha256);
  append_count(payload, facts.rows);
  append_varint(payload, (facts.has_times ? 1U : 0U) | (facts.has_inputs ? 2U : 0U) | said_bits(facts.said) << 2U);
  append_count(payload, facts.zero_outputs);
  append_count(payload, facts.skipped);
  append_text(payload, facts.first_skipped);
  append_texts(payload, facts.warnings);
  append_texts(payload, facts.class_names);
  std::string head(kMagic);
  append_fixed(head, kByteOrder);
  append_fixed(head, kVersion);
  append_fixed(head, static_cast<std::uint32_t>(payload.size()));
  append_fixed(head, checksum({payload}));
  sink_(head + payload);
}

void NativeBinaryWriter::add(const TraceRow& row) {
  using namespace native_binary;
  const bool slo = row.slo != RequestSlo();
  const bool prefix = !row.prefix_ids.empty() || row.prefix_id_tokens != 0;
  std::uint64_t bits = 0;
  if (row.arrival != kNever) bits |= kArrival;
  if (row.max_new_tokens != row.output) bits |= kMaxNew;
  if (row.client != client_) bits |= kClient;
  if (row.conversation) bits |= kConversation;
  if (row.turn != 0) bits |= kTurn;
  if (row.think) bits |= kThink;
  if (prefix) bits |= kPrefix;
  if (row.service_class != 0) bits |= kClass;
  if (slo) bits |= kSlo;
  append_varint(payload_, bits);
  if (row.arrival != kNever) {
    append_varint(payload_, fold(static_cast<std::uint64_t>((row.arrival - arrival_).count())));
    arrival_ = row.arrival;
  }
  append_count(payload_, row.input.count());
  append_count(payload_, row.output.count());
  if (row.max_new_tokens != row.output) append_count(payload_, row.max_new_tokens.count());
  if (row.client != client_) append_varint(payload_, row.client);
  client_ = row.client;
  if (row.conversation) {
    append_varint(payload_, fold(*row.conversation - conversation_));
    conversation_ = *row.conversation;
  }
  if (row.turn != 0) append_count(payload_, row.turn);
  if (row.think) append_count(payload_, row.think->count());
  if (prefix) add_prefix(row);
  if (row.service_class != 0) append_varint(payload_, row.service_class);
  if (slo) {
    for (const Duration limit : {row.slo.ttft, row.slo.tpot, row.slo.e2e}) append_count(payload_, limit.count());
  }
  ++block_rows_;
  if (payload_.size() >= kBlockBytes) end_block();
}

void NativeBinaryWriter::add_prefix(const TraceRow& row) {
  using namespace native_binary;
  const auto& ids = row.prefix_ids;
  const auto differ = std::mismatch(ids.begin(), ids.end(), ids_.begin(), ids_.end()).first;
  append_count(payload_, row.prefix_id_tokens);
  append_varint(payload_, ids.size());
  append_varint(payload_, static_cast<std::uint64_t>(differ - ids.begin()));
  std::uint64_t before = differ == ids.begin() ? 0 : *(differ - 1);
  for (auto id = differ; id != ids.end(); ++id) {
    append_varint(payload_, fold(*id - before));
    before = *id;
  }
  ids_ = ids;
}

void NativeBinaryWriter::end_block() {
  written_ += block_rows_;
  write_block(payload_, block_rows_);
  payload_.clear();
  block_rows_ = 0;
}

void NativeBinaryWriter::write_block(std::string_view payload, std::uint32_t rows) {
  using namespace native_binary;
  std::string head;
  append_fixed(head, static_cast<std::uint32_t>(payload.size()));
  append_fixed(head, rows);
  append_fixed(head, checksum({head, payload}));
  sink_(head);
  sink_(payload);
}

void NativeBinaryWriter::finish() {
  if (block_rows_ > 0) end_block();
  SPILLWAY_CHECK(written_ == rows_, fmt::format("{} rows were written where the facts tell of {}", written_, rows_));
  std::string total;
  append_fixed(total, static_cast<std::uint64_t>(written_));
  write_block(total, 0);
}

}  // namespace spillway::traces
