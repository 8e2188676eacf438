// The command `place`: which model on which server.
#pragma once

#include <string>

#include "sim/core/error.hpp"

namespace spillway::cli {

struct PlaceOptions {
  std::string cluster;  // file
  std::string format = "table";
  std::string progress = "auto";
  bool compat = false;
  bool place_only = false;
  int jobs = 1;
};

/// Reads the cluster, profiles models whose balance the file does not state, places all and simulates the consumers.
ExitCode place(const PlaceOptions& options);

}  // namespace spillway::cli
