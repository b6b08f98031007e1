#include <tests/support/catch.h>

#include <ddp/reducer/absences.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace ddp::test::absences_test {

/// A store that counts what its clients read.
class MeteredStore : public c10d::HashStore {
 public:
  std::vector<uint8_t> get(const std::string& key) override {
    return counted(c10d::HashStore::get(key));
  }
  std::vector<uint8_t> compareSet(
      const std::string& key,
      const std::vector<uint8_t>& expected,
      const std::vector<uint8_t>& desired) override {
    return counted(c10d::HashStore::compareSet(key, expected, desired));
  }

  size_t bytes = 0;

 private:
  std::vector<uint8_t> counted(std::vector<uint8_t> value) {
    bytes += value.size();
    return value;
  }
};

/// The bytes that `size` ranks read which all lack nearly the same.
size_t bytes_to_agree(int64_t size) {
  const auto store = c10::make_intrusive<MeteredStore>();
  std::vector<detail::Absences> ranks;
  for (int64_t rank = 0; rank < size; ++rank) {
    ranks.emplace_back(store, rank, size, std::chrono::seconds(10));
  }
  for (int64_t rank = 0; rank < size; ++rank) {
    std::vector<size_t> indices;
    for (size_t i = 0; i < 1000; ++i) {
      if (static_cast<int64_t>(i) != rank) {
        indices.push_back(i);
      }
    }
    ranks[rank].announce(7, indices);
  }
  for (auto& rank : ranks) {
    REQUIRE(rank.agreed().size() == 1000 - static_cast<size_t>(size));
  }
  REQUIRE(store->getNumKeys() == 0);
  return store->bytes;
}

TEST_CASE("what no rank used costs the store in proportion to the ranks") {
  REQUIRE(bytes_to_agree(64) < 6 * bytes_to_agree(16));
}

} // namespace ddp::test::absences_test
