# chipset_add_kit(target): compiles the kernel kit into a plugin. The kernels' sources are embedded,
# so that the plugin stays one file. Needs the interface's and the SDK's headers on the target's
# include path.

function(chipset_add_kit target)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/kernels/*.c ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/kernels/*.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernels})
  set(text "// Generated from the kernels of the kit.\n#include <string_view>\n")
  string(APPEND text "namespace chipset::kit {\nstruct Embedded {\n  std::string_view name, text;\n};\n")
  string(APPEND text "extern const Embedded kEmbedded[];\nextern const int kEmbeddedCount;\n")
  string(APPEND text "const Embedded kEmbedded[] = {\n")
  foreach(kernel ${kernels})
    get_filename_component(name ${kernel} NAME)
    file(READ ${kernel} source)
    string(APPEND text "{\"${name}\", R\"kit(${source})kit\"},\n")
  endforeach()
  list(LENGTH kernels count)
  string(APPEND text "};\nconst int kEmbeddedCount = ${count};\n}  // namespace chipset::kit\n")
  set(embedded ${CMAKE_CURRENT_BINARY_DIR}/${target}_kernels.cpp)
  file(GENERATE OUTPUT ${embedded} CONTENT "${text}")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/src/*.cpp)
  target_sources(${target} PRIVATE ${sources} ${embedded})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/include)
endfunction()
