#include "traces/readers/native_binary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "traces/length.hpp"
#include "traces/readers/native_binary_code.hpp"

namespace spillway::traces {

namespace {

/// Fits a row of kMaxTokens ids of ten bytes each.
constexpr std::uint32_t kMostBlockBytes = 200U << 20U;
constexpr const char* kCopyAgain = "copy the file again, or convert its source again";

template <class T>
T fixed_at(std::string_view bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value =
        static_cast<T>(value | static_cast<T>(static_cast<T>(static_cast<unsigned char>(bytes[at + i])) << (8U * i)));
  }
  return value;
}

/// False if the bytes end within the number or it has more than 64 bits.
bool take_varint(const unsigned char*& at, const unsigned char* end, std::uint64_t& value) {
  if (at != end && *at < 0x80U) {
    value = *at++;
    return true;
  }
  value = 0;
  for (unsigned shift = 0; at != end && shift < 64; shift += 7) {
    const std::uint64_t byte = *at++;
    if (shift == 63 && byte > 1) return false;
    value |= (byte & 0x7fU) << shift;
    if (byte < 0x80U) return true;
  }
  return false;
}

/// Takes the parts of the facts in order; takes nothing more after an error.
class FactsCursor {
 public:
  explicit FactsCursor(std::string_view bytes)
      : at_(reinterpret_cast<const unsigned char*>(bytes.data())), end_(at_ + bytes.size()) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    good_ = good_ && take_varint(at_, end_, value);
    return good_ ? value : 0;
  }
  std::int64_t count() {
    const std::uint64_t value = number();
    good_ = good_ && value <= INT64_MAX;
    return good_ ? static_cast<std::int64_t>(value) : 0;
  }
  std::string text() {
    const std::uint64_t size = number();
    good_ = good_ && size <= static_cast<std::uint64_t>(end_ - at_);
    if (!good_) return {};
    std::string text(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return text;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> all;
    for (std::uint64_t left = number(); good_ && left > 0; --left) all.push_back(text());
    return all;
  }
  [[nodiscard]] bool good_to_the_end() const { return good_ && at_ == end_; }

 private:
  const unsigned char* at_;
  const unsigned char* end_;
  bool good_ = true;
};

TraceFacts::Said said_of(std::uint64_t bits) {
  TraceFacts::Said said;
  for (bool* one : {&said.max_new_tokens, &said.client, &said.conversation, &said.turn, &said.think,
                    &said.service_class, &said.ttft, &said.tpot, &said.e2e, &said.prefix}) {
    *one = (bits & 1U) != 0;
    bits >>= 1U;
  }
  return said;
}

}  // namespace

bool NativeBinaryReader::recognises(std::string_view head) {
  return head.starts_with(native_binary::kMagic.substr(0, 4));
}

NativeBinaryReader::NativeBinaryReader(const std::string& path, const ReaderOptions& /*options*/) : file_(path) {
  read_head();
}

void NativeBinaryReader::corrupt(std::string what) const {
  throw DataError(std::move(what), fmt::format("{}, byte {}", file_.path(), block_begin_), kCopyAgain);
}

void NativeBinaryReader::take(std::string& bytes, std::size_t size) {
  constexpr std::size_t kPiece = std::size_t{1} << 20U;  // a corrupt length must not take all memory at once
  bytes.clear();
  while (bytes.size() < size) {
    const std::size_t had = bytes.size();
    bytes.resize(had + std::min(kPiece, size - had));
    const std::size_t got = file_.read(bytes.data() + had, bytes.size() - had);
    at_ += got;
    if (had + got == bytes.size()) continue;
    throw DataError("the file ends in the middle", fmt::format("{}, byte {}", file_.path(), at_),
                    "it was cut off; " + std::string(kCopyAgain));
  }
}

