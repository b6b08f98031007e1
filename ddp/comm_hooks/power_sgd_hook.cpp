#include <ddp/comm_hooks/power_sgd_hook.h>

#include <ddp/comm_hooks/low_rank.h>
#include <ddp/comm_hooks/rounds.h>
#include <ddp/comm_hooks/step_count.h>
#include <ddp/internal/check.h>
#include <ddp/random.h>
#include <ddp/support/containers.h>

#include <ATen/ATen.h>
#include <torch/csrc/utils/tensor_flatten.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace ddp {
namespace {

using c10::IValue;

constexpr const char* kBegun = "iterations";
constexpr const char* kGenerator = "generator";
constexpr const char* kFactors = "factors";
constexpr const char* kErrors = "errors";

/// The state of a bucket that the next step needs.
struct Memory {
  /// The bucket's parameters; empty after a load.
  std::vector<at::Tensor> parameters;
  at::Tensor error;
  /// All Qs.
  at::Tensor factors;
};

using Memories = std::vector<Memory>;

using Shapes = detail::MatricesByShape;

void check(const PowerSGDOptions& options) {
  DDP_CHECK_VALUE(
      options.matrix_approximation_rank() >= 1,
      "PowerSGDOptions: matrix_approximation_rank is {}, expected 1 or more",
      options.matrix_approximation_rank());
  DDP_CHECK_VALUE(
      options.start_iteration() > 1 ||
          !(options.use_error_feedback() || options.warm_start()),
      "PowerSGDOptions: start_iteration is {}, expected 2 or more with "
      "use_error_feedback or warm_start: buckets are rebuilt after the first "
      "backward passes",
      options.start_iteration());
  DDP_CHECK_VALUE(
      options.start_iteration() >= 0,
      "PowerSGDOptions: start_iteration is {}, expected 0 or more",
      options.start_iteration());
  DDP_CHECK_VALUE(
      options.min_compression_rate() >= 0 &&
          std::isfinite(options.min_compression_rate()) &&
          options.orthogonalization_epsilon() >= 0 &&
          std::isfinite(options.orthogonalization_epsilon()),
      "PowerSGDOptions: min_compression_rate is {} and "
      "orthogonalization_epsilon is {}, expected finite numbers of 0 or more",
      options.min_compression_rate(),
      options.orthogonalization_epsilon());
  DDP_CHECK_VALUE(
      options.random_seed() >= 0 &&
          options.random_seed() <= std::numeric_limits<uint32_t>::max(),
      "PowerSGDOptions: random_seed is {}, expected 0 to 4294967295",
      options.random_seed());
}

bool are_same(
    const std::vector<at::Tensor>& a,
    const std::vector<at::Tensor>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](auto& x, auto& y) {
        return x.is_same(y);
      });
}

/// Makes `tensor` a tensor of `numel` elements like `other`; returns false if
/// the tensor is new.
bool fit(at::Tensor& tensor, int64_t numel, const at::Tensor& other) {
  const bool fits = tensor.defined() && tensor.numel() == numel &&
      tensor.scalar_type() == other.scalar_type();
  tensor =
      fits ? tensor.to(other.device()) : at::zeros({numel}, other.options());
  return fits;
}

/// The bucket's elements as a square, padded with zeros.
at::Tensor square_of(const at::Tensor& buffer) {
  const auto side = static_cast<int64_t>(
      std::ceil(std::sqrt(static_cast<double>(buffer.numel()))));
  auto square = at::zeros({side * side}, buffer.options());
  square.narrow(0, 0, buffer.numel()).copy_(buffer);
  return square;
}

/// The next `randint(bound)` of numpy's `RandomState(seed)`, if `generator` was
/// seeded with `seed`: 32 bits at a time, masked, until they are less than
/// `bound`, from 1 on. Source: numpy/random/src/distributions/distributions.c.
uint32_t numpy_randint(std::mt19937& generator, uint32_t bound) {
  uint32_t mask = bound - 1;
  for (int shift = 1; shift < 32; shift *= 2) {
    mask |= mask >> shift;
  }
  while (true) {
    const auto value = static_cast<uint32_t>(generator()) & mask;
    if (value < bound) {
      return value;
    }
  }
}

IValue to_list(const Memories& memories, at::Tensor Memory::*member) {
  auto list = detail::new_list();
  for (const auto& memory : memories) {
    const auto& tensor = memory.*member;
    list.push_back(
        tensor.defined() ? tensor.to(at::kCPU, false, /*copy=*/true)
                         : at::empty({0}));
  }
  return list;
}

