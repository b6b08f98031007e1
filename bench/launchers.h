#pragma once

#include <functional>
#include <string>
#include <vector>

struct Launcher {
  std::string name;
  int rounds;
  /// argv, its file first; empty for a bare fork and exec.
  std::function<std::vector<std::string>(int ranks)> command;
};

/// Those that are there, bare fork and exec first; says which are not. torchrun
/// gets 3 rounds at most. What they leave goes into `folder`.
std::vector<Launcher> find_launchers(int rounds, const std::string& folder);
