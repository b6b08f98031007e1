#include <ddp/detail/reducer_impl.h>

#include <ddp/detail/scaled_copy.h>

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace ddp {
namespace {

namespace autograd = torch::autograd;

constexpr double kMiB = 1 << 20;
constexpr double kDefaultCapMb = 25;
constexpr double kDefaultFirstCapMb = 1;

class Hook : public autograd::FunctionPostHook {
 public:
  Hook(Reducer::Impl* owner, size_t parameter)
      : owner_(owner), parameter_(parameter) {}

  autograd::variable_list operator()(
      const autograd::variable_list& outputs,
      const autograd::variable_list& /*inputs*/) override {
    owner_->on_gradient(parameter_);
    return outputs; // AccumulateGrad has none
  }

 private:
  Reducer::Impl* owner_;
  size_t parameter_;
};

std::vector<int64_t> rebuilt_limits(const ReducerOptions& options) {
  const double cap = options.bucket_cap_mb().value_or(kDefaultCapMb);
  const double first = options.bucket_cap_mb().value_or(kDefaultFirstCapMb);
  TORCH_CHECK_VALUE(cap > 0, "bucket_cap_mb must be above 0, but is ", cap);
  return {static_cast<int64_t>(first * kMiB), static_cast<int64_t>(cap * kMiB)};
}

std::vector<size_t> counting(size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

/// What a rank contributes that has no gradient. Minus zero is the identity of
/// floating-point addition: it changes no other rank's value, and where the sum
/// is minus zero in all elements no rank had a gradient. So the ranks learn
/// what nobody used without a message of its own. For that the first element of
/// a real gradient may not be minus zero; `show` makes it plus zero.
constexpr double kNothing = -0.0;

bool is_nothing(const at::Tensor& view) {
  const auto real = view.is_complex() ? at::view_as_real(view) : view;
  return real.eq(0).logical_and(at::signbit(real)).all().item<bool>();
}

template <typename Real>
void show_as(const at::Tensor& view) {
  auto* first = view.mutable_data_ptr<Real>();
  if (*first == 0) {
    *first = 0;
  }
}

/// Makes a gradient on the CPU tell itself from `kNothing`.
void show(const at::Tensor& view) {
  if (view.numel() == 0) {
    return;
  }
  if (view.scalar_type() == at::kFloat) {
    show_as<float>(view);
  } else if (view.scalar_type() == at::kDouble) {
    show_as<double>(view);
  } else {
    view.as_strided({1}, {1}).add_(0.0);
  }
}

} // namespace

Reducer::Impl::Impl(
    NamedTensors parameters,
    ProcessGroup group,
    ReducerOptions options)
    : group_(std::move(group)), options_(std::move(options)) {
  TORCH_CHECK_VALUE(
      !parameters.tensors.empty(),
      "no parameter requires a gradient: there is nothing to reduce. Construct "
      "the Reducer after the parameters, and do not freeze all of them");
  const auto limits = rebuilt_limits(options_); // checks the option
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    parameters_.emplace_back();
    parameters_.back().tensor = parameters.tensors[i];
    parameters_.back().name = parameters.names[i];
  }
  if (!group_.c10d()) {
    return;
  }
  // Division by a reciprocal, as in torch.distributed: it rounds differently
  // from a true division.
  factor_ = at::native::wrapped_scalar_tensor(
      at::Scalar(1.0 / static_cast<double>(group_.size())));
  auto initial = assign_buckets(
      parameters.tensors,
      {std::numeric_limits<int64_t>::max()},
      counting(parameters.tensors.size()));
  build_buckets({initial.rbegin(), initial.rend()});
  attach();
}

Reducer::Impl::~Impl() {
  detach();
}

void Reducer::Impl::attach() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    parameter.accumulator = autograd::impl::grad_accumulator(parameter.tensor);
    parameter.hook =
        parameter.accumulator->add_post_hook(std::make_unique<Hook>(this, i));
  }
}

