#pragma once

#include <map>
#include <optional>
#include <sstream>
#include <string>

/// The environment that lines NAME=VALUE describe.
class Variables {
 public:
  Variables(const uint8_t* data, size_t size) {
    std::istringstream lines({reinterpret_cast<const char*>(data), size});
    for (std::string line; std::getline(lines, line);) {
      const auto sign = line.find('=');
      if (sign != std::string::npos) {
        values_[line.substr(0, sign)] = line.substr(sign + 1).c_str();
      }
    }
  }

  std::optional<std::string> operator()(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt
                                  : std::make_optional(found->second);
  }

 private:
  std::map<std::string, std::string> values_;
};
