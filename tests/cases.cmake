# CTest reads this file, not CMake: each test case of a program becomes a test.
# Beside the program, CMake writes the entries and the program writes its cases.

# ddp_entry(<file> <entry> <labels> <timeout> <environment>): the test cases of
# <file>_test.cpp run as <entry>.<case>. One that is tagged [unit] has that label.
function(ddp_entry file entry labels timeout environment)
  set(entries_of_${file} ${entries_of_${file}} ${entry} PARENT_SCOPE)
  set(ddp_files ${ddp_files} ${file} PARENT_SCOPE)
  set(labels_of_${entry} "${labels}" PARENT_SCOPE)
  set(timeout_of_${entry} ${timeout} PARENT_SCOPE)
  set(environment_of_${entry} "${environment}" PARENT_SCOPE)
endfunction()

# What `./dev test` leaves to `./dev test --rest` of files that it runs: slow
# cases, and those of what others show faster.
set(ddp_rest
  "launcher\\.failure\\.(a long stop|who waits long)"
  "launch\\.(torchrun|ddprun and torchrun|alone)"
  "lazy_views\\.random"
  "measured_layout\\.measured"
  "parity\\.(four|without)"
  "shm_collectives\\.sums"
  "statistics\\.sizes")

# A command that runs programs, such as compute-sanitizer with its options.
separate_arguments(ddp_command UNIX_COMMAND "$ENV{DDP_TEST_COMMAND}")

function(ddp_case program file tags name filter)
  if(NOT entries_of_${file}) # no such program: the test fails
    add_test("${file}_test.cpp has no entry in CMakeLists.txt" no_entry)
  endif()
  foreach(entry IN LISTS entries_of_${file})
    set(test "${entry}.${name}")
    set(labels "${labels_of_${entry}}")
    if(tags MATCHES "(^| )unit ")
      list(TRANSFORM labels REPLACE "^multiprocess$" unit)
    endif()
    foreach(pattern IN LISTS ddp_rest)
      if(test MATCHES "^${pattern}")
        list(APPEND labels rest)
      endif()
    endforeach()
    add_test("${test}" ${ddp_command} "${program}" "${filter}")
    set_tests_properties("${test}" PROPERTIES
      LABELS "${labels}"
      TIMEOUT ${timeout_of_${entry}}
      ENVIRONMENT "${environment_of_${entry}}"
      SKIP_RETURN_CODE 77)
  endforeach()
endfunction()

# Another program may have files of the same names.
function(ddp_forget_entries)
  foreach(file IN LISTS ddp_files)
    unset(entries_of_${file} PARENT_SCOPE)
  endforeach()
  unset(ddp_files PARENT_SCOPE)
endfunction()
