// A real engine's run compared with its simulation, as text and JSON.
#pragma once

#include <string>

#include "sim/study/validation.hpp"

namespace spillway {

/// One screen: set-up, measured against simulated, single requests, load, validity, warnings.
[[nodiscard]] std::string to_validation_table(const Validation& validation);
/// {schema_version, log, metrics: {NAME: {measured, simulated, error}}, per_request, curves: {NAME: {measured,
/// simulated}}, e2e_errors, load, run: the output of to_json}. Errors are fractions; null for a missing error. Curves
/// are points (percent, value) of the distributions over the requests that have the latency on both sides; the errors
/// are points (request from 1 in order of queueing, error), at most 2,000.
[[nodiscard]] std::string to_validation_json(const Validation& validation);

}  // namespace spillway
