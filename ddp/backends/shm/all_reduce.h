#pragma once

#include <ddp/backends/common/reduction.h>
#include <ddp/backends/shm/collective.h>
#include <ddp/backends/shm/memory/context.h>

namespace ddp::backends::shm {

/// All-reduces a dense tensor. If every rank's tensor is in that rank's heap,
/// each rank reduces a share of the elements in place; otherwise the tensors
/// pass through the slots, piece by piece.
class AllReduce final : public Collective {
 public:
  AllReduce(
      Context& context,
      const at::Tensor& tensor,
      const c10d::ReduceOp& op);

  bool step() override;

 private:
  void publish();
  /// Reads the other ranks' headers.
  void begin();
  bool in_place_step();
  bool pieces_step();

  void put_piece(int64_t piece);
  void take_piece(int64_t piece);
  /// Reduces the newest pieces of all ranks into this rank's tensor.
  void reduce_piece(int64_t piece);
  template <typename BeginOf>
  void reduce_share(int64_t count, BeginOf&& begin_of) const;
  /// The number of elements in a piece.
  int64_t length(int64_t piece) const;

  Context& context_;
  const at::Tensor tensor_;
  const Reduction reduce_;
  const c10d::ReduceOp op_;
  const int64_t element_;
  const int64_t offset_;
  /// The number of elements per piece, which must fit into a slot, and the
  /// number of pieces.
  const int64_t per_piece_;
  const int64_t pieces_;
  bool begun_ = false;
  bool in_place_ = false;
  /// Whether each rank reduces all elements, which takes fewer steps.
  bool alone_ = false;
  /// The index of the next step.
  int64_t next_ = 0;
};

} // namespace ddp::backends::shm
