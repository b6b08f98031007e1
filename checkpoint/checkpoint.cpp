#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <checkpoint/checkpoint.h>
#include <checkpoint/name_matching.h>
#include <checkpoint/safetensors.h>
#include <checkpoint/state_dict.h>
#include <ddp/module_state.h>
#include <ddp/verification.h>
#include <torch/nn/module.h>

#include <exception>
#include <functional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

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

// Runs `work` on rank 0, and throws on every rank what it threw there.
void on_rank_0(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work) {
  std::string failure;
  if (group.rank() == 0) {
    try {
      work();
    } catch (const c10::Error& error) {
      failure = error.what_without_backtrace();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  failure = group.broadcast(failure);
  TORCH_CHECK(
      failure.empty(),
      operation,
      " on rank 0 of ",
      group.size(),
      ": ",
      failure);
}

// The module's tensor and the file's, to be copied into it.
using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;

// Collects what does not fit, to be said all at once.
class Misfits {
 public:
  void add_names(const char* what, const std::vector<std::string>& names) {
    for (const auto& name : names) {
      list_ << "\n  " << what << ": " << name;
    }
  }

  void check(
      const std::string& name,
      const at::Tensor& target,
      const at::Tensor& source) {
    if (target.sizes() != source.sizes()) {
      list_ << "\n  wrong shape: " << name << " is " << source.sizes()
            << " in the file, " << target.sizes() << " in the module";
    }
    if (!c10::canCast(source.scalar_type(), target.scalar_type())) {
      list_ << "\n  wrong dtype: " << name << " is " << source.scalar_type()
            << " in the file, " << target.scalar_type() << " in the module";
    }
  }

  void raise(const std::string& path) const {
    const auto list = list_.str();
    TORCH_CHECK(
        list.empty(),
        "'",
        path,
        "' does not fit the module, which is unchanged; was it saved from "
        "another network?",
        list);
  }

 private:
  std::ostringstream list_;
};

// All that can fail for the file's sake happens here, before the first copy.
Copies plan_copies(const std::string& path, const torch::nn::Module& module) {
  auto file = read_safetensors(path);
  auto state = detail::named_state(module);
  const auto match = detail::match_names(state.keys(), file.tensors.keys());
  Misfits misfits;
  misfits.add_names("missing in the file", match.missing);
  misfits.add_names("unexpected in the file", match.unexpected);
  Copies copies;
  for (const auto& [module_name, file_name] : match.pairs) {
    copies.emplace_back(state[module_name], file.tensors[file_name]);
    misfits.check(module_name, copies.back().first, copies.back().second);
  }
  misfits.raise(path);
  for (auto& [target, source] : copies) {
    source = source.to(target.scalar_type());
  }
  return copies;
}

} // namespace

void save_checkpoint(
    const std::string& path,
    const torch::nn::Module& module,
    const ProcessGroup& group) {
  check_extension(path);
  on_rank_0("save_checkpoint", group, [&] {
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
  Copies copies;
  on_rank_0(
      "load_checkpoint", group, [&] { copies = plan_copies(path, module); });
  const torch::NoGradGuard no_grad;
  for (auto& [target, source] : copies) {
    target.copy_(source);
  }
  if (group.size() > 1) {
    broadcast_module_state(detail::unwrapped(module), group);
  }
}

} // namespace ddp
