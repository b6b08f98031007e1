#include <tests/support/random_graph.h>

#include <ATen/ATen.h>

namespace ddp::test {
namespace {

const char* name(Operation operation) {
  constexpr const char* kNames[] = {
      "linear",
      "scale",
      "shift",
      "detach",
      "sequence",
      "mean",
      "branch",
      "checkpoint"};
  return kNames[static_cast<size_t>(operation)];
}

std::string describe(const Node& node) {
  std::string text = std::string(name(node.operation)) + "(";
  for (const auto index : node.parameters) {
    text += (text.back() == '(' ? "" : " ") + std::to_string(index);
  }
  for (const auto& child : node.children) {
    text += (text.back() == '(' ? "" : ", ") + describe(child);
  }
  return text + ")";
}

std::string describe(const Pass& pass) {
  auto text = c10::str(
      pass.synchronized ? "sync" : "no_sync",
      " ",
      pass.forwards,
      pass.forwards == 1  ? ""
          : pass.together ? " together"
                          : " apart");
  if (pass.repeats > 1) {
    text += c10::str(", ", pass.repeats, " backwards each");
  }
  if (pass.left_out >= 0) {
    text += c10::str(", without rank ", pass.left_out);
  }
  return text;
}

std::string frozen_ones(const std::vector<bool>& frozen) {
  std::string text;
  for (size_t i = 0; i < frozen.size(); ++i) {
    text += frozen[i] ? " " + std::to_string(i) : "";
  }
  return text.empty() ? text : "; frozen" + text;
}

std::string describe(const Step& step) {
  // None, zero, keep, halve, replace.
  std::string text = "gradients ";
  for (const auto handling : step.handling) {
    text += "nzkhr"[static_cast<size_t>(handling)];
  }
  text += frozen_ones(step.frozen);
  for (const auto& pass : step.passes) {
    text += "; " + describe(pass);
  }
  return text;
}

std::string describe(const std::vector<at::Tensor>& parameters) {
  std::string text;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& tensor = parameters[i];
    text += c10::str(
        "\n  ",
        i,
        ": ",
        tensor.scalar_type(),
        " ",
        tensor.sizes(),
        " strides ",
        tensor.strides());
  }
  return text;
}

std::string describe(const ReducerOptions& options) {
  const auto cap = [](const std::optional<double>& value) {
    return value ? c10::str(*value) : "unset";
  };
  return c10::str(
      "bucket_cap_mb ",
      cap(options.bucket_cap_mb()),
      ", first_bucket_cap_mb ",
      cap(options.first_bucket_cap_mb()),
      ", bucket_cap_mb_list [",
      options.bucket_cap_mb_list(),
      "], find_unused_parameters ",
      options.find_unused_parameters(),
      ", static_graph ",
      options.static_graph(),
      ", gradient_as_bucket_view ",
      options.gradient_as_bucket_view(),
      ", share_communicator ",
      options.share_communicator(),
      ", check_finite ",
      options.check_finite(),
      ", check_divergence_every ",
      options.check_divergence_every(),
      ", skip_all_reduce_unused_params ",
      options.skip_all_reduce_unused_params());
}

} // namespace

std::string describe(const Graph& graph) {
  auto text = c10::str(
      "parameters:",
      describe(make_parameters(graph)),
      "\nnet of width ",
      graph.width,
      ": ",
      describe(graph.root),
      frozen_ones(graph.frozen),
      "\nbranches by rank ",
      graph.by_rank,
      ", the same in each step ",
      graph.steady,
      "; finish_backward() ",
      graph.finish,
      "\noptions: ",
      describe(graph.options));
  for (size_t i = 0; i < graph.steps.size(); ++i) {
    text += c10::str("\nstep ", i, ": ", describe(graph.steps[i]));
  }
  return text;
}
} // namespace ddp::test
