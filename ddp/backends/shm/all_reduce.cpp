#include <ddp/backends/shm/all_reduce.h>

#include <algorithm>
#include <cstring>

namespace ddp::backends::shm {
namespace {

// Up to these limits, reading all ranks' data costs less than another step.
constexpr int kFewRanks = 3;
constexpr int64_t kFewBytes = 32 << 10;
// Slices begin at multiples of this number, so ranks share no cache line.
constexpr int64_t kSliceElements = 64;

struct Slice {
  int64_t begin;
  int64_t count;
};

/// A rank's part of `count` elements.
Slice slice_of(int64_t count, int rank, int size) {
  const auto border = [&](int64_t of) {
    const auto exact = count * of / size;
    return of == size ? count : exact / kSliceElements * kSliceElements;
  };
  return {border(rank), border(rank + 1) - border(rank)};
}

} // namespace

AllReduce::AllReduce(
    Context& context,
    const at::Tensor& tensor,
    const c10d::ReduceOp& op)
    : context_(context),
      tensor_(tensor),
      reduce_(tensor.scalar_type(), op),
      op_(op),
      element_(static_cast<int64_t>(tensor.itemsize())),
      offset_(context.memory(context.rank())
                  .offset_of(
                      tensor.const_data_ptr(),
                      static_cast<int64_t>(tensor.nbytes()))),
      per_piece_(static_cast<int64_t>(kSlotBytes) / element_),
      pieces_((tensor.numel() + per_piece_ - 1) / per_piece_) {}

/// Reduces this rank's slice of each rank's `count` elements, which begin at
/// `begin_of(rank)`, in place on all ranks.
template <typename BeginOf>
void AllReduce::reduce_share(int64_t count, BeginOf&& begin_of) const {
  const auto slice = slice_of(count, context_.rank(), context_.size());
  std::vector<char*> slices;
  for (int rank = 0; rank < context_.size(); ++rank) {
    slices.push_back(begin_of(rank) + slice.begin * element_);
  }
  reduce_({slices.begin(), slices.end()}, slices, slice.count);
}

bool AllReduce::step() {
  if (!begun_) {
    if (next_ == 0) {
      publish();
      next_ = 1;
      return true;
    }
    begin();
  }
  return in_place_ ? in_place_step() : pieces_step();
}

void AllReduce::publish() {
  auto& header = context_.publish(c10d::OpType::ALLREDUCE);
  header.dtype = static_cast<int8_t>(tensor_.scalar_type());
  header.reduction = static_cast<uint8_t>(op_.op_);
  header.count = tensor_.numel();
  header.offset = offset_;
  if (offset_ < 0) {
    put_piece(0);
  }
}

void AllReduce::begin() {
  context_.compare();
  int in_heap = 0;
  for (int rank = 0; rank < context_.size(); ++rank) {
    in_heap += context_.published(rank).offset >= 0;
  }
  in_place_ = in_heap == context_.size();
  alone_ = context_.size() <= kFewRanks ||
      static_cast<int64_t>(tensor_.nbytes()) <= kFewBytes;
  // If only some tensors are in heaps, their ranks have put no piece yet. All
  // ranks then put a piece in this step.
  next_ = in_place_ || in_heap == 0 ? 1 : 0;
  begun_ = true;
}

bool AllReduce::in_place_step() {
  if (next_++ == 1 && tensor_.numel() > 0) {
    reduce_share(tensor_.numel(), [this](int rank) {
      return context_.memory(rank).at(context_.published(rank).offset);
    });
    return true;
  }
  return false;
}

bool AllReduce::pieces_step() {
  const auto step = next_++;
  // A piece is put in one step and reduced in the next. If each rank reduces a
  // slice, the piece is taken in the following step.
  const auto taken = step - 2;
  if (step >= 1 && step - 1 < pieces_) {
    alone_ ? reduce_piece(step - 1)
           : reduce_share(length(step - 1), [this](int rank) {
               return context_.slot(rank, 1);
             });
  }
  if (!alone_ && taken >= 0 && taken < pieces_) {
    take_piece(taken);
  }
  put_piece(step);
  return step < (alone_ ? pieces_ : pieces_ + 1);
}

int64_t AllReduce::length(int64_t piece) const {
  return std::min(per_piece_, tensor_.numel() - piece * per_piece_);
}

void AllReduce::put_piece(int64_t piece) {
  if (piece < pieces_) {
    const auto* data = static_cast<const char*>(tensor_.const_data_ptr());
    std::memcpy(
        context_.slot(),
        data + piece * per_piece_ * element_,
        length(piece) * element_);
  }
}

void AllReduce::take_piece(int64_t piece) {
  auto* data = static_cast<char*>(tensor_.mutable_data_ptr());
  std::memcpy(
      data + piece * per_piece_ * element_,
      context_.slot(context_.rank(), 2),
      length(piece) * element_);
}

void AllReduce::reduce_piece(int64_t piece) {
  auto* data = static_cast<char*>(tensor_.mutable_data_ptr());
  auto* own = data + piece * per_piece_ * element_;
  std::vector<const char*> sources;
  for (int rank = 0; rank < context_.size(); ++rank) {
    sources.push_back(rank == context_.rank() ? own : context_.slot(rank, 1));
  }
  reduce_(sources, {own}, length(piece));
}

} // namespace ddp::backends::shm
