#pragma once

namespace ddp::backends::mpi {

/// The tags of messages: the last ones, of the 32768 that every MPI has, are
/// ours.
constexpr int kExchangeTag = 32767;
constexpr int kFirstReservedTag = 32766;

} // namespace ddp::backends::mpi
