# spillway_build_digest calls this script with OUTPUT, ROOT, and LIST, a file with one name per line.
file(STRINGS ${LIST} names)
set(hashes "")
foreach(name IN LISTS names)
  file(SHA256 ${ROOT}/${name} hash)
  string(APPEND hashes "${hash} ${name}\n")
endforeach()
string(SHA256 digest "${hashes}")
string(SUBSTRING ${digest} 0 16 digest)
file(WRITE ${OUTPUT} "// Generated: a hash of the library's sources and data.
#include <string_view>

namespace spillway {
std::string_view tool_build();
std::string_view tool_build() { return \"${digest}\"; }
}  // namespace spillway
")
