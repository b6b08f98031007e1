#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class Store;
} // namespace c10d

namespace ddp::backends {

/// How messages name the ranks of a group that is a part of a larger group.
struct RankNames {
  /// The size of the larger group.
  int size = 0;
  /// The ranks in the larger group.
  std::vector<int> ranks{};
};

/// The data with which a backend connects the ranks of a group.
struct BackendOptions {
  /// A store with the keys of this group only.
  c10::intrusive_ptr<c10d::Store> store;
  /// The group's name, the same on all ranks.
  std::string name;
  int rank = 0;
  int size = 1;
  /// If the ranks are empty, `rank` and `size` are also the names.
  RankNames names{};
  std::chrono::milliseconds timeout{};
  /// The address of this host that the other ranks can reach.
  std::string address;
  /// The network interface to use; if empty, the interface of `address`.
  std::string interface {};
};

} // namespace ddp::backends
