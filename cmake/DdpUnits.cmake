# The units of the library in a unity build. LibTorch's headers take 18 s in each,
# a source of ours less than one: so there are few. The Reducer's sources are one,
# since what is worked on most shall be compiled soonest; its observers are not among
# them.
if(CMAKE_UNITY_BUILD)
  set_target_properties(ddp PROPERTIES UNITY_BUILD_MODE GROUP)
  set(_reducer "/ddp/reducer/(core/)?[a-z_]+[.]cpp")
  get_target_property(_sources ddp SOURCES)
  set(_count 0)
  foreach(_source ${_sources})
    if(NOT _source MATCHES ${_reducer})
      math(EXPR _unit "${_count} / 52")
      math(EXPR _count "${_count} + 1")
      set_source_files_properties(${_source} PROPERTIES UNITY_GROUP ${_unit})
    else()
      set_source_files_properties(${_source} PROPERTIES UNITY_GROUP reducer)
    endif()
  endforeach()
endif()
