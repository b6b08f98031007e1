#include <ddp/failure/heartbeat.h>

#include <common/elastic_page.h>
#include <common/signal_safe_buffer.h>
#include <ddp/failure/elastic_pause.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace ddp::detail::heartbeat {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int kReads = 100;

// Global because progress belongs to the process, not to a group or Reducer,
// and because a signal handler can use only global data.
HeartbeatPage own_page;
std::atomic<HeartbeatPage*> current_page{&own_page};
std::atomic<bool> ends_by_itself{false};

thread_local const Activity* innermost = nullptr;
/// The text of this thread's activity, also if another thread has replaced it.
thread_local char own_activity[HeartbeatPage::kActivitySize];

HeartbeatPage& page() {
  return *current_page.load(std::memory_order_acquire);
}

struct Pages {
  HeartbeatPage* heartbeat = nullptr;
  ElasticPage* elastic = nullptr;
};

/// A page that the descriptor's file does not contain is null. Without a seal,
/// the file is the program's, and not ddprun's.
Pages map(int descriptor) {
  struct stat status {};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) ||
      fstat(descriptor, &status) != 0 ||
      status.st_size < static_cast<off_t>(sizeof(HeartbeatPage))) {
    return {};
  }
  const bool all = status.st_size >= static_cast<off_t>(sizeof(RankPage));
  void* memory = mmap(
      nullptr,
      all ? sizeof(RankPage) : sizeof(HeartbeatPage),
      PROT_READ | PROT_WRITE,
      MAP_SHARED,
      descriptor,
      0);
  if (memory == MAP_FAILED) {
    return {};
  }
  return {
      static_cast<HeartbeatPage*>(memory),
      all ? &static_cast<RankPage*>(memory)->elastic : nullptr};
}

/// Keeps the text of another thread that writes at the same time.
void write_activity(std::string_view text) {
  own_activity[text.copy(own_activity, sizeof(own_activity) - 1)] = '\0';
  auto& target = page();
  auto sequence = target.sequence.load(kRelaxed);
  if (sequence % 2 == 0 &&
      target.sequence.compare_exchange_strong(
          sequence, sequence + 1, std::memory_order_acquire, kRelaxed)) {
    std::atomic_thread_fence(std::memory_order_release);
    const auto length =
        std::min<size_t>(text.size(), HeartbeatPage::kActivitySize - 1);
    for (size_t i = 0; i < length; ++i) {
      target.activity[i].store(text[i], kRelaxed);
    }
    target.activity[length].store('\0', kRelaxed);
    target.sequence.store(sequence + 2, std::memory_order_release);
  }
  beat();
}

} // namespace

void attach() noexcept {
  const char* value = std::getenv(kHeartbeatVariable);
  if (!value) {
    return;
  }
  const std::string_view text = value;
  const auto* end = text.data() + text.size();
  int descriptor = -1;
  const auto [stop, error] = std::from_chars(text.data(), end, descriptor);
  const bool readable = error == std::errc() && stop == end;
  unsetenv(kHeartbeatVariable);
  const auto pages = readable ? map(descriptor) : Pages();
  if (pages.heartbeat) {
    close(descriptor); // otherwise children would inherit it
    elastic_pause::attach(pages.elastic);
    current_page.store(pages.heartbeat, std::memory_order_release);
    pages.heartbeat->version.store(
        HeartbeatPage::kVersion, std::memory_order_release);
  }
}

void joined() noexcept {
  page().failed_by_another.store(0, kRelaxed);
  page().joined.store(1, std::memory_order_release);
  beat();
}

void failed_by_another(int64_t size) noexcept {
  uint64_t none = 0;
  if (!ends_by_itself.load(kRelaxed)) {
    page().failed_by_another.compare_exchange_strong(
        none, static_cast<uint64_t>(size), kRelaxed);
  }
}

void failed_by_itself() noexcept {
  ends_by_itself.store(true, kRelaxed);
}

void stepped(int64_t number) noexcept {
  page().step.store(number, kRelaxed);
  char memory[48];
  SignalSafeBuffer text(memory, sizeof(memory));
  text.add("after step ").add_number(static_cast<uint64_t>(number));
  write_activity(text.view());
}

void began_bucket(
    size_t place,
    size_t count,
    int64_t step,
    std::string_view owner) noexcept {
  char memory[HeartbeatPage::kActivitySize];
  SignalSafeBuffer text(memory, sizeof(memory));
  text.add("bucket ").add_number(place).add(" of ").add_number(count);
  text.add(", step ").add_number(static_cast<uint64_t>(step)).add(owner);
  write_activity(text.view());
}

void beat() noexcept {
  page().beats.fetch_add(1, std::memory_order_release);
}

Activity::Activity(const char* name, std::string_view object) noexcept
    : name_(name), object_(object), outer_(innermost) {
  innermost = this;
  write();
}

Activity::Activity(
    const char* name,
    int64_t count,
    const char* dtype,
    int64_t root) noexcept
    : name_(name),
      count_(count),
      dtype_(dtype),
      root_(root),
      outer_(innermost) {
  innermost = this;
  write();
}

Activity::~Activity() {
  innermost = outer_;
  if (outer_) {
    outer_->write();
    return;
  }
  char memory[HeartbeatPage::kActivitySize];
  SignalSafeBuffer text(memory, sizeof(memory));
  text.add("after ").add(name_);
  write_activity(text.view());
  *own_activity = '\0';
}

const Activity& Activity::first() const noexcept {
  return outer_ ? outer_->first() : *this;
}

void Activity::write() const noexcept {
  char memory[HeartbeatPage::kActivitySize];
  SignalSafeBuffer text(memory, sizeof(memory));
  if (outer_) {
    first().describe(text);
    text.add(": ");
  }
  describe(text);
  write_activity(text.view());
}

void Activity::describe_caller(SignalSafeBuffer& text) const noexcept {
  if (outer_) {
    first().describe(text);
  }
}

void Activity::describe(SignalSafeBuffer& text) const noexcept {
  text.add(name_);
  if (!object_.empty()) {
    text.add("(\"").add(object_).add("\")");
  }
  if (dtype_) {
    text.add(" of ").add_number(static_cast<uint64_t>(count_));
    text.add(" ").add(dtype_);
  }
  if (root_ >= 0) {
    text.add(" from rank ").add_number(static_cast<uint64_t>(root_));
  }
}

void copy_caller(char* text, size_t size) noexcept {
  SignalSafeBuffer caller(text, size - 1);
  if (innermost) {
    innermost->describe_caller(caller);
  }
  text[caller.view().size()] = '\0';
}

void copy_own_activity(char* text, size_t size) noexcept {
  if (*own_activity == '\0') {
    copy_activity(text, size);
  } else {
    text[std::string_view(own_activity).copy(text, size - 1)] = '\0';
  }
}

bool is_failed_by_another() noexcept {
  return page().failed_by_another.load(kRelaxed) != 0;
}

int64_t last_step() noexcept {
  return page().step.load(kRelaxed);
}

void copy_activity(char* text, size_t size) noexcept {
  const auto& source = page();
  const auto length = std::min<size_t>(size, HeartbeatPage::kActivitySize) - 1;
  // Bounded, since a thread may have crashed while it wrote.
  for (int attempt = 0; attempt < kReads; ++attempt) {
    const auto before = source.sequence.load(std::memory_order_acquire);
    for (size_t i = 0; i < length; ++i) {
      text[i] = source.activity[i].load(kRelaxed);
    }
    text[length] = '\0';
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && source.sequence.load(kRelaxed) == before) {
      return;
    }
  }
}

} // namespace ddp::detail::heartbeat
