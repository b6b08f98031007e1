# What `./dev package` packs: Debian packages of the parts, or one .tar.gz of all,
# named for the LibTorch that they are built against.
set(_contact "The ddp authors <ddp@noreply.invalid>")
if(DEFINED ENV{DEBEMAIL}) # as Debian's own tools take it
  set(_contact "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()

string(REGEX MATCH "^[0-9]+[.][0-9]+" _torch "${DDP_TORCH_VERSION}")
set(_built_for torch${_torch})
if(DDP_TORCH_CUDA)
  string(APPEND _built_for .cuda${CUDAToolkit_VERSION_MAJOR})
endif()
set(_library libddp${DDP_SOVERSION})
set(_exact "(= ${PROJECT_VERSION}+${_built_for})")

set(CPACK_PACKAGE_NAME ddp)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION}+${_built_for})
set(CPACK_PACKAGE_CONTACT "${_contact}")
set(CPACK_PACKAGE_FILE_NAME
  ddp-${CPACK_PACKAGE_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL library dev programs)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# LibTorch is no package of Debian's: only what is one is found out.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
  "${DDP_TORCH_PREFIX}/lib" "${PROJECT_BINARY_DIR}")
if(DDP_TORCH_CUDA)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
    "${CUDAToolkit_LIBRARY_DIR}")
endif()

# Debian's zsh looks for completions of packages in a folder of its own.
file(WRITE ${PROJECT_BINARY_DIR}/debian_zsh.cmake [[
if(CPACK_GENERATOR STREQUAL "DEB")
  set(_zsh "${CPACK_TEMPORARY_DIRECTORY}/programs/usr/share/zsh")
  file(RENAME ${_zsh}/site-functions ${_zsh}/vendor-completions)
endif()
]])
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_BINARY_DIR}/debian_zsh.cmake)

# ddp_package(<component> <package> <section> <depends> <summary>)
function(ddp_package component package section depends summary)
  string(TOUPPER ${component} name)
  set(CPACK_DEBIAN_${name}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${name}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${name}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${name}_DESCRIPTION "${summary}
Data-parallel training for programs written against LibTorch, the C++ library
of PyTorch. Built for LibTorch ${_torch}, which is not part of this package:
<libdir>/ddp/torch may be a link to it." PARENT_SCOPE)
  install(FILES ${PROJECT_BINARY_DIR}/copyright ${PROJECT_BINARY_DIR}/changelog.gz
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component}
    EXCLUDE_FROM_ALL)
endfunction()

# What is in Debian's control archive of a library: ddp_control(<component>
# <library> <package>). Lintian warns that CPack's own scripts call ldconfig
# besides, and of the name libddp-mpi, which nobody links.
function(ddp_control component library package)
  set(folder ${PROJECT_BINARY_DIR}/control/${component})
  file(WRITE ${folder}/shlibs
    "${library} ${DDP_SOVERSION} ${package} ${_exact}\n")
  file(WRITE ${folder}/triggers "activate-noawait ldconfig\n")
  string(TOUPPER ${component} name)
  set(CPACK_DEBIAN_${name}_PACKAGE_CONTROL_EXTRA
    ${folder}/shlibs ${folder}/triggers PARENT_SCOPE)
endfunction()

string(TIMESTAMP _date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${PROJECT_BINARY_DIR}/changelog
"ddp (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Built for LibTorch ${DDP_TORCH_VERSION}.

 -- ${_contact}  ${_date}
")
execute_process(COMMAND gzip -9nf ${PROJECT_BINARY_DIR}/changelog)
file(READ LICENSE _license)
file(READ packaging/THIRD_PARTY_NOTICES _notices)
file(WRITE ${PROJECT_BINARY_DIR}/copyright "${_license}\n${_notices}")

ddp_package(library ${_library} libs "" "data-parallel training for LibTorch")
ddp_control(library libddp ${_library})
ddp_package(dev libddp-dev libdevel
  "${_library} ${_exact}"
  "data-parallel training for LibTorch (headers)")
ddp_package(programs ddprun utils ""
  "launcher of data-parallel programs, and its tools")
if(TARGET ddp_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
  ddp_package(mpi libddp-mpi libs "${_library} ${_exact}"
    "data-parallel training for LibTorch (backend for MPI)")
  ddp_control(mpi libddp_mpi libddp-mpi)
endif()
include(CPack)
