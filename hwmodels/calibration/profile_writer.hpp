// A GPU profile as a file.
#pragma once

#include <optional>
#include <string>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/fitted.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

struct ProfileText {
  std::string name;
  std::string stands_for;                     // GPU and kernel library
  std::string base;                           // name or file whose facts and other fits are kept; empty: facts are null
  bool with_measurements = true;              // keep the rows with the fits
  std::string path{};                         // of the new profile, for messages
  bool another_gpu = false;                   // the base is of another GPU than the measurements
  std::optional<Bytes> memory{};              // of the measured GPU, as the user states it
  std::optional<BytesPerSecond> bandwidth{};  // of its memory
};

/// The JSON text of a profile. Replaced in the base are:
/// - each fit that `fitted` has;
/// - facts that the measuring tool states: memory, SMs, L2;
/// - fitted links, with a bandwidth of at most the base's peak;
/// - where measured (sharing_fits.hpp), the duplex bandwidth of each direction, at most that of the direction alone,
/// and
///   the slowdown of compute beside copies. Else a duplex figure of the base that exceeds the measured link is scaled
///   down by the ratio of the links.
/// A base of another GPU lends its kernels, its links and its datasheet figures. They are marked as borrowed, without
/// an error, and the section "borrowed" names them. Its memory and memory bandwidth are not lent: they are measured,
/// stated, or null. Kernels that a base of the same GPU borrows itself are marked likewise.
/// Throws as load_gpu() does for the base. Throws DataError when a run would refuse the profile, because a fitted or
/// stated value is impossible or the text is too long.
[[nodiscard]] std::string profile_text(const ProfileText& text, const Measurements& measurements,
                                       const FittedKernels& fitted);

}  // namespace spillway::hwmodels
