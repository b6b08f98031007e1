# Adds a program that uses the library: ddp_program(<name> <source>...).
# All share one precompiled <torch/torch.h>, which takes longer to read than
# the programs themselves.
function(ddp_program name)
  if(NOT TARGET ddp_program_headers)
    set(empty ${PROJECT_BINARY_DIR}/program_headers.cpp)
    file(CONFIGURE OUTPUT ${empty} CONTENT "")
    add_library(ddp_program_headers OBJECT EXCLUDE_FROM_ALL ${empty})
    target_link_libraries(ddp_program_headers PRIVATE ddp::ddp ddp::warnings)
    target_precompile_headers(ddp_program_headers PRIVATE <torch/torch.h>)
  endif()
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE ddp::ddp ddp::warnings)
  target_precompile_headers(${name} REUSE_FROM ddp_program_headers)
endfunction()
