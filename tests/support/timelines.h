#pragma once

#include <tests/support/launched.h>

#include <nlohmann/json.hpp>

namespace ddp::test {

inline Command ddp_timeline(Words arguments) {
  arguments.insert(arguments.begin(), variable("DDP_TIMELINE_PROGRAM"));
  return {arguments, {}};
}

/// The spans of a rank's track with this name.
inline std::vector<nlohmann::json> spans(
    const nlohmann::json& trace,
    int64_t rank,
    const std::string& track) {
  int64_t number = -1;
  for (const auto& event : trace) {
    if (event["name"] == "thread_name" && event["pid"] == rank &&
        event["args"]["name"] == track) {
      number = event["tid"];
    }
  }
  std::vector<nlohmann::json> result;
  for (const auto& event : trace) {
    if (event["ph"] == "X" && event["pid"] == rank && event["tid"] == number) {
      result.push_back(event);
    }
  }
  return result;
}

/// The reductions on all tracks of a rank; reductions that overlap have
/// separate tracks.
inline std::vector<nlohmann::json> reductions(
    const nlohmann::json& trace,
    int64_t rank) {
  std::vector<nlohmann::json> result;
  for (const auto& event : trace) {
    if (event["ph"] == "X" && event["pid"] == rank &&
        event["args"].contains("bytes")) {
      result.push_back(event);
    }
  }
  return result;
}

/// Whether Python's parser accepts the file as XML.
inline bool is_xml(const std::string& path) {
  const std::string script =
      "import sys, xml.etree.ElementTree as e; "
      "assert e.parse(sys.argv[1]).getroot().tag.endswith('svg')";
  return run(Command{{"python3", "-c", script, path}, {}}, kLong).exit_code ==
      0;
}

} // namespace ddp::test
