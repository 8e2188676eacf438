# Warnings belong to a separate target, so that they never reach a user's flags or a dependency's headers.
option(SPILLWAY_WERROR "Treat warnings as errors" OFF)
add_library(spillway_warnings INTERFACE)
target_compile_options(spillway_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor
  -ffp-contract=off  # equal bytes on every machine: the compiler must not fuse multiply and add
  $<$<BOOL:${SPILLWAY_WERROR}>:-Werror>)
