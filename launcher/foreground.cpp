#include <launcher/foreground.h>

#include <fstream>
#include <sstream>
#include <string>

namespace ddp {

// tcgetpgrp would ask for a terminal of our own, and the agent has none.
bool is_in_foreground(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return false;
  }
  std::istringstream fields(text.substr(name_end + 1));
  std::string state;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  int terminal = 0;
  pid_t foreground = -1;
  fields >> state >> parent >> group >> session >> terminal >> foreground;
  return fields && foreground == group;
}

} // namespace ddp
