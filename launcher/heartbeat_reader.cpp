#include <launcher/heartbeat_reader.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace ddp {

HeartbeatReader::HeartbeatReader(HeartbeatReader&& other) noexcept
    : memory_(std::move(other.memory_)),
      page_(std::exchange(other.page_, nullptr)) {}

HeartbeatReader& HeartbeatReader::operator=(HeartbeatReader&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(page_, other.page_);
  return *this;
}

HeartbeatReader::~HeartbeatReader() {
  if (page_ != nullptr) {
    munmap(page_, sizeof(HeartbeatPage));
  }
}

HeartbeatReader HeartbeatReader::make() {
  HeartbeatReader reader;
  FileDescriptor memory(
      memfd_create("ddp-heartbeat", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // A rank that shortened it would crash the reader.
  const bool sealed = memory &&
      ftruncate(memory.get(), sizeof(HeartbeatPage)) == 0 &&
      fcntl(
          memory.get(),
          F_ADD_SEALS,
          F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  if (!sealed) {
    return reader;
  }
  void* page = mmap(
      nullptr, sizeof(HeartbeatPage), PROT_READ, MAP_SHARED, memory.get(), 0);
  if (page != MAP_FAILED) {
    reader.page_ = static_cast<HeartbeatPage*>(page);
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

} // namespace ddp
