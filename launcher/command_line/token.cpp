#include <launcher/command_line/token.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <sys/stat.h>

#include <launcher/command_line/option_values.h>
#include <launcher/remote/starter_link.h>

namespace ddp {

namespace {

std::string first_line_of(const std::string& name, const std::string& path) {
  if (path == "-") {
    return read_first_line();
  }
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) {
    usage_error(name + ": " + std::strerror(errno));
  }
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    usage_error(name + ": others can read it; chmod 600 " + path);
  }
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

} // namespace

std::string token_of(const OptionValue& value) {
  const std::string name = value.source + " " + value.text;
  const std::string line = first_line_of(name, value.text);
  constexpr const char* spaces = " \t\r";
  const size_t first = line.find_first_not_of(spaces);
  if (first == std::string::npos) {
    usage_error(name + ": its first line is empty, expected the job's secret");
  }
  return line.substr(first, line.find_last_not_of(spaces) - first + 1);
}

} // namespace ddp
