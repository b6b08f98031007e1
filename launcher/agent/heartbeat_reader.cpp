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

HeartbeatReader::HeartbeatReader(HeartbeatReader&& other) noexcept
    : memory_(std::move(other.memory_)),
      pages_(std::exchange(other.pages_, nullptr)),
      page_(std::exchange(other.page_, nullptr)) {}

HeartbeatReader& HeartbeatReader::operator=(HeartbeatReader&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(pages_, other.pages_);
  std::swap(page_, other.page_);
  return *this;
}

HeartbeatReader::~HeartbeatReader() {
  if (pages_ != nullptr) {
    munmap(pages_, sizeof(RankPage));
  }
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
    reader.pages_ = static_cast<RankPage*>(pages);
    reader.page_ = &reader.pages_->heartbeat;
    reader.memory_ = std::move(memory);
  }
  return reader;
}

bool HeartbeatReader::attached() const {
  return page_ != nullptr &&
      page_->version.load(std::memory_order_acquire) == HeartbeatPage::kVersion;
}

bool HeartbeatReader::joined() const {
  return attached() && page_->joined.load(std::memory_order_relaxed) != 0;
}

bool HeartbeatReader::failed_by_another() const {
  return attached() &&
      page_->failed_by_another.load(std::memory_order_relaxed) != 0;
}

uint64_t HeartbeatReader::beats() const {
  return page_->beats.load(std::memory_order_relaxed);
}

int64_t HeartbeatReader::step() const {
  return page_->step.load(std::memory_order_relaxed);
}

std::string HeartbeatReader::activity() const {
  if (!attached()) {
    return "";
  }
  const auto before = page_->sequence.load(std::memory_order_acquire);
  std::string text;
  for (const auto& each : page_->activity) {
    const char c = each.load(std::memory_order_relaxed);
    if (c == '\0') {
      break;
    }
    text += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto after = page_->sequence.load(std::memory_order_relaxed);
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
  page_->joined = 0;
  store_and_wake(page.over, number);
}

} // namespace ddp
