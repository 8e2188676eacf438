# spillway_build_digest(VARIABLE FILES...) generates a C++ source with spillway::tool_build(), a hash of the files'
# names and contents, and puts its path into VARIABLE.
set(SPILLWAY_DIGEST_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/build_digest_script.cmake)
function(spillway_build_digest variable)
  set(output ${PROJECT_BINARY_DIR}/generated/build_digest.cpp)
  set(list ${PROJECT_BINARY_DIR}/generated/build_digest.txt)
  set(names "")
  set(inputs "")
  foreach(file IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE name)
    list(APPEND names ${name})
    list(APPEND inputs ${path})
  endforeach()
  list(SORT names)
  list(JOIN names "\n" names)
  file(CONFIGURE OUTPUT ${list} CONTENT "${names}" @ONLY)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DROOT=${PROJECT_SOURCE_DIR} -DLIST=${list} -P ${SPILLWAY_DIGEST_SCRIPT}
    DEPENDS ${inputs} ${list} ${SPILLWAY_DIGEST_SCRIPT}
    COMMENT "Hashing the sources" VERBATIM)
  set(${variable} ${output} PARENT_SCOPE)
endfunction()
