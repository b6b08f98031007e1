#include <tests/support/catch.h>

#include <common/elastic_page.h>
#include <ddp/failure/elastic_pause.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/reducer/core/unused_agreement.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace ddp::test::unused_agreement_test {

/// A store that counts its requests.
class MeteredStore : public c10d::HashStore {
 public:
  int64_t add(const std::string& key, int64_t value) override {
    ++requests;
    return c10d::HashStore::add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    ++requests;
    return c10d::HashStore::deleteKey(key);
  }

  int64_t requests = 0;
};

TEST_CASE("ranks agree whether all have unused parameters") {
  constexpr int64_t kSteps = 200;
  for (const int64_t size : {2, 3, 4, 64}) {
    CAPTURE(size);
    const auto store = c10::make_intrusive<MeteredStore>();
    std::vector<detail::UnusedAgreement> ranks;
    for (int64_t rank = 0; rank < size; ++rank) {
      ranks.emplace_back(
          store, size, std::chrono::seconds(10), /*kept_together=*/true);
    }
    int64_t announced = 0;
    for (int64_t step = 1; step <= kSteps; ++step) {
      // One rank uses all parameters in every other step, each rank in turn.
      const auto complete = step % 2 == 0 ? step / 2 % size : -1;
      for (int64_t rank = 0; rank < size; ++rank) {
        if (rank != complete) {
          ranks[rank].add_to_counter(step);
          ++announced;
        }
      }
      for (int64_t rank = 0; rank < size; ++rank) {
        if (rank != complete) {
          REQUIRE(ranks[rank].concerns_all() == (complete < 0));
        }
      }
    }
    // The last key, and maybe an older one that its first rank has not yet
    // deleted.
    CHECK(store->getNumKeys() <= 2);
    CHECK(store->requests <= 2 * announced);
  }
}

TEST_CASE("where nothing keeps ranks together the first to read decides") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<detail::UnusedAgreement> ranks;
  for (int64_t rank = 0; rank < 3; ++rank) {
    ranks.emplace_back(
        store, 3, std::chrono::seconds(10), /*kept_together=*/false);
  }
  for (int64_t step = 1; step < 50; ++step) {
    const auto late = step % 4; // 3: none is
    for (int64_t rank = 0; rank < 3; ++rank) {
      if (rank != late) {
        ranks[rank].add_to_counter(step);
      }
    }
    for (int64_t rank = 0; rank < 3; ++rank) {
      if (rank != late) {
        REQUIRE(ranks[rank].concerns_all() == (late == 3));
      }
    }
    if (late < 3) {
      ranks[late].add_to_counter(step);
      REQUIRE_FALSE(ranks[late].concerns_all());
    }
  }
}

/// The store of a rank 0 whose process has ended.
class EndedStore : public c10d::HashStore {
 public:
  int64_t add(const std::string& key, int64_t value) override {
    DDP_CHECK_WITH(DistNetworkError, value > 0, "the connection was closed");
    return c10d::HashStore::add(key, value);
  }
};

TEST_CASE("a rank 0 that has ended its step had no unused parameters") {
  detail::UnusedAgreement rank(
      c10::make_intrusive<EndedStore>(), 2, std::chrono::seconds(10), true);
  rank.add_to_counter(1);
  CHECK_FALSE(rank.concerns_all());
}

/// A store whose host may be lost, which no connection reports.
class LostStore : public c10d::HashStore {
 public:
  int64_t add(const std::string& key, int64_t value) override {
    if (lost) {
      const auto own = back;
      own.wait();
    }
    return c10d::HashStore::add(key, value);
  }

  std::atomic<bool> lost{false};
  std::promise<void> end;
  const std::shared_future<void> back = end.get_future().share();
};

TEST_CASE("no rank waits for a lost store once the job's nodes change") {
  const auto store = c10::make_intrusive<LostStore>();
  detail::UnusedAgreement rank(store, 3, std::chrono::seconds(10), true);
  rank.add_to_counter(1);
  ElasticPage page{};
  detail::elastic_pause::attach(&page);
  page.asked = 1;
  detail::elastic_pause::end_waits();
  store->lost = true;
  CHECK_THROWS_WITH(rank.concerns_all(), Has("the nodes of the job change"));
  CHECK(detail::heartbeat::is_failed_by_another());
  CHECK_THROWS_WITH(rank.add_to_counter(2), Has("the nodes of the job change"));
  store->end.set_value();
  detail::elastic_pause::attach(nullptr);
}

} // namespace ddp::test::unused_agreement_test
