#include <ddp/reducer/observers/replica_checksums.h>

#include <ddp/internal/check.h>
#include <ddp/model/tensor_contents.h>
#include <ddp/process_group/agreement/store_gather.h>
#include <ddp/support/detached_task.h>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace ddp::detail {
namespace {

using Checksums = std::vector<uint64_t>;

constexpr std::chrono::seconds kPeersTime(1);

constexpr const char* kOtherSteps =
    "Do all ranks take the same steps, with the same optimizer and learning "
    "rate? Did one rank load weights alone? Was the Reducer constructed after "
    "all layers were registered?";
constexpr const char* kNeverReduced =
    "No gradient was averaged: was each backward pass under no_sync(), was the "
    "wrapper's module called and not the wrapper, were layers added later, or "
    "did autograd::grad() compute the gradients?";

/// The store's key that exists once the last parameters were compared.
constexpr const char* kCompared = "last_parameters_compared";

/// Enough to distinguish large gradients.
constexpr int64_t kMaxElements = int64_t(1) << 16;

/// The stream of the last step may not be the current one.
void await_last_step(const std::vector<at::Tensor>& tensors) {
  std::unordered_set<c10::Device> devices;
  for (const auto& tensor : tensors) {
    const auto device = tensor.device();
    if (!device.is_cpu() && devices.insert(device).second) {
      c10::impl::VirtualGuardImpl(device.type())
          .synchronizeDevice(device.index());
    }
  }
}

/// Returns the checksums by rank, on the last rank that arrives.
std::optional<std::vector<Checksums>> gathered(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const char* key,
    const Checksums& own) {
  if (!store || !store->hasExtendedApi()) {
    return std::nullopt;
  }
  const StoreGather::Part part{
      group.rank(),
      {reinterpret_cast<const char*>(own.data()),
       own.size() * sizeof(uint64_t)}};
  const auto parts = answered_within(
      kPeersTime,
      [gather = StoreGather(store, key), part, size = group.size()]() mutable {
        return gather.add(part, size);
      });
  if (!parts) {
    return std::nullopt;
  }
  std::vector<Checksums> by_rank(parts->size());
  for (const auto& [rank, content] : *parts) {
    auto& checksums = by_rank.at(rank);
    checksums.resize(content.size() / sizeof(uint64_t));
    if (!checksums.empty()) {
      std::memcpy(checksums.data(), content.data(), content.size());
    }
  }
  return by_rank;
}

} // namespace

FirstGradients::FirstGradients(
    c10::intrusive_ptr<c10d::Store> store,
    const ProcessGroup& group)
    : store_(std::move(store)), group_(group) {}

void FirstGradients::on_own_gradient(
    const ParameterState& /*parameter*/,
    const at::Tensor& gradient) {
  const auto parts = dense_parts(gradient);
  const auto& values = parts[0];
  if (values.numel() == 0) {
    return;
  }
  const auto some = values.detach().flatten().narrow(
      0, 0, std::min(values.numel(), kMaxElements));
  if (some.count_nonzero().item<int64_t>() > 0) { // zeros show no data
    checksum_ += tensor_hash(some, static_cast<uint64_t>(values.numel()));
  }
}

void FirstGradients::on_all_launched(const Reduction& reduction) {
  if (reduction.step != kSteps) {
    return;
  }
  try {
    const auto all = gathered(store_, group_, "first_gradients", {checksum_});
    if (all && checksum_ != 0 &&
        std::equal(all->begin() + 1, all->end(), all->begin())) {
      TORCH_WARN(
          "ddp: in the first backward passes, all ranks have bit-identical "
          "gradients: do they train on the same data? A DistributedSampler "
          "gives each rank its share. If the first batches are the same on "
          "purpose, DDP_CHECK_REPLICAS=0 turns this check off");
    }
  } catch (const std::exception&) { // the store ended or does not answer
  }
}

void compare_last_parameters(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const NamedTensors& parameters,
    int64_t step,
    bool hosts_store) {
  try {
    await_last_step(parameters.tensors);
    Checksums own;
    for (const auto& tensor : parameters.tensors) {
      own.push_back(tensor_hash(tensor, 0));
    }
    const auto all = gathered(store, group, "last_parameters", own);
    if (!all) {
      if (hosts_store) {
        store->wait({kCompared}, kPeersTime);
      }
      return;
    }
    store->set(kCompared, "");
    for (size_t i = 0; i < own.size(); ++i) {
      for (size_t r = 1; r < all->size(); ++r) {
        if (all->at(r).at(i) != all->front().at(i)) {
          TORCH_WARN(detail::format(
              "ddp: at the end of training, after {}{}, the parameter {} of "
              "rank {} differs from rank 0's. {} DDP_CHECK_REPLICAS=0 "
              "turns this check off",
              step,
              step == 1 ? " step" : " steps",
              parameters.names[i],
              r,
              step == 0 ? kNeverReduced : kOtherSteps));
          return;
        }
      }
    }
  } catch (const std::exception&) { // as above
  }
}

} // namespace ddp::detail
