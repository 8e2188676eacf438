#include "sim/io/line_reader.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace spillway {
namespace {

constexpr std::size_t kWindow = std::size_t{256} << 10U;

}  // namespace

LineReader::LineReader(std::string path, const FileWords& words)
    : file_(std::move(path), words), words_(words), window_(kWindow) {
  refill();
}

void LineReader::refill() {
  std::memmove(window_.data(), window_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == window_.size()) {
    if (window_.size() >= kMaxLine) {
      throw DataError(fmt::format("the line is longer than {} MiB", kMaxLine >> 20U),
                      fmt::format("{}, row {}", path(), row_ + 1),
                      fmt::format("check that this is a text file with one {} per line", words_.line));
    }
    window_.resize(window_.size() * 2);
  }
  const std::size_t wanted = window_.size() - end_;
  const std::size_t got = file_.read(window_.data() + end_, wanted);
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
  if (in_row_++ == 0) ++rows_;
  if (in_row_ > kLimit || (skip_ && !problems_.empty())) return;
  std::string where = fmt::format("{}, row {}", path_, row);
  if (!part.empty()) where += ", " + part;
  problems_.push_back({std::move(what), std::move(where), std::move(fix)});
}

void BadRows::raise() {
  if (!skip_ && rows_ > 0) throw DataError(std::exchange(problems_, {}));
}

std::string BadRows::first_skipped() const {
  return skipped() > 0 ? fmt::format("{}: {}", problems_.front().where, problems_.front().what) : std::string();
}

}  // namespace spillway
