#pragma once

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <atomic>

namespace ddp::test {

/// A store that counts the requests to it.
class CountingStore : public c10d::PrefixStore {
 public:
  explicit CountingStore(c10::intrusive_ptr<c10d::Store> store)
      : c10d::PrefixStore("counted", std::move(store)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
  }
  bool check(const std::vector<std::string>& keys) override {
    ++requests;
    return c10d::PrefixStore::check(keys);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    ++requests;
    return c10d::PrefixStore::get(key);
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    ++requests;
    c10d::PrefixStore::set(key, value);
  }

  std::atomic<int> requests{0};
};

} // namespace ddp::test
