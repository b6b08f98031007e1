#include <launcher/command_line/token.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <sys/stat.h>

#include <launcher/command_line/option_values.h>

namespace ddp {

std::string token_of(const OptionValue& value) {
  const std::string name = value.source + " " + value.text;
  struct stat file {};
  if (stat(value.text.c_str(), &file) != 0) {
    usage_error(name + ": " + std::strerror(errno));
  }
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    usage_error(name + ": others can read it; chmod 600 " + value.text);
  }
  std::ifstream stream(value.text);
  std::string line;
  std::getline(stream, line);
  constexpr const char* spaces = " \t\r";
  const size_t first = line.find_first_not_of(spaces);
  if (first == std::string::npos) {
    usage_error(name + ": its first line is empty, expected the job's secret");
  }
  return line.substr(first, line.find_last_not_of(spaces) - first + 1);
}

} // namespace ddp
