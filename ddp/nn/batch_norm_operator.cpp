#include <ddp/nn/batch_norm_operator.h>

#include <ddp/nn/synchronized_batch_norm.h>

#include <ATen/ops/batch_norm_native.h>
#include <torch/library.h>
#include <torch/nn/module.h>

#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace ddp::detail {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

struct Synchronised {
  std::weak_ptr<torch::nn::Module> module;
  ProcessGroup group;
};

/// The process's, as the dispatcher is. Only weak references, and a tensor's
/// address is its own as long as there is one.
class Table {
 public:
  static Table& instance() {
    static Table table;
    return table;
  }

  void put(const at::Tensor& tensor, const Synchronised& entry) {
    const std::unique_lock lock(mutex_);
    for (auto row = rows_.begin(); row != rows_.end();) {
      row = row->second.second.module.expired() ? rows_.erase(row)
                                                : std::next(row);
    }
    const auto impl = tensor.getIntrusivePtr();
    rows_.insert_or_assign(impl.get(), std::make_pair(Weak(impl), entry));
  }

  /// The group to synchronise over, if any.
  std::optional<ProcessGroup> find(const OptionalTensor& tensor) const {
    if (!tensor || !tensor->defined()) {
      return std::nullopt;
    }
    const std::shared_lock lock(mutex_);
    const auto row = rows_.find(tensor->unsafeGetTensorImpl());
    if (row == rows_.end()) {
      return std::nullopt;
    }
    const auto& entry = row->second.second;
    const auto module = entry.module.lock();
    return module && module->is_training() && entry.group.size() > 1
        ? std::make_optional(entry.group)
        : std::nullopt;
  }

 private:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl>;

  mutable std::shared_mutex mutex_;
  std::unordered_map<at::TensorImpl*, std::pair<Weak, Synchronised>> rows_;
};

at::Tensor batch_norm(
    const at::Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    bool training,
    double momentum,
    double eps,
    bool cudnn_enabled) {
  std::optional<ProcessGroup> group;
  if (training) {
    group = Table::instance().find(running_mean);
    group = group ? group : Table::instance().find(weight);
  }
  // The mark of a module that tracks nothing has no variance beside it.
  const auto mean =
      running_var && running_var->defined() ? running_mean : std::nullopt;
  if (!group) {
    return at::native::batch_norm(
        input,
        weight,
        bias,
        mean,
        running_var,
        training,
        momentum,
        eps,
        cudnn_enabled);
  }
  const auto or_none = [](const OptionalTensor& tensor) {
    return tensor.value_or(at::Tensor());
  };
  return synchronized_batch_norm(
      input,
      {or_none(weight), or_none(bias), or_none(mean), or_none(running_var)},
      momentum,
      eps,
      *group);
}

/// The operator has one kernel for all devices, made of others. Those that are
/// registered here come before it, and it serves what is not synchronised.
std::vector<torch::Library> register_kernels() {
  std::vector<torch::Library> libraries;
  for (const auto key :
       {c10::DispatchKey::AutogradCPU,
        c10::DispatchKey::AutogradCUDA,
        c10::DispatchKey::CPU, // in inference mode
        c10::DispatchKey::CUDA}) {
    libraries.emplace_back(
        torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    libraries.back().impl("batch_norm", TORCH_FN(batch_norm));
  }
  return libraries;
}

} // namespace

void synchronize_batch_norm_of(
    const std::vector<at::Tensor>& tensors,
    const std::shared_ptr<torch::nn::Module>& module,
    const ProcessGroup& group) {
  static const auto registered = register_kernels();
  for (const auto& tensor : tensors) {
    Table::instance().put(tensor, {module, group});
  }
}

} // namespace ddp::detail
