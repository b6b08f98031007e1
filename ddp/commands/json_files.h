#pragma once

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::command {

/// Passes the contents of each file to `parse`; a folder means its files whose
/// names match `form`. Throws `std::runtime_error` with the path if `parse`
/// throws (the file is not a `noun`), a file cannot be read, or a folder has no
/// matching file.
inline void read_json_files(
    const std::vector<std::string>& paths,
    const char* form,
    const std::string& noun,
    const std::function<void(const std::string&, const nlohmann::json&)>&
        parse) {
  namespace fs = std::filesystem;
  const std::regex is_named(form);
  std::vector<std::string> files;
  for (const auto& path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    const auto before = files.size();
    for (const auto& entry : fs::directory_iterator(path)) {
      const auto name = entry.path().filename().string();
      if (std::regex_match(name, is_named)) {
        files.push_back(entry.path().string());
      }
    }
    if (files.size() == before) {
      throw std::runtime_error(path + ": this folder contains no " + noun);
    }
  }
  for (const auto& path : files) {
    std::ifstream file(path);
    if (!file) {
      throw std::runtime_error(
          path + ": cannot be read: " + std::strerror(errno));
    }
    try {
      parse(path, nlohmann::json::parse(file));
    } catch (const std::exception& error) {
      throw std::runtime_error(path + ": not a " + noun + ": " + error.what());
    }
  }
}

} // namespace ddp::command
