# spillway_embed(VARIABLE NAMESPACE FILES...) generates one C++ source with the files' contents as `std::span<const
# EmbeddedFile> NAMESPACE::embedded_files()` and puts its path into VARIABLE. A file outside the repository has an
# absolute path, and is known by its last part.
set(SPILLWAY_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/embed_script.cmake)
function(spillway_embed variable namespace)
  set(output ${PROJECT_BINARY_DIR}/generated/${variable}.cpp)
  set(inputs "")
  foreach(input IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH input BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    list(APPEND inputs ${input})
  endforeach()
  string(REPLACE ";" "|" joined "${ARGN}")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DNAMESPACE=${namespace} -DROOT=${PROJECT_SOURCE_DIR}
            "-DFILES=${joined}" -P ${SPILLWAY_EMBED_SCRIPT}
    DEPENDS ${inputs} ${SPILLWAY_EMBED_SCRIPT}
    COMMENT "Embedding ${namespace} data" VERBATIM)
  set(${variable} ${output} PARENT_SCOPE)
endfunction()