void Reducer::Impl::detach() {
  for (auto& parameter : parameters_) {
    if (parameter.accumulator) {
      parameter.accumulator->del_post_hook(parameter.hook);
      parameter.accumulator.reset();
    }
  }
}

std::vector<BucketIndices> Reducer::Impl::bucket_indices() const {
  std::vector<BucketIndices> indices;
  for (const auto& bucket : buckets_) {
    indices.push_back(bucket.indices);
  }
  return indices;
}

/// Replaces the buckets. Gradients that lie in the old ones move along.
void Reducer::Impl::build_buckets(std::vector<BucketIndices> indices) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : parameters_) {
    tensors.push_back(parameter.tensor);
  }
  buckets_.clear();
  for (auto& bucket_indices : indices) {
    buckets_.push_back(make_bucket(tensors, std::move(bucket_indices), group_));
    const auto& bucket = buckets_.back();
    for (size_t k = 0; k < bucket.indices.size(); ++k) {
      auto& parameter = parameters_[bucket.indices[k]];
      at::Tensor& grad = parameter.tensor.mutable_grad();
      if (lies_in_slice(parameter)) {
        bucket.views[k].copy_(grad);
        grad = bucket.views[k];
      }
      parameter.bucket = buckets_.size() - 1;
      parameter.view = bucket.views[k];
    }
  }
}

/// Starts to learn the order in which rank 0's gradients came.
void Reducer::Impl::agree_on_order() {
  order_ = at::empty({static_cast<int64_t>(parameters_.size())}, at::kLong);
  std::copy(
      ready_order_.begin(),
      ready_order_.end(),
      order_.mutable_data_ptr<int64_t>());
  order_work_ = group_.broadcast_async(order_);
}

/// Lays the buckets out in that order, so that the first is complete first.
void Reducer::Impl::rebuild_buckets() {
  order_work_.wait();
  const auto* order = order_.const_data_ptr<int64_t>();
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : parameters_) {
    tensors.push_back(parameter.tensor);
  }
  build_buckets(assign_buckets(
      tensors, rebuilt_limits(options_), {order, order + tensors.size()}));
  rebuilt_ = true;
}

void Reducer::Impl::on_gradient(size_t index) {
  if (no_sync_depth > 0) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (backward_ == -1) {
    begin();
  }
  TORCH_CHECK(
      backward_ == autograd::get_current_graph_task_id(),
      "a gradient came while another backward is unfinished: either an earlier "
      "backward ended by an exception, then construct the Reducer anew; or "
      "backward runs inside backward (activation checkpointing), which is not "
      "supported");
  TORCH_CHECK(
      parameters_[index].share == Share::kPending,
      "the gradient of ",
      parameters_[index].name,
      " came twice in one backward, and the first may be reduced already");
  contribute(index);
}

void Reducer::Impl::begin() {
  backward_ = autograd::get_current_graph_task_id();
  next_ = 0;
  // In two steps, so that where several Reducers share a backward all have
  // started their last buckets before one waits.
  autograd::Engine::get_default_engine().queue_callback([this] {
    contribute_rest();
    autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
  });
}

/// Adds what this rank has of a parameter's gradient to its bucket, and starts
/// the buckets that are complete, in order.
void Reducer::Impl::contribute(size_t index) {
  auto& parameter = parameters_[index];
  copy_or_keep(parameter);
  if (!rebuilt_) {
    ready_order_.push_back(index);
  }
  if (--buckets_[parameter.bucket].pending == 0) {
    while (next_ < buckets_.size() && buckets_[next_].pending == 0) {
      launch(buckets_[next_++]);
    }
  }
}

