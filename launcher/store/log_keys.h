#pragma once

#include <cstddef>

namespace ddp::log_keys {

// The keys of the shared log in its store.
constexpr char kNonce[] = "nonce"; // set before anything else
constexpr char kEntry[] = "log/"; // and a number from 0 on, without holes
constexpr char kBeat[] = "beat/"; // and a member: a counter

constexpr size_t kNonceSize = 32; // hex digits

} // namespace ddp::log_keys
