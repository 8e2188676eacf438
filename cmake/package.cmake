# What an installation has besides the programs, and packages: cpack -G DEB or TGZ in the build folder.

# Man pages come from what the programs print with --help, so they need programs that run here.
set(manuals "")
if(NOT CMAKE_CROSSCOMPILING)
  foreach(program spillway cuda_calibrate)
    set(manual ${PROJECT_BINARY_DIR}/manual/${program}.1.gz)
    add_custom_command(
      OUTPUT ${manual}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/manual
      COMMAND bash -c "set -o pipefail; \"$0\" \"$1\" | gzip -9n >\"$2\""
              ${PROJECT_SOURCE_DIR}/cmake/manual.sh $<TARGET_FILE:${program}> ${manual}
      DEPENDS ${program} ${PROJECT_SOURCE_DIR}/cmake/manual.sh
      COMMENT "Writing the man page of ${program}" VERBATIM)
    list(APPEND manuals ${manual})
  endforeach()
  add_custom_target(manuals ALL DEPENDS ${manuals})
  # Optional: who builds only the programs installs them without.
  install(FILES ${manuals} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
endif()

# zsh looks for completions of packages in another folder than for those that users install.
install(CODE "set(completion \"${PROJECT_SOURCE_DIR}/sim/cli/about/completion.zsh\")")
install(CODE "set(data \"${CMAKE_INSTALL_DATADIR}\")")
install(CODE [[
  set(folder site-functions)
  if(CMAKE_INSTALL_PREFIX MATCHES "(^|/)usr/?$")
    set(folder vendor-completions)
  endif()
  file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/${data}/zsh/${folder}" TYPE FILE RENAME _spillway FILES "${completion}")
]])
# Debian's name for the licence of a package.
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

set(CPACK_PACKAGE_NAME spillway)
set(CPACK_PACKAGE_VENDOR "The Spillway authors")
set(CPACK_PACKAGE_CONTACT "The Spillway authors <noreply@spillway.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "simulator of LLM-serving offloading and scheduling policies")
set(CPACK_PACKAGE_DESCRIPTION "Spillway answers, before anyone rents a GPU: if I serve this traffic with this model on
this hardware, which offloading or scheduling policy should I use, with which
settings, and what will latency, throughput and memory be? It is a trace-driven
discrete-event simulator; cuda_calibrate measures the host, and a GPU where it
is built with CUDA.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
# The tarball is for a folder of the user's choice; the Debian package has its files in /usr.
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/package_prefix.cmake)
file(WRITE ${CPACK_PROJECT_CONFIG_FILE} "if(CPACK_GENERATOR STREQUAL DEB)\n  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)\nendif()\n")
include(CPack)
