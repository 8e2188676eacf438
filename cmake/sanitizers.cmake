# SPILLWAY_SANITIZE is "address,undefined" or "thread". Empty means no sanitizers.
set(SPILLWAY_SANITIZE "" CACHE STRING "Sanitizers to build with, comma-separated")
add_library(spillway_sanitizers INTERFACE)
if(SPILLWAY_SANITIZE)
  # A target with the property SPILLWAY_UNSANITIZED is linked with the runtime and compiled without.
  set(flags
    -fsanitize=${SPILLWAY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    -Wno-maybe-uninitialized)  # false positives of g++ 12 in std::regex under sanitizers (GCC bug 105562)
  target_compile_options(spillway_sanitizers INTERFACE
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:SPILLWAY_UNSANITIZED>>>:${flags}>")
  target_link_options(spillway_sanitizers INTERFACE -fsanitize=${SPILLWAY_SANITIZE})
endif()
