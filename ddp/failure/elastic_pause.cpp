#include <ddp/failure/elastic_pause.h>

#include <c10/util/env.h>
#include <common/elastic_page.h>
#include <common/text.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <string>

namespace ddp::detail::elastic_pause {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongest{1000};

// Global because ddprun's requests are to the process, not to a group.
ElasticPage nobodys_page;
std::atomic<ElasticPage*> current_page{&nobodys_page};
std::atomic<uint32_t> waits_ended_for{0};

ElasticPage& page() {
  return *current_page.load();
}

/// Sleeps until the value is no longer `seen`, or for `time`.
void sleep_on(std::atomic<uint32_t>& futex, uint32_t seen, milliseconds time) {
  timespec limit{};
  limit.tv_sec = time.count() / 1000;
  limit.tv_nsec = time.count() % 1000 * 1000000;
  syscall(SYS_futex, &futex, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

} // namespace

void attach(ElasticPage* page) noexcept {
  current_page = page ? page : &nobodys_page;
}

void set_possible(bool possible) noexcept {
  page().elastic = possible ? ElasticPage::kVersion : 0;
}

bool may_come() noexcept {
  return page().loss_patience != 0;
}

bool is_possible() noexcept {
  return may_come() && page().elastic != 0;
}

bool is_asked() noexcept {
  return page().asked != page().paused;
}

bool is_asked_within(milliseconds time) noexcept {
  const auto deadline = Clock::now() + time;
  while (may_come() && !is_asked()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      break;
    }
    sleep_on(page().asked, page().paused, std::min(left, kLongest));
  }
  return is_asked();
}

milliseconds loss_patience() noexcept {
  return milliseconds(page().loss_patience);
}

milliseconds step_patience() noexcept {
  return milliseconds(page().step_patience);
}

void end_waits() noexcept {
  waits_ended_for = page().asked.load();
}

bool waits_are_ended() noexcept {
  return is_asked() && waits_ended_for == page().asked;
}

void make() {
  auto& shared = page();
  const uint32_t number = shared.asked;
  shared.paused = number;
  for (uint32_t over = shared.over; over != number; over = shared.over) {
    sleep_on(shared.over, over, kLongest);
  }
  for (const auto& line : split_lines(shared.variables)) {
    const auto end = line.find('=');
    // Not setenv(): an abandoned thread of an earlier pause may read variables.
    c10::utils::set_env(line.substr(0, end).c_str(), line.c_str() + end + 1);
  }
}

} // namespace ddp::detail::elastic_pause
