# The units of the library in a unity build. LibTorch's headers take 18 s in each,
# a source of ours less than one: so there are few. The Reducer's own sources are
# one, since what is worked on most shall be compiled soonest, and what it stands
# on is another.
if(CMAKE_UNITY_BUILD)
  set_target_properties(ddp PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(_sources ddp SOURCES)
  set(_count 0)
  foreach(_source ${_sources})
    if(_source MATCHES "/ddp/reducer/(core/)?[a-z_]+[.]cpp")
      set(_unit reducer)
    elseif(_source MATCHES "/ddp/reducer/")
      set(_unit reducer_parts)
    else()
      math(EXPR _unit "${_count} / 52")
      math(EXPR _count "${_count} + 1")
    endif()
    set_source_files_properties(${_source} PROPERTIES UNITY_GROUP ${_unit})
  endforeach()
endif()
