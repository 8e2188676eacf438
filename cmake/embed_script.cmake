# spillway_embed runs this script at build time. It writes FILES (|-separated, relative to ROOT) into OUTPUT.
string(REPLACE "|" ";" files "${FILES}")
set(body "")
foreach(file IN LISTS files)
  cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${ROOT} OUTPUT_VARIABLE path)
  if(path STREQUAL file)
    cmake_path(GET path FILENAME file)
  endif()
  file(READ ${path} content)
  # Some compilers limit a raw string literal to 64 KiB. Concatenated pieces have no such limit.
  string(LENGTH "${content}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${content}" ${at} 16000 piece)
    string(APPEND pieces "R\"__embed__(${piece})__embed__\"\n")
    math(EXPR at "${at} + 16000")
  endwhile()
  # The suffix gives the length. Without it the compiler counts the characters, and not beyond 256 KiB.
  string(APPEND body "    {\"${file}\", ${pieces}\"\"sv},\n")
endforeach()
file(WRITE ${OUTPUT}
"// Generated from the project's data files. Edit those files, not this one.
#include <span>

#include \"sim/core/embedded_file.hpp\"

namespace ${NAMESPACE} {
namespace {
using namespace std::string_view_literals;
constexpr spillway::EmbeddedFile kFiles[] = {
${body}    {\"\", \"\"}};
}  // namespace
std::span<const spillway::EmbeddedFile> embedded_files();
std::span<const spillway::EmbeddedFile> embedded_files() { return std::span(kFiles).first(std::size(kFiles) - 1); }
}  // namespace ${NAMESPACE}
")
