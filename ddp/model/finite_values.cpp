#include <ddp/module_state.h>

#include <common/text.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/model/tensor_contents.h>
#include <ddp/process_group/agreement/rank_report.h>

#include <ATen/ATen.h>

namespace ddp {
namespace {

using detail::join_lines;
using detail::kMaxDifferences;
using detail::name_ranks;
using detail::throw_differences;

// The noun that a Reducer passes.
constexpr const char* kGradients = "gradients";
constexpr const char* kRemedy =
    " (check its batch and loss; to keep gradients finite, use a smaller "
    "learning rate, clip_grad_norm or, in half precision and without "
    "check_finite, a GradScaler):";

std::vector<std::string> find_not_finite(const NamedTensors& tensors) {
  std::vector<std::string> findings;
  for (size_t i = 0; i < tensors.tensors.size(); ++i) {
    const auto& tensor = tensors.tensors[i];
    if (!tensor.defined()) {
      continue;
    }
    // The other part of a sparse tensor has integers.
    const auto count = detail::count_not_finite(detail::dense_parts(tensor)[0]);
    if (!detail::is_finite(count)) {
      findings.push_back(detail::format(
          "{} ({}) has {} NaN and {} inf",
          tensors.names[i],
          detail::describe(tensor),
          count.nan,
          count.infinite));
    }
  }
  return findings;
}

/// Throws with the ranks' findings, `count` in total.
[[noreturn]] void fail(
    const std::string& what,
    const std::vector<std::string>& findings,
    int64_t count,
    const ProcessGroup& group) {
  const auto sent = std::min(findings.size(), kMaxDifferences);
  const auto texts =
      group.all_gather(join_lines({findings.begin(), findings.begin() + sent}));
  // Equal findings of several ranks become one line: after averaging, all ranks
  // have a NaN.
  std::vector<std::pair<std::string, std::vector<int64_t>>> lines;
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < group.size(); ++r) {
    if (!texts[r].empty()) {
      ranks.push_back(r);
    }
    for (const auto& finding : split_lines(texts[r])) {
      auto line = std::find_if(lines.begin(), lines.end(), [&](auto& other) {
        return other.first == finding;
      });
      if (line == lines.end()) {
        line = lines.insert(line, {finding, {}});
      }
      line->second.push_back(r);
    }
  }
  lines.resize(std::min(lines.size(), kMaxDifferences));
  std::vector<std::string> texts_of_lines;
  for (const auto& [finding, of] : lines) {
    texts_of_lines.push_back(name_ranks(of) + ": " + finding);
    count -= static_cast<int64_t>(of.size());
  }
  throw_differences(
      c10::str(
          "the ",
          what,
          " are not finite on ",
          name_ranks(ranks),
          what == kGradients ? kRemedy : ":"),
      texts_of_lines,
      count);
}

} // namespace

void verify_finite(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what) {
  const detail::heartbeat::Activity activity("verify_finite");
  const auto findings = find_not_finite(tensors);
  const auto count =
      at::scalar_tensor(static_cast<int64_t>(findings.size()), at::kLong);
  group.all_reduce(count);
  if (count.item<int64_t>() > 0) {
    fail(what, findings, count.item<int64_t>(), group);
  }
}

} // namespace ddp
