#pragma once

#include <ddp/backends/shm/exchange.h>

#include <memory>
#include <vector>

namespace ddp::backends::shm {

/// The sum of a sparse COO tensor of each rank, in all of them. Each rank gets
/// the entries of all, and adds them in the order of the ranks.
class SparseSum final : public Collective {
 public:
  using Tensors = std::vector<at::Tensor>;

  SparseSum(Team& team, const at::Tensor& tensor);

  bool step() override;

 private:
  std::unique_ptr<Collective> gather(
      const at::Tensor& own,
      const Tensors& from_ranks) const;
  void check_headers() const;
  /// Memory for what each rank has like `own`, along the dimension of entries.
  Tensors allocate(const at::Tensor& own, int64_t dimension) const;
  at::Tensor sum() const;

  Team& team_;
  const at::Tensor tensor_;
  const at::Tensor own_;
  const Tensors headers_;
  Tensors indices_;
  Tensors values_;
  std::unique_ptr<Collective> current_;
};

} // namespace ddp::backends::shm
