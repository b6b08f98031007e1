#pragma once

#include <common/file_descriptor.h>

namespace ddp {

/// The two ends of a pseudo-terminal: what a rank writes to the slave is read
/// from the master, unchanged.
struct PseudoTerminal {
  FileDescriptor master;
  FileDescriptor slave;
};

/// Opens a terminal for one stream of a rank, so that programs write each line
/// at once. As wide as ddprun's own where it has one. Close the slave once the
/// rank has it: the master then reads EIO when the rank is gone. Throws
/// std::system_error.
PseudoTerminal make_rank_pty();

} // namespace ddp
