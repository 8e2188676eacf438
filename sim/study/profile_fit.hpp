// Builds the text of a hardware profile from measurement files.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/calibration/consistency.hpp"
#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/catalog.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Receives notes for the user, one sentence each. Notes may contain any text from a file.
using NoteSink = std::function<void(const std::string& note)>;

/// fit_profile notes every op whose held-out error is above this, in the median.
constexpr double kMostMedianError = 0.2;

struct ProfileFit {
  std::vector<std::string> files;  // FILE or OP=FILE
  std::string out;                 // future path of the profile; fit_profile does not write the file
  std::string host_out;            // future path of the host file; empty: no host file
  std::string base;                // a GPU profile, by name or file; empty: none
  std::string name;                // of the profile; empty: from `out`
  std::string stands_for;
  std::string gpu;                          // that was measured; empty: as the files say
  std::optional<Bytes> memory;              // of that GPU; empty: measured, or the base's if it is the same GPU
  std::optional<BytesPerSecond> bandwidth;  // of its memory; likewise
  std::string model;                        // model of the layers and iterations in the files
  bool drop_inconsistent = false;
  bool omit_measurements = false;
};

struct FittedProfile {
  std::string profile;  // text of the profile
  std::string host;     // text of the host file; empty when not requested
  hwmodels::FittedKernels fitted;
  hwmodels::Measurements measurements;
  bool based = false;  // built on another profile
};

/// Fits every op of the files. `progress` receives the name of the op being fitted. Writes and prints nothing. Throws
/// UserError for unreadable files, and for files that contradict themselves or the datasheet.
[[nodiscard]] FittedProfile fit_profile(const ProfileFit& fit, const NoteSink& note = {},
                                        const std::function<void(std::string_view op)>& progress = {});

/// Reads FILE and OP=FILE. Joins the rows of one op and merges repeats. Passes notes of the files to `note`. Throws
/// UserError.
[[nodiscard]] hwmodels::Measurements read_rows(const std::vector<std::string>& files, const NoteSink& note);

/// Upper limits for rows, from the profile's datasheet and from the device that the measurements name.
[[nodiscard]] hwmodels::DeviceLimits limits_of(const hwmodels::GpuProfile* gpu,
                                               const hwmodels::Measurements& measurements);

/// Leaves out impossible rows, notes their number, and returns the reasons.
std::vector<Problem> leave_out(hwmodels::Measurements& measurements, const hwmodels::DeviceLimits& limits,
                               const hwmodels::LlmModel* layers_of, const NoteSink& note);

/// Loads a GPU profile. Errors name `where` as the location of a wrong name.
[[nodiscard]] hwmodels::GpuProfile load_gpu_named_at(const std::string& name_or_file, const std::string& where);

}  // namespace spillway
