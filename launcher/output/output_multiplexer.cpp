#include <launcher/output/output_multiplexer.h>

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace ddp {
namespace {

constexpr size_t kReadSize = 64 * 1024; // a pipe's capacity
// The pipe of an ended rank holds no more, but another process may write
// forever.
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

PseudoTerminal make_rank_pty() {
  winsize size{};
  for (int fd : {STDIN_FILENO, STDERR_FILENO, STDOUT_FILENO}) {
    winsize own{};
    if (ioctl(fd, TIOCGWINSZ, &own) == 0 && own.ws_col > 0) {
      size = own;
    }
  }
  int master = -1;
  int slave = -1;
  check_call(
      openpty(&master, &slave, nullptr, nullptr, &size),
      "cannot open a pseudo-terminal");
  for (int fd : {master, slave}) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  termios mode{};
  tcgetattr(slave, &mode);
  cfmakeraw(&mode);
  tcsetattr(slave, TCSANOW, &mode);
  return {FileDescriptor(master), FileDescriptor(slave)};
}

OutputMultiplexer::OutputMultiplexer(
    OutputOptions options,
    JobEnvironment job,
    int out_fd,
    int err_fd,
    std::chrono::milliseconds patience)
    : options_(std::move(options)),
      screen_(out_fd, err_fd, patience),
      wake_(make_event()),
      done_(make_event()),
      job_(std::move(job)),
      buffer_(std::make_unique<char[]>(kReadSize)) {
  thread_ = std::thread([this] { run(); });
}

OutputMultiplexer::~OutputMultiplexer() {
  finish();
  thread_.join();
}

void OutputMultiplexer::set_job(JobEnvironment job) {
  post([this, job = std::move(job)] {
    read_all_once(); // what was written before
    job_ = job;
    for (const auto& each : sources_) {
      each->output.renumber(options_, job_);
    }
  });
}

void OutputMultiplexer::add(FileDescriptor pipe, const RankStream& rank) {
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
    sources_.push_back(std::unique_ptr<Source>(new Source{
        std::move(*held),
        {options_,
         job_,
         rank,
         number_++,
         screen_,
         last_lines,
         last_lines ? errors_ : nullptr}}));
  });
}

void OutputMultiplexer::message(std::string_view text) {
  post([this, text = std::string(text)] {
    read_all_once();
    screen_.message(text);
  });
}

void OutputMultiplexer::drain() {
  post([this] {
    drain_sources();
    signal_event(done_);
  });
}

void OutputMultiplexer::finish() {
  post([this] {
    drain_sources();
    for (const auto& line : errors_->repeated_warnings()) {
      screen_.message("ddprun: " + line);
    }
    finishing_ = true;
  });
}

std::vector<std::string> OutputMultiplexer::last_lines(int local_rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = last_lines_.find(local_rank);
  return found == last_lines_.end() ? std::vector<std::string>()
                                    : found->second->lines();
}

void OutputMultiplexer::post(Task task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(std::move(task));
  signal_event(wake_);
}

void OutputMultiplexer::run() {
  while (!finishing_ || !screen_.all_written()) {
    wait();
    run_tasks();
    flush();
    forget_closed();
  }
  signal_event(done_);
}

// A source that must not be read yet must not wake the thread, even at its end.
void OutputMultiplexer::wait() {
  std::vector<pollfd> ready{{wake_.get(), POLLIN, 0}};
  for (const auto& source : sources_) {
    const bool wanted = source->output.wants_more();
    ready.push_back({wanted ? source->pipe.get() : -1, POLLIN, 0});
  }
  for (const int fd : screen_.blocked_fds()) {
    ready.push_back({fd, POLLOUT, 0});
  }
  poll(
      ready.data(),
      ready.size(),
      static_cast<int>(screen_.time_left().count()));
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (ready[i + 1].revents != 0 && sources_[i]->output.wants_more()) {
      read_once(*sources_[i]);
      flush();
    }
  }
}

void OutputMultiplexer::run_tasks() {
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

// Returns false if there was nothing to read.
bool OutputMultiplexer::read_once(Source& source) {
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
  close(source); // EIO: a pseudo-terminal that no process has open
  return false;
}

void OutputMultiplexer::read_all_once() {
  for (const auto& source : sources_) {
    if (source->output.wants_more()) {
      read_once(*source);
      flush();
    }
  }
}

void OutputMultiplexer::drain_sources() {
  for (const auto& source : sources_) {
    size_t reads = 0;
    while (reads++ < kMaxDrained / kReadSize && read_once(*source)) {
      flush();
    }
    close(*source);
  }
  sources_.clear();
}

void OutputMultiplexer::close(Source& source) {
  source.pipe.reset();
  source.output.finish();
}

void OutputMultiplexer::flush() {
  if (screen_.is_terminal(Stream::kOut) || screen_.is_terminal(Stream::kErr)) {
    show_progress();
  }
  screen_.flush();
  last_taken_ = screen_.last_taken();
}

void OutputMultiplexer::show_progress() {
  std::string progress;
  for (const auto& source : sources_) {
    if (progress.empty()) {
      progress = source->output.progress();
    }
  }
  screen_.set_progress(progress);
}

void OutputMultiplexer::forget_closed() {
  sources_.erase(
      std::remove_if(
          sources_.begin(),
          sources_.end(),
          [](const auto& source) { return !source->pipe; }),
      sources_.end());
}

} // namespace ddp
