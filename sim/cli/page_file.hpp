// --html FILE: a command's result as a page.
#pragma once

#include <memory>
#include <string>

#include "sim/io/atomic_file.hpp"
#include "sim/report/html.hpp"

namespace spillway::cli {

/// The page's file, or none. It is opened at once, so an unwritable location is reported before the work.
class PageFile {
 public:
  /// `path` may be empty: no page.
  explicit PageFile(const std::string& path) {
    if (!path.empty()) file_ = std::make_unique<AtomicFile>(path);
  }
  [[nodiscard]] bool wanted() const { return file_ != nullptr; }
  /// Only if wanted.
  void write(const PageResult& result) {
    file_->write(to_html({result}));
    file_->commit();
  }

 private:
  std::unique_ptr<AtomicFile> file_;
};

}  // namespace spillway::cli
