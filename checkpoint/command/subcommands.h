#pragma once

#include <CLI/CLI.hpp>

namespace ddp::command {

// Each function adds a subcommand to `app`. The subcommand writes to standard
// output, and throws on failure. Only `verify` and `diff` set `exit_code`;
// `verify` does not throw if a file is corrupt or missing.
void add_inspect(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_convert(CLI::App& app, int& exit_code);
void add_strip_prefix(CLI::App& app, int& exit_code);
void add_diff(CLI::App& app, int& exit_code);

/// The exit code if a file is corrupt, or if files differ.
constexpr int kExitNegative = 1;

} // namespace ddp::command
