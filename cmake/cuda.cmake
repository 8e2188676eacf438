# SPILLWAY_CUDA=AUTO|ON|OFF: whether to build the GPU sections of cuda_calibrate. Sets SPILLWAY_WITH_CUDA. Everything
# else builds without CUDA. Include this file at the top level, because a language is valid only in the folder that
# enables it and below.
set(SPILLWAY_CUDA OFF CACHE STRING "GPU sections of cuda_calibrate: ON, OFF, or AUTO (when nvcc is found)")
set_property(CACHE SPILLWAY_CUDA PROPERTY STRINGS AUTO ON OFF)
set(SPILLWAY_WITH_CUDA OFF)
if(SPILLWAY_CUDA)
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(SPILLWAY_NVCC nvcc HINTS /usr/local/cuda/bin DOC "CUDA compiler")
    if(SPILLWAY_NVCC)
      set(CMAKE_CUDA_COMPILER ${SPILLWAY_NVCC} CACHE FILEPATH "CUDA compiler")
    endif()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # T4; A100; A10, A10G and A40; H100, H200 and GH200. Later GPUs compile the PTX of the last architecture.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 90-real 90-virtual)
    endif()
    enable_language(CUDA)
    # CMake 3.25 does not know that nvcc supports C++20.
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit 12 REQUIRED)
    set(SPILLWAY_WITH_CUDA ON)
  elseif(SPILLWAY_CUDA STREQUAL AUTO)
    message(WARNING "cuda_calibrate is built without its GPU sections: no nvcc was found (looked in PATH and "
      "/usr/local/cuda/bin)")
  else()
    message(FATAL_ERROR "SPILLWAY_CUDA=ON, but no nvcc was found (looked in PATH and /usr/local/cuda/bin); set "
      "CMAKE_CUDA_COMPILER, or SPILLWAY_CUDA=OFF to build cuda_calibrate without its GPU sections")
  endif()
endif()
