#include <bench/process_memory.h>

#include <fstream>

namespace bench {

double memory_mib(const std::string& file, const std::string& line) {
  std::ifstream stream("/proc/self/" + file);
  double kib = 0;
  for (std::string word; stream >> word;) {
    if (word == line) {
      stream >> kib;
      break;
    }
  }
  return kib / 1024;
}

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

} // namespace bench
