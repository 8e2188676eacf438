# Warnings hang on a target of our own, so that they never reach a user's flags or a dependency's headers.
option(SPILLWAY_WERROR "Treat warnings as errors" OFF)
add_library(spillway_warnings INTERFACE)
target_compile_options(spillway_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor
  -ffp-contract=off  # the same bytes on every machine: no fused multiply-add behind our back
  $<$<BOOL:${SPILLWAY_WERROR}>:-Werror>)
