#include "traces/readers/input_file.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace spillway::traces {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b";

[[noreturn]] void cannot_read(const std::string& path, int error) {
  throw DataError(fmt::format("the trace cannot be read: {}", std::generic_category().message(error)), path,
                  "check its permissions and the disk it is on");
}

std::size_t read_from(std::FILE* file, const std::string& path, char* to, std::size_t room) {
  errno = 0;
  const std::size_t got = std::fread(to, 1, room, file);
  if (got < room && std::ferror(file) != 0) cannot_read(path, errno);
  return got;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 60));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return shown;
}

void check_readable(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw DataError("there is no such file", path, "check the path; it is relative to the current folder");
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw DataError("this is a folder, not a trace", path, "name one file in it");
  }
  if (status.type() == std::filesystem::file_type::none) cannot_read(path, error.value());
  if (status.type() != std::filesystem::file_type::regular) {
    throw DataError("this is not a regular file, and a trace is read more than once", path,
                    "write it to a file first and name that");
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size == 0) throw DataError("the file is empty", path, "check that it was copied whole");
}

/// The members of a gzip file, unpacked one after the other.
class InputFile::Unpacker {
 public:
  Unpacker(std::FILE* file, const std::string& path) : file_(file), path_(path), packed_(kPacked) {
    constexpr int kOnlyGzip = 16;  // added to the window's size: zlib then takes gzip's header and checks its sums
    SPILLWAY_CHECK(inflateInit2(&stream_, kOnlyGzip + MAX_WBITS) == Z_OK, "zlib is not available");
  }
  ~Unpacker() { (void)inflateEnd(&stream_); }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  std::size_t read(char* to, std::size_t room) {
    std::size_t got = 0;
    while (got < room && (within_member_ || begin_member())) got += unpack(to + got, room - got);
    return got;
  }

 private:
  static constexpr std::size_t kPacked = std::size_t{256} << 10U;

  /// Sees to it that packed bytes are at hand; false at the end of the file.
  bool feed() {
    if (stream_.avail_in > 0) return true;
    const std::size_t got = read_from(file_, path_, packed_.data(), packed_.size());
    fed_ += got;
    stream_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    stream_.avail_in = static_cast<uInt>(got);
    return got > 0;
  }

  /// Is there another member? Every one but the first may have zeros in front, as long as nothing follows them.
  bool begin_member() {
    if (members_ > 0) {
      while (feed() && *stream_.next_in == 0) {
        ++stream_.next_in;
        --stream_.avail_in;
      }
    }
    if (!feed()) return false;
    if (members_ > 0) (void)inflateReset(&stream_);
    ++members_;
    within_member_ = true;
    return true;
  }

  std::size_t unpack(char* to, std::size_t room) {
    if (!feed()) fail("the gzip data ends in the middle", "it was cut off; copy the file again");
    constexpr std::size_t kMost = std::size_t{1} << 30U;  // zlib counts in 32 bits
    const auto wanted = static_cast<uInt>(std::min(room, kMost));
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = wanted;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      within_member_ = false;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail(fmt::format("the gzip data is corrupt ({})", stream_.msg != nullptr ? stream_.msg : "no reason given"),
           "copy the file again; gunzip -t FILE checks it");
    }
    return wanted - stream_.avail_out;
  }

  [[noreturn]] void fail(std::string what, std::string fix) const {
    throw DataError(std::move(what), fmt::format("{}, byte {}", path_, fed_ - stream_.avail_in), std::move(fix));
  }

  std::FILE* file_;
  std::string path_;
  std::vector<char> packed_;
  z_stream stream_{};
  std::uint64_t fed_ = 0;  // bytes of the file taken so far
  std::int64_t members_ = 0;
  bool within_member_ = false;
};

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  check_readable(path_);
  file_.reset(std::fopen(path_.c_str(), "rb"));
  if (file_ == nullptr) cannot_read(path_, errno);
  (void)std::setvbuf(file_.get(), nullptr, _IONBF, 0);  // the callers' windows are the buffer
  std::array<char, kGzip.size()> magic{};
  const std::size_t got = read_from(file_.get(), path_, magic.data(), magic.size());
  if (std::fseek(file_.get(), 0, SEEK_SET) != 0) cannot_read(path_, errno);
  if (std::string_view(magic.data(), got) == kGzip) unpacker_ = std::make_unique<Unpacker>(file_.get(), path_);
  look_at_start();
}

InputFile::~InputFile() = default;
InputFile::InputFile(InputFile&&) noexcept = default;
InputFile& InputFile::operator=(InputFile&&) noexcept = default;

/// Skips a UTF-8 byte-order mark and refuses other encodings. The JSON and CSV formats all begin with ASCII, so a zero
/// in the first four bytes gives UTF-16 and UTF-32 away even without a mark.
void InputFile::look_at_start() {
  std::array<char, 4> bytes{};
  const std::size_t got = read_raw(bytes.data(), bytes.size());
  const std::string_view start(bytes.data(), got);
  if (start.empty()) throw DataError("the file is empty once unpacked", path_, "check that it was copied whole");
  const bool marked = start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF");
  if (marked || (start.size() == bytes.size() && start.find('\0') != std::string_view::npos)) {
    throw DataError("the text is not UTF-8 but UTF-16 or UTF-32", path_, "convert it: iconv -t UTF-8 FILE > NEW");
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  start_ = start.substr(start.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
}

std::size_t InputFile::read_raw(char* to, std::size_t room) {
  return unpacker_ != nullptr ? unpacker_->read(to, room) : read_from(file_.get(), path_, to, room);
}

std::size_t InputFile::read(char* to, std::size_t room) {
  const std::size_t early = std::min(room, start_.size());
  std::memcpy(to, start_.data(), early);
  start_.erase(0, early);
  return early + (early < room ? read_raw(to + early, room - early) : 0);
}

}  // namespace spillway::traces