void from_list(const IValue& list, Memories& memories, at::Tensor Memory::*to) {
  const auto values = list.toListRef();
  memories.resize(std::max(memories.size(), values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    memories[i].*to = values[i].toTensor().clone();
  }
}

/// An entry of a state; throws if the entry is missing or not `good`.
template <typename Good>
IValue entry(const IValue& state, const char* key, Good good) {
  DDP_CHECK_VALUE(
      state.isGenericDict() && state.toGenericDict().contains(key) &&
          good(state.toGenericDict().at(key)),
      "PowerSGDHook: the state was not saved by a PowerSGDHook");
  return state.toGenericDict().at(key);
}

bool is_tensor_list(const IValue& value) {
  return value.isList() &&
      std::all_of(
             value.toListRef().begin(),
             value.toListRef().end(),
             [](const IValue& element) { return element.isTensor(); });
}

} // namespace

struct DDP_LOCAL PowerSGDHook::Impl {
  explicit Impl(const PowerSGDOptions& its_options)
      : options(its_options),
        generator(static_cast<uint32_t>(its_options.random_seed())) {}

  Memory& memory_of(const GradBucket& bucket) {
    memories.resize(std::max(memories.size(), bucket.index + 1));
    auto& memory = memories[bucket.index];
    if (!memory.parameters.empty() &&
        !are_same(memory.parameters, bucket.parameters)) {
      memory = {};
    }
    memory.parameters = bucket.parameters;
    return memory;
  }

  /// Divides the gradients into matrices to be compressed, those of one shape
  /// together, and `others`.
  Shapes sort(
      const GradBucket& bucket,
      const at::Tensor& buffer,
      std::vector<at::Tensor>& others) {
    Shapes shapes;
    int64_t offset = 0;
    for (const auto& gradient : bucket.gradients) {
      const auto numel = gradient.numel();
      const auto flat = buffer.narrow(0, offset, numel);
      offset += numel;
      elements += numel;
      const auto rows =
          gradient.dim() > 0 ? std::max(gradient.size(0), int64_t{1}) : 1;
      const auto columns = numel / rows;
      const auto rank =
          std::min({rows, columns, options.matrix_approximation_rank()});
      const auto compressed = (rows + columns) * rank;
      if (static_cast<double>(compressed) * options.min_compression_rate() >=
          static_cast<double>(numel)) {
        others.push_back(flat);
        sent += numel;
        continue;
      }
      sent += compressed;
      const auto matrix = flat.view({1, rows, columns});
      const auto same = std::find_if(
          shapes.begin(), shapes.end(), [&](const auto& others_of_shape) {
            return others_of_shape.front().sizes() == matrix.sizes();
          });
      same == shapes.end() ? shapes.push_back({matrix})
                           : same->push_back(matrix);
    }
    if (offset == 0) {
      others.push_back(buffer); // ranks still run the collective
    }
    return shapes;
  }

  Shapes as_one(const at::Tensor& buffer, const at::Tensor& square) {
    const auto side =
        std::lround(std::sqrt(static_cast<double>(square.numel())));
    elements += buffer.numel();
    sent += 2 * side * std::min(side, options.matrix_approximation_rank());
    return {{square.view({1, side, side})}};
  }

