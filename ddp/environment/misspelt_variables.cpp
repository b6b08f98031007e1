#include <ddp/environment/misspelt_variables.h>

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

namespace ddp::detail {
namespace {

constexpr size_t kMostEdits = 2;

// All variables that the project reads.
constexpr std::string_view kVariables[] = {
    "DDP_BACKEND",
    "DDP_CHECK_REPLICAS",
    "DDP_DEBUG",
    "DDP_DEBUG_FOLDER",
    "DDP_DEVICE",
    "DDP_DISABLE_COMM_MEM",
    "DDP_EPOCH",
    "DDP_HEARTBEAT_FD",
    "DDP_INTERFACE",
    "DDP_REMOTE_LAUNCHER",
    "DDP_SHARE_GPUS",
    "DDP_SPAWN",
    "DDP_TIMELINE",
    "DDP_TIMELINE_STEPS",
    "DDP_TIMEOUT",
    "DDP_TOKEN",
    "DDP_TTY",
    "DDP_WAIT_NOTICE"};

/// Levenshtein's distance.
size_t count_edits(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

} // namespace

std::string misspelt_variable(const char* const* variables) {
  for (; *variables; ++variables) {
    const std::string_view text = *variables;
    const auto name = text.substr(0, text.find('='));
    if (name.rfind("DDP_", 0) != 0 ||
        std::count(std::begin(kVariables), std::end(kVariables), name) > 0) {
      continue;
    }
    for (const auto& known : kVariables) {
      if (count_edits(name, known) <= kMostEdits) {
        return c10::str(
            name,
            " is set, but ddp does not read it: did you mean ",
            known,
            "?");
      }
    }
  }
  return "";
}

} // namespace ddp::detail
