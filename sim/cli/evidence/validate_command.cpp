#include "sim/cli/evidence/validate_command.hpp"

#include "sim/cli/page_file.hpp"
#include "sim/io/output.hpp"
#include "sim/report/validation.hpp"

namespace spillway::cli {

ExitCode validate(const ValidateOptions& options) {
  PageFile page(options.html);
  const Validation validation = validate_log(options.replay);
  if (page.wanted()) page.write({.name = "validate", .json = to_validation_json(validation)});
  print_result(options.json ? to_validation_json(validation) : to_validation_table(validation));
  return ExitCode::ok;
}

}  // namespace spillway::cli
