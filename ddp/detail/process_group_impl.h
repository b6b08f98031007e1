#pragma once

#include <ddp/process_group.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ddp {

struct ProcessGroup::Impl {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;
  int64_t local_size = 1;
  c10::Device device{c10::kCPU};
  std::string backend = "none";
  std::chrono::milliseconds timeout{};
  /// The address of this host that the other ranks can reach; empty for a
  /// group that was handed to us, which we cannot connect a second time.
  std::string address;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  /// Numbers the groups made from this one, alike on all ranks.
  int64_t children = 0;
  bool shut_down = false;
};

namespace detail {

/// Connects the ranks of `impl`, whose other members are filled in, and returns
/// when all of them are connected. Collective.
void connect(ProcessGroup::Impl& impl);

} // namespace detail
} // namespace ddp
