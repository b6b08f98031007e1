// What LibTorch's own distributed samplers do, and what ours do in their place.
// A check of LibTorch's that fails says that LibTorch has changed: docs/data.md
// then says too much, and the comparison may go.
#include <ddp/samplers/distributed_sampler.h>
#include <tests/support/catch.h>
#include <tests/support/samplers.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace ddp::test::libtorch_samplers_test {

using torch::data::samplers::DistributedRandomSampler;
using torch::data::samplers::DistributedSequentialSampler;

namespace {

/// Says what a failure means: not that this library is at fault.
void libtorch_still(bool has_defect, const char* defect) {
  INFO(
      "LibTorch " TORCH_VERSION
      " no longer has this defect, which is good: take it out of this test and "
      "of docs/data.md: "
      << defect);
  CHECK(has_defect);
}

template <typename Sampler>
Indices reset_and_drain(Sampler& sampler) {
  sampler.reset();
  return drain(sampler);
}

/// The orders of some epochs of a loader, told to the sampler that it was made
/// of.
template <typename Sampler>
std::vector<Indices> epochs_through_a_loader(Sampler sampler, size_t size) {
  auto loader = torch_loader(size, sampler, 4);
  std::vector<Indices> orders(3);
  for (size_t epoch = 0; epoch < orders.size(); ++epoch) {
    sampler.set_epoch(epoch);
    orders[epoch] = drain_loader(*loader);
  }
  return orders;
}

/// What all ranks together draw in so many epochs.
template <typename MakeSampler>
std::set<size_t> seen_in(
    size_t epochs,
    size_t world,
    const MakeSampler& make_sampler) {
  std::set<size_t> seen;
  for (size_t rank = 0; rank < world; ++rank) {
    auto sampler = make_sampler(rank);
    for (size_t epoch = 0; epoch < epochs; ++epoch) {
      sampler.set_epoch(epoch);
      const auto part = reset_and_drain(sampler);
      seen.insert(part.begin(), part.end());
    }
  }
  return seen;
}

/// A copy of the state of one sampler in another.
template <typename Sampler>
void load_state_of(const Sampler& saved, Sampler& loading) {
  torch::serialize::OutputArchive out;
  saved.save(out);
  std::stringstream bytes;
  out.save_to(bytes);
  torch::serialize::InputArchive in;
  in.load_from(bytes);
  loading.load(in);
}

} // namespace

TEST_CASE("set_epoch reaches the loader's copy, as LibTorch's does not") {
  const auto theirs =
      epochs_through_a_loader(DistributedRandomSampler(40, 4, 1), 40);
  libtorch_still(
      theirs[0] == theirs[1] && theirs[1] == theirs[2],
      "set_epoch is lost once the sampler is in a loader");
  // It would change the order; the loader's copy does not hear of it.
  DistributedRandomSampler alone(40, 4, 1);
  alone.set_epoch(1);
  REQUIRE(reset_and_drain(alone) != theirs[0]);

  const auto ours = epochs_through_a_loader(DistributedSampler(40, 4, 1), 40);
  REQUIRE(ours[0] != ours[1]);
  REQUIRE(ours[1] != ours[2]);
  for (size_t epoch = 0; epoch < ours.size(); ++epoch) {
    DistributedSampler sampler(40, 4, 1);
    sampler.set_epoch(static_cast<int64_t>(epoch));
    REQUIRE(reset_and_drain(sampler) == ours[epoch]);
  }
}

TEST_CASE("what is dropped changes, where LibTorch drops the same for ever") {
  constexpr size_t kSize = 11, kEpochs = 100;
  for (const size_t world : {3, 4}) {
    const auto theirs = seen_in(kEpochs, world, [&](size_t rank) {
      return DistributedRandomSampler(
          kSize, world, rank, /*allow_duplicates=*/false);
    });
    libtorch_still(
        theirs.size() == kSize / world * world &&
            *theirs.rbegin() == theirs.size() - 1,
        "without duplicates the dataset's tail is never drawn");
    const auto ours = seen_in(kEpochs, world, [&](size_t rank) {
      return DistributedSampler(
          kSize,
          static_cast<int64_t>(world),
          static_cast<int64_t>(rank),
          SamplerOptions().drop_last(true));
    });
    REQUIRE(ours.size() == kSize);
  }
}

TEST_CASE("padding stays in the dataset, however many ranks there are") {
  for (const size_t size : {1, 2, 3, 4}) {
    for (const size_t world : {3, 4, 7, 9}) {
      std::set<size_t> theirs, sequential, ours, ours_in_order;
      for (size_t rank = 0; rank < world; ++rank) {
        const auto add = [&](std::set<size_t>& all, auto sampler) {
          const auto part = reset_and_drain(sampler);
          REQUIRE(part.size() == (size + world - 1) / world);
          all.insert(part.begin(), part.end());
        };
        const auto n = static_cast<int64_t>(world);
        const auto r = static_cast<int64_t>(rank);
        add(theirs, DistributedRandomSampler(size, world, rank));
        add(sequential, DistributedSequentialSampler(size, world, rank));
        add(ours, DistributedSampler(size, n, r));
        add(ours_in_order,
            DistributedSampler(size, n, r, SamplerOptions().shuffle(false)));
      }
      INFO(size << " samples, " << world << " ranks");
      if (world > 2 * size) {
        libtorch_still(
            *theirs.rbegin() >= size,
            "padding is out of range where ranks > 2 x samples");
      } else {
        REQUIRE(*theirs.rbegin() < size);
      }
      REQUIRE(*sequential.rbegin() < size); // this one is right
      for (const auto& all : {ours, ours_in_order}) {
        REQUIRE(all.size() == size);
        REQUIRE(*all.rbegin() == size - 1);
      }
    }
  }
}

TEST_CASE("a state is good for every rank, where LibTorch's is rank 0's own") {
  constexpr size_t kSize = 24, kWorld = 3;
  DistributedSequentialSampler their_first(kSize, kWorld, 0);
  their_first.next(5);
  DistributedSequentialSampler their_second(kSize, kWorld, 1);
  load_state_of(their_first, their_second);
  libtorch_still(
      drain(their_second).front() == 5, // of rank 0's part, which is 0 to 7
      "a position is an absolute one, of the rank that saved it");

  DistributedSampler first(kSize, kWorld, 0, SamplerOptions().shuffle(false));
  DistributedSampler second(kSize, kWorld, 1, SamplerOptions().shuffle(false));
  first.advance(first.next(5)->size());
  second.load_state_dict(first.state_dict());
  REQUIRE(drain(second) == Indices{16, 19, 22});
}

TEST_CASE("a loaded position is kept in a loader, where LibTorch's is lost") {
  constexpr size_t kSize = 24, kWorld = 3;
  const auto count_in_loader = [&](const auto& sampler) {
    auto loader = torch_loader(kSize, sampler, 2);
    return drain_loader(*loader).size();
  };
  DistributedRandomSampler theirs(kSize, kWorld, 1), their_resumed = theirs;
  theirs.next(6);
  load_state_of(theirs, their_resumed);
  REQUIRE(their_resumed.index() == theirs.index());
  libtorch_still(
      count_in_loader(their_resumed) == 8,
      "the loader resets the sampler, which forgets the loaded position");

  DistributedSampler ours(kSize, kWorld, 1), resumed(kSize, kWorld, 1);
  ours.advance(ours.next(6)->size());
  resumed.load_state_dict(ours.state_dict());
  REQUIRE(count_in_loader(resumed) == 2);
}

} // namespace ddp::test::libtorch_samplers_test
