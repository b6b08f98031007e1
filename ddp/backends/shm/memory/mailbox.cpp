#include <ddp/backends/shm/memory/mailbox.h>

#include <ddp/backends/shm/memory/futex.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

namespace ddp::backends::shm {
namespace {

/// The beginning of a message in its sender's heap; the bytes follow it.
struct alignas(64) Letter {
  /// Where the next one to the same rank lies, once there is one.
  std::atomic<uint64_t> next;
  int64_t bytes;
  int32_t tag;
  /// The receiver has copied it, and has gone on to the next.
  std::atomic<uint32_t> taken;
  std::atomic<uint32_t> passed;
};

Letter& letter_in(const Mapping& memory, uint64_t place) {
  return *reinterpret_cast<Letter*>(memory.at(static_cast<int64_t>(place)));
}

char* contents(Letter& letter) {
  return reinterpret_cast<char*>(&letter + 1);
}

} // namespace

Mailbox::Mailbox(Team& team, std::shared_ptr<Memory> own)
    : team_(team),
      own_(std::move(own)),
      newest_to_(team.size()),
      newest_from_(team.size()),
      arrived_(team.size()) {}

void Mailbox::send(const at::Tensor& tensor, int to, int tag) {
  const std::lock_guard<std::mutex> lock(mutex_);
  clear_sent();
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  const auto place = own_->take(static_cast<int64_t>(sizeof(Letter)) + bytes);
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      place,
      "backend shm has no ",
      bytes,
      " bytes of memory left for a message");
  auto& letter = letter_in(*own_->mapping(), *place);
  letter.next = 0;
  letter.bytes = bytes;
  letter.tag = tag;
  letter.taken = 0;
  letter.passed = 0;
  if (bytes > 0) {
    std::memcpy(contents(letter), tensor.const_data_ptr(), bytes);
  }
  sent_.push_back(*place);
  auto& before = newest_to_[to] > 0
      ? letter_in(*own_->mapping(), newest_to_[to]).next
      : own_->mapping()->control().first_letters[to];
  before = *place;
  newest_to_[to] = *place;
  raise(team_.memory(to).control().letters);
}

void Mailbox::clear_sent() {
  const auto is_over = [this](int64_t place) {
    auto& letter = letter_in(*own_->mapping(), place);
    const bool over = letter.taken && letter.passed;
    if (over) {
      own_->give_back(place);
    } else if (letter.taken && letter.bytes > 0) {
      own_->shorten(place, sizeof(Letter)); // the next one hangs on it
      letter.bytes = 0;
    }
    return over;
  };
  sent_.erase(std::remove_if(sent_.begin(), sent_.end(), is_over), sent_.end());
}

void Mailbox::expect(Receipt& receipt) {
  const std::lock_guard<std::mutex> lock(mutex_);
  expected_.push_back(&receipt);
}

void Mailbox::deliver() {
  const std::lock_guard<std::mutex> lock(mutex_);
  clear_sent();
  for (int from = 0; from < team_.size(); ++from) {
    collect(from);
  }
  expected_.remove_if([this](Receipt* receipt) {
    for (int from = 0; from < team_.size(); ++from) {
      const bool fits =
          receipt->source == kAnySource || receipt->source == from;
      if (fits && hand_out(*receipt, from)) {
        return true;
      }
    }
    return false;
  });
}

void Mailbox::collect(int from) {
  const auto& memory = team_.memory(from);
  auto& newest = newest_from_[from];
  for (;;) {
    const auto next = newest > 0
        ? letter_in(memory, newest).next.load()
        : memory.control().first_letters[team_.rank()].load();
    if (next == 0) {
      return;
    }
    if (newest > 0) {
      letter_in(memory, newest).passed = 1; // and may be gone from now on
    }
    newest = next;
    arrived_[from].push_back(next);
  }
}

bool Mailbox::hand_out(Receipt& receipt, int from) {
  const auto& memory = team_.memory(from);
  auto& letters = arrived_[from];
  const auto place =
      std::find_if(letters.begin(), letters.end(), [&](uint64_t candidate) {
        return letter_in(memory, candidate).tag == receipt.tag;
      });
  if (place == letters.end()) {
    return false;
  }
  auto& letter = letter_in(memory, *place);
  letters.erase(place);
  receipt.sender = from;
  const auto bytes = static_cast<int64_t>(receipt.tensor.nbytes());
  if (letter.bytes != bytes) {
    receipt.error =
        c10::str("rank ", from, " sent ", letter.bytes, " bytes, not ", bytes);
  } else if (bytes > 0) {
    std::memcpy(receipt.tensor.mutable_data_ptr(), contents(letter), bytes);
  }
  letter.taken = 1;
  receipt.done = true;
  return true;
}

bool Mailbox::wait(const Receipt& receipt, Clock::time_point until) {
  auto& letters = team_.memory(team_.rank()).control().letters;
  for (;;) {
    const auto seen = letters.value.load();
    deliver();
    if (receipt.done) {
      return true;
    }
    team_.check_failures();
    check_senders(receipt);
    const auto now = Clock::now();
    if (receipt.done || now >= until) {
      return receipt.done;
    }
    sleep_on(letters, seen, std::min<Clock::duration>(kLook, until - now));
  }
}

void Mailbox::check_senders(const Receipt& receipt) {
  int ended = -1;
  for (int rank = 0; rank < team_.size(); ++rank) {
    if (receipt.source == kAnySource ? rank != team_.rank()
                                     : rank == receipt.source) {
      if (!team_.has_ended(rank)) {
        return;
      }
      ended = rank;
    }
  }
  deliver(); // what they sent before their end
  TORCH_CHECK_WITH(
      DistBackendError,
      receipt.done || ended < 0,
      team_.words_of_end(std::max(ended, 0)));
}

void Mailbox::forget(const Receipt& receipt) {
  const std::lock_guard<std::mutex> lock(mutex_);
  expected_.remove_if([&](const auto* other) { return other == &receipt; });
}

} // namespace ddp::backends::shm
