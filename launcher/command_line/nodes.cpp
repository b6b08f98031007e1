#include <launcher/command_line/nodes.h>

#include <limits>

#include <launcher/command_line/option_values.h>
#include <launcher/launch_error.h>

namespace ddp {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();

struct NodeRange {
  int64_t least = 1;
  int64_t most = 1;
};

// "2" or "1:4".
NodeRange node_range(const OptionValue& value) {
  const size_t colon = value.text.find(':');
  NodeRange range;
  range.least =
      integer_of({value.source, value.text.substr(0, colon)}, 1, kMost);
  range.most = colon == std::string::npos
      ? range.least
      : integer_of({value.source, value.text.substr(colon + 1)}, 1, kMost);
  if (range.least > range.most) {
    refuse_value(value, "MIN:MAX with MIN not above MAX");
  }
  return range;
}

} // namespace

void settle_nodes(const GivenOptions& given, LaunchOptions* options) {
  const auto nodes = given.find("nnodes");
  if (nodes != given.end() && node_range(nodes->second).most > 1) {
    throw LaunchError(
        kExitUsage,
        nodes->second.source + " is '" + nodes->second.text +
            "', but ddprun starts the ranks of one node; start those of "
            "several with mpirun, srun or variables (see docs/multi-node.md)");
  }
  options->nnodes = 1;
  const auto rank = given.find("node-rank");
  if (rank == given.end() || options->standalone) {
    return;
  }
  if (integer_of(rank->second, 0, kMost) != 0) {
    refuse_value(rank->second, "0, as there is one node");
  }
  options->node_rank = 0;
}

} // namespace ddp
