#include <ddp/process_group/agreement/same_on_all.h>

#include <common/poll_until.h>
#include <ddp/process_group/agreement/rank_report.h>
#include <ddp/process_group/agreement/store_gather.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/detached_task.h>

namespace ddp::detail {
namespace {

using Parts = std::vector<StoreGather::Part>;

// For all to come, where their texts differ.
constexpr std::chrono::seconds kDifferenceTime(5);
constexpr std::chrono::milliseconds kDifferenceInterval(20);

bool differ(const Parts& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
    return part.content != parts.front().content;
  });
}

std::string text_of(const StoreGather::Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string first_of(const std::string& key) {
  return key + "/first";
}

/// What the ranks that have come say, each of them with its number.
std::string said_by_ranks(const Parts& parts, int64_t size) {
  std::vector<std::string> texts(size);
  for (const auto& part : parts) {
    texts.at(part.rank) = text_of(part.content);
  }
  return name_by_ranks(texts);
}

/// What the ranks say, in the words of the first that knew; empty if this rank
/// knows of no difference.
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

/// What ranks say that differ; empty while they do not. Each compares itself
/// with the first that came, since one that differs then shows to somebody;
/// only the last, and who differs, read more.
std::string different_texts(
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::string& key,
    const StoreGather::Part& own,
    int64_t size) {
  const auto first = store->compareSet(first_of(key), {}, own.content);
  const bool is_as_first = first == own.content;
  const auto known = is_as_first ? ""
                                 : name_ranks({own.rank}) + ": " +
          text_of(own.content) + "; the first that arrived: " + text_of(first);
  if (!store->hasExtendedApi()) { // which cannot gather
    return known;
  }
  try {
    return texts_of_all(store, key, own, size, is_as_first);
  } catch (const c10::DistNetworkError&) { // its rank has thrown, and ended
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
  const StoreGather::Part own{group.rank(), {text.begin(), text.end()}};
  std::string said;
  try {
    said = answered_within(
        group.timeout() + kDifferenceTime,
        [store, key, own, size = group.size()] {
          return different_texts(store, key, own, size);
        });
  } catch (const c10::DistNetworkError&) {
    return; // the rank that keeps the store has ended: it compares no more
  }
  if (!said.empty()) {
    fail_on_all(
        group, c10::str(what, " differs between ranks: ", said, ". ", remedy));
  }
}

} // namespace ddp::detail
