# find_package(chipset): the interface header and the SDK for plugins. `python -m chipset_sdk cmake` prints the
# folder to put in chipset_DIR.
#
#   find_package(chipset REQUIRED)
#   chipset_add_plugin(mychip src/mychip.cpp)      # libchipset_mychip.so
#   chipset_add_kit(chipset_mychip)                # its kernels, for a chip that compiles a C dialect
if(NOT TARGET chipset::chipset)
  # Beside this folder in an installed package, under csrc in a source tree.
  find_path(_chipset_include chipset/chipset.h REQUIRED NO_CACHE NO_DEFAULT_PATH
    PATHS "${CMAKE_CURRENT_LIST_DIR}/../include" "${CMAKE_CURRENT_LIST_DIR}/../csrc/include")
  add_library(chipset::chipset INTERFACE IMPORTED)
  set_target_properties(chipset::chipset PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_chipset_include}")
  add_library(chipset::headers ALIAS chipset::chipset)
  unset(_chipset_include)

  # chipset::sdk adds the SDK's C++ headers (chipset_sdk.hpp): beside the core in an installed
  # package, under plugin_sdk in a source tree.
  find_path(_chipset_sdk_include chipset_sdk.hpp REQUIRED NO_CACHE NO_DEFAULT_PATH
    PATHS "${CMAKE_CURRENT_LIST_DIR}/../../chipset_sdk/include"
          "${CMAKE_CURRENT_LIST_DIR}/../plugin_sdk/chipset_sdk/include"
          "${CMAKE_CURRENT_LIST_DIR}/../../../plugin_sdk/chipset_sdk/include")
  add_library(chipset::sdk INTERFACE IMPORTED)
  set_target_properties(chipset::sdk PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_chipset_sdk_include}"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_LINK_LIBRARIES chipset::chipset)
endif()

# chipset_add_kit(target): the kernel kit, beside the SDK's headers.
include("${_chipset_sdk_include}/../kit/chipset_kit.cmake")

# A plugin library whose only visible symbol is chipset_plugin.
function(chipset_add_plugin name)
  add_library(chipset_${name} MODULE ${ARGN})
  target_link_libraries(chipset_${name} PRIVATE chipset::chipset)
  set_target_properties(chipset_${name} PROPERTIES
    PREFIX "lib"
    C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
endfunction()
