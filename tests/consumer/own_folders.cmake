# Compiles own_folders.cpp. Its folders come last, so that any of ddp's on the
# include path would come before them.
add_library(own_folders OBJECT ${CMAKE_CURRENT_LIST_DIR}/own_folders.cpp)
target_link_libraries(own_folders PRIVATE ddp::ddp)
target_compile_options(own_folders PRIVATE
  "SHELL:-idirafter ${CMAKE_CURRENT_LIST_DIR}/own")
