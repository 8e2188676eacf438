// From files of measurements to the text of a hardware profile.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/calibration/consistency.hpp"
#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/catalog.hpp"

namespace spillway {

/// What a user is told on the way: one sentence, which may hold anything that a file holds.
using NoteSink = std::function<void(const std::string& note)>;

struct ProfileFit {
  std::vector<std::string> files;  // FILE or OP=FILE
  std::string out;                 // where the profile will stand; it is not written
  std::string host_out;            // where the host will stand; empty: none is asked for
  std::string base;                // a GPU's profile, by name or file; empty: none
  std::string name;                // of the profile; empty: that of `out`
  std::string stands_for;
  std::string model;  // whose layers and iterations the files hold
  bool drop_inconsistent = false;
  bool omit_measurements = false;
};

struct FittedProfile {
  std::string profile;  // its text
  std::string host;     // its text; empty when none was asked for
  hwmodels::FittedKernels fitted;
  hwmodels::Measurements measurements;
  bool based = false;  // on another profile
};

/// Fits every op of the files; `progress` hears which one is being fitted. Nothing is written or printed. Throws
/// UserError for files that cannot be read or contradict themselves or the datasheet.
[[nodiscard]] FittedProfile fit_profile(const ProfileFit& fit, const NoteSink& note = {},
                                        const std::function<void(std::string_view op)>& progress = {});

/// Reads FILE and OP=FILE, the rows of one op side by side, repeats merged; notes of the files go to `note`. Throws
/// UserError.
[[nodiscard]] hwmodels::Measurements read_rows(const std::vector<std::string>& files, const NoteSink& note);

/// What no row may exceed: the profile's datasheet, and what the measurements say of their device.
[[nodiscard]] hwmodels::DeviceLimits limits_of(const hwmodels::GpuProfile* gpu,
                                               const hwmodels::Measurements& measurements);

/// Leaves rows out that cannot be true, notes how many, and returns why.
std::vector<Problem> leave_out(hwmodels::Measurements& measurements, const hwmodels::DeviceLimits& limits,
                               const hwmodels::LlmModel* layers_of, const NoteSink& note);

/// A GPU's profile; a wrong name is reported at `where`.
[[nodiscard]] hwmodels::GpuProfile load_gpu_named_at(const std::string& name_or_file, const std::string& where);

}  // namespace spillway
