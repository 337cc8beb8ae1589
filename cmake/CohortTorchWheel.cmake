# LibTorch as PyPI's torch wheels hold it.  Their own find_package(Torch) insists on
# a CUDA toolkit that nothing here needs, and links more than is there.

set(COHORT_TORCH_WHEEL_OLDEST 2.7)  # Before: GCC's old C++ ABI.

# cohort_torch_wheel_version(DIR VERSION REASON): VERSION of a wheel's whole
# site-packages/torch; else REASON says what is wrong with it.
function(cohort_torch_wheel_version dir version reason)
  get_filename_component(dir ${dir} ABSOLUTE)
  set(named "COHORT_TORCH_DIR=${dir}")
  set(why "")
  set(found "")
  set(variant "")
  if(EXISTS ${dir}/version.py)
    file(STRINGS ${dir}/version.py line REGEX "^__version__ = ")
    if(line MATCHES "^__version__ = ['\"](([0-9]+\\.)+[0-9]+)([^'\"]*)")
      set(found ${CMAKE_MATCH_1})
      set(variant ${CMAKE_MATCH_3})
    else()
      string(CONCAT why "${named}: its version.py does not tell the version: is it "
        "the directory of a torch wheel?")
    endif()
  else()
    string(CONCAT why "${named} holds no version.py and so no torch wheel: name "
      "what `python3 -c 'import torch; print(torch.__path__[0])'` prints")
  endif()
  if(found AND found VERSION_LESS COHORT_TORCH_WHEEL_OLDEST)
    string(CONCAT why "${named} is torch ${found}; wheels before "
      "${COHORT_TORCH_WHEEL_OLDEST} are of another C++ ABI: pip install "
      "'torch>=${COHORT_TORCH_WHEEL_OLDEST}'")
  elseif(found)
    foreach(file IN ITEMS include/ATen/ATen.h
                          include/torch/csrc/api/include/torch/torch.h
                          lib/libtorch_cpu.so lib/libc10.so)
      if(NOT EXISTS ${dir}/${file})
        string(CONCAT why "${named} lacks ${file}: it is not the whole of a torch "
          "wheel: pip install --force-reinstall torch==${found}${variant}")
        break()
      endif()
    endforeach()
  endif()
  set(${version} "${found}" PARENT_SCOPE)
  set(${reason} "${why}" PARENT_SCOPE)
endfunction()

# cohort_torch_wheel(DIR REASON): the target `torch` and Torch_VERSION, as
# find_package(Torch) gives them, from a site-packages/torch.  Of what is no such
# directory, too old or not whole there is no target, and REASON, which is else
# empty, says what to do about it.
# After find_package(Gloo), if at all.
function(cohort_torch_wheel dir reason)
  cohort_torch_wheel_version(${dir} version why)
  if(why)
    set(${reason} "${why}" PARENT_SCOPE)
    return()
  endif()
  get_filename_component(dir ${dir} ABSOLUTE)

  # What CUDA wheels leave to other wheels lies beside them.
  file(GLOB siblings LIST_DIRECTORIES ON
    ${dir}/../nvidia/*/lib ${dir}/../cusparselt/lib)
  # Loaded though nobody calls them by name, in this order: one item, since CMake
  # moves shared libraries behind each other.
  set(loaded)
  # libtorch_cpu exports a Gloo of its own.  Ours comes first, or the program's calls
  # would go to that one.
  if(TARGET gloo)
    list(APPEND loaded $<TARGET_FILE:gloo>)
  endif()
  if(EXISTS ${dir}/lib/libtorch_cuda.so)
    file(GLOB runtime ${dir}/lib/libcudart*.so* ${dir}/../nvidia/*/lib/libcudart.so*)
    if(NOT runtime)
      string(CONCAT why "COHORT_TORCH_DIR=${dir} is for CUDA, and there is no "
        "libcudart in its lib/ or in nvidia/*/lib beside it: pip install "
        "torch==${version} without --no-deps")
      set(${reason} "${why}" PARENT_SCOPE)
      return()
    endif()
    list(APPEND loaded -ltorch_cuda)  # For what it registers.
  endif()
  set(libraries -ltorch_cpu -lc10)
  if(loaded)
    list(JOIN loaded "," loaded)
    list(PREPEND libraries -Wl,--push-state,--no-as-needed,${loaded},--pop-state)
  endif()
  set(options -L${dir}/lib)
  foreach(folder IN LISTS siblings ITEMS ${dir}/lib)
    get_filename_component(folder ${folder} ABSOLUTE)
    list(APPEND options -Wl,-rpath,${folder})
  endforeach()

  if(NOT TARGET torch)
    add_library(torch INTERFACE IMPORTED)
  endif()
  set_target_properties(torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${dir}/include;${dir}/include/torch/csrc/api/include"
    INTERFACE_LINK_OPTIONS "${options}"
    INTERFACE_LINK_LIBRARIES "${libraries}")
  set(Torch_VERSION ${version} PARENT_SCOPE)
  set(${reason} "" PARENT_SCOPE)
endfunction()
