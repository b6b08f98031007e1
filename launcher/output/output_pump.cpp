#include <launcher/output/output_pump.h>

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace ddp {
namespace {

constexpr size_t kReadSize = 64 * 1024; // what a pipe holds
// A pipe of a rank that is gone holds no more; a stranger may write for ever.
constexpr size_t kMaxDrained = 1024 * 1024;

FileDescriptor make_event() {
  return FileDescriptor(check_call(
      eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "cannot open an eventfd"));
}

void signal_event(const FileDescriptor& event) {
  const uint64_t one = 1;
  write_all(event.get(), {reinterpret_cast<const char*>(&one), sizeof one});
}

void clear_event(const FileDescriptor& event) {
  uint64_t count = 0;
  while (read(event.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

} // namespace

OutputPump::OutputPump(
    OutputOptions options,
    JobEnvironment job,
    int out_fd,
    int err_fd,
    std::chrono::milliseconds patience)
    : options_(std::move(options)),
      screen_(out_fd, err_fd, patience),
      events_(check_call(epoll_create1(EPOLL_CLOEXEC), "cannot use epoll")),
      wake_(make_event()),
      done_(make_event()),
      job_(std::move(job)),
      buffer_(std::make_unique<char[]>(kReadSize)) {
  watch(EPOLL_CTL_ADD, wake_.get(), EPOLLIN, nullptr);
  thread_ = std::thread([this] { run(); });
}

OutputPump::~OutputPump() {
  finish();
  thread_.join();
}

void OutputPump::set_job(JobEnvironment job) {
  post([this, job = std::move(job)] {
    read_all_once(); // what was written before
    job_ = job;
    for (const auto& each : sources_) {
      each->output.renumber(options_, job_);
    }
  });
}

void OutputPump::add(FileDescriptor pipe, const RankStream& rank) {
  check_call(
      fcntl(pipe.get(), F_SETFL, O_NONBLOCK), "cannot set up an output pipe");
  const auto held = std::make_shared<FileDescriptor>(std::move(pipe));
  std::shared_ptr<LastLines> last_lines;
  if (rank.stream == Stream::kErr) {
    last_lines = std::make_shared<LastLines>();
    const std::lock_guard<std::mutex> lock(mutex_);
    last_lines_[rank.local_rank] = last_lines;
  }
  post([this, held, rank, last_lines] {
    add_source(std::move(*held), rank, last_lines);
  });
}

void OutputPump::message(std::string_view text) {
  post([this, text = std::string(text)] {
    read_all_once();
    screen_.message(text);
  });
}

void OutputPump::drain() {
  post([this] {
    drain_sources();
    signal_event(done_);
  });
}

void OutputPump::finish() {
  post([this] {
    drain_sources();
    finishing_ = true;
  });
}

std::vector<std::string> OutputPump::last_lines(int local_rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = last_lines_.find(local_rank);
  return found == last_lines_.end() ? std::vector<std::string>()
                                    : found->second->lines();
}

void OutputPump::post(Task task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(std::move(task));
  signal_event(wake_);
}

void OutputPump::run() {
  while (!finishing_ || !screen_.all_written()) {
    wait();
    run_tasks();
    flush();
    watch_sources();
    watch_screen();
  }
  signal_event(done_);
}

void OutputPump::wait() {
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(
      events_.get(),
      events.data(),
      static_cast<int>(events.size()),
      static_cast<int>(screen_.time_left().count()));
  for (int i = 0; i < ready; ++i) {
    auto* source =
        static_cast<Source*>(events[static_cast<size_t>(i)].data.ptr);
    if (source != nullptr && source->output.wants_more()) {
      read_once(*source);
      flush();
    }
  }
}

void OutputPump::run_tasks() {
  std::vector<Task> tasks;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tasks_.empty()) {
      return;
    }
    tasks.swap(tasks_);
    clear_event(wake_);
  }
  for (const Task& each : tasks) {
    each();
  }
}

void OutputPump::add_source(
    FileDescriptor pipe,
    const RankStream& rank,
    std::shared_ptr<LastLines> last_lines) {
  const auto errors = rank.stream == Stream::kErr ? errors_ : nullptr;
  const int fd = pipe.get();
  sources_.push_back(std::unique_ptr<Source>(new Source{
      std::move(pipe),
      {options_, job_, rank, number_++, screen_, std::move(last_lines), errors},
      true}));
  watch(EPOLL_CTL_ADD, fd, EPOLLIN, sources_.back().get());
}

// False where there was nothing to read.
bool OutputPump::read_once(Source& source) {
  if (!source.pipe) {
    return false;
  }
  const ssize_t size = read(source.pipe.get(), buffer_.get(), kReadSize);
  if (size > 0) {
    source.output.take({buffer_.get(), static_cast<size_t>(size)});
    return true;
  }
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return errno == EINTR;
  }
  close(source); // EIO: a pseudo-terminal that all have left
  return false;
}

void OutputPump::read_all_once() {
  for (const auto& source : sources_) {
    if (source->output.wants_more()) {
      read_once(*source);
      flush();
    }
  }
}

void OutputPump::drain_sources() {
  for (const auto& source : sources_) {
    size_t reads = 0;
    while (reads++ < kMaxDrained / kReadSize && read_once(*source)) {
      flush();
    }
    close(*source);
  }
  sources_.clear();
}

void OutputPump::close(Source& source) {
  // A rank that was just forked may still hold a copy, which would keep the
  // closed pipe among the watched ones.
  watch(EPOLL_CTL_DEL, source.pipe.get(), 0, nullptr);
  source.pipe.reset();
  source.output.finish();
}

void OutputPump::flush() {
  if (screen_.is_terminal(Stream::kOut) || screen_.is_terminal(Stream::kErr)) {
    show_progress();
  }
  screen_.flush();
}

void OutputPump::show_progress() {
  std::string progress;
  for (const auto& source : sources_) {
    if (progress.empty()) {
      progress = source->output.progress();
    }
  }
  screen_.set_progress(progress);
}

// A source that is not to be read must not wake us, not even at its end.
void OutputPump::watch_sources() {
  sources_.erase(
      std::remove_if(
          sources_.begin(),
          sources_.end(),
          [](const auto& source) { return !source->pipe; }),
      sources_.end());
  for (const auto& source : sources_) {
    const bool wanted = source->output.wants_more();
    if (wanted != source->watched) {
      watch(
          wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL,
          source->pipe.get(),
          EPOLLIN,
          source.get());
    }
    source->watched = wanted;
  }
}

void OutputPump::watch_screen() {
  const std::array<int, 2> now = screen_.blocked_fds();
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i] == blocked_[i]) {
      continue;
    }
    if (blocked_[i] >= 0) {
      watch(EPOLL_CTL_DEL, blocked_[i], 0, nullptr);
    }
    if (now[i] >= 0) {
      watch(EPOLL_CTL_ADD, now[i], EPOLLOUT, nullptr);
    }
    blocked_[i] = now[i];
  }
}

void OutputPump::watch(int operation, int fd, uint32_t events, void* data)
    const {
  epoll_event interest{};
  interest.events = events;
  interest.data.ptr = data;
  epoll_ctl(events_.get(), operation, fd, &interest);
}

} // namespace ddp
