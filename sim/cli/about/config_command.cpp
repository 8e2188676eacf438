#include "sim/cli/about/config_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/cli/arguments.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/output.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/result_schema.hpp"

namespace spillway::cli {
ExitCode config_check(const std::vector<std::string>& arguments) {
  const Assembly assembly = assemble(resolve_arguments(arguments, {}, {}));
  const auto given = std::count_if(assembly.config.keys.begin(), assembly.config.keys.end(),
                                   [](const ResolvedKey& key) { return key.origin > Origin::policy; });
  for (const std::string& warning : assembly.warnings) fmt::print(stderr, "warning: {}\n", printable(warning));
  print_result(fmt::format("ok: {} keys given, {} at their defaults\n", given,
                           static_cast<std::ptrdiff_t>(assembly.config.keys.size()) - given));
  return ExitCode::ok;
}

ExitCode config_show(const std::vector<std::string>& arguments, bool json) {
  const ResolvedConfig config = resolve_arguments(arguments, {}, {});
  const auto origin = [](const ResolvedKey& key) {
    return key.origin > Origin::policy ? key.where : std::string(origin_name(key.origin));
  };
  if (json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::object();
    for (const ResolvedKey& key : config.keys) {
      rows[key.parameter.name] = {{"value", canonical_value(key)}, {"origin", origin(key)}};
    }
    print_result(rows.dump(2) + "\n");
    return ExitCode::ok;
  }
  std::string text;
  for (const ResolvedKey& key : config.keys) {
    const bool unset = std::holds_alternative<std::monostate>(key.value);
    const bool list = key.parameter.unit == kListUnit;
    text +=
        fmt::format("{:<34} {:<22} {}\n", key.parameter.name,
                    unset ? "null" : printable(list ? canonical_value(key).dump() : key.text), printable(origin(key)));
  }
  print_result(text);
  return ExitCode::ok;
}

ExitCode config_schema_command() {
  print_result(config_schema(parameter_table()).dump(2) + "\n");
  return ExitCode::ok;
}

ExitCode result_schema_command() {
  print_result(result_schema().dump(2) + "\n");
  return ExitCode::ok;
}

}  // namespace spillway::cli
