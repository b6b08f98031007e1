#include <launcher/command_line/redaction.h>

#include <cctype>

namespace ddp {

bool names_secret(const std::string& name) {
  std::string upper;
  for (const char letter : name) {
    upper +=
        static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  const std::string harmless = "TOKENIZ";
  for (size_t at; (at = upper.find(harmless)) != std::string::npos;) {
    upper.replace(at, harmless.size(), "-");
  }
  for (const char* word :
       {"TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"}) {
    if (upper.find(word) != std::string::npos) {
      return true;
    }
  }
  return false;
}

std::string redacted(const std::string& assignment) {
  for (size_t sign = assignment.find('='); sign != std::string::npos;
       sign = assignment.find('=', sign + 1)) {
    if (names_secret(assignment.substr(0, sign))) {
      return assignment.substr(0, sign + 1) + kRedacted;
    }
  }
  return assignment;
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

} // namespace ddp
