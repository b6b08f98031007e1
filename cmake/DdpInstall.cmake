# `cmake --install`: libraries, headers, ddprun with its manual page and
# completions, the other programs and the package that find_package(ddp) reads.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddp)

install(TARGETS ddp EXPORT ddpTargets)
install(TARGETS ddprun ddp-checkpoint ddp-flightrecorder ddp-timeline)
install(TARGETS ddprun-store ddprun-check DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/ddp)
set(_share ${PROJECT_BINARY_DIR}/launcher/share)
install(FILES ${_share}/ddprun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${_share}/ddprun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${_share}/_ddprun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
if(TARGET ddp_mpi) # nobody links it
  install(TARGETS ddp_mpi LIBRARY NAMELINK_SKIP)
endif()
install(DIRECTORY ddp samplers checkpoint DESTINATION ${DDP_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h"
  PATTERN "detail" EXCLUDE PATTERN "backends" EXCLUDE
  PATTERN "debug" EXCLUDE
  PATTERN "command" EXCLUDE
  # How it is made, and no interface:
  PATTERN "bucket.h" EXCLUDE PATTERN "bucket_layout.h" EXCLUDE
  PATTERN "device_choice.h" EXCLUDE
  PATTERN "environment.h" EXCLUDE PATTERN "rendezvous.h" EXCLUDE
  PATTERN "atomic_file.h" EXCLUDE PATTERN "name_matching.h" EXCLUDE
  PATTERN "safetensors_header.h" EXCLUDE)
# What the templates of public headers are made of:
install(FILES
  ddp/detail/arrival_streams.h
  ddp/detail/forward_state.h ddp/detail/module_inputs.h
  ddp/detail/optimizer_shards.h ddp/detail/output_anchors.h
  ddp/detail/tensor_traversal.h ddp/detail/text_tensor.h
  DESTINATION ${DDP_INSTALL_INCLUDEDIR}/ddp/detail)
install(FILES
  samplers/detail/batch_memory.h samplers/detail/batch_source.h
  samplers/detail/batch_workers.h samplers/detail/device_copies.h
  samplers/detail/stacked_tensor.h
  DESTINATION ${DDP_INSTALL_INCLUDEDIR}/samplers/detail)
install(FILES checkpoint/detail/training_state-inl.h
  DESTINATION ${DDP_INSTALL_INCLUDEDIR}/checkpoint/detail)
install(EXPORT ddpTargets NAMESPACE ddp:: DESTINATION ${_package_dir})
configure_package_config_file(cmake/ddpConfig.cmake.in
  ${PROJECT_BINARY_DIR}/ddpConfig.cmake INSTALL_DESTINATION ${_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ddpConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ddpConfig.cmake ${PROJECT_BINARY_DIR}/ddpConfigVersion.cmake
  cmake/DdpTorch.cmake
  DESTINATION ${_package_dir})
