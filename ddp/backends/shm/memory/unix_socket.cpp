#include <ddp/backends/shm/memory/unix_socket.h>

#include <common/random_name.h>
#include <ddp/internal/check.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace ddp::backends::shm {
namespace {

constexpr int kType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

/// For calls that can fail because of another process.
void check(bool worked, const char* call) {
  DDP_CHECK_WITH(
      DistNetworkError, worked, "{}: {}", call, std::strerror(errno));
}

/// For calls that fail only because of this process.
void check_own(bool worked, const char* call) {
  DDP_CHECK(worked, "{}: {}", call, std::strerror(errno));
}

/// Calls `bind` or `connect` with a name.
int call_for(
    int (*call)(int, const sockaddr*, socklen_t),
    const FileDescriptor& socket,
    const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Names in the abstract namespace begin with a zero byte.
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  return call(
      socket.get(),
      reinterpret_cast<const sockaddr*>(&address),
      static_cast<socklen_t>(
          offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

/// A message in the kernel's format.
struct Envelope {
  explicit Envelope(Greeting& greeting) : content{&greeting, sizeof(greeting)} {
    header.msg_iov = &content;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }

  iovec content;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr header{};
};

} // namespace

UnixSocket::UnixSocket(FileDescriptor descriptor)
    : descriptor_(std::move(descriptor)) {
  check_own(static_cast<bool>(descriptor_), "socket");
}

UnixSocket UnixSocket::listen(std::string& name) {
  name = "ddp-" + ddp::detail::random_name();
  UnixSocket result(FileDescriptor(socket(AF_UNIX, kType, 0)));
  check_own(call_for(::bind, result.descriptor_, name) == 0, "bind");
  check_own(::listen(result.descriptor_.get(), SOMAXCONN) == 0, "listen");
  return result;
}

UnixSocket UnixSocket::connect(
    const std::string& name,
    Clock::time_point deadline) {
  UnixSocket result(FileDescriptor(socket(AF_UNIX, kType, 0)));
  while (call_for(::connect, result.descriptor_, name) != 0) {
    check(errno == EAGAIN || errno == EINTR, "connect"); // its queue is full
    DDP_CHECK_WITH(
        DistNetworkError,
        Clock::now() < deadline,
        "connect: the other rank does not answer");
    poll(nullptr, 0, 1);
  }
  return result;
}

UnixSocket UnixSocket::accept(Clock::time_point deadline) const {
  wait_for(POLLIN, deadline);
  return UnixSocket(FileDescriptor(accept4(
      descriptor_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
}

bool UnixSocket::is_from_own_user() const {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  return getsockopt(
             descriptor_.get(),
             SOL_SOCKET,
             SO_PEERCRED,
             &credentials,
             &length) == 0 &&
      credentials.uid == geteuid();
}

void UnixSocket::wait_for(short event, Clock::time_point deadline) const {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd look{descriptor_.get(), event, 0};
    const auto patience = std::clamp<int64_t>(left.count(), 0, 1000);
    if (poll(&look, 1, static_cast<int>(patience)) > 0) {
      return;
    }
    DDP_CHECK_WITH(
        DistNetworkError, left.count() > 0, "the other ranks did not connect");
  }
}

void UnixSocket::send(const Message& message, Clock::time_point deadline)
    const {
  auto greeting = message.greeting;
  Envelope envelope(greeting);
  auto* attached = CMSG_FIRSTHDR(&envelope.header);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int files[] = {message.files[0].get(), message.files[1].get()};
  std::memcpy(CMSG_DATA(attached), files, sizeof(files));
  while (sendmsg(descriptor_.get(), &envelope.header, MSG_NOSIGNAL) < 0) {
    check(errno == EAGAIN || errno == EINTR, "sendmsg");
    wait_for(POLLOUT, deadline);
  }
}

Message UnixSocket::receive(Clock::time_point deadline) const {
  wait_for(POLLIN, deadline);
  Message message;
  Envelope envelope(message.greeting);
  const auto length =
      recvmsg(descriptor_.get(), &envelope.header, MSG_CMSG_CLOEXEC);
  check(length >= 0, "recvmsg");
  DDP_CHECK_WITH(
      DistNetworkError,
      length > 0,
      "the other process closed the connection: it has ended or failed");
  const auto* attached = CMSG_FIRSTHDR(&envelope.header);
  size_t count = 0;
  if (attached && attached->cmsg_type == SCM_RIGHTS) {
    count = (attached->cmsg_len - CMSG_LEN(0)) / sizeof(int); // at most 2
  }
  for (size_t i = 0; i < count; ++i) { // owned even if they are not two
    int file = -1;
    std::memcpy(&file, CMSG_DATA(attached) + i * sizeof(int), sizeof(int));
    message.files[i] = FileDescriptor(file);
  }
  if (count < message.files.size() &&
      (envelope.header.msg_flags & MSG_CTRUNC)) {
    errno = EMFILE; // the kernel left out descriptors of a complete message
    check_own(false, "recvmsg");
  }
  DDP_CHECK_WITH(
      DistNetworkError,
      count == message.files.size() &&
          length == static_cast<ssize_t>(sizeof(message.greeting)),
      "received a message of {} bytes, which no rank of this version sends",
      length);
  return message;
}

} // namespace ddp::backends::shm
