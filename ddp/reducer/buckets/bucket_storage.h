#pragma once

#include <ddp/reducer/buckets/bucket.h>
#include <ddp/reducer/buckets/parameter_state.h>

namespace ddp::detail {

/// The buckets of a Reducer, in the order of reduction, and the orders of
/// parameters from which they are built.
class BucketStorage {
 public:
  using Order = std::vector<size_t>;

  /// Starts without buckets. `parameters` must outlive this object.
  BucketStorage(std::vector<ParameterState>& parameters, ProcessGroup group);

  /// Adds buckets, built from `order`. Gradients move from the previous slices
  /// to the new slices.
  void append(Order order, const std::vector<BucketIndices>& buckets);

  /// Drops all buckets and orders, for a new layout. `rebuilt`: whether the
  /// new layout replaces the first layout.
  void clear(bool rebuilt);

  /// Prepares for the next backward pass.
  void reset();

  /// The first order is from the start or from the rebuild; each unfreezing of
  /// parameters adds another order.
  const std::vector<Order>& orders() const {
    return orders_;
  }

  std::vector<at::Tensor> tensors() const;
  std::vector<BucketIndices> indices() const;
  /// The buckets' sizes in bytes.
  std::vector<int64_t> sizes() const;
  const std::vector<int64_t>& first_sizes() const {
    return first_sizes_;
  }
  /// Whether buckets were rebuilt.
  bool is_rebuilt() const {
    return rebuilt_;
  }

  Bucket& operator[](size_t index) {
    return buckets_[index];
  }
  size_t size() const {
    return buckets_.size();
  }
  std::vector<Bucket>::iterator begin() {
    return buckets_.begin();
  }
  std::vector<Bucket>::iterator end() {
    return buckets_.end();
  }
  const std::vector<Bucket>& all() const {
    return buckets_;
  }

 private:
  std::vector<ParameterState>& parameters_;
  ProcessGroup group_;
  std::vector<Bucket> buckets_;
  std::vector<Order> orders_;
  std::vector<int64_t> first_sizes_;
  bool rebuilt_ = false;
};

} // namespace ddp::detail
