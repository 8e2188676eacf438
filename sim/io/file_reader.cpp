#include "sim/io/file_reader.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace spillway {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b";

[[noreturn]] void cannot_read(const std::string& path, const FileWords& words, int error) {
  throw DataError(fmt::format("the {} cannot be read: {}", words.file, std::generic_category().message(error)), path,
                  "check its permissions and its disk");
}

std::size_t read_from(std::FILE* file, const std::string& path, const FileWords& words, char* to, std::size_t room) {
  errno = 0;
  const std::size_t got = std::fread(to, 1, room, file);
  if (got < room && std::ferror(file) != 0) cannot_read(path, words, errno);
  return got;
}

}  // namespace

std::string excerpt(std::string_view text) {
  std::string shown(text.substr(0, 60));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return shown;
}

void check_readable(const std::string& path, const FileWords& words) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw DataError("there is no such file", path, "check the path; it is relative to the current folder");
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw DataError(fmt::format("this is a folder, not a {}", words.file), path, "name one file in it");
  }
  if (status.type() == std::filesystem::file_type::none) cannot_read(path, words, error.value());
  if (status.type() != std::filesystem::file_type::regular) {
    throw DataError(fmt::format("this is not a regular file, but a {} is read more than once", words.file), path,
                    "write it to a file first and name that file");
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size == 0) throw DataError("the file is empty", path, "check that it was copied whole");
}

std::string file_sha256(const std::string& path, const FileWords& words) {
  check_readable(path, words);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (file == nullptr) {
    throw DataError(fmt::format("the {} cannot be opened", words.file), path, "check its permissions");
  }
  SPILLWAY_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1,
                 "SHA-256 is not available");
  std::vector<unsigned char> buffer(std::size_t{256} << 10U);
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    SPILLWAY_CHECK(EVP_DigestUpdate(context.get(), buffer.data(), got) == 1, "SHA-256 failed");
  }
  if (std::ferror(file.get()) != 0) {
    throw DataError(fmt::format("the {} cannot be read to its end", words.file), path, "check its disk");
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  SPILLWAY_CHECK(EVP_DigestFinal_ex(context.get(), digest.data(), &size) == 1, "SHA-256 failed");
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

/// Unpacks the members of a gzip file in turn.
class FileReader::Unpacker {
 public:
  Unpacker(std::FILE* file, const std::string& path, const FileWords& words)
      : file_(file), path_(path), words_(words), packed_(kPacked) {
    constexpr int kOnlyGzip = 16;  // added to the window size: zlib then reads gzip headers and checks their sums
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

  /// Reads packed bytes if none are left; false at the end of the file.
  bool feed() {
    if (stream_.avail_in > 0) return true;
    const std::size_t got = read_from(file_, path_, words_, packed_.data(), packed_.size());
    fed_ += got;
    stream_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    stream_.avail_in = static_cast<uInt>(got);
    return got > 0;
  }

  /// Begins the next member; false if there is none. Zeros after a member are allowed if nothing follows the zeros.
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
  FileWords words_;
  std::vector<char> packed_;
  z_stream stream_{};
  std::uint64_t fed_ = 0;  // bytes of the file read so far
  std::int64_t members_ = 0;
  bool within_member_ = false;
};

FileReader::FileReader(std::string path, const FileWords& words) : path_(std::move(path)), words_(words) {
  check_readable(path_, words_);
  file_.reset(std::fopen(path_.c_str(), "rb"));
  if (file_ == nullptr) cannot_read(path_, words_, errno);
  (void)std::setvbuf(file_.get(), nullptr, _IONBF, 0);  // callers have buffers of their own
  std::array<char, kGzip.size()> magic{};
  const std::size_t got = read_from(file_.get(), path_, words_, magic.data(), magic.size());
  if (std::fseek(file_.get(), 0, SEEK_SET) != 0) cannot_read(path_, words_, errno);
  if (std::string_view(magic.data(), got) == kGzip) unpacker_ = std::make_unique<Unpacker>(file_.get(), path_, words_);
  look_at_start();
}

FileReader::~FileReader() = default;
FileReader::FileReader(FileReader&&) noexcept = default;
FileReader& FileReader::operator=(FileReader&&) noexcept = default;

/// Skips a UTF-8 byte-order mark and refuses other encodings. The JSON and CSV formats begin with ASCII, so a zero in
/// the first four bytes means UTF-16 or UTF-32, even without a mark.
void FileReader::look_at_start() {
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

std::size_t FileReader::read_raw(char* to, std::size_t room) {
  return unpacker_ != nullptr ? unpacker_->read(to, room) : read_from(file_.get(), path_, words_, to, room);
}

std::size_t FileReader::read(char* to, std::size_t room) {
  const std::size_t early = std::min(room, start_.size());
  std::memcpy(to, start_.data(), early);
  start_.erase(0, early);
  return early + (early < room ? read_raw(to + early, room - early) : 0);
}

}  // namespace spillway
