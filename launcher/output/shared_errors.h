#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace ddp {

/// The errors that ended ranks, and warnings, as ddp writes them, so that one
/// that several ranks have is shown once.
class SharedErrors {
 public:
  /// Whether a line begins one: "error: ", an exception's type in a namespace,
  /// ": "; or LibTorch's "[W", time and place, "] Warning: ddp: ".
  static bool begins(std::string_view line);

  /// Whether no other rank has shown this text in this attempt, whichever rank
  /// it says it is of. The rank that has may repeat it.
  bool is_to_be_shown(int attempt, int rank, const std::string& text);

 private:
  std::map<std::pair<int, std::string>, int> shown_; // by whom
};

} // namespace ddp