/// Brings the gradient into its slice, and the slice into the gradient's place.
void Reducer::Impl::copy_or_keep(Parameter& parameter) {
  at::Tensor& grad = parameter.tensor.mutable_grad();
  if (!grad.defined()) {
    parameter.share = Share::kNothing;
    return;
  }
  TORCH_CHECK(
      grad.layout() == at::kStrided,
      "the gradient of ",
      parameter.name,
      " is sparse, which is not supported");
  TORCH_CHECK(
      grad.scalar_type() == parameter.view.scalar_type() &&
          grad.device() == parameter.view.device() &&
          grad.sizes() == parameter.view.sizes(),
      "the gradient of ",
      parameter.name,
      " is ",
      grad.toString(),
      " ",
      grad.sizes(),
      ", but when the Reducer was constructed the parameter was ",
      parameter.view.toString(),
      " ",
      parameter.view.sizes(),
      ": move or convert the module before that");
  TORCH_CHECK(
      !grad.requires_grad(),
      "the gradient of ",
      parameter.name,
      " has a graph (create_graph), which is not supported");
  if (lies_in_slice(parameter)) {
    parameter.share = Share::kUnscaled;
  } else {
    detail::scaled_copy(parameter.view, grad, factor_);
    grad = parameter.view;
    parameter.share = Share::kScaled;
  }
}

bool Reducer::Impl::lies_in_slice(const Parameter& parameter) {
  const at::Tensor& grad = parameter.tensor.grad();
  return grad.defined() && parameter.view.defined() &&
      grad.is_alias_of(parameter.view);
}

void Reducer::Impl::launch(Bucket& bucket) {
  if (bucket.flat.numel() > 0) {
    const at::NoGradGuard no_grad;
    scale(bucket);
    mark_absent(bucket);
    bucket.work = group_.all_reduce_async(bucket.flat);
  }
}

/// Scales what no hook has scaled: gradients that autograd added up in place.
void Reducer::Impl::scale(Bucket& bucket) {
  const auto unscaled = [this](size_t index) {
    return parameters_[index].share == Share::kUnscaled;
  };
  const auto& indices = bucket.indices;
  if (std::all_of(indices.begin(), indices.end(), unscaled)) {
    bucket.flat.mul_(factor_); // one pass for all
    return;
  }
  for (const size_t index : indices) {
    if (unscaled(index)) {
      parameters_[index].view.mul_(factor_);
    }
  }
}

/// Makes what is there and what is not tell itself apart.
void Reducer::Impl::mark_absent(Bucket& bucket) {
  const bool on_cpu = bucket.flat.is_cpu();
  if (!on_cpu) {
    bucket.flat.add_(0.0); // `show` for all at once
  }
  for (const size_t index : bucket.indices) {
    const auto& parameter = parameters_[index];
    if (parameter.share == Share::kNothing) {
      parameter.view.fill_(kNothing);
    } else if (on_cpu) {
      show(parameter.view);
    }
  }
}

/// At the end of backward: contributes for parameters that it did not reach.
/// What lies there from before is the rank's share as well.
void Reducer::Impl::contribute_rest() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    if (parameter.share == Share::kPending) {
      TORCH_CHECK(
          !parameter.tensor.requires_grad() ||
              autograd::impl::grad_accumulator(parameter.tensor) ==
                  parameter.accumulator,
          "the parameter ",
          parameter.name,
          " was converted after the Reducer was constructed: move or convert "
          "the module before that");
      contribute(i);
    }
  }
  if (!rebuilt_) {
    agree_on_order();
  }
}

void Reducer::Impl::finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& bucket : buckets_) {
    bucket.work.wait();
    bucket.pending = bucket.indices.size();
  }
  for (auto& parameter : parameters_) {
    if (parameter.share == Share::kNothing && !is_nothing(parameter.view)) {
      parameter.tensor.mutable_grad() = parameter.view; // others used it
    }
    parameter.share = Share::kPending;
  }
  backward_ = -1;
  if (!rebuilt_) {
    rebuild_buckets();
  }
}

} // namespace ddp
