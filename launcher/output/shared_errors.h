#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp {

/// The errors that ended ranks, written by ddp or by a program that caught
/// them, and ddp's warnings. An error or warning of several ranks is shown
/// once.
class SharedErrors {
 public:
  /// The beginning of an error's second and later lines.
  static constexpr std::string_view kIndent = "  ";

  /// Whether a line begins an error or warning. Such a line begins with "error:
  /// ", with an exception's type in a namespace and ": ", or with LibTorch's
  /// "[W", time and place, "] Warning: ddp: ". The line may also be the what()
  /// of an exception of ddp that names the reporting rank or that all ranks
  /// throw.
  static bool begins(std::string_view line);

  /// The error at the end of the lines; empty if there is none.
  static std::string last_of(const std::vector<std::string>& lines);

  /// Whether no other rank has shown this text in this attempt, regardless of
  /// the rank that the text names. The rank that has shown the text may repeat
  /// it.
  bool is_to_be_shown(int attempt, int rank, const std::string& text);

  /// The ranks that had the same warning as the one shown, one line per
  /// warning. The job's report covers errors.
  std::vector<std::string> repeated_warnings() const;

 private:
  // The first rank is the one shown.
  std::map<std::pair<int, std::string>, std::vector<int>> ranks_;
};

} // namespace ddp
