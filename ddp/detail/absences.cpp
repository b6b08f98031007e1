#include <ddp/detail/absences.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>

namespace ddp::detail {
namespace {

// Under the key stand the ranks' lists, one behind the other: the rank, how
// many indices, then the indices, as 32-bit numbers.
using Number = uint32_t;

constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr auto kListInterval = std::chrono::milliseconds(1);

struct List {
  int64_t rank;
  std::vector<size_t> indices;
};

std::string key(int64_t step) {
  return "absent/" + std::to_string(step);
}

std::string readers_key(int64_t step) {
  return key(step) + "/readers";
}

std::vector<uint8_t> encode(const List& list) {
  std::vector<Number> numbers{
      static_cast<Number>(list.rank), static_cast<Number>(list.indices.size())};
  numbers.insert(numbers.end(), list.indices.begin(), list.indices.end());
  std::vector<uint8_t> bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<List> decode(const std::vector<uint8_t>& bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  std::vector<List> lists;
  for (auto at = numbers.begin(); at != numbers.end();) {
    TORCH_CHECK(
        numbers.end() - at >= 2 && numbers.end() - at - 2 >= at[1],
        "the list of absent gradients is cut off");
    const auto end = at + 2 + at[1];
    lists.push_back({at[0], {at + 2, end}});
    at = end;
  }
  return lists;
}

} // namespace

Absences::Absences(
    c10::intrusive_ptr<c10d::Store> store,
    int64_t rank,
    int64_t size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

void Absences::announce(int64_t step, const std::vector<size_t>& indices) {
  step_ = step;
  own_ = indices;
  if (size_ == 1) {
    return;
  }
  TORCH_CHECK(
      store_ && store_->hasExtendedApi(),
      "parameters without a gradient need a store to agree on, which this "
      "process group has not");
  store_->append(key(step), encode({rank_, indices}));
  // The store does not answer an append: this makes sure that it has it.
  store_->check({key(step)});
}

std::vector<size_t> Absences::agreed() {
  if (size_ == 1) {
    return own_;
  }
  // Unlike get(), which first asks whether the key is there, one message.
  const auto lists = decode(store_->compareSet(
      key(step_), std::vector<uint8_t>(), std::vector<uint8_t>()));
  // The last reader takes the lists away.
  const auto readers = store_->add(readers_key(step_), 1);
  if (readers == static_cast<int64_t>(lists.size())) {
    store_->deleteKey(readers_key(step_));
    store_->deleteKey(key(step_));
  }
  if (static_cast<int64_t>(lists.size()) < size_) {
    return {};
  }
  auto common = own_;
  for (const auto& list : lists) {
    std::vector<size_t> both;
    std::set_intersection(
        common.begin(),
        common.end(),
        list.indices.begin(),
        list.indices.end(),
        std::back_inserter(both));
    common.swap(both);
  }
  return common;
}

void Absences::linger(int64_t step) noexcept {
  if (!store_ || size_ == 1) {
    return;
  }
  try {
    const auto deadline = std::chrono::steady_clock::now() + kLingerTime;
    while (store_->check({key(step)}) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kListInterval);
    }
  } catch (const std::exception&) { // it is gone already
  }
}

} // namespace ddp::detail
