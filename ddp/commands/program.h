#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <exception>
#include <iostream>
#include <optional>
#include <string>

// Common code of ddp's small programs.

namespace ddp::command {

constexpr int kExitTrouble = 2;

/// Prints an error as one line of printable characters; returns `kExitTrouble`.
inline int say(const std::string& program, std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  std::cerr << program << ": " << text << std::endl;
  return kExitTrouble;
}

/// Parses the command line. Returns the exit code if the program must end.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << '\n';
    return 0;
  } catch (const CLI::ParseError& error) {
    const auto program = app.get_name();
    return say(
        program, std::string(error.what()) + " (see " + program + " --help)");
  }
  return std::nullopt;
}

/// Implements a program's `main`: calls `run`, and prints an error if `run`
/// throws or its output cannot be written.
inline int run_program(
    const std::string& program,
    int (*run)(int argc, char** argv),
    int argc,
    char** argv) {
  // A closed pipe, as with `| head`, must end the program.
  std::signal(SIGPIPE, SIG_DFL);
  try {
    const int code = run(argc, argv);
    return std::cout.flush() ? code
                             : say(program, "cannot write to standard output");
  } catch (const std::exception& error) {
    return say(program, error.what());
  }
}

} // namespace ddp::command
