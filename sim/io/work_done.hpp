// What the process has done so far: the last line of an error says it.
#pragma once

#include <string>
#include <string_view>

namespace spillway {

/// Records that a simulation has begun. Safe from several threads, as are the other functions here.
void note_simulation();
/// Records that a file has been written: under its own name, or in part to a device or a pipe.
void note_written(const std::string& path);
/// Files in this folder are temporary: note_written ignores them from now on.
void ignore_written_below(const std::string& folder);

/// "1 file was written: out/result.json" when files were written; "nothing was written" when only a simulation has
/// begun; else `idle`, such as "nothing was run".
[[nodiscard]] std::string work_done(std::string_view idle);

}  // namespace spillway
