# The header-only packages that ddp is built with, none of which its users see.
# Each is found as a file so that Debian's packages and a folder of headers
# (`./dev bundle`) serve alike.
function(ddp_find_header variable header package)
  find_path(${variable} ${header})
  if(NOT ${variable})
    message(FATAL_ERROR
      "ddp: the header <${header}> was not found. Install it (Debian: apt-get "
      "install ${package}) or add the prefix that has it to CMAKE_PREFIX_PATH.")
  endif()
endfunction()

ddp_find_header(DDP_JSON_INCLUDE_DIR nlohmann/json.hpp nlohmann-json3-dev)
if(NOT DDP_LAUNCHER_ONLY) # ddprun needs no other
  ddp_find_header(DDP_GLOO_INCLUDE_DIR gloo/transport/device.h libgloo-dev)
  ddp_find_header(DDP_XXHASH_INCLUDE_DIR xxhash.h libxxhash-dev)
  ddp_find_header(DDP_CLI11_INCLUDE_DIR CLI/CLI.hpp libcli11-dev)
endif()

# Only gloo's headers: LibTorch carries and exports gloo itself, and a second
# one beside it would mix the two.
add_library(ddp_headers INTERFACE)
add_library(ddp::headers ALIAS ddp_headers)
target_include_directories(ddp_headers SYSTEM INTERFACE
  ${DDP_GLOO_INCLUDE_DIR} ${DDP_JSON_INCLUDE_DIR} ${DDP_XXHASH_INCLUDE_DIR})
target_compile_definitions(ddp_headers INTERFACE USE_C10D_GLOO XXH_INLINE_ALL)

add_library(ddp_cli11 INTERFACE)
add_library(ddp::cli11 ALIAS ddp_cli11)
target_include_directories(ddp_cli11 SYSTEM INTERFACE ${DDP_CLI11_INCLUDE_DIR})
