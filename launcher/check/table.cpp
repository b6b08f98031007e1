#include <launcher/check/table.h>

#include <array>
#include <cmath>
#include <cstdio>

#include <common/text_table.h>
#include <nlohmann/json.hpp>

namespace ddp {
namespace {

using Row = std::vector<std::string>;

constexpr double kClockTolerance = 1; // seconds

std::string in_columns(const std::vector<Row>& rows) {
  TextTable table(/*left=*/rows[0].size());
  for (const Row& row : rows) {
    table.add(row);
  }
  return table.text();
}

std::string number(const char* format, double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

Row heading(const CheckedNode& node) {
  Row row = {"node", "host", "address"};
  for (const auto& [name, version] : node.versions) {
    row.push_back(name);
  }
  row.emplace_back("clock");
  row.emplace_back("");
  return row;
}

Row row_of(size_t index, const CheckedNode& node) {
  Row row = {std::to_string(index), node.host, node.address};
  for (const auto& [name, version] : node.versions) {
    row.push_back(version);
  }
  row.push_back(index == 0 ? "" : number("%+.1f ms", node.clock_offset * 1000));
  row.emplace_back(node.problems.empty() ? "ok" : "see below");
  return row;
}

std::string describe_bandwidths(
    const std::vector<CheckedNode>& nodes,
    const Bandwidths& bandwidths) {
  if (bandwidths.pairs.empty()) {
    return "";
  }
  std::vector<Row> rows;
  for (const PairBandwidth& each : bandwidths.pairs) {
    rows.push_back(
        {"  " + nodes[static_cast<size_t>(each.first)].host + " and " +
             nodes[static_cast<size_t>(each.second)].host,
         number("%.1f Gbit/s", each.bits_per_second / 1e9)});
  }
  return "all-reduce of " + std::string(bandwidths.size) + " over " +
      bandwidths.backend + ", one pair at a time:\n" + in_columns(rows);
}

} // namespace

std::string node_text(const CheckedNode& node) {
  return nlohmann::json({node.host,
                         node.address,
                         node.port,
                         node.versions,
                         node.clock_offset,
                         node.reaches_all,
                         node.problems})
      .dump();
}

CheckedNode parse_node(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {json[0], json[1], json[2], json[3], json[4], json[5], json[6]};
}

void compare_versions(std::vector<CheckedNode>* nodes) {
  const CheckedNode& first = nodes->front();
  for (CheckedNode& each : *nodes) {
    for (const auto& [name, version] : first.versions) {
      if (each.versions[name] != version) {
        each.problems.push_back(
            name + " is " + each.versions[name] + ", but " + version + " on " +
            first.host);
      }
    }
  }
}

std::string describe_nodes(
    const std::vector<CheckedNode>& nodes,
    const Bandwidths& bandwidths) {
  std::vector<Row> rows = {heading(nodes.front())};
  std::string problems;
  std::string warnings;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const CheckedNode& node = nodes[i];
    rows.push_back(row_of(i, node));
    for (const std::string& each : node.problems) {
      problems += node.host + ": " + each + "\n";
    }
    if (std::abs(node.clock_offset) > kClockTolerance) {
      warnings += "warning: the clock of " + node.host + " is " +
          number("%+.1f s", node.clock_offset) + " from that of " +
          nodes.front().host + "\n";
    }
  }
  return in_columns(rows) + describe_bandwidths(nodes, bandwidths) + warnings +
      (problems.empty() ? "nothing is off\n" : problems);
}

} // namespace ddp
