#include <ddp/backends/mpi/backend.h>

#include <ddp/backends/mpi/operators.h>

#include <c10/util/Exception.h>

namespace ddp::backends::mpi {
namespace {

void check_contiguous(const Task& task, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      tensor.layout() != at::kStrided || tensor.is_contiguous(),
      task.name,
      " over mpi takes contiguous tensors; got one of sizes ",
      tensor.sizes(),
      " and strides ",
      tensor.strides(),
      ". tensor.contiguous() makes one");
}

} // namespace

Backend::Backend(
    std::shared_ptr<Channel> channel,
    std::chrono::milliseconds timeout,
    int64_t largest)
    : c10d::Backend(channel->rank, channel->size),
      channel_(std::move(channel)),
      timeout_(timeout),
      largest_(largest) {
  const auto guard = Engine::get().exclusive();
  create_operators();
  init();
}

const std::string Backend::getBackendName() const {
  return "mpi";
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() {
  return c10::make_intrusive<Options>("mpi", timeout_);
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
}

void Backend::setSequenceNumberForGroup() {} // it starts at 0 on every rank

uint64_t Backend::getSequenceNumberForGroup() {
  return channel_->launched;
}

void Backend::abort() {
  channel_->set_breakage("it was aborted");
}

Task Backend::task(
    c10d::OpType type,
    const char* name,
    std::chrono::milliseconds timeout) const {
  const auto breakage = channel_->breakage();
  if (!breakage.empty() || !mpi_running()) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(
            name,
            " over mpi on rank ",
            rank_,
            " of ",
            size_,
            breakage.empty() ? ": MPI was finalised"
                             : ": the group failed before: " + breakage));
  }
  Task task;
  task.type = type;
  task.name = name;
  task.timeout = timeout.count() > 0 ? timeout : timeout_.load();
  task.largest = largest_;
  return task;
}

Backend::WorkPtr Backend::launch(Task task) {
  task.staging.close();
  const bool is_message = c10d::isP2POp(task.type);
  auto operation = c10::make_intrusive<Operation>(channel_, std::move(task));
  auto& engine = Engine::get();
  engine.submit(operation);
  if (engine.threading() == Threading::kCaller && !is_message) {
    engine.wait(*operation, Operation::Clock::time_point::max());
  }
  return operation;
}

void Backend::add(Task& task, const at::Tensor& tensor) const {
  TORCH_CHECK_VALUE(
      tensor.defined(), task.name, " over mpi got an undefined tensor");
  const bool strided = tensor.layout() == at::kStrided;
  TORCH_CHECK_VALUE(
      strided && tensor.is_non_overlapping_and_dense(),
      task.name,
      " over mpi takes dense tensors without gaps; got one of layout ",
      tensor.layout(),
      ", sizes ",
      tensor.sizes(),
      strided ? c10::str(" and strides ", tensor.strides()) : "",
      ". tensor.contiguous() makes one that fits");
  task.bytes += static_cast<int64_t>(tensor.nbytes());
}

at::Tensor Backend::input(Task& task, const at::Tensor& tensor) const {
  add(task, tensor);
  return task.staging.input(tensor);
}

at::Tensor Backend::output(Task& task, const at::Tensor& tensor) const {
  add(task, tensor);
  task.outputs.push_back(tensor);
  return task.staging.output(tensor);
}

at::Tensor Backend::flat_input(Task& task, const at::Tensor& tensor) const {
  check_contiguous(task, tensor);
  return input(task, tensor);
}

at::Tensor Backend::flat_output(Task& task, const at::Tensor& tensor) const {
  check_contiguous(task, tensor);
  return output(task, tensor);
}

const at::Tensor& Backend::only(const Task& task, const Tensors& tensors)
    const {
  TORCH_CHECK_VALUE(
      tensors.size() == 1,
      task.name,
      " over mpi takes one tensor, got ",
      tensors.size());
  return tensors.front();
}

const Backend::Tensors& Backend::only_list(
    const Task& task,
    const TensorLists& lists) const {
  TORCH_CHECK_VALUE(
      lists.size() == 1,
      task.name,
      " over mpi takes one list of tensors, got ",
      lists.size());
  check_list(task, lists.front().size());
  return lists.front();
}

void Backend::check_list(const Task& task, size_t length) const {
  TORCH_CHECK_VALUE(
      length == static_cast<size_t>(size_),
      task.name,
      " over mpi takes a list with one entry for each of ",
      size_,
      " ranks, got ",
      length);
}

void Backend::check_pairs(
    const Task& task,
    const Tensors& inputs,
    const Tensors& outputs) {
  TORCH_CHECK_VALUE(
      inputs.size() == outputs.size(),
      task.name,
      " over mpi: ",
      inputs.size(),
      " inputs, but ",
      outputs.size(),
      " outputs");
}

void Backend::check_same_dtype(
    const Task& task,
    const at::Tensor& tensor,
    at::TensorList others) {
  for (const auto& other : others) {
    TORCH_CHECK_VALUE(
        other.scalar_type() == tensor.scalar_type(),
        task.name,
        " over mpi takes tensors of one dtype, got ",
        tensor.scalar_type(),
        " and ",
        other.scalar_type());
  }
}

void Backend::check_root(const Task& task, int64_t root) const {
  TORCH_CHECK_VALUE(
      root >= 0 && root < size_,
      task.name,
      " over mpi: the root is rank ",
      root,
      " of ",
      size_);
}

} // namespace ddp::backends::mpi