  /// Averages all tensors over ranks, the matrices approximately.
  void average(
      const std::vector<at::Tensor>& matrices,
      const std::vector<at::Tensor>& others,
      Memory& memory,
      const ProcessGroup& group) {
    detail::LowRank low_rank(
        matrices,
        options.matrix_approximation_rank(),
        options.orthogonalization_epsilon());
    const auto& example = matrices.empty() ? others.front() : matrices.front();
    const bool known = fit(memory.factors, low_rank.q_elements(), example);
    low_rank.use(memory.factors);
    // As in Python, a number is drawn even if nothing is compressed.
    if (options.warm_start() && known) {
      low_rank.reuse();
    } else {
      low_rank.randomize(numpy_randint(generator, 1'000'000'000));
    }
    const auto flat = others.empty() ? at::Tensor() : at::cat(others);
    auto work = flat.defined() ? group.all_reduce_async(flat) : Work();
    low_rank.project();
    work.wait();
    low_rank.reduce(group);
    if (flat.defined()) {
      flat.div_(group.size());
      at::_foreach_copy_(
          others, torch::utils::unflatten_dense_tensors(flat, others));
    }
  }

  at::Tensor compress(const GradBucket& bucket, const ProcessGroup& group) {
    auto& memory = memory_of(bucket);
    const bool whole = options.whole_bucket();
    auto input = whole ? square_of(bucket.buffer) : bucket.buffer;
    at::Tensor exact;
    if (options.use_error_feedback()) {
      if (fit(memory.error, input.numel(), input)) {
        input.add_(memory.error);
      }
      exact = input.clone();
    }
    std::vector<at::Tensor> others;
    const auto shapes =
        whole ? as_one(bucket.buffer, input) : sort(bucket, input, others);
    const auto matrices =
        detail::join(shapes, options.batch_tensors_with_same_shape());
    average(matrices, others, memory, group);
    detail::split(matrices, shapes);
    // A NaN must not persist.
    memory.factors.nan_to_num_(0, 0, 0);
    if (exact.defined()) {
      // In place: steps may run on different streams of a GPU.
      at::sub_out(memory.error, exact, input).nan_to_num_(0, 0, 0);
    }
    if (whole) {
      at::Tensor(bucket.buffer)
          .copy_(input.narrow(0, 0, bucket.buffer.numel()));
    }
    return bucket.buffer;
  }

  PowerSGDOptions options;
  std::mt19937 generator;
  detail::StepCount steps;
  Memories memories;
  int64_t elements = 0;
  int64_t sent = 0;
  detail::Rounds rounds; // last: its thread uses the others
};

PowerSGDHook::PowerSGDHook(const PowerSGDOptions& options) {
  check(options);
  impl_ = std::make_unique<Impl>(options);
}

PowerSGDHook::~PowerSGDHook() = default;

std::string PowerSGDHook::describe() const {
  const auto& options = impl_->options;
  return detail::format(
      "{}(matrix_approximation_rank {}, start_iteration {}, "
      "min_compression_rate {}, use_error_feedback {}, warm_start {}, "
      "orthogonalization_epsilon {}, random_seed {}, "
      "batch_tensors_with_same_shape {}, whole_bucket {})",
      CommHook::describe(),
      options.matrix_approximation_rank(),
      options.start_iteration(),
      options.min_compression_rate(),
      options.use_error_feedback(),
      options.warm_start(),
      options.orthogonalization_epsilon(),
      options.random_seed(),
      options.batch_tensors_with_same_shape(),
      options.whole_bucket());
}

ProcessGroup PowerSGDHook::connect(const ProcessGroup& group) {
  return impl_->rounds.connect(group);
}

c10::intrusive_ptr<c10::ivalue::Future> PowerSGDHook::run(
    const GradBucket& bucket,
    const ProcessGroup& group) {
  if (impl_->steps.before(bucket) < impl_->options.start_iteration() ||
      !bucket.buffer.is_floating_point()) {
    return detail::all_reduce_mean(bucket.buffer, group);
  }
  return impl_->rounds.run(
      bucket.buffer,
      group,
      [impl = impl_.get(), bucket](const ProcessGroup& own) {
        return impl->compress(bucket, own);
      });
}

double PowerSGDHook::compression_rate() const {
  return impl_->sent == 0
      ? 0
      : static_cast<double>(impl_->elements) / static_cast<double>(impl_->sent);
}

IValue PowerSGDHook::state_dict() const {
  auto dict = detail::new_dict();
  dict.insert(kBegun, impl_->steps.begun());
  dict.insert(kGenerator, generator_state(impl_->generator));
  dict.insert(kFactors, to_list(impl_->memories, &Memory::factors));
  return dict;
}

void PowerSGDHook::load_state_dict(const IValue& state) {
  const auto begun =
      entry(state, kBegun, [](const IValue& value) { return value.isInt(); });
  const auto saved = entry(
      state, kGenerator, [](const IValue& value) { return value.isTensor(); });
  const auto factors = entry(state, kFactors, is_tensor_list);
  set_generator_state(impl_->generator, saved.toTensor());
  impl_->steps.set(begun.toInt());
  impl_->memories.clear();
  from_list(factors, impl_->memories, &Memory::factors);
}

IValue PowerSGDHook::rank_state_dict() const {
  if (!impl_->options.use_error_feedback()) {
    return {};
  }
  auto dict = detail::new_dict();
  dict.insert(kErrors, to_list(impl_->memories, &Memory::error));
  return dict;
}

void PowerSGDHook::load_rank_state_dict(const IValue& state) {
  from_list(
      entry(state, kErrors, is_tensor_list), impl_->memories, &Memory::error);
}

} // namespace ddp
