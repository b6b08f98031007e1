#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp {

/// Serves c10d's key-value store at a listening socket for as long as the
/// result lives. Throws c10::Error.
c10::intrusive_ptr<c10d::Store> serve_store(int listener);

/// As serve_store(), for the agents' shared log: with a nonce of its own.
c10::intrusive_ptr<c10d::Store> serve_log(int listener);

} // namespace ddp
