#include <launcher/cli/redaction.h>

#include <cctype>
#include <cstring>

namespace ddp {
namespace {

bool is_plain(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) ||
      (character != '\0' && std::strchr("-_./,:=+@%", character) != nullptr);
}

} // namespace

bool names_secret(const std::string& name) {
  for (const char* word :
       {"KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"}) {
    if (strcasestr(name.c_str(), word) != nullptr) {
      return true;
    }
  }
  const char* at = name.c_str();
  while ((at = strcasestr(at, "TOKEN")) != nullptr) {
    if (strncasecmp(at++, "TOKENIZ", 7) != 0) {
      return true;
    }
  }
  return false;
}

// "scheme://user:password@host" with *** for the password.
std::string without_password(const std::string& text) {
  const size_t scheme = text.find("://");
  const size_t at = text.find('@', scheme);
  const size_t colon =
      scheme == std::string::npos ? scheme : text.find(':', scheme + 3);
  const bool has_password = colon != std::string::npos &&
      at != std::string::npos && colon < at && text.find('/', scheme + 3) > at;
  return has_password ? text.substr(0, colon + 1) + kRedacted + text.substr(at)
                      : text;
}

std::string redacted(const std::string& assignment) {
  for (size_t sign = assignment.find('='); sign != std::string::npos;
       sign = assignment.find('=', sign + 1)) {
    if (names_secret(assignment.substr(0, sign))) {
      return assignment.substr(0, sign + 1) + kRedacted;
    }
  }
  return without_password(assignment);
}

std::vector<std::string> redacted_arguments(
    const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  bool is_secret = false; // by the option before
  for (const std::string& argument : arguments) {
    const bool is_option = !argument.empty() && argument[0] == '-';
    result.push_back(is_secret && !is_option ? kRedacted : redacted(argument));
    is_secret = is_option && argument.find('=') == std::string::npos &&
        names_secret(argument);
  }
  return result;
}

std::string shell_word(const std::string& text) {
  bool plain = !text.empty();
  std::string quoted = "'";
  for (const char character : text) {
    plain = plain && is_plain(character);
    quoted += character == '\'' ? "'\\''" : std::string(1, character);
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
    // If the name were quoted, this would not be an assignment.
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