void NativeBinaryReader::read_head() {
  using namespace native_binary;
  constexpr std::size_t kFixed = 12;  // byte order, version, length, checksum
  std::string bytes;
  take(bytes, kMagic.size());
  if (bytes != kMagic) {
    const bool text = recognises(bytes);
    throw DataError(
        text ? "the file was damaged: a transfer as text changed its bytes" : "this is not a native-binary trace",
        fmt::format("{}, byte 0", file_.path()),
        text ? "copy it as a binary file" : "leave workload.format out, or name the file's own format");
  }
  take(bytes, kFixed);
  const auto order = fixed_at<std::uint16_t>(bytes, 0);
  const auto version = fixed_at<std::uint16_t>(bytes, 2);
  const std::string head_at = fmt::format("{}, byte {}", file_.path(), kMagic.size());
  if (order == 0x0201) {
    throw DataError("the file is written in the other byte order", head_at, "convert its source with this Spillway");
  }
  if (order == kByteOrder && version != kVersion) {
    throw DataError(fmt::format("the file is in version {} of native-binary, and this Spillway reads version {}",
                                version, kVersion),
                    head_at, "convert its source with this Spillway, or use the one that wrote it");
  }
  const auto size = fixed_at<std::uint32_t>(bytes, 4);
  if (order != kByteOrder || size > kMostBlockBytes) corrupt("the file's head is corrupt");
  std::string payload;
  take(payload, size);
  if (checksum({payload}) != fixed_at<std::uint32_t>(bytes, 8)) corrupt("the file's head is corrupt");
  read_facts(payload);
}

void NativeBinaryReader::read_facts(const std::string& payload) {
  FactsCursor cursor(payload);
  facts_.source_name = cursor.text();
  facts_.source_format = cursor.text();
  facts_.source_sha256 = cursor.text();
  facts_.rows = cursor.count();
  const std::uint64_t bits = cursor.number();
  facts_.has_times = (bits & 1U) != 0;
  facts_.has_inputs = (bits & 2U) != 0;
  facts_.said = said_of(bits >> 2U);
  facts_.zero_outputs = cursor.count();
  facts_.skipped = cursor.count();
  facts_.first_skipped = cursor.text();
  facts_.warnings = cursor.texts();
  facts_.class_names = cursor.texts();
  if (!cursor.good_to_the_end()) corrupt("the file's head is corrupt");
}

/// False at the end of the file.
bool NativeBinaryReader::read_block() {
  using namespace native_binary;
  constexpr std::size_t kFixed = 12;  // length, rows, checksum
  block_begin_ = at_;
  std::string head;
  take(head, kFixed);
  const auto size = fixed_at<std::uint32_t>(head, 0);
  const auto rows = fixed_at<std::uint32_t>(head, 4);
  if (size > kMostBlockBytes) corrupt("the block that begins here is corrupt");
  take(payload_, size);
  if (checksum({std::string_view(head).substr(0, 8), payload_}) != fixed_at<std::uint32_t>(head, 8)) {
    corrupt("the block that begins here is corrupt");
  }
  next_ = reinterpret_cast<const unsigned char*>(payload_.data());
  end_ = next_ + payload_.size();
  block_rows_ = rows;
  if (rows == 0) read_end();
  return rows > 0;
}

void NativeBinaryReader::read_end() {
  const bool whole = payload_.size() == sizeof(std::uint64_t) && delivered_ == facts_.rows &&
                     fixed_at<std::uint64_t>(payload_, 0) == static_cast<std::uint64_t>(delivered_);
  if (!whole) corrupt(fmt::format("the file ends after {} of {} rows", delivered_, facts_.rows));
  block_begin_ = at_;
  char more = 0;
  if (file_.read(&more, 1) > 0) corrupt("the file continues after its end");
}

