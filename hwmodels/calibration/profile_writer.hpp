// A GPU profile as a file.
#pragma once

#include <string>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/fitted.hpp"

namespace spillway::hwmodels {

struct ProfileText {
  std::string name;
  std::string stands_for;         // GPU and kernel library
  std::string base;               // name or file whose facts and other fits are taken over; empty: facts are null
  bool with_measurements = true;  // keep the rows beside the fits
  std::string path{};             // of the profile to be, for messages
};

/// The JSON text of a profile. What `fitted` holds replaces what the base had; facts that the measuring tool states
/// (memory, SMs, L2) and the links that were fitted replace the base's values, a link's bandwidth up to the base's
/// peak. So do the bandwidth of each direction beside the other, up to what it reaches alone, and the slowdown of
/// compute beside copies, where rows of these were measured (sharing_fits.hpp); else a duplex figure of the base that
/// exceeds the measured link keeps its share of it. Throws as load_gpu() does for the base, and DataError when no run
/// would take the profile, because a fitted or stated value is impossible or the text too long.
[[nodiscard]] std::string profile_text(const ProfileText& text, const Measurements& measurements,
                                       const FittedKernels& fitted);

}  // namespace spillway::hwmodels
