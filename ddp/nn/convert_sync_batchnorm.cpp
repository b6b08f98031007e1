#include <ddp/nn/sync_batch_norm.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/nn/synchronized_batch_norm.h>

#include <ATen/ATen.h>
#include <ATen/ops/batch_norm_native.h>
#include <torch/library.h>
#include <torch/nn/modules/instancenorm.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace ddp {
namespace {

constexpr size_t kMostNamed = 3;

using OptionalTensor = std::optional<at::Tensor>;

struct Synchronised {
  std::weak_ptr<torch::nn::Module> module;
  ProcessGroup group;
  /// The module's number among those of the group.
  int64_t number = 0;
};

/// One per process, like the dispatcher. Has only weak references, which keep
/// the address of a tensor from being reused.
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

  /// How to synchronize, if at all.
  std::optional<Synchronised> find(const OptionalTensor& tensor) const {
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
        ? std::make_optional(entry)
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
  std::optional<Synchronised> entry;
  if (training) {
    entry = Table::instance().find(running_mean);
    entry = entry ? entry : Table::instance().find(weight);
  }
  // The mark of a module without running statistics has no variance.
  const auto mean =
      running_var && running_var->defined() ? running_mean : std::nullopt;
  if (!entry) {
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
  return detail::synchronized_batch_norm(
      input,
      {or_none(weight),
       or_none(bias),
       or_none(mean),
       or_none(running_var),
       entry->number},
      momentum,
      eps,
      entry->group);
}

/// The operator has one kernel for all devices, which calls other kernels. The
/// kernels that are registered here precede that kernel, and call it if nothing
/// is synchronized.
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

/// Makes `aten::batch_norm` synchronize, if its weight or running mean is one
/// of `tensors`, while the entry's module exists and is training. The first
/// call registers the operator's new kernels.
void synchronize_batch_norm_of(
    const std::vector<at::Tensor>& tensors,
    const Synchronised& entry) {
  static const auto registered = register_kernels();
  for (const auto& tensor : tensors) {
    Table::instance().put(tensor, entry);
  }
}

template <typename Module>
bool convert(
    const std::shared_ptr<torch::nn::Module>& module,
    const ProcessGroup& group,
    int64_t number) {
  auto* norm = dynamic_cast<Module*>(module.get());
  if (!norm) {
    return false;
  }
  std::vector<at::Tensor> marks;
  for (const auto& tensor : {norm->weight, norm->running_mean}) {
    if (tensor.defined()) {
      marks.push_back(tensor);
    }
  }
  if (marks.empty()) { // adds one, which is not a buffer
    norm->running_mean = at::empty({0});
    marks.push_back(norm->running_mean);
  }
  synchronize_batch_norm_of(marks, {module, group, number});
  return true;
}

template <typename... Modules>
bool is_any(const torch::nn::Module& module) {
  return (dynamic_cast<const Modules*>(&module) || ...);
}

/// Whether it may be a batch-norm that the program defines.
bool looks_alike(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  return module.named_buffers(/*recurse=*/false).contains("running_var") &&
      !is_any<
             SyncBatchNorm1dImpl,
             SyncBatchNorm2dImpl,
             SyncBatchNorm3dImpl,
             nn::InstanceNorm1dImpl,
             nn::InstanceNorm2dImpl,
             nn::InstanceNorm3dImpl>(module);
}

} // namespace

std::vector<std::string> convert_sync_batchnorm(
    const std::shared_ptr<torch::nn::Module>& net,
    const ProcessGroup& group) {
  const detail::heartbeat::Activity activity("convert_sync_batchnorm");
  DDP_CHECK_VALUE(net, "convert_sync_batchnorm: the module is null");
  const auto own = group.duplicate();
  std::vector<std::string> names;
  std::vector<std::string> others;
  for (const auto& item : net->named_modules()) {
    const auto& module = item.value();
    const auto number = static_cast<int64_t>(names.size());
    if (convert<torch::nn::BatchNorm1dImpl>(module, own, number) ||
        convert<torch::nn::BatchNorm2dImpl>(module, own, number) ||
        convert<torch::nn::BatchNorm3dImpl>(module, own, number)) {
      names.push_back(item.key());
    } else if (looks_alike(*module)) {
      others.push_back(detail::format("{} ({})", item.key(), module->name()));
    }
  }
  if (!others.empty() && group.rank() == 0) {
    const auto count = others.size();
    others.resize(std::min(count, kMostNamed));
    TORCH_WARN(detail::format(
        "ddp: convert_sync_batchnorm synchronizes only LibTorch's batch-norms, "
        "and not these modules, which have a buffer running_var: {}{}",
        c10::Join(", ", others),
        count > kMostNamed ? detail::format(" and {} more", count - kMostNamed)
                           : ""));
  }
  return names;
}

} // namespace ddp
