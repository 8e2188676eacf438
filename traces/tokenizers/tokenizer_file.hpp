// Files of tokenizers.
#pragma once

#include <string>

namespace spillway::traces {

/// The whole content, at least one byte. Throws DataError when `path` is not a regular file that can be read, or is
/// empty.
[[nodiscard]] std::string read_tokenizer_file(const std::string& path);

}  // namespace spillway::traces
