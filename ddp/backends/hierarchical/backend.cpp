#include <ddp/backends/hierarchical/backend.h>

#include <c10/util/Exception.h>

#include <utility>

namespace ddp::backends::hierarchical {

Backend::Backend(
    const std::vector<std::string>& hosts,
    int rank,
    const Parts& parts)
    : c10d::Backend(rank, static_cast<int>(hosts.size())),
      within_(parts.local, "within the host"),
      between_(parts.between, "between hosts"),
      direct_(parts.direct, "among all ranks"),
      arguments_("hierarchical", rank_, size_),
      placement_(hosts),
      host_(placement_.host[rank]),
      place_(placement_.place[rank]),
      // The parts may know how to tell the other ranks.
      queue_([this] { for_parts(&c10d::Backend::abort); }) {
  init();
}

const std::string Backend::getBackendName() const {
  return "hierarchical";
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() {
  return c10::make_intrusive<Options>(
      "hierarchical", direct_.part()->getBackendOptions()->timeout);
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  for_parts(&c10d::Backend::setTimeout, timeout);
}

void Backend::setSequenceNumberForGroup() {} // it starts at 0 on every rank

uint64_t Backend::getSequenceNumberForGroup() {
  return queue_.pushed();
}

bool Backend::supportsTensorAlloc(c10::DeviceIndex device) {
  return within_.part() && within_.part()->supportsTensorAlloc(device);
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK(within_.part(), "hierarchical: this rank is alone on its host");
  return within_.part()->allocateTensor(size, std::move(options));
}

void Backend::abort() {
  queue_.break_off("the group was aborted");
  for_parts(&c10d::Backend::abort);
}

void Backend::shutdown() {
  queue_.break_off("the group was shut down");
  for_parts(&c10d::Backend::shutdown);
}

void Backend::check_usable(const char* name) const {
  const auto breakage = queue_.breakage();
  if (!breakage.empty()) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(
            name,
            " over hierarchical on rank ",
            rank_,
            " of ",
            size_,
            ": the group failed before: ",
            breakage));
  }
}

c10d::Backend& Backend::direct(const char* name) const {
  check_usable(name);
  return *direct_.part();
}

Backend::WorkPtr Backend::push(
    c10d::OpType type,
    const char* name,
    const Tensors& outputs,
    std::function<void()> body) {
  check_usable(name);
  auto operation = c10::make_intrusive<Operation>(
      rank_, type, name, outputs, std::move(body));
  queue_.push(operation);
  return operation;
}

at::Tensor Backend::row_of(const at::Tensor& rows, int rank, int64_t length)
    const {
  return rows[placement_.host[rank]][placement_.place[rank]].narrow(
      0, 0, length);
}

c10::intrusive_ptr<c10d::Backend> create(
    const std::vector<std::string>& hosts,
    int rank,
    const Parts& parts) {
  return c10::make_intrusive<Backend>(hosts, rank, parts);
}

} // namespace ddp::backends::hierarchical
