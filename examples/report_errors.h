#pragma once

#include <c10/util/Exception.h>

#include <cstdio>
#include <exception>

/// Calls `function`, and prints its error in one line. Returns the exit code.
template <typename Function>
int report_errors(Function&& function) {
  try {
    function();
    return 0;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
