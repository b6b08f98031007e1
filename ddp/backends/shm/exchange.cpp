#include <ddp/backends/shm/exchange.h>

#include <ddp/internal/check.h>

#include <algorithm>
#include <cstring>

namespace ddp::backends::shm {
namespace {

constexpr auto kPieceBytes = static_cast<int64_t>(kSlotBytes);

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

/// Calls `copy(in_tensor, in_piece, bytes)` for the overlap of a piece with a
/// tensor that begins at `begin` of a stream.
template <typename Copy>
void overlap(int64_t begin, int64_t bytes, int64_t piece, Copy&& copy) {
  const auto from = std::max(begin, piece * kPieceBytes);
  const auto to = std::min(begin + bytes, (piece + 1) * kPieceBytes);
  if (from < to) {
    copy(from - begin, from - piece * kPieceBytes, to - from);
  }
}

} // namespace

Exchange::Exchange(
    Context& context,
    const ExchangeKind& kind,
    Tensors to_ranks,
    Tensors from_ranks)
    : context_(context),
      kind_(kind),
      same_for_all_(to_ranks.size() == 1),
      to_ranks_(std::move(to_ranks)),
      from_ranks_(std::move(from_ranks)) {}

bool Exchange::step() {
  if (next_ == 0) {
    publish();
  } else if (next_ == 1) {
    begin();
  }
  if (next_ > 0) {
    take_pieces(next_ - 1);
  }
  put_piece(next_);
  // The other ranks' numbers of pieces are known from the second step on.
  return ++next_ == 1 || next_ <= pieces_;
}

void Exchange::publish() {
  auto& header = context_.publish(kind_.type);
  header.dtype = static_cast<int8_t>(kind_.dtype);
  header.root = kind_.root;
  header.same_for_all = same_for_all_;
  for (int rank = 0; rank < context_.size(); ++rank) {
    header.lengths[rank] = bytes_of(to_ranks_[same_for_all_ ? 0 : rank]);
  }
}

void Exchange::begin() {
  context_.compare();
  for (int from = 0; from < context_.size(); ++from) {
    check_length(from);
    begins_.push_back(begin_of_part(from));
    const auto& published = context_.published(from);
    int64_t stream = 0;
    for (int to = 0; to < context_.size(); ++to) {
      const auto length = to == from ? 0 : published.lengths[to];
      stream =
          published.same_for_all ? std::max(stream, length) : stream + length;
    }
    pieces_ = std::max(pieces_, (stream + kPieceBytes - 1) / kPieceBytes);
  }
  keep_own();
}

void Exchange::check_length(int from) const {
  const auto& target = from_ranks_[from];
  const auto& published = context_.published(from);
  const auto sent = published.lengths[context_.rank()];
  // A rank that expects nothing ignores data for all ranks.
  const bool unwanted = published.same_for_all && !target.defined();
  DDP_CHECK_WITH(
      DistBackendError,
      sent == bytes_of(target) || unwanted,
      "rank {} sent {} bytes, but rank {} expects {}",
      context_.name(from),
      sent,
      context_.name(context_.rank()),
      bytes_of(target));
}

int64_t Exchange::begin_of_part(int from) const {
  const auto& published = context_.published(from);
  int64_t begin = 0;
  for (int to = 0; to < context_.rank() && !published.same_for_all; ++to) {
    begin += to == from ? 0 : published.lengths[to];
  }
  return begin;
}

void Exchange::keep_own() const {
  const auto& from = to_ranks_[same_for_all_ ? 0 : context_.rank()];
  const auto& to = from_ranks_[context_.rank()];
  if (from.defined() && to.defined() && to.nbytes() > 0) {
    std::memmove(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
  }
}

void Exchange::put_piece(int64_t piece) const {
  int64_t begin = 0;
  for (int to = 0; to < static_cast<int>(to_ranks_.size()); ++to) {
    const auto& tensor = to_ranks_[to];
    if (!tensor.defined() || (to == context_.rank() && !same_for_all_)) {
      continue;
    }
    const auto* data = static_cast<const char*>(tensor.const_data_ptr());
    overlap(
        begin,
        bytes_of(tensor),
        piece,
        [&](int64_t in_tensor, int64_t in_piece, int64_t bytes) {
          std::memcpy(context_.slot() + in_piece, data + in_tensor, bytes);
        });
    begin += bytes_of(tensor);
  }
}

void Exchange::take_pieces(int64_t piece) const {
  for (int from = 0; from < context_.size(); ++from) {
    const auto& tensor = from_ranks_[from];
    if (!tensor.defined() || from == context_.rank()) {
      continue;
    }
    auto* data = static_cast<char*>(tensor.mutable_data_ptr());
    overlap(
        begins_[from],
        bytes_of(tensor),
        piece,
        [&](int64_t in_tensor, int64_t in_piece, int64_t bytes) {
          std::memcpy(
              data + in_tensor, context_.slot(from, 1) + in_piece, bytes);
        });
  }
}

} // namespace ddp::backends::shm
