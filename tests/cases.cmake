# CTest reads this file, not CMake: each test case of a program becomes a test.
# Beside the program, CMake writes the entries and the program writes its cases.

# ddp_entry(<file> <entry> <labels> <timeout> <environment>): the test cases of
# <file>_test.cpp run as <entry>.<case>. One that is tagged [unit] has that label.
function(ddp_entry file entry labels timeout environment)
  set(entries_of_${file} ${entries_of_${file}} ${entry} PARENT_SCOPE)
  set(labels_of_${entry} "${labels}" PARENT_SCOPE)
  set(timeout_of_${entry} ${timeout} PARENT_SCOPE)
  set(environment_of_${entry} "${environment}" PARENT_SCOPE)
endfunction()

function(ddp_case program file tags name filter)
  if(NOT entries_of_${file}) # no such program: the test fails
    add_test("${file}_test.cpp has no entry in CMakeLists.txt" no_entry)
  endif()
  foreach(entry IN LISTS entries_of_${file})
    set(test "${entry}.${name}")
    set(labels "${labels_of_${entry}}")
    if(tags MATCHES "(^| )unit ")
      set(labels unit)
    endif()
    add_test("${test}" "${program}" "${filter}")
    set_tests_properties("${test}" PROPERTIES
      LABELS "${labels}"
      TIMEOUT ${timeout_of_${entry}}
      ENVIRONMENT "${environment_of_${entry}}"
      SKIP_RETURN_CODE 77)
  endforeach()
endfunction()
