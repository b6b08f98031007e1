#include <ddp/process_group/agreement/store_gather.h>

#include <ddp/internal/check.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstring>

namespace ddp::detail {
namespace {

// Precedes the content of each part: the rank and the length.
using PartHeader = int64_t[2];

// Each part adds 1 to the count, and each read of the verdict this number.
constexpr int64_t kReader = int64_t{1} << 32;

std::vector<uint8_t> encode(const StoreGather::Part& part) {
  const PartHeader header = {
      part.rank, static_cast<int64_t>(part.content.size())};
  std::vector<uint8_t> bytes(sizeof(header) + part.content.size());
  std::memcpy(bytes.data(), header, sizeof(header));
  std::copy(
      part.content.begin(), part.content.end(), bytes.begin() + sizeof(header));
  return bytes;
}

std::vector<StoreGather::Part> decode(const std::string& bytes) {
  std::vector<StoreGather::Part> parts;
  for (auto at = bytes.begin(); at != bytes.end();) {
    PartHeader header = {};
    const auto left = bytes.end() - at;
    const bool whole = left >= static_cast<ptrdiff_t>(sizeof(header));
    if (whole) {
      std::memcpy(header, &*at, sizeof(header));
    }
    const auto room = left - static_cast<ptrdiff_t>(sizeof(header));
    DDP_CHECK(
        whole && header[1] >= 0 && header[1] <= room,
        "the data that ranks gathered in the store is truncated");
    const auto begin = at + sizeof(header);
    at = begin + header[1];
    parts.push_back({header[0], {begin, at}});
  }
  return parts;
}

} // namespace

StoreGather::StoreGather(c10::intrusive_ptr<c10d::Store> store, std::string key)
    : store_(std::move(store)), key_(std::move(key)) {
  DDP_CHECK(
      store_ && store_->hasExtendedApi(),
      "the comparison between ranks needs a store that can append, but the "
      "store of this process group cannot append");
}

std::string StoreGather::count_key() const {
  return key_ + "/count";
}

std::string StoreGather::verdict_key() const {
  return key_ + "/verdict";
}

std::optional<std::vector<StoreGather::Part>> StoreGather::add(
    const Part& part,
    int64_t size) {
  store_->append(key_, encode(part));
  // Unlike append, add gets an answer, after which the store has the part.
  if (store_->add(count_key(), 1) < size) {
    return std::nullopt;
  }
  return parts();
}

std::vector<StoreGather::Part> StoreGather::parts() {
  // One request, unlike get(), which first waits for the key.
  return decode(store_->compareSet(key_, "", ""));
}

void StoreGather::decide(const std::string& verdict) {
  store_->set(verdict_key(), verdict);
  store_->check({verdict_key()}); // after the answer, the store has it
}

std::string StoreGather::decide_once(const std::string& verdict) {
  return store_->compareSet(verdict_key(), "", verdict);
}

std::string StoreGather::verdict() {
  auto verdict = store_->compareSet(verdict_key(), "", "");
  const auto count = store_->add(count_key(), kReader);
  if (count / kReader == count % kReader) {
    remove();
  }
  return verdict;
}

void StoreGather::remove() {
  for (const auto& key : {verdict_key(), count_key(), key_}) {
    store_->deleteKey(key);
  }
}

} // namespace ddp::detail
