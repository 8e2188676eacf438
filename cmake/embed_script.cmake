# Run by spillway_embed at build time: FILES (|-separated, relative to ROOT) -> OUTPUT.
string(REPLACE "|" ";" files "${FILES}")
set(body "")
foreach(file IN LISTS files)
  file(READ ${ROOT}/${file} content)
  # A raw string literal is limited to 64 KiB by some compilers; concatenated pieces are not.
  string(LENGTH "${content}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${content}" ${at} 16000 piece)
    string(APPEND pieces "R\"__embed__(${piece})__embed__\"\n")
    math(EXPR at "${at} + 16000")
  endwhile()
  string(APPEND body "    {\"${file}\", ${pieces}},\n")
endforeach()
file(WRITE ${OUTPUT}
"// Generated from the project's data files; edit those.
#include <span>

#include \"sim/core/embedded_file.hpp\"

namespace ${NAMESPACE} {
namespace {
constexpr spillway::EmbeddedFile kFiles[] = {
${body}    {\"\", \"\"}};
}  // namespace
std::span<const spillway::EmbeddedFile> embedded_files();
std::span<const spillway::EmbeddedFile> embedded_files() { return std::span(kFiles).first(std::size(kFiles) - 1); }
}  // namespace ${NAMESPACE}
")