bool NativeBinaryReader::next(TraceRow& row) {
  if (ended_) return false;
  if (block_rows_ == 0 && !read_block()) {
    ended_ = true;
    return false;
  }
  row.clear();
  --block_rows_;
  if (!decode(row) || (block_rows_ == 0) != (next_ == end_)) {
    corrupt(fmt::format("row {}, in the block that begins here, is not valid", delivered_ + 1));
  }
  ++delivered_;
  return true;
}

/// False if the bytes are not a valid row.
bool NativeBinaryReader::decode(TraceRow& row) {
  using namespace native_binary;
  std::uint64_t bits = 0;
  std::uint64_t value = 0;
  const auto number = [&](std::uint64_t least, std::uint64_t most) {
    return take_varint(next_, end_, value) && value >= least && value <= most;
  };
  if (!number(0, kAllBits)) return false;
  bits = value;
  if ((bits & kArrival) != 0) {
    if (!number(0, UINT64_MAX)) return false;
    const auto ns = static_cast<std::int64_t>(static_cast<std::uint64_t>(arrival_.ns()) + unfold(value));
    if (ns < 0 || ns == kNever.ns() || !order_.fits(ns)) return false;
    order_.note(ns);
    row.arrival = arrival_ = SimTime(ns);
  }
  if (!number(1, facts_.has_inputs ? kMaxTokens : 1)) return false;
  row.input = Tokens(static_cast<std::int64_t>(value));
  if (!number(1, kMaxTokens)) return false;
  row.output = row.max_new_tokens = Tokens(static_cast<std::int64_t>(value));
  if ((bits & kMaxNew) != 0) {
    if (!number(value, kMaxTokens)) return false;
    row.max_new_tokens = Tokens(static_cast<std::int64_t>(value));
  }
  if ((bits & kClient) != 0) {
    if (!number(0, UINT32_MAX)) return false;
    client_ = static_cast<std::uint32_t>(value);
  }
  row.client = client_;
  if (bits < kConversation) return true;
  if ((bits & kConversation) != 0) {
    if (!number(0, UINT64_MAX)) return false;
    row.conversation = conversation_ += unfold(value);
  }
  if ((bits & kTurn) != 0) {
    if (!number(1, INT32_MAX)) return false;
    row.turn = static_cast<std::int32_t>(value);
  }
  if ((bits & kThink) != 0) {
    if (!number(0, static_cast<std::uint64_t>(kMaxTraceSeconds * 1e9))) return false;
    row.think = Duration(static_cast<std::int64_t>(value));
  }
  if ((bits & kPrefix) != 0 && !decode_prefix(row)) return false;
  if ((bits & kClass) != 0) {
    if (!number(1, UINT32_MAX)) return false;
    row.service_class = static_cast<std::uint32_t>(value);
  }
  if ((bits & kSlo) == 0) return true;
  for (Duration* limit : {&row.slo.ttft, &row.slo.tpot, &row.slo.e2e}) {
    if (!number(0, INT64_MAX)) return false;
    *limit = Duration(static_cast<std::int64_t>(value));
  }
  return true;
}

bool NativeBinaryReader::decode_prefix(TraceRow& row) {
  using namespace native_binary;
  std::uint64_t per_id = 0;
  std::uint64_t count = 0;
  std::uint64_t shared = 0;
  const bool read =
      take_varint(next_, end_, per_id) && take_varint(next_, end_, count) && take_varint(next_, end_, shared);
  if (!read || per_id > kMaxTokens || count > kMaxTokens || shared > std::min<std::uint64_t>(count, ids_.size())) {
    return false;
  }
  row.prefix_id_tokens = static_cast<std::int64_t>(per_id);
  ids_.resize(shared);
  std::uint64_t before = shared > 0 ? ids_.back() : 0;
  for (std::uint64_t i = shared; i < count; ++i) {
    std::uint64_t folded = 0;
    if (!take_varint(next_, end_, folded)) return false;
    before += unfold(folded);
    ids_.push_back(before);
  }
  row.prefix_ids = ids_;
  return true;
}

}  // namespace spillway::traces
