#pragma once

#include <ddp/backends/shm/collective.h>
#include <ddp/backends/shm/memory/context.h>

namespace ddp::backends::shm {

/// The properties that must be equal on all ranks.
struct ExchangeKind {
  c10d::OpType type;
  c10::ScalarType dtype;
  int root = -1;
};

/// Moves contiguous tensors through the slots, piece by piece: one tensor to
/// each rank, or the same tensor to all ranks, and one tensor from each rank.
/// An undefined tensor means no data.
class Exchange final : public Collective {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `to_ranks` has one tensor for each rank, or a single tensor for all ranks
  /// that expect a tensor.
  Exchange(
      Context& context,
      const ExchangeKind& kind,
      Tensors to_ranks,
      Tensors from_ranks);

  bool step() override;

 private:
  void publish();
  /// Checks the other ranks' headers.
  void begin();
  void check_length(int from) const;
  /// Copies the data from this rank to itself.
  void keep_own() const;
  void put_piece(int64_t piece) const;
  void take_pieces(int64_t piece) const;

  /// The offset of this rank's part in the stream of bytes that `from` sends.
  int64_t begin_of_part(int from) const;

  Context& context_;
  const ExchangeKind kind_;
  const bool same_for_all_;
  const Tensors to_ranks_;
  const Tensors from_ranks_;
  std::vector<int64_t> begins_;
  int64_t pieces_ = 0;
  int64_t next_ = 0;
};

} // namespace ddp::backends::shm
