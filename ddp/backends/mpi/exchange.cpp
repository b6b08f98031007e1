#include <ddp/backends/mpi/exchange.h>

namespace ddp::backends::mpi {

void exchange(
    const Channel& channel,
    Requests& requests,
    const std::vector<at::Tensor>& to_ranks,
    const std::vector<at::Tensor>& from_ranks) {
  const int size = channel.size;
  const int rank = channel.rank;
  const auto to = [&](int peer) {
    return bytes_of(to_ranks[to_ranks.size() == 1 ? 0 : peer]);
  };
  const bool own_is_there = to(rank).data == bytes_of(from_ranks[rank]).data;
  // Each begins at its own place, so that not all write to one rank at once.
  for (int i = own_is_there ? 1 : 0; i < size; ++i) {
    const int peer = (rank + size - i) % size;
    const auto bytes = bytes_of(from_ranks[peer]);
    if (bytes.size > 0) {
      requests.receive(bytes, peer, kExchangeTag, *channel.comm);
    }
  }
  for (int i = own_is_there ? 1 : 0; i < size; ++i) {
    const int peer = (rank + i) % size;
    const auto bytes = to(peer);
    if (bytes.size > 0) {
      requests.send(bytes, peer, kExchangeTag, *channel.comm);
    }
  }
}

} // namespace ddp::backends::mpi
