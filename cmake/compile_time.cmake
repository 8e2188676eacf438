# Flags that do not change what is computed.
add_library(spillway_compile_time INTERFACE)
# No other library replaces these functions, so position-independent code may call and inline them as a program does.
target_compile_options(spillway_compile_time INTERFACE -fno-semantic-interposition)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  # By default, g++ clears and copies objects of a few hundred bytes by rep instructions, which take long to start: a tenth
  # of the time of a run. Debug builds go without these flags, which clang's tools do not know.
  set(by_moves "unrolled_loop:1024:noalign,libcall:-1:noalign")
  target_compile_options(spillway_compile_time INTERFACE
    "$<$<NOT:$<CONFIG:Debug>>:-mmemset-strategy=${by_moves};-mmemcpy-strategy=${by_moves}>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # By default, g++ collects its garbage from 128 MiB on, again and again: a tenth of its time in the unit of
  # sim/study.
  target_compile_options(spillway_compile_time INTERFACE "SHELL:--param ggc-min-heapsize=524288")
endif()
# Other builds check format strings while they compile, the sanitizers' among them. That takes another tenth.
set(release $<OR:$<CONFIG:Release>,$<BOOL:$<TARGET_PROPERTY:SPILLWAY_UNSANITIZED>>>)
target_compile_definitions(spillway_compile_time INTERFACE "$<${release}:FMT_CONSTEVAL=>")
