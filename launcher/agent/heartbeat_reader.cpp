#include <launcher/agent/heartbeat_reader.h>

#include <climits>
#include <cstring>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <common/scheduler/launch_error.h>

namespace ddp {
namespace {

void store_and_wake(std::atomic<uint32_t>& futex, uint32_t value) {
  futex = value;
  syscall(SYS_futex, &futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

} // namespace

void HeartbeatReader::Unmap::operator()(RankPage* pages) const {
  munmap(pages, sizeof(RankPage));
}

HeartbeatReader HeartbeatReader::make() {
  HeartbeatReader reader;
  FileDescriptor memory(
      memfd_create("ddp-heartbeat", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // If a rank shortened the memory, the reader would crash.
  const bool sealed = memory &&
      ftruncate(memory.get(), sizeof(RankPage)) == 0 &&
      fcntl(
          memory.get(),
          F_ADD_SEALS,
          F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  if (!sealed) {
    return reader;
  }
  void* pages = mmap(
      nullptr,
      sizeof(RankPage),
      PROT_READ | PROT_WRITE,
      MAP_SHARED,
      memory.get(),
      0);
  if (pages != MAP_FAILED) {
    reader.pages_.reset(static_cast<RankPage*>(pages));
    reader.memory_ = std::move(memory);
  }
  return reader;
}

std::optional<Heartbeat> HeartbeatReader::read() const {
  constexpr auto relaxed = std::memory_order_relaxed;
  if (pages_ == nullptr ||
      pages_->heartbeat.version.load(std::memory_order_acquire) !=
          HeartbeatPage::kVersion) {
    return std::nullopt;
  }
  const HeartbeatPage& page = pages_->heartbeat;
  Heartbeat heart;
  heart.joined = page.joined.load(relaxed) != 0;
  heart.failed_by_another = page.failed_by_another.load(relaxed);
  heart.beats = page.beats.load(relaxed);
  heart.step = page.step.load(relaxed);
  const auto before = page.sequence.load(std::memory_order_acquire);
  for (const auto& each : page.activity) {
    const char c = each.load(relaxed);
    if (c == '\0') {
      break;
    }
    heart.activity += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  if (before % 2 != 0 || page.sequence.load(relaxed) != before) {
    heart.activity.clear();
  }
  return heart;
}

bool HeartbeatReader::can_pause() const {
  return pages_ != nullptr && pages_->elastic.loss_patience != 0 &&
      pages_->elastic.elastic == ElasticPage::kVersion;
}

void HeartbeatReader::allow_pauses(std::chrono::milliseconds loss_patience) {
  if (pages_ != nullptr) {
    pages_->elastic.loss_patience =
        static_cast<uint32_t>(loss_patience.count());
  }
}

void HeartbeatReader::ask_to_pause(
    uint32_t number,
    std::chrono::milliseconds step_patience) {
  pages_->elastic.step_patience = static_cast<uint32_t>(step_patience.count());
  store_and_wake(pages_->elastic.asked, number);
}

bool HeartbeatReader::is_paused(uint32_t number) const {
  return pages_->elastic.paused == number;
}

void HeartbeatReader::end_pause(uint32_t number, const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) {
    text.append(name).append("=").append(value).append("\n");
  }
  ElasticPage& page = pages_->elastic;
  if (text.size() >= sizeof page.variables) {
    throw LaunchError(
        kExitInternal, "the variables of a rank are too long to be passed on");
  }
  std::memcpy(page.variables, text.c_str(), text.size() + 1);
  pages_->heartbeat.joined = 0;
  pages_->heartbeat.failed_by_another = 0; // by the nodes that left
  store_and_wake(page.over, number);
}

} // namespace ddp
