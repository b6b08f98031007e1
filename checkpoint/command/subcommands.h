#pragma once

#include <CLI/CLI.hpp>

namespace ddp::command {

// Each adds a subcommand to `app`, which writes its answer to standard output,
// sets the program's exit code, and throws what goes wrong.
void add_inspect(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_convert(CLI::App& app, int& exit_code);
void add_strip_prefix(CLI::App& app, int& exit_code);
void add_diff(CLI::App& app, int& exit_code);

/// Damaged, or different.
constexpr int kExitNegative = 1;

} // namespace ddp::command
