#include <ddp/rendezvous/reception.h>

#include <common/text.h>

#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace ddp::detail {

std::string hello_key(int64_t rank) {
  return "hello/" + std::to_string(rank);
}

void say_hello(c10d::Store& lobby, int64_t rank, const std::string& number) {
  const auto line = number + "\n";
  lobby.append(hello_key(rank), {line.begin(), line.end()});
}

std::string answer_key(const std::string& number) {
  return "answer/" + number;
}

std::string joined_key(int64_t rank) {
  return "joined/" + std::to_string(rank);
}

std::string has_read_key(int64_t rank) {
  return "has_read/" + std::to_string(rank);
}

Reception::Reception(
    StorePtr lobby,
    StorePtr room,
    std::string attempt,
    int64_t size)
    : lobby_(std::move(lobby)),
      room_(std::move(room)),
      attempt_(std::move(attempt)) {
  extend(size);
  present_[0] = true;
}

void Reception::extend(int64_t size) {
  const auto places = std::max<size_t>(present_.size(), size + 1);
  present_.resize(places);
  answered_.resize(places);
}

bool Reception::comes(int64_t r) {
  if (present_[r]) {
    return false;
  }
  answer(r);
  present_[r] = room_->check({joined_key(r)});
  return present_[r];
}

void Reception::answer_others() {
  for (size_t r = 1; r < present_.size(); ++r) {
    if (present_[r]) {
      answer(static_cast<int64_t>(r));
    }
  }
}

int64_t Reception::count() const {
  return std::count(present_.begin(), present_.end() - 1, true);
}

std::vector<int64_t> Reception::absent(int64_t size) const {
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < size; ++r) {
    if (!present_[r]) {
      ranks.push_back(r);
    }
  }
  return ranks;
}

void Reception::say(const nlohmann::json& reply) const {
  room_->set(kReplyKey, reply.dump());
}

void Reception::await_readers() const {
  std::vector<std::string> readers;
  for (size_t r = 1; r < present_.size(); ++r) {
    if (present_[r]) {
      readers.push_back(has_read_key(static_cast<int64_t>(r)));
    }
  }
  try {
    room_->wait(readers, std::chrono::seconds(2));
  } catch (const std::exception&) { // those ranks report the error
  }
}

void Reception::answer(int64_t r) {
  const auto key = hello_key(r);
  if (!lobby_->check({key})) {
    return;
  }
  const auto numbers = lobby_->get_to_str(key);
  const auto added =
      numbers.substr(std::min(answered_[r].size(), numbers.size()));
  for (const auto& number : split_lines(added)) {
    lobby_->set(answer_key(number), attempt_);
  }
  answered_[r] = numbers;
}

} // namespace ddp::detail
