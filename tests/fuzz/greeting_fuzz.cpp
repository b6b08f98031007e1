// A message to rank 0's socket: what files it has, then the greeting.
#include <ddp/backends/shm/memory/memory.h>
#include <ddp/backends/shm/memory/unix_socket.h>
#include <ddp/internal/check.h>

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

using namespace ddp::backends::shm;

static void send(const std::string& name, std::string text, size_t files) {
  static const Memory memory(2);
  static const int others[] = {memfd_create("other", 0), STDERR_FILENO};
  const ddp::FileDescriptor own(socket(AF_UNIX, SOCK_SEQPACKET, 0));
  sockaddr_un address{AF_UNIX, {}};
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  connect(own.get(), reinterpret_cast<sockaddr*>(&address), length);
  iovec content{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))]{};
  msghdr header{nullptr, 0, &content, 1, control, sizeof(control), 0};
  auto* attached = CMSG_FIRSTHDR(&header);
  const auto count = files % 5;
  const int sent[] = {
      files / 5 % 2 ? memory.descriptor() : others[0], others[1], 2, 2};
  *attached = {CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  std::memcpy(CMSG_DATA(attached), sent, count * sizeof(int));
  header.msg_controllen = count ? CMSG_SPACE(count * sizeof(int)) : 0;
  sendmsg(own.get(), &header, 0);
}

static int lowest_free() {
  return ddp::FileDescriptor(dup(STDERR_FILENO)).get();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::string name;
  static const auto listener = UnixSocket::listen(name);
  static bool is_open = false; // the files of send()
  const int before = lowest_free();
  const size_t files = size ? *data : 0;
  send(name, {data + std::min<size_t>(size, 1), data + size}, files);
  const auto limit = UnixSocket::Clock::now() + std::chrono::seconds(1);
  try {
    const auto message = listener.accept(limit).receive(limit);
    Mapping(message.files[0].get());
  } catch (const c10::Error&) {
  }
  if (std::exchange(is_open, true) && lowest_free() != before) {
    std::abort(); // a descriptor is left open
  }
  return 0;
}
