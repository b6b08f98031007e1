#pragma once

#include <c10/util/FunctionRef.h>
#include <ddp/backends/common/arguments.h>
#include <ddp/failure/call.h>
#include <ddp/support/torch_version.h>

namespace ddp::backends {

/// A backend that forwards its calls to another backend.
class ForwardingBackend : public detail::Backend {
 public:
  using detail::Backend::Backend;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

// A collective of c10d: its parameters and options, and the values on which the
// ranks must agree.
#define DDP_FORWARD(method, Outputs, Inputs, Options, call)           \
  WorkPtr method(                                                     \
      Outputs& outputs, Inputs& inputs, const c10d::Options& options) \
      override {                                                      \
    return forward(debug::call, [&](c10d::Backend& to) {              \
      return to.method(outputs, inputs, options);                     \
    });                                                               \
  }
#define DDP_FORWARD_IN_PLACE(method, Options, call)                         \
  WorkPtr method(Tensors& tensors, const c10d::Options& options) override { \
    return forward(debug::call, [&](c10d::Backend& to) {                    \
      return to.method(tensors, options);                                   \
    });                                                                     \
  }
  // clang-format off
  DDP_FORWARD_IN_PLACE(broadcast, BroadcastOptions,
      call_of("broadcast", tensors, root(options)))
  DDP_FORWARD_IN_PLACE(allreduce, AllreduceOptions,
      call_of("all_reduce", tensors, reduction(options)))
  DDP_FORWARD_IN_PLACE(allreduce_sparse, AllreduceOptions,
      call_of("all_reduce_sparse", tensors, reduction(options)))
  DDP_FORWARD_IN_PLACE(allreduce_coalesced, AllreduceCoalescedOptions,
      call_of("all_reduce_coalesced", tensors, reduction(options)))
  DDP_FORWARD_IN_PLACE(reduce, ReduceOptions,
      call_of("reduce", tensors, reduction(options) + ", " + root(options)))
  // Inputs may differ in length; the outputs have the same shapes on all ranks.
  DDP_FORWARD(allgather, TensorLists, Tensors, AllgatherOptions,
      call_of("all_gather", first_of(outputs)))
  DDP_FORWARD(_allgather_base, at::Tensor, at::Tensor, AllgatherOptions,
      call_of("all_gather_into_tensor", {outputs}))
  DDP_FORWARD(allgather_coalesced, TensorLists, Tensors, AllgatherOptions,
      call_of("all_gather_coalesced", inputs))
  DDP_FORWARD(
      allgather_into_tensor_coalesced, Tensors, Tensors, AllgatherOptions,
      call_of("all_gather_into_tensor_coalesced", inputs))
  DDP_FORWARD(gather, TensorLists, Tensors, GatherOptions,
      uneven_call_of("gather", inputs, root(options)))
  DDP_FORWARD(scatter, Tensors, TensorLists, ScatterOptions,
      uneven_call_of("scatter", outputs, root(options)))
  DDP_FORWARD(reduce_scatter, Tensors, TensorLists, ReduceScatterOptions,
      call_of("reduce_scatter", first_of(inputs), reduction(options)))
  DDP_FORWARD(
      _reduce_scatter_base, at::Tensor, at::Tensor, ReduceScatterOptions,
      call_of("reduce_scatter_tensor", {inputs}, reduction(options)))
  DDP_FORWARD(
      reduce_scatter_tensor_coalesced, Tensors, Tensors, ReduceScatterOptions,
      call_of("reduce_scatter_tensor_coalesced", inputs, reduction(options)))
  DDP_FORWARD(alltoall, Tensors, Tensors, AllToAllOptions,
      uneven_call_of("all_to_all", inputs))
  // clang-format on
#undef DDP_FORWARD
#undef DDP_FORWARD_IN_PLACE

  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override {
    return forward(
        debug::uneven_call_of("all_to_all_single", {input}),
        [&](c10d::Backend& to) {
          return to.alltoall_base(
              output, input, output_sizes, input_sizes, options);
        });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return forward(debug::call_of("barrier", {}), [&](c10d::Backend& to) {
      return to.barrier(options);
    });
  }
  void monitoredBarrier(
      const c10d::BarrierOptions& options,
      bool wait_all_ranks) override {
    forward(
        debug::call_of("monitored_barrier", {}),
        [&](c10d::Backend& to) -> WorkPtr {
          to.monitoredBarrier(options, wait_all_ranks);
          return nullptr;
        });
  }
  WorkPtr send(Tensors& tensors, int peer, int tag) override {
    return forward_message(
        debug::call_of("send", tensors, c10::str("to ", peer)),
        [&](c10d::Backend& to) { return to.send(tensors, peer, tag); });
  }
  WorkPtr recv(Tensors& tensors, int peer, int tag) override {
    return forward_message(
        debug::call_of("recv", tensors, c10::str("from ", peer)),
        [&](c10d::Backend& to) { return to.recv(tensors, peer, tag); });
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return forward_message(
        debug::call_of("recv_anysource", tensors),
        [&](c10d::Backend& to) { return to.recvAnysource(tensors, tag); });
  }

 protected:
  using Launch = c10::function_ref<WorkPtr(c10d::Backend& to)>;
  /// Launches a collective on the other backend.
  virtual WorkPtr forward(const debug::Call& call, Launch launch) = 0;
  /// Launches a message between two ranks on the other backend.
  virtual WorkPtr forward_message(const debug::Call& call, Launch launch) = 0;

 private:
  template <typename Options>
  static std::string reduction(const Options& options) {
    return reduction_name(options.reduceOp.op_);
  }
  template <typename Options>
  static std::string root(const Options& options) {
    return c10::str("root ", options.rootRank);
  }
  /// Returns the only list: c10d has a list for each GPU of a rank, but a rank
  /// of this library has one GPU.
  static at::TensorList first_of(const TensorLists& lists) {
    return lists.empty() ? at::TensorList() : at::TensorList(lists.front());
  }
};

} // namespace ddp::backends
