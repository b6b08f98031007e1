#include <launcher/cli/help/dry_run.h>

#include <cctype>
#include <cstring>

#include <launcher/cli/redaction.h>

namespace ddp {
namespace {

bool is_plain(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) ||
      (letter != '\0' && std::strchr("-_./,:=+@%", letter) != nullptr);
}

} // namespace

std::string shell_word(const std::string& text) {
  bool plain = !text.empty();
  std::string quoted = "'";
  for (const char letter : text) {
    plain = plain && is_plain(letter);
    quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  }
  return plain ? text : quoted + "'";
}

std::string describe_plan(
    const std::vector<PlannedRank>& ranks,
    int world_size) {
  std::string text;
  for (const PlannedRank& rank : ranks) {
    text += "# rank " + std::to_string(rank.rank) + " of " +
        std::to_string(world_size) +
        (rank.place.bound ? ", " + describe(rank.place) : "") + "\nenv";
    for (const auto& [name, value] : rank.environment) {
      // Quoted, the name would be none.
      const std::string start = name + "=";
      const std::string shown = redacted(start + value);
      text += " " + start + shell_word(shown.substr(start.size()));
    }
    for (const std::string& argument : redacted_arguments(rank.arguments)) {
      text += " " + shell_word(argument);
    }
    text += "\n";
  }
  return text;
}

} // namespace ddp
