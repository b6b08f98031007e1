#include <c10/util/Exception.h>
#include <checkpoint/checkpoint.h>
#include <checkpoint/detail/module_copies.h>
#include <checkpoint/detail/on_rank_0.h>
#include <checkpoint/safetensors.h>
#include <checkpoint/state_dict.h>
#include <ddp/module_state.h>
#include <ddp/verification.h>
#include <torch/nn/module.h>

#include <string_view>

namespace ddp {
namespace {

constexpr std::string_view kExtension = ".safetensors";

void check_extension(const std::string& path) {
  const auto dot = path.find_last_of("./");
  TORCH_CHECK_VALUE(
      dot != std::string::npos && path.substr(dot) == kExtension,
      "checkpoint '",
      path,
      "': the format goes by the extension, and only ",
      kExtension,
      " is supported so far; name the file so");
}

} // namespace

void save_checkpoint(
    const std::string& path,
    const torch::nn::Module& module,
    const ProcessGroup& group) {
  check_extension(path);
  detail::on_rank_0("save_checkpoint", group, [&] {
    write_safetensors(path, detail::named_state(module), {{"format", "pt"}});
  });
}

void load_checkpoint(
    const std::string& path,
    torch::nn::Module& module,
    const ProcessGroup& group) {
  check_extension(path);
  // What rank 0 finds to fit has to fit the others as well.
  verify_same_model(unique_state(detail::unwrapped(module)), "", group);
  detail::Copies copies;
  detail::on_rank_0("load_checkpoint", group, [&] {
    copies = detail::plan_copies(
        "'" + path + "'", read_safetensors(path).tensors, module);
  });
  detail::make_copies(copies);
  if (group.size() > 1) {
    broadcast_module_state(detail::unwrapped(module), group);
  }
}

} // namespace ddp
