#pragma once

#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

namespace ddp::test {

using Texts = std::vector<std::string>;

/// The words of a command line, separated by spaces or 'in quotes'. WORKER is
/// the program that the tests run as a rank.
inline Texts words(const std::string& line) {
  Texts found;
  std::istringstream stream(line);
  for (std::string word; stream >> std::quoted(word, '\'', '\0');) {
    found.push_back(word == "WORKER" ? WORKER_PATH : word);
  }
  return found;
}

} // namespace ddp::test
