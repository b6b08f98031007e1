#include <ddp/reducer/absences.h>

#include <common/poll_until.h>
#include <ddp/support/own_thread.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace ddp::detail {
namespace {

// In the store, indices are 32-bit numbers.
using Number = uint32_t;
using Indices = std::vector<size_t>;

constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr auto kListInterval = std::chrono::milliseconds(1);

StoreGather::Bytes encode_indices(const Indices& indices) {
  const std::vector<Number> numbers(indices.begin(), indices.end());
  const auto* bytes = reinterpret_cast<const uint8_t*>(numbers.data());
  return {bytes, bytes + numbers.size() * sizeof(Number)};
}

Indices decode_indices(const StoreGather::Bytes& bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  if (!numbers.empty()) { // or there is no memory to name
    std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  }
  return {numbers.begin(), numbers.end()};
}

Indices in_both(const Indices& a, const Indices& b) {
  Indices both;
  std::set_intersection(
      a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

} // namespace

Absences::Absences(
    c10::intrusive_ptr<c10d::Store> store,
    int64_t rank,
    int64_t size,
    std::chrono::milliseconds timeout)
    : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout) {}

StoreGather Absences::lists(int64_t step) const {
  return {store_, "absent/" + std::to_string(step)};
}

void Absences::announce(int64_t step, const Indices& indices) {
  step_ = step;
  own_ = indices;
  if (size_ == 1) {
    return;
  }
  const StoreGather::Part own{rank_, encode_indices(indices)};
  answered_within(
      timeout_, [gather = lists(step), own, size = size_]() mutable {
        const auto all = gather.add(own, size);
        if (!all) {
          return;
        }
        auto common = decode_indices(own.content);
        for (const auto& part : *all) {
          common = in_both(common, decode_indices(part.content));
        }
        gather.decide(encode_indices(common));
      });
}

Indices Absences::agreed() {
  if (size_ == 1) {
    return own_;
  }
  return answered_within(timeout_, [gather = lists(step_)]() mutable {
    return decode_indices(gather.verdict());
  });
}

void Absences::linger(int64_t step) noexcept {
  if (!store_ || size_ == 1) {
    return;
  }
  try {
    poll_for(kLingerTime, kListInterval, [&] {
      return !answered_within(kLingerTime, [gather = lists(step)]() mutable {
        return gather.is_there();
      });
    });
  } catch (const std::exception&) { // it is gone already
  }
}

} // namespace ddp::detail
