#include <ddp/backends/shm/backend.h>

#include <ddp/backends/shm.h>
#include <ddp/backends/shm/handshake.h>
#include <ddp/internal/check.h>

#include <list>

namespace ddp::backends::shm {

std::string unavailable(int64_t ranks) {
  ranks = std::min<int64_t>(ranks, kMaxRanks); // larger groups span hosts
  try {
    open_own_process();
    const Memory memory(ranks);
    std::list<Mapping> others;
    for (int64_t rank = 1; rank < ranks; ++rank) {
      others.emplace_back(memory.descriptor());
    }
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

c10::intrusive_ptr<c10d::Backend> create(const BackendOptions& options) {
  DDP_CHECK_VALUE(
      options.size <= kMaxRanks,
      "backend shm supports up to {} ranks, not {}; backend gloo has no limit",
      kMaxRanks,
      options.size);
  const auto memory = std::make_shared<Memory>(options.size);
  auto context = std::make_unique<Context>(
      options.rank, exchange_memory(*memory, options), options.names);
  return c10::make_intrusive<Backend>(
      std::move(context), memory, options.timeout);
}

std::string ended_rank(
    const c10d::Backend& backend,
    const std::vector<int64_t>& ranks) {
  const auto* shm = dynamic_cast<const Backend*>(&backend);
  return shm ? shm->ended_rank(ranks) : "";
}

Backend::Backend(
    std::unique_ptr<Context> context,
    std::shared_ptr<Memory> memory,
    std::chrono::milliseconds timeout)
    : CollectiveBackend("shm", context->rank(), context->size(), timeout),
      engine_(std::make_shared<Engine>(std::move(context))),
      memory_(std::move(memory)) {
  init();
}

Backend::~Backend() {
  engine_->stop();
}

uint64_t Backend::getSequenceNumberForGroup() {
  return engine_->count();
}

bool Backend::supportsTensorAlloc(c10::DeviceIndex /*index*/) {
  return size_ > 1; // a single rank shares no memory
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  DDP_CHECK_VALUE(
      options.device().is_cpu() && size >= 0,
      "backend shm allocates tensors only on the CPU, not {} elements on {}",
      size,
      options.device());
  return memory_->tensor(size, options);
}

void Backend::abort() {
  engine_->break_group("it was aborted");
}

std::string Backend::ended_rank(const std::vector<int64_t>& ranks) const {
  for (const auto rank : ranks) {
    const auto number = static_cast<int>(rank);
    if (engine_->context().has_ended(number)) {
      return engine_->context().describe_end(number);
    }
  }
  return "";
}

Task Backend::task(const Call& call) const {
  arguments_.check_usable(call.name, engine_->first_error());
  Task task;
  task.type = call.type;
  task.name = call.name;
  task.timeout = timeout_of(call);
  task.waited_for = !call.async;
  return task;
}

void Backend::add(Task& task, const at::Tensor& tensor) const {
  arguments_.check_dense(task.name, tensor);
  arguments_.check_on_cpu(task.name, tensor);
  task.bytes += static_cast<int64_t>(tensor.nbytes());
}

} // namespace ddp::backends::shm
