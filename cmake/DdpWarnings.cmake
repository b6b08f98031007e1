# Warnings for our own sources; other people's headers are SYSTEM.
option(DDP_WARNINGS_AS_ERRORS "Stop at a warning" OFF)
add_library(ddp_warnings INTERFACE)
add_library(ddp::warnings ALIAS ddp_warnings)
target_compile_options(ddp_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor
  $<$<BOOL:${DDP_WARNINGS_AS_ERRORS}>:-Werror>)
