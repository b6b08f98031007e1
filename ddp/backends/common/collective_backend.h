#pragma once

#include <ddp/backends/common/arguments.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <functional>

namespace ddp::backends {

/// Checks the arguments of c10d's collectives, and implements the collectives
/// in terms of the few operations that this library's backends provide.
class CollectiveBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  CollectiveBackend(
      const char* name,
      int rank,
      int size,
      std::chrono::milliseconds timeout);

  const std::string getBackendName() const override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override;

  WorkPtr allgather(TensorLists&, Tensors&, const c10d::AllgatherOptions&)
      override;
  WorkPtr _allgather_base(
      at::Tensor&,
      at::Tensor&,
      const c10d::AllgatherOptions&) override;
  WorkPtr gather(TensorLists&, Tensors&, const c10d::GatherOptions&) override;
  WorkPtr scatter(Tensors&, TensorLists&, const c10d::ScatterOptions&) override;
  WorkPtr alltoall_base(
      at::Tensor&,
      at::Tensor&,
      std::vector<int64_t>&,
      std::vector<int64_t>&,
      const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;

  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr reduce_scatter(
      Tensors&,
      TensorLists&,
      const c10d::ReduceScatterOptions&) override;
  WorkPtr _reduce_scatter_base(
      at::Tensor&,
      at::Tensor&,
      const c10d::ReduceScatterOptions&) override;

 protected:
  /// The program's call.
  struct Call {
    Call(c10d::OpType its_type, const char* its_name)
        : type(its_type), name(its_name) {}
    template <typename Options>
    Call(c10d::OpType its_type, const char* its_name, const Options& options)
        : type(its_type),
          name(its_name),
          timeout(options.timeout),
          async(options.asyncOp) {}

    c10d::OpType type;
    /// The name for messages, such as "all_reduce".
    const char* name;
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    /// False if the caller announced that it waits immediately.
    bool async = true;
  };

  /// The tensors that this rank sends to and receives from each rank, by rank;
  /// an undefined tensor means no data. A single tensor in `to_ranks` is sent
  /// to all ranks.
  struct Exchange {
    Tensors to_ranks;
    Tensors from_ranks;
    at::ScalarType dtype = at::kByte;
    /// The rank that sends or receives all tensors, or -1.
    int64_t root = -1;
  };

  /// A reduction of the ranks' inputs for this rank.
  struct Part {
    at::Tensor output;
    /// This rank's input for each rank.
    Tensors inputs;
  };

  /// A sequence of exchanges that form one operation.
  struct Plan {
    std::vector<Exchange> exchanges;
    /// The outputs, as the caller passed them.
    Tensors outputs{};
    /// Returns additional exchanges once the first exchanges are complete.
    /// `next` and `finish` must hold the tensors of these exchanges.
    std::function<std::vector<Exchange>()> next{};
    /// The work after the last exchange.
    std::function<void()> finish{};
  };

  virtual WorkPtr exchange(const Call& call, Plan plan) = 0;
  /// Concatenates the inputs of all ranks into the output.
  virtual WorkPtr all_gather_into(
      const Call& call,
      const at::Tensor& output,
      const at::Tensor& input);
  /// Reduces a dense tensor in place; the caller has not checked the tensor.
  virtual WorkPtr all_reduce(
      const Call& call,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op) = 0;
  virtual WorkPtr reduce_parts(
      const Call& call,
      const Part& part,
      const c10d::ReduceOp& op) = 0;

  std::chrono::milliseconds timeout_of(const Call& call) const;

  const char* const name_;
  const Arguments arguments_;
  std::atomic<std::chrono::milliseconds> timeout_;

 private:
  void check(const Call& call, const Tensors& inputs, const Tensors& outputs)
      const;
  Exchange all_gather(
      const Call& call,
      const at::Tensor& input,
      const Tensors& outputs) const;
  /// Each rank receives the entries of all ranks, and adds them in rank order.
  WorkPtr sparse_sum(
      const Call& call,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op);
  Part part(const Call& call, const at::Tensor& output, const Tensors& inputs)
      const;
};

} // namespace ddp::backends
