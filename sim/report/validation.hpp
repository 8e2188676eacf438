// A real engine's run beside its simulation, as text, JSON and a page.
#pragma once

#include <string>

#include "sim/study/validation.hpp"

namespace spillway {

/// One screen: set-up, measured against simulated, requests one by one, load, validity, warnings.
[[nodiscard]] std::string to_validation_table(const Validation& validation);
/// {schema_version, log, metrics: {NAME: {measured, simulated, error}}, per_request, load, run: what to_json gives}.
/// Errors are fractions; null where there is none.
[[nodiscard]] std::string to_validation_json(const Validation& validation);
/// One page that needs no other file and no network: the figures of the table, and the same as pictures.
[[nodiscard]] std::string to_validation_html(const Validation& validation);

}  // namespace spillway
