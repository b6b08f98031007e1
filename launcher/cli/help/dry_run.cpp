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

std::string describe_rank(
    const std::string& name,
    const std::vector<std::string>& arguments,
    const Variables& environment,
    const RankPlace* place) {
  std::string text =
      "# " + name + (place ? ", " + describe(*place) : "") + "\nenv";
  for (const auto& [variable, value] : environment) {
    // Quoted, the name would be none.
    const std::string start = variable + "=";
    const std::string shown = redacted(start + value);
    text += " " + start + shell_word(shown.substr(start.size()));
  }
  for (const std::string& argument : redacted_arguments(arguments)) {
    text += " " + shell_word(argument);
  }
  return text + "\n";
}

} // namespace ddp
