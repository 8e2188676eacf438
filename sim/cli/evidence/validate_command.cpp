#include "sim/cli/evidence/validate_command.hpp"

#include <memory>

#include "sim/io/atomic_file.hpp"
#include "sim/io/output.hpp"
#include "sim/report/validation.hpp"

namespace spillway::cli {

ExitCode validate(const ValidateOptions& options) {
  std::unique_ptr<AtomicFile> page;
  if (!options.html.empty()) page = std::make_unique<AtomicFile>(options.html);
  const Validation validation = validate_log(options.replay);
  if (page) {
    page->write(to_validation_html(validation));
    page->commit();
  }
  print_result(options.json ? to_validation_json(validation) : to_validation_table(validation));
  return ExitCode::ok;
}

}  // namespace spillway::cli
