#pragma once

#include <common/file_descriptor.h>
#include <ddp/backends/shm/memory/memory.h>

#include <sys/types.h>

#include <memory>

namespace ddp::backends::shm {

/// Another rank, or this one.
struct Peer {
  pid_t pid = 0;
  /// Readable once its process has ended.
  FileDescriptor process;
  std::shared_ptr<const Mapping> memory;
};

} // namespace ddp::backends::shm
