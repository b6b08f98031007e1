# An overlay port of this checkout, for the LibTorch that Torch_DIR names:
#   Torch_DIR=... VCPKG_KEEP_ENV_VARS=Torch_DIR \
#     vcpkg install ddp:x64-linux-dynamic --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DTorch_DIR=$ENV{Torch_DIR}
    -DDDP_BUILD_TESTS=OFF
    -DDDP_BUILD_EXAMPLES=OFF
    -DDDP_BUILD_BENCH=OFF
    -DDDP_WITH_MPI=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME ddp CONFIG_PATH lib/cmake/ddp)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include"
  "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE"
  "${SOURCE_PATH}/packaging/THIRD_PARTY_NOTICES")
