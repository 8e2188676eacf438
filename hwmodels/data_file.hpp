// The JSON files of this folder: what each states about itself, and how to find one by name. Every file states its
// schema version, its kind, what it stands for and how far off it may be. Every field has a value, a unit and a source.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/embedded_file.hpp"

namespace spillway::hwmodels {

/// One value of a data file, as `explain` prints it.
struct Entry {
  std::string key;
  std::string value;
  std::string unit;         // "1" for a plain number, "bool" for a flag, "name" for the name of another data file
  std::string source_kind;  // measured | datasheet | borrowed | assumed
  std::string citation;
};

/// What every data file states about itself.
struct DataFile {
  std::string name;
  std::string stands_for;  // hardware and kernel library, engine version, or published model
  std::string error;       // how far off results may be, in words
  std::string path;        // as the user gave it, or relative to the repository when embedded
  std::string sha256;      // of the file's bytes
  std::vector<Entry> entries;
  std::vector<std::string> warnings;  // what was assumed or left out; every result repeats them
};

/// A kind of data file: where its embedded ones live, and which configuration key names them.
struct Kind {
  std::string_view folder;  // ends with '/'
  std::string_view name;    // the file's "kind"
  std::string_view key;
  std::span<const std::string_view> sections{};  // what the root may hold beside the header and `values`
  bool has_values = true;                        // false: everything is in the sections
};

/// The JSON files under hwmodels/ that the build put into the binary.
[[nodiscard]] std::span<const EmbeddedFile> embedded_files();

/// Names of the embedded files of a kind, sorted.
[[nodiscard]] std::vector<std::string> names_of(const Kind& kind);

/// Whether an argument is a file's path, not the name of an embedded file: it contains '/' or ends in ".json".
[[nodiscard]] bool is_path(std::string_view name_or_file);

/// Largest size of a data file, in bytes.
inline constexpr std::size_t kMostFileBytes = 16'000'000;

/// The bytes of a user's file. Throws DataError when the file cannot be read, is not a regular file, or exceeds 16 MB.
[[nodiscard]] std::string read_file(const std::string& path);

/// The embedded file of a kind; null when none has that name.
[[nodiscard]] const EmbeddedFile* find_embedded(const Kind& kind, std::string_view name);

/// "did you mean "X"? allowed: X, Y".
[[nodiscard]] std::string nearest_and_all(std::string_view word, std::span<const std::string> allowed);

}  // namespace spillway::hwmodels
