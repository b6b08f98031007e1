#include <ddp/module_state.h>

#include <common/text.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/model/tensor_contents.h>
#include <ddp/process_group/agreement/rank_report.h>

#include <ATen/ATen.h>
#include <xxhash.h>

namespace ddp {
namespace {

using detail::join_lines;

using Lines = std::vector<std::string>;

/// The properties that must be equal on all ranks.
struct Description {
  Lines options;
  Lines tensors;
};

std::string to_text(const Description& description) {
  return detail::format(
      "{}\n{}{}",
      description.options.size(),
      join_lines(description.options),
      join_lines(description.tensors));
}

Description from_text(const std::string& text) {
  const auto lines = split_lines(text);
  const auto tensors = lines.begin() + 1 + std::stoll(lines.front());
  return {{lines.begin() + 1, tensors}, {tensors, lines.end()}};
}

Lines describe(const NamedTensors& tensors) {
  Lines lines;
  for (size_t i = 0; i < tensors.tensors.size(); ++i) {
    const auto& tensor = tensors.tensors[i];
    lines.push_back(detail::format(
        "{} {} {} with strides {}{}",
        tensors.names[i],
        tensor.scalar_type(),
        tensor.sizes(),
        tensor.strides(),
        tensor.requires_grad() ? ", trainable" : ""));
  }
  return lines;
}

/// The lines that are not among `others`, as text.
std::string own_lines(const Lines& lines, const Lines& others) {
  std::string text;
  for (const auto& line : lines) {
    if (std::find(others.begin(), others.end(), line) == others.end()) {
      text += (text.empty() ? "" : ", ") + line;
    }
  }
  return text.empty() ? "none" : text;
}

/// Adds to `differences` how rank `r` differs from rank 0.
void compare(
    int64_t r,
    const Description& description,
    const Description& of_rank_0,
    Lines& differences) {
  if (description.options != of_rank_0.options) {
    differences.push_back(detail::format(
        "rank {} has options ({}), rank 0 has ({})",
        r,
        own_lines(description.options, of_rank_0.options),
        own_lines(of_rank_0.options, description.options)));
  }
  const auto& other = description.tensors;
  const auto& reference = of_rank_0.tensors;
  const auto count = std::max(other.size(), reference.size());
  for (size_t i = 0; i < count; ++i) {
    const auto& mine = i < other.size() ? other[i] : "none";
    const auto& theirs = i < reference.size() ? reference[i] : "none";
    if (mine != theirs) {
      differences.push_back(detail::format(
          "on rank {}, parameter {} is {}; on rank 0, it is {}",
          r,
          i,
          mine,
          theirs));
      if (other.size() != reference.size()) {
        return; // the rest is only shifted
      }
    }
  }
}

/// The tensors of a module that `options` ask for: parameters, then gradients
/// (undefined ones too), then buffers.
NamedTensors checked_tensors(
    const torch::nn::Module& module,
    const VerificationOptions& options) {
  const auto parameters = unique_parameters(module);
  auto checked = parameters;
  if (options.gradients()) {
    for (size_t i = 0; i < parameters.tensors.size(); ++i) {
      checked.append(
          "the gradient of " + parameters.names[i],
          parameters.tensors[i].grad());
    }
  }
  if (options.buffers()) {
    checked.append(unique_buffers(module));
  }
  return checked;
}

/// The nouns for these tensors, such as "parameters and gradients".
std::string checked_nouns(const VerificationOptions& options) {
  const auto* gradients = !options.gradients() ? ""
      : options.buffers()                      ? ", gradients"
                                               : " and gradients";
  return std::string("parameters") + gradients +
      (options.buffers() ? " and buffers" : "");
}

} // namespace

void verify_same_model(
    const NamedTensors& tensors,
    const std::string& options,
    const ProcessGroup& group) {
  if (group.size() == 1) {
    return;
  }
  const auto own = to_text({split_lines(options), describe(tensors)});
  if (detail::is_same_on_all(XXH3_64bits(own.data(), own.size()), group)) {
    return;
  }
  const auto texts = group.all_gather(own);
  Lines differences;
  bool same_tensors = true;
  const auto reference = from_text(texts[0]);
  for (int64_t r = 1; r < group.size(); ++r) {
    const auto other = from_text(texts[r]);
    compare(r, other, reference, differences);
    same_tensors = same_tensors && other.tensors == reference.tensors;
  }
  detail::throw_differences(
      same_tensors ? "the options are not the same on all ranks:"
                   : "the model is not the same on all ranks:",
      differences,
      /*left_out=*/0,
      same_tensors ? "Pass the same options on all ranks"
                   : "Construct the same net on all ranks, and freeze the same "
                     "parameters: nothing in it may depend on the rank");
}

void verify_same_parameters(
    const torch::nn::Module& module,
    const ProcessGroup& group,
    const VerificationOptions& options) {
  const detail::heartbeat::Activity activity("verify_same_parameters");
  verify_same_values(
      checked_tensors(module, options), group, checked_nouns(options));
}

void verify_finite(
    const torch::nn::Module& module,
    const ProcessGroup& group,
    const VerificationOptions& options) {
  verify_finite(
      checked_tensors(module, options), group, checked_nouns(options));
}

uint64_t parameter_hash(const torch::nn::Module& module) {
  const auto parameters = unique_parameters(module);
  const auto names = "\n" + join_lines(describe(parameters));
  uint64_t hash = XXH3_64bits(names.data(), names.size());
  for (const auto& tensor : parameters.tensors) {
    hash = detail::tensor_hash(tensor, hash);
  }
  return hash;
}

} // namespace ddp
