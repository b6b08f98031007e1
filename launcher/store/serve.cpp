#include <launcher/store/serve.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <launcher/rendezvous/authentication.h>
#include <launcher/rendezvous/route.h>
#include <launcher/store/log_keys.h>

namespace ddp {

c10::intrusive_ptr<c10d::Store> serve_store(int listener) {
  const SocketAddress address = own_address(listener);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(address.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener;
  return c10::make_intrusive<c10d::TCPStore>(address.host, options);
}

c10::intrusive_ptr<c10d::Store> serve_log(int listener) {
  auto store = serve_store(listener);
  store->set(log_keys::kNonce, random_hex(log_keys::kNonceSize / 2));
  return store;
}

} // namespace ddp
