#include <launcher/output_pump.h>

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace ddp {
namespace {

constexpr int kOwnMessages = -1; // in place of a rank
constexpr size_t kReadSize = 64 * 1024; // what a pipe holds

} // namespace

OutputPump::OutputPump(int world_size, int out_fd, int err_fd)
    : world_size_(world_size),
      screen_(out_fd, err_fd),
      messages_(make_pipe()),
      done_(make_pipe()) {
  add(std::move(messages_.read_end), kOwnMessages, Stream::kErr);
}

OutputPump::~OutputPump() {
  finish();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    run();
  }
}

void OutputPump::add(FileDescriptor pipe, int rank, Stream stream) {
  check_call(
      fcntl(pipe.get(), F_SETFL, O_NONBLOCK), "cannot set up an output pipe");
  auto source = std::make_unique<Source>();
  source->pipe = std::move(pipe);
  source->number = static_cast<int>(sources_.size());
  source->rank = rank;
  source->stream = stream;
  if (rank != kOwnMessages && world_size_ > 1) {
    source->prefix = "[" + std::to_string(rank) + "] ";
  }
  sources_.push_back(std::move(source));
}

void OutputPump::start() {
  thread_ = std::thread([this] { run(); });
}

void OutputPump::message(std::string_view line) {
  write_all(messages_.write_end.get(), std::string(line) + "\n");
}

void OutputPump::finish() {
  messages_.write_end.reset();
}

void OutputPump::run() {
  FileDescriptor poll(epoll_create1(EPOLL_CLOEXEC));
  for (const auto& source : sources_) {
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.ptr = source.get();
    epoll_ctl(poll.get(), EPOLL_CTL_ADD, source->pipe.get(), &interest);
  }
  std::array<epoll_event, 64> events;
  while (sources_.front()->pipe) { // our own messages: closed by finish()
    const int ready = epoll_wait(
        poll.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      read_once(*static_cast<Source*>(events[static_cast<size_t>(i)].data.ptr));
    }
  }
  // Nobody is left to write, but a pipe that a rank passed to a stranger may
  // never end: take what is there.
  for (const auto& source : sources_) {
    while (source->pipe && read_once(*source)) {
    }
    close(*source);
  }
  screen_.flush();
  done_.write_end.reset();
}

// False where there was nothing to read.
bool OutputPump::read_once(Source& source) {
  std::array<char, kReadSize> buffer;
  const ssize_t size = read(source.pipe.get(), buffer.data(), buffer.size());
  if (size < 0) {
    return errno == EINTR;
  }
  if (size == 0) {
    close(source);
  } else {
    const std::string progress = source.lines.progress();
    source.lines.feed(
        {buffer.data(), static_cast<size_t>(size)},
        [&](std::string_view text, bool ends_line) {
          emit(source, text, ends_line);
        });
    if (source.rank == 0 && source.lines.progress() != progress) {
      const std::string& now = source.lines.progress();
      screen_.set_progress(
          source.stream, now.empty() ? now : source.prefix + now);
    }
  }
  screen_.flush();
  return true;
}

void OutputPump::close(Source& source) {
  source.pipe.reset(); // which also takes it out of the epoll set
  if (source.rank == 0) {
    screen_.set_progress(source.stream, {});
  }
  source.lines.finish([&](std::string_view text, bool ends_line) {
    emit(source, text, ends_line);
  });
}

void OutputPump::emit(Source& source, std::string_view text, bool ends_line) {
  screen_.add(source.stream, source.number, source.prefix, text, ends_line);
}

} // namespace ddp
