#pragma once

#include <map>
#include <string>
#include <vector>

#include <launcher/check/bandwidth.h>

namespace ddp {

/// What one node told of itself, and found out about others.
struct CheckedNode {
  std::string host;
  std::string address;
  int port = 0; // where its Responder is
  std::map<std::string, std::string> versions; // by what they are of
  double clock_offset = 0; // against rank 0's, in seconds
  bool reaches_all = true;
  /// What is off, a line each.
  std::vector<std::string> problems;
};

/// As JSON, and back.
std::string node_text(const CheckedNode& node);
CheckedNode parse_node(const std::string& text);

/// Adds what is off among all nodes to the problems of the first: versions
/// that differ from its own.
void compare_versions(std::vector<CheckedNode>* nodes);

/// The table, what is off, and what to know besides.
std::string describe_nodes(
    const std::vector<CheckedNode>& nodes,
    const Bandwidths& bandwidths);

} // namespace ddp
