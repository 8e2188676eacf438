// The JSON that the measuring tool writes.
#pragma once

#include "hwmodels/calibration/measurement_rows.hpp"

namespace spillway::hwmodels {

/// Reads a document of "kind": "measurements", schema version 1, as cuda_calibrate/measurements.schema.json describes
/// it. A key that the schema does not name is ignored, unless it is one letter away from a key of the schema. Attention
/// of "kernel": "spillway", the tool's own kernel, is left out with a note: no engine runs it. Throws DataError when
/// the file cannot be read.
void read_json(const std::string& path, std::int32_t file, FilePart& part, Complaints& complaints);

}  // namespace spillway::hwmodels
