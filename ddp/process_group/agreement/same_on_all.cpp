#include <ddp/process_group/agreement/same_on_all.h>

#include <common/poll_until.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/agreement/store_gather.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/detached_task.h>

namespace ddp::detail {
namespace {

using Parts = std::vector<StoreGather::Part>;

// The time for all ranks to arrive if texts differ.
constexpr std::chrono::seconds kDifferenceTime(5);
constexpr std::chrono::milliseconds kDifferenceInterval(20);

bool differ(const Parts& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
    return part.content != parts.front().content;
  });
}

std::string first_of(const std::string& key) {
  return key + "/first";
}

/// The texts of the ranks that have arrived, with the numbers of the ranks.
std::string said_by_ranks(const Parts& parts, int64_t size) {
  std::vector<std::string> texts(size);
  for (const auto& part : parts) {
    texts.at(part.rank) = part.content;
  }
  return name_by_ranks(texts);
}

/// The texts of the ranks, as listed by the first rank that detected a
/// difference; empty if this rank detects none.
std::string texts_of_all(
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::string& key,
    const StoreGather::Part& own,
    int64_t size,
    bool is_as_first) {
  StoreGather gather(store, key);
  const auto all = gather.add(own, size);
  if (all && !differ(*all)) {
    gather.remove();
    store->deleteKey(first_of(key));
    return "";
  }
  if (!all && is_as_first) {
    return "";
  }
  auto parts = gather.parts();
  poll_for(kDifferenceTime, kDifferenceInterval, [&] {
    parts = gather.parts();
    return static_cast<int64_t>(parts.size()) == size;
  });
  return gather.decide_once(said_by_ranks(parts, size));
}

/// The texts of the ranks if they differ, otherwise empty. Each rank compares
/// its text with that of the first rank, so some rank detects each difference;
/// only the last rank, and ranks that differ, read more.
std::string different_texts(
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::string& key,
    const StoreGather::Part& own,
    int64_t size) {
  const auto first = store->compareSet(first_of(key), {}, own.content);
  const bool is_as_first = first == own.content;
  const auto known = is_as_first ? ""
                                 : name_ranks({own.rank}) + ": " + own.content +
          "; the first that arrived: " + first;
  if (!store->hasExtendedApi()) { // the store cannot gather
    return known;
  }
  try {
    return texts_of_all(store, key, own, size, is_as_first);
  } catch (const c10::DistNetworkError&) { // the store's rank has ended
    return known;
  }
}

} // namespace

void check_same_on_all(
    const ProcessGroup& group,
    const std::string& what,
    const std::string& text,
    const std::string& remedy) {
  auto& impl = ProcessGroupImpl::of(group);
  const auto store = group.store();
  if (!store || group.size() == 1) {
    return;
  }
  const auto key =
      c10::str(impl.scope, "/same_", what, "_", impl.comparisons[what]++);
  const StoreGather::Part own{group.rank(), text};
  std::string said;
  try {
    said = answered_within(
        group.timeout() + kDifferenceTime,
        [store, key, own, size = group.size()] {
          return different_texts(store, key, own, size);
        });
  } catch (const c10::DistNetworkError&) {
    return; // the rank that serves the store has ended
  }
  if (!said.empty()) {
    fail_on_all(
        group, c10::str(what, " differs between ranks: ", said, ". ", remedy));
  }
}

} // namespace ddp::detail
