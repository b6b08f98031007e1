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
  // A rank that shortened it would crash the reader.
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

bool HeartbeatReader::attached() const {
  return pages_ != nullptr &&
      page().version.load(std::memory_order_acquire) == HeartbeatPage::kVersion;
}

bool HeartbeatReader::joined() const {
  return attached() && page().joined.load(std::memory_order_relaxed) != 0;
}

bool HeartbeatReader::failed_by_another() const {
  return attached() &&
      page().failed_by_another.load(std::memory_order_relaxed) != 0;
}

uint64_t HeartbeatReader::beats() const {
  return attached() ? page().beats.load(std::memory_order_relaxed) : 0;
}

int64_t HeartbeatReader::step() const {
  return page().step.load(std::memory_order_relaxed);
}

std::string HeartbeatReader::activity() const {
  if (!attached()) {
    return "";
  }
  const auto before = page().sequence.load(std::memory_order_acquire);
  std::string text;
  for (const auto& each : page().activity) {
    const char c = each.load(std::memory_order_relaxed);
    if (c == '\0') {
      break;
    }
    text += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto after = page().sequence.load(std::memory_order_relaxed);
  return before == after && before % 2 == 0 ? text : "";
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
        kExitInternal, "the variables of a rank are too long to be handed on");
  }
  std::memcpy(page.variables, text.c_str(), text.size() + 1);
  pages_->heartbeat.joined = 0;
  store_and_wake(page.over, number);
}

} // namespace ddp
