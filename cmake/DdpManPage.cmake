# ddp_man_page(<program> <description>): writes <program>.1.gz of --help, and
# installs it, unless ddp is a part of another build, whose flags may not let the
# program run before it is installed.
find_program(DDP_HELP2MAN help2man)
function(ddp_man_page program description)
  if(NOT DDP_HELP2MAN OR DDP_SANITIZER OR CMAKE_CROSSCOMPILING
      OR NOT PROJECT_IS_TOP_LEVEL OR CMAKE_SKIP_RPATH OR CMAKE_SKIP_BUILD_RPATH
      OR CMAKE_BUILD_WITH_INSTALL_RPATH)
    return()
  endif()
  set(page ${CMAKE_CURRENT_BINARY_DIR}/${program}.1)
  # help2man does not quote the program's path, which may have spaces.
  add_custom_command(TARGET ${program} POST_BUILD
    COMMAND ${DDP_HELP2MAN} --no-info --name ${description} --output ${page}
            ./$<TARGET_FILE_NAME:${program}>
    COMMAND gzip -9nf ${page}
    WORKING_DIRECTORY $<TARGET_FILE_DIR:${program}>
    BYPRODUCTS ${page}.gz VERBATIM
    COMMENT "Writing the manual page of ${program}")
  install(FILES ${page}.gz
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT programs)
endfunction()
