# Flags that do not change what is computed.
add_library(spillway_compile_time INTERFACE)
# No other library replaces these functions, so position-independent code may call and inline them as a program does.
target_compile_options(spillway_compile_time INTERFACE -fno-semantic-interposition)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # By default, g++ collects its garbage from 128 MiB on, again and again: a tenth of its time in the unit of
  # sim/study.
  target_compile_options(spillway_compile_time INTERFACE "SHELL:--param ggc-min-heapsize=524288")
endif()
# Other builds check format strings while they compile, the sanitizers' among them. That takes another tenth.
set(release $<OR:$<CONFIG:Release>,$<BOOL:$<TARGET_PROPERTY:SPILLWAY_UNSANITIZED>>>)
target_compile_definitions(spillway_compile_time INTERFACE "$<${release}:FMT_CONSTEVAL=>")
