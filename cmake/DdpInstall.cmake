# `cmake --install`: libraries, headers, ddprun with its completions, the other
# programs and the package that find_package(ddp) reads.
# Nothing that is installed names a folder of this machine, but the link to
# LibTorch, which no package has.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddp)

install(TARGETS ddp EXPORT ddpTargets
  LIBRARY COMPONENT library NAMELINK_COMPONENT dev
  FILE_SET HEADERS DESTINATION ${DDP_INSTALL_INCLUDEDIR} COMPONENT dev)
install(EXPORT ddpTargets NAMESPACE ddp:: DESTINATION ${_package_dir}
  COMPONENT dev)
if(TARGET ddp_mpi)
  install(TARGETS ddp_mpi LIBRARY COMPONENT mpi NAMELINK_SKIP) # nobody links it
  install(TARGETS ddp_with_mpi EXPORT ddpMpiTargets COMPONENT mpi)
  install(EXPORT ddpMpiTargets NAMESPACE ddp:: DESTINATION ${_package_dir}
    COMPONENT mpi)
endif()
configure_package_config_file(cmake/ddpConfig.cmake.in
  ${PROJECT_BINARY_DIR}/ddpConfig.cmake INSTALL_DESTINATION ${_package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ddpConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ddpConfig.cmake ${PROJECT_BINARY_DIR}/ddpConfigVersion.cmake
  cmake/DdpTorch.cmake cmake/DdpTorchImport.cmake
  DESTINATION ${_package_dir} COMPONENT dev)

string(REPLACE cxx_std_ c++ DDP_PC_STANDARD ${DDP_CXX_STANDARD})
file(RELATIVE_PATH DDP_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" DDP_PC_PREFIX "${DDP_PC_PREFIX}")
configure_file(cmake/ddp.pc.in ${PROJECT_BINARY_DIR}/ddp.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ddp.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

set(_programs ddprun ddp-checkpoint ddp-flightrecorder ddp-timeline)
install(TARGETS ${_programs} COMPONENT programs)
install(TARGETS ddprun-store
  DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/ddp COMPONENT programs)
if(TARGET ddprun-etcd)
  install(TARGETS ddprun-etcd
    DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/ddp COMPONENT programs)
endif()
# Shells complete by what --help lists.
set(_completions ${PROJECT_BINARY_DIR}/launcher/completions)
file(WRITE ${_completions}/ddprun "complete -F _longopt ddprun\n")
file(WRITE ${_completions}/_ddprun "#compdef ddprun\n_gnu_generic \"$@\"\n")
install(FILES ${_completions}/ddprun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  COMPONENT programs)
install(FILES ${_completions}/_ddprun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT programs)

install(FILES LICENSE packaging/THIRD_PARTY_NOTICES
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ddp)

set(_folder "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/ddp")
install(CODE "
  file(MAKE_DIRECTORY \"${_folder}\")
  message(STATUS \"Linking: ${_folder}/torch\")
  file(CREATE_LINK \"${DDP_TORCH_PREFIX}\" \"${_folder}/torch\" SYMBOLIC)
" COMPONENT torch-link)

# What is installed.
add_custom_target(installed)
add_dependencies(installed ddp ${_programs})
if(TARGET ddp_mpi)
  add_dependencies(installed ddp_mpi)
endif()
