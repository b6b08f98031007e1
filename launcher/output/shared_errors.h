#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp {

/// The errors that ended ranks, as ddp writes them or a program that caught
/// them, and ddp's warnings, so that one that several ranks have is shown once.
class SharedErrors {
 public:
  /// How the lines begin behind the first of one.
  static constexpr std::string_view kIndent = "  ";

  /// Whether a line begins one: "error: ", an exception's type in a namespace,
  /// ": "; the what() of one of ddp's that names the rank that says it, or that
  /// all ranks throw alike; or LibTorch's "[W", time and place, "] Warning:
  /// ddp: ".
  static bool begins(std::string_view line);

  /// The error that the lines end with, or an empty text.
  static std::string last_of(const std::vector<std::string>& lines);

  /// Whether no other rank has shown this text in this attempt, whichever rank
  /// it says it is of. The rank that has may repeat it.
  bool is_to_be_shown(int attempt, int rank, const std::string& text);

  /// Which ranks had the same warning as the one that was shown, a line each.
  /// Of errors the job's report tells.
  std::vector<std::string> repeated_warnings() const;

 private:
  // The first is shown.
  std::map<std::pair<int, std::string>, std::vector<int>> ranks_;
};

} // namespace ddp
