# `cmake --install`: libraries, headers, ddprun with its manual page and
# completions, the other programs and the package that find_package(ddp) reads.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddp)

install(TARGETS ddp EXPORT ddpTargets
  FILE_SET HEADERS DESTINATION ${DDP_INSTALL_INCLUDEDIR})
install(TARGETS ddprun ddp-checkpoint ddp-flightrecorder ddp-timeline)
install(TARGETS ddprun-store DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/ddp)
if(TARGET ddprun-etcd)
  install(TARGETS ddprun-etcd DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/ddp)
endif()
if(DDP_HELP2MAN)
  install(FILES ${PROJECT_BINARY_DIR}/launcher/ddprun.1
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
# Shells complete by what --help lists.
set(_completions ${PROJECT_BINARY_DIR}/launcher/completions)
file(WRITE ${_completions}/ddprun "complete -F _longopt ddprun\n")
file(WRITE ${_completions}/_ddprun "#compdef ddprun\n_gnu_generic \"$@\"\n")
install(FILES ${_completions}/ddprun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${_completions}/_ddprun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
if(TARGET ddp_mpi) # nobody links it
  install(TARGETS ddp_mpi LIBRARY NAMELINK_SKIP)
endif()
install(EXPORT ddpTargets NAMESPACE ddp:: DESTINATION ${_package_dir})
configure_package_config_file(cmake/ddpConfig.cmake.in
  ${PROJECT_BINARY_DIR}/ddpConfig.cmake INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ddpConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ddpConfig.cmake ${PROJECT_BINARY_DIR}/ddpConfigVersion.cmake
  cmake/DdpTorch.cmake
  DESTINATION ${_package_dir})
