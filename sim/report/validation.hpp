// A real engine's run compared with its simulation, as text, JSON and an HTML page.
#pragma once

#include <string>

#include "sim/study/validation.hpp"

namespace spillway {

/// One screen: set-up, measured against simulated, single requests, load, validity, warnings.
[[nodiscard]] std::string to_validation_table(const Validation& validation);
/// {schema_version, log, metrics: {NAME: {measured, simulated, error}}, per_request, load, run: the output of to_json}.
/// Errors are fractions; null for a missing error.
[[nodiscard]] std::string to_validation_json(const Validation& validation);
/// One page with the figures of the table, also as charts. The page needs no other file and no network.
[[nodiscard]] std::string to_validation_html(const Validation& validation);

}  // namespace spillway
