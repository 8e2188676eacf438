#include "traces/readers/line_reader.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace spillway::traces {
namespace {

constexpr std::size_t kWindow = std::size_t{256} << 10U;

[[noreturn]] void cannot_read(const std::string& path, int error) {
  throw DataError(fmt::format("the trace cannot be read: {}", std::generic_category().message(error)), path,
                  "check its permissions and the disk it is on");
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

LineReader::LineReader(std::string path) : path_(std::move(path)), window_(kWindow) {
  check_readable(path_);
  file_.reset(std::fopen(path_.c_str(), "rb"));
  if (file_ == nullptr) cannot_read(path_, errno);
  (void)std::setvbuf(file_.get(), nullptr, _IONBF, 0);  // the window is the buffer
  refill();
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (std::string_view(window_.data(), end_).starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
}

void LineReader::refill() {
  std::memmove(window_.data(), window_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == window_.size()) {
    if (window_.size() >= kMaxLine) {
      throw DataError(fmt::format("the line is longer than {} MiB", kMaxLine >> 20U),
                      fmt::format("{}, row {}", path_, row_ + 1),
                      "check that this is a text file with one request per line");
    }
    window_.resize(window_.size() * 2);
  }
  errno = 0;
  const std::size_t wanted = window_.size() - end_;
  const std::size_t got = std::fread(window_.data() + end_, 1, wanted, file_.get());
  if (got < wanted && std::ferror(file_.get()) != 0) cannot_read(path_, errno);
  end_ += got;
  exhausted_ = got < wanted;
}

bool LineReader::take(std::size_t length, std::size_t skip, std::string_view& line) {
  line = std::string_view(window_.data() + begin_, length);
  if (line.ends_with('\r')) line.remove_suffix(1);
  begin_ += length + skip;
  ++row_;
  return true;
}

bool LineReader::next(std::string_view& line) {
  std::size_t searched = 0;
  while (true) {
    const char* start = window_.data() + begin_;
    const std::size_t unread = end_ - begin_;
    const void* newline = unread > searched ? std::memchr(start + searched, '\n', unread - searched) : nullptr;
    if (newline != nullptr) return take(static_cast<std::size_t>(static_cast<const char*>(newline) - start), 1, line);
    if (exhausted_) return unread > 0 && take(unread, 0, line);
    searched = unread;
    refill();
  }
}

void BadRows::add(std::int64_t row, const std::string& part, std::string what, std::string fix) {
  if (!has(row)) ++rows_;
  last_row_ = row;
  std::string where = fmt::format("{}, row {}", path_, row);
  if (!part.empty()) where += ", " + part;
  problems_.push_back({std::move(what), std::move(where), std::move(fix)});
}

void BadRows::raise() {
  if (any()) throw DataError(std::exchange(problems_, {}));
}

}  // namespace spillway::traces
