// A data file that the build put into the binary.
#pragma once

#include <string_view>

namespace spillway {

struct EmbeddedFile {
  std::string_view path;     // relative to the repository, e.g. hwmodels/profiles/h100-80gb-sxm.json
  std::string_view content;  // the file's bytes
};

}  // namespace spillway
