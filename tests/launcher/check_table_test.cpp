// What --check says of what nodes told.
#include <tests/support/catch_plain.h>

#include <launcher/check/table.h>

namespace ddp::test::check_table_test {

namespace {

CheckedNode node(const std::string& host, const std::string& version) {
  CheckedNode result;
  result.host = host;
  result.address = "10.9.0.1";
  result.port = 20000;
  result.versions = {{"LibTorch", version}, {"NCCL", "2.28"}};
  return result;
}

} // namespace

TEST_CASE("nodes are told as text", "[unit]") {
  CheckedNode told = node("n0", "2.11");
  told.clock_offset = -1.5;
  told.reaches_all = false;
  told.problems = {"a", "b"};
  const CheckedNode read = parse_node(node_text(told));
  CHECK(read.host == "n0");
  CHECK(read.address == told.address);
  CHECK(read.port == 20000);
  CHECK(read.versions == told.versions);
  CHECK(read.clock_offset == -1.5);
  CHECK_FALSE(read.reaches_all);
  CHECK(read.problems == told.problems);
}

TEST_CASE("versions are compared with the first node's", "[unit]") {
  std::vector<CheckedNode> nodes = {
      node("n0", "2.11"), node("n1", "2.11"), node("n2", "2.10")};
  compare_versions(&nodes);
  CHECK(nodes[0].problems.empty());
  CHECK(nodes[1].problems.empty());
  CHECK(
      nodes[2].problems ==
      std::vector<std::string>{"LibTorch is 2.10, but 2.11 on n0"});
  CHECK_THAT(
      describe_nodes(nodes, {}),
      Has("\nn2: LibTorch is 2.10, but 2.11 on n0\n") &&
          !Has("nothing is off"));
}

TEST_CASE("the table has nodes, pairs and warnings", "[unit]") {
  std::vector<CheckedNode> nodes = {node("n0", "2.11"), node("long", "2.11")};
  nodes[1].clock_offset = 1.25;
  Bandwidths bandwidths;
  bandwidths.backend = "gloo";
  bandwidths.pairs = {{0, 1, 2.5e9}};
  CHECK(
      describe_nodes(nodes, bandwidths) ==
      "node  host  address   LibTorch  NCCL  clock\n"
      "0     n0    10.9.0.1  2.11      2.28              ok\n"
      "1     long  10.9.0.1  2.11      2.28  +1250.0 ms  ok\n"
      "all-reduce of 4 MiB over gloo, one pair at a time:\n"
      "  n0 and long  2.5 Gbit/s\n"
      "warning: the clock of long is +1.2 s from that of n0\n"
      "nothing is off\n");
}

} // namespace ddp::test::check_table_test
